// ServeAnswer reads one HTTP/1.1 answer, a stream of server-sent events, from the bytes of a socket: when each
// piece of text came, what the server says it counted, how the answer ended. One answer at a time, one thread.
//
// This is the hot path of the load generator, which shares its cores with the server it measures: an event is
// searched for the few keys that matter where it lies in the read buffer; only an event split between two reads
// is copied. What a server sends is bounded and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace barg::bench {

/// What one answer said. Stamps are in the unit of ServeAnswer::feed.
struct AnswerFacts {
  int status = 0;
  double retry_after_s = 0;
  bool got_bytes = false;
  std::int64_t done = 0;                 ///< [DONE], or the end of the body without one
  std::vector<std::int64_t> stamps;      ///< one a piece of text that is not empty
  std::vector<std::uint32_t> counted;    ///< tokens so far after each piece, where every event carries usage
  std::int64_t prompt_tokens = -1;       ///< -1: not said
  std::int64_t completion_tokens = -1;
  std::int64_t cached_tokens = -1;
  bool saw_done = false;
  bool saw_finish = false;
  std::string text;                      ///< of all pieces, still escaped as in JSON; only if wanted
  std::string error;                     ///< "bad_http", "bad_stream", "stream_error"; empty if none
  std::string detail;                    ///< one sentence of the server or of ours
};

class ServeAnswer {
 public:
  enum class State {
    kReading,
    kDone,    ///< the message is complete
    kBroken,  ///< facts().error says why; the connection is of no more use
  };

  /// Forgets the last answer. `expected_pieces` is reserved; `keep_text` for conversations.
  void begin(std::size_t expected_pieces, bool keep_text);
  /// Bytes that arrived at `now`. Bytes after the end of the message break it.
  State feed(std::string_view bytes, std::int64_t now);
  /// The peer closed its side: the end of a body without length, else the answer is cut short.
  State end(std::int64_t now);

  State state() const { return state_; }
  bool keep_alive() const { return keep_alive_; }
  AnswerFacts& facts() { return facts_; }
  const AnswerFacts& facts() const { return facts_; }

 private:
  enum class Part { kHead, kPlain, kChunkSize, kChunkData, kChunkEnd, kTrailer };

  State broken(const char* error, std::string detail);
  State finish(std::int64_t now);
  bool take_head(std::string_view head);
  void take_field(std::string_view line);
  /// Bytes of the body without framing.
  void take_body(std::string_view bytes, std::int64_t now);
  void take_line(std::string_view line, std::int64_t now);
  void take_event(std::string_view json, std::int64_t now);
  void take_usage(std::string_view json);
  void take_error_body();
  bool take_chunk_line(std::string_view line);

  AnswerFacts facts_;
  State state_ = State::kReading;
  Part part_ = Part::kHead;
  bool keep_text_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool has_length_ = false;
  bool event_stream_ = false;
  std::uint64_t left_ = 0;   // of the body or of the chunk
  std::string line_;         // a head or chunk size that is not complete yet
  std::string event_;        // a line of the event stream, likewise: chunks may end anywhere in it
  std::string error_body_;   // of an answer that is no event stream
};

/// The value of the string member `key` (with quotes: "\"text\"") anywhere in `json`, still escaped; the first
/// one that is not empty. A quote inside a JSON string is escaped, so a match is always a key.
std::string_view find_text_member(std::string_view json, std::string_view key);

}  // namespace barg::bench
