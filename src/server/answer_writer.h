// AnswerWriter: the events of one request become the bytes of its answer in one protocol. Translators only
// translate: counting, stop strings, dialects and engine events are ResponseStream's.
//
// Streamed and unstreamed answers are written from the same calls, in the same order:
//   begin, (prompt)?, { push | finish_choice }*, end       then body() where the answer is not streamed
// or, where an answer that has begun cannot be completed, fail() in place of the rest. Every choice is finished
// exactly once; nothing of it follows. When streaming, what a call appends to `out` is sent at once; otherwise `out`
// is ignored and writers keep what body() needs.
//
// Pure: no sockets, no engine, no clock. One request owns one; not thread-safe; what AnswerContext borrows outlives it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "barg/request.h"
#include "barg/tokenizer.h"
#include "server/choice_stream.h"
#include "server/openai_json.h"

namespace barg::server {

struct ResponseMeta {
  std::string id, model, fingerprint;
  std::int64_t created = 0;  ///< unix seconds
};

/// A prompt as the answer may have to show it.
struct PromptInfo {
  std::vector<TokenId> ids;
  std::string text;                              ///< filled when echoed or when offsets are needed
  bool from_text = false;                        ///< the text came first: special tokens in it are visible
  bool added_front = false, added_back = false;  ///< BOS, EOS that are not in the text
  bool inside_reasoning = false;                 ///< it ends inside an open reasoning block
};

/// Prompts count once whatever n is; every counted output token is billed, the one that stopped included.
struct UsageCounts {
  std::int64_t prompt = 0, output = 0;
  std::int64_t cached = 0;                   ///< of `prompt`
  std::array<std::int64_t, 4> by_place{};    ///< of `cached`: device, DRAM, disk, remote pool
  std::int64_t reasoning = 0;                ///< of `output`
  double seconds = 0;                        ///< from the arrival of the first to the last token of all; 0: not known
};

struct ChoiceEnd {
  FinishReason finish = FinishReason::kStop;  ///< kStop or kLength
  int stop_string = -1;                       ///< index into OutputSpec::stop
  TokenId stop_id = kNoToken;                 ///< a stop id that is none of the model's own end tokens
  std::int32_t complete_calls = 0;            ///< tool calls
  std::string note;                           ///< why what looked like a call is text; empty: nothing to say
};

struct AnswerContext {
  ResponseMeta meta;
  const OutputSpec* spec;  ///< of ResponseStream
  std::int32_t n;
  std::span<const PromptInfo> prompts;
  const Tokenizer* tokenizer;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// Goes out with the headers.
  virtual void begin(std::string& out) = 0;
  /// The log-probabilities of a prompt are complete (entry 0 has no value). Before any push of its choices.
  virtual void prompt(std::size_t prompt, std::span<const TokenLogprobs> logprobs, std::string& out) = 0;
  /// REQUIRES !piece.empty(). May move from it. `usage`: as of now, for those who ask on every chunk.
  virtual void push(std::size_t choice, Piece& piece, const UsageCounts& usage, std::string& out) = 0;
  virtual void finish_choice(std::size_t choice, const ChoiceEnd& end, const UsageCounts& usage, std::string& out) = 0;
  virtual void end(const UsageCounts& usage, std::string& out) = 0;
  /// REQUIRES end() before. The whole answer of an unstreamed request.
  virtual std::string body() = 0;
  /// A stream that cannot be completed: its last bytes.
  virtual void fail(const Error& error, std::string& out) = 0;
};

}  // namespace barg::server
