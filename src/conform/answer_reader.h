// AnswerReader: one HTTP/1.1 answer from bytes as they arrive. No socket, no clock: tests cut it anywhere. One thread.
#pragma once

#include <string>
#include <string_view>

#include "conform/wire.h"

namespace barg::conform {

class AnswerReader {
 public:
  /// Fills `out`, which must outlive the reader. An answer to HEAD has no body.
  AnswerReader(Exchange& out, bool to_head) : out_(out), to_head_(to_head) {}

  /// Bytes that arrived `at` seconds after the request.
  void feed(std::string_view bytes, double at);
  /// The peer closed its side.
  void close();
  bool done() const { return part_ == Part::kDone; }

 private:
  enum class Part { kHead, kSized, kToClose, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone };

  void finish(Exchange::End end, std::string problem = {});
  void broken(std::string problem) { finish(Exchange::End::kBroken, std::move(problem)); }
  /// Each takes what it can from buffer_ at at_; false when it needs more bytes.
  bool step();
  bool take_head();
  bool take_line(std::string_view& line);
  bool take_chunk_size(std::string_view line);
  bool take_body();
  void read_head(std::string_view head);
  void read_field(std::string_view line);
  void choose_body();

  Exchange& out_;
  bool to_head_;
  Part part_ = Part::kHead;
  std::string buffer_;
  std::size_t at_ = 0;       // of buffer_: what is before it has been used
  std::size_t left_ = 0;     // of the body or of the chunk
  bool bad_length_ = false;  // two lengths that differ, or one that is no number
};

}  // namespace barg::conform
