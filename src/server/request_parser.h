// RequestParser: bytes of one HTTP/1.x request in, an HttpRequest out. Beast does the grammar and lives in
// request_parser.cpp alone; what Beast lets through and we do not (folded lines, bare LF, NUL, unequal or
// listed lengths, doubtful Host, huge chunk extensions) is refused here.
//
// Any fragmentation of the same bytes gives the same result. Memory: head limits, then at most `max_body`.
// One parser per request, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"

namespace barg::server {

class RequestParser {
 public:
  enum class State : std::uint8_t { kHead, kBody, kDone, kFailed };

  explicit RequestParser(std::uint64_t max_body);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// Takes bytes off the front of `in` (and erases them). Stops after the head, so that the caller may
  /// refuse, and after the request.
  State feed(std::string& in);
  State state() const { return state_; }
  /// Body bytes are counted but no longer kept.
  void discard_body();

  /// Complete head from kBody on; complete request at kDone.
  HttpRequest& request() { return request_; }
  bool keep_alive() const;
  bool expects_continue() const { return expects_continue_; }
  /// With kFailed: how to refuse (400, 413, 414, 417, 431, 501, 505) and one sentence.
  int status() const { return status_; }
  const std::string& reason() const { return reason_; }

 private:
  struct Impl;
  State feed_head(std::string& in);
  State feed_body(std::string& in);
  bool check_head_so_far(const std::string& in);
  bool check_fields();
  bool check_host();
  bool check_framing();
  State fail(int status, std::string reason);

  std::unique_ptr<Impl> impl_;
  State state_ = State::kHead;
  HttpRequest request_;
  std::size_t scanned_ = 0;   ///< head bytes already looked at
  std::size_t line_end_ = 0;  ///< just behind the request line, 0 = not seen yet
  bool expects_continue_ = false;
  int status_ = 0;
  std::string reason_;
};

}  // namespace barg::server
