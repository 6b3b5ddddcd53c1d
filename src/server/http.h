// The plain face of HTTP: what handlers see of a request and how they answer. No Boost here; http_server.cpp
// moves these between sockets and handlers.
//
// A request is answered exactly once: respond(), or begin_stream() write()* end(). A Responder that is
// dropped without an answer answers 500 by itself, so that no client waits for ever and every request is
// logged.
//
// Threads: post() from any thread (functions run in the order in which they were posted); everything else on the connection's io thread (where handle() is called
// and where posted functions run). After the client is gone every call is a harmless no-op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace barg::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string target;  ///< as sent
  std::string path;    ///< the target up to '?', not decoded; the path of an absolute-form target
  int minor = 1;       ///< HTTP/1.minor
  Headers headers;     ///< names in lower case, in the order sent
  std::string body;
  std::string id;    ///< X-Request-Id of the client if it is acceptable, else minted
  std::string peer;  ///< address:port
  std::optional<std::uint64_t> content_length;
  bool chunked = false;

  /// First value of a header (lower-case name), or nullptr.
  const std::string* header(std::string_view name) const;
  std::size_t header_count(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  std::string body;
  bool close = false;  ///< end the connection after this response
};

/// What the access line says beside the HTTP facts. Handlers fill it, the connection logs it at end of life.
struct AccessNote {
  std::string model;
  std::string finish_reason;
  std::string error_code;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::int32_t preemptions = 0;
  double queue_ms = -1, ttft_ms = -1;  ///< negative: unknown
};

/// One line of the access log.
struct AccessRecord {
  std::string request_id, peer, method;
  std::string route;         ///< a pattern of the route table, "-" if none matched
  int status = 0;            ///< 499: the client went away before a status was sent
  std::string cancel_cause;  ///< empty unless the exchange was cut short
  std::uint64_t bytes_in = 0, bytes_out = 0;
  double duration_s = 0;
  AccessNote note;
};

enum class Interrupt : std::uint8_t {
  kDisconnected,  // nobody listens any more: free everything
  kSlowClient,    // the reader took nothing for too long; the connection is closed
  kShutdown,      // the process ends: say so to the client now
};

class Responder {
 public:
  virtual ~Responder() = default;

  virtual void respond(HttpResponse response) = 0;
  /// Sends status and headers now. `keep_alive` (static lifetime; may be empty) is sent whenever the stream is silent
  /// for too long.
  virtual void begin_stream(HttpResponse head, std::string_view keep_alive) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end() = 0;
  virtual bool gone() const = 0;  ///< the client cannot be reached any more, or the answer is complete

  virtual AccessNote& note() = 0;
  /// Pattern of the route that serves the request.
  virtual void set_route(std::string_view pattern) = 0;
  /// Called at most once, on the io thread, never after the answer is complete. A kShutdown closes the connection when
  /// it returns, unless another callback was set meanwhile: the answer's last words are on their way then.
  virtual void on_interrupt(std::function<void(Interrupt)> callback) = 0;
  /// The reader is behind by more than kBehindBytes (true), has caught up (false), in turn. io thread.
  virtual void on_backlog(std::function<void(bool)> callback) = 0;
  virtual void post(std::move_only_function<void()> function) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// The head is complete, the body is not read yet: a response refuses the request. io thread.
  virtual std::optional<HttpResponse> check(const HttpRequest& head, std::string& route) = 0;
  /// The whole request. io thread: return within a millisecond.
  virtual void handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  /// A refusal by the HTTP layer itself (malformed, too large, too slow). `head`: null where none was read.
  virtual HttpResponse refusal(const HttpRequest* head, int status, std::string_view code,
                               std::string_view message) = 0;
  /// Exactly once per request, at its end of life. io thread.
  virtual void on_access(const AccessRecord& record) = 0;
};

/// "Not Found" for 404.
std::string_view reason_phrase(int status);

}  // namespace barg::server
