// ResponseStream: the token events of one API request become the bytes of its answer, either server-sent
// events as they come or one JSON document at the end. Pure: no sockets, no engine, no clock.
//
// Invariants:
//  1. Streamed and unstreamed answers carry the same text, log-probabilities, token ids, finish reasons and
//     usage; both are written from the same pieces.
//  2. Every choice gets exactly one chunk with a finish_reason, "stop" or "length", never anything else. A
//  choice
//     that fails ends the whole answer with an error object instead.
//  3. Choice k of prompt p has index p * n + k. Nothing is shared between choices but the prompt.
//  4. JSON never holds NaN or infinities: log-probabilities are clipped at -9999.
//
// One request owns one; not thread-safe; the tokenizer outlives it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "base/json.h"
#include "server/choice_stream.h"
#include "server/http.h"
#include "server/openai_json.h"

namespace barg::server {

struct ResponseMeta {
  std::string id, model, fingerprint;
  std::int64_t created = 0;
};

/// A prompt as the answer may have to show it.
struct PromptInfo {
  std::vector<TokenId> ids;
  std::string text;                              ///< filled when echoed or when offsets are needed
  bool from_text = false;                        ///< the text came first: special tokens in it are visible
  bool added_front = false, added_back = false;  ///< BOS, EOS that are not in the text
};

class ResponseStream {
 public:
  ResponseStream(ResponseMeta meta, OutputSpec spec, std::int32_t n, std::vector<PromptInfo> prompts,
                 const Tokenizer& tokenizer);

  /// A choice reached a stop string: the engine must be told.
  struct FinishAt {
    std::size_t prompt;
    std::int32_t choice;
    std::int32_t tokens;
  };
  struct Step {
    std::vector<FinishAt> finish_at;
    std::optional<Error> error;  ///< a choice failed; nothing more will come
    bool complete = false;       ///< every choice has had its final event
  };

  /// The events that go out with the headers (stream only).
  std::string begin();
  /// Appends the events to send to `out`, when streaming.
  Step push(std::size_t prompt, TokenEvent&& event, std::string& out);
  /// The answer of an unstreamed request. REQUIRES complete.
  std::string body() const;
  /// How a stream ends that cannot be completed.
  static std::string error_events(const Error& error);
  void fill(AccessNote& note) const;

 private:
  struct Choice {
    ChoiceStream stream;
    std::string text;  ///< unstreamed only, like the next
    std::vector<OutToken> tokens;
    bool final_event = false;
    std::vector<TokenEvent> waiting;  ///< until the prompt's log-probabilities are here
  };
  struct Prompt {
    PromptInfo info;
    std::vector<TokenLogprobs> logprobs;
    bool shown = false;  ///< nothing (more) has to be sent before the first token
  };

  void take(std::size_t index, TokenEvent&& event, Step& step, std::string& out);
  void show_prompt(std::size_t prompt, Step& step, std::string& out);
  void end_if_complete(Step& step, std::string& out);
  void write_event(const Json& choice, bool with_usage, std::string& out) const;
  void write_piece(std::size_t index, std::string_view text, const Json& logprobs,
                   std::span<const OutToken> tokens, std::string& out) const;
  void write_end(bool with_usage, std::string& out) const;
  Json piece_logprobs(const Piece& piece) const;
  Json finish_choice(std::size_t index) const;
  Json whole_choice(std::size_t index) const;
  Json usage() const;

  const ResponseMeta meta_;
  const OutputSpec spec_;
  const std::int32_t n_;
  const Tokenizer& tokenizer_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;
  std::string prefix_;  ///< of every event, up to and including "choices":[
  std::size_t finals_ = 0;
  bool failed_ = false, complete_ = false;
  std::int64_t cached_tokens_ = 0;
  std::array<std::int64_t, 4> cached_by_place_{};  ///< of these: device, DRAM, disk, remote pool
  std::int32_t preemptions_ = 0;
  double queue_s_ = -1, ttft_s_ = -1;
};

}  // namespace barg::server
