// ResponseStream: the token events of one API request become the bytes of its answer, either server-sent events as
// they come or one JSON document at the end. It knows choices, waiting prompts, counts and ends; what bytes are
// written is the protocol's AnswerWriter. Pure: no sockets, no engine, no clock.
//
// Invariants:
//  1. Streamed and unstreamed answers are written from the same calls (answer_writer.h).
//  2. Every choice is finished exactly once, as kStop or kLength. A choice that fails ends the whole answer with an
//     error instead.
//  3. Choice k of prompt p has index p * n + k. Nothing is shared between choices but the prompt and the tools.
//
// One request owns one; not thread-safe; the tokenizer outlives it. It stays where it was made (its writer borrows).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "server/answer_writer.h"
#include "server/choice_stream.h"
#include "server/http.h"
#include "server/openai_json.h"

namespace barg::server {

class ResponseStream {
 public:
  /// `dialect` may be null: everything is text.
  ResponseStream(ResponseMeta meta, OutputSpec spec, std::int32_t n, std::vector<PromptInfo> prompts,
                 const Tokenizer& tokenizer, std::shared_ptr<const text::BoundDialect> dialect = {});
  ResponseStream(const ResponseStream&) = delete;
  ResponseStream& operator=(const ResponseStream&) = delete;

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
  std::string body();
  /// How a stream ends that cannot be completed.
  std::string error_events(const Error& error);
  void fill(AccessNote& note) const;
  const UsageCounts& usage() const { return usage_; }

 private:
  struct Choice {
    ChoiceStream stream;
    bool final_event = false;
    std::vector<TokenEvent> waiting;  ///< until the prompt's log-probabilities are here
  };
  struct Prompt {
    std::vector<TokenLogprobs> logprobs;
    bool wanted = false;  ///< the answer shows them
    bool shown = false;   ///< nothing (more) has to be said before the first token
  };

  void take(std::size_t index, TokenEvent&& event, Step& step, std::string& out);
  void take_stats(const TokenEvent& event);
  void write(std::size_t index, Piece& piece, std::string& out);
  void show_prompt(std::size_t prompt, Step& step, std::string& out);
  void end_if_complete(Step& step, std::string& out);

  const OutputSpec spec_;
  const std::int32_t n_;
  const std::string model_;
  std::vector<PromptInfo> infos_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;
  std::unique_ptr<AnswerWriter> writer_;
  UsageCounts usage_;
  std::size_t finals_ = 0;
  bool failed_ = false, complete_ = false;
  std::int32_t preemptions_ = 0;
  double queue_s_ = -1, ttft_s_ = -1;
};

}  // namespace barg::server
