// What the answers of Chat Completions and Completions have in common: the frame of their events and documents.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/answer_writer.h"

namespace barg::server {

/// Chunks: {id, object, created, model, system_fingerprint, choices: [...], usage?}. Appended as text, for a tree would
/// cost more than everything else of a token. Pure; borrows the spec.
class ChunkFrame {
 public:
  ChunkFrame(const ResponseMeta& meta, const OutputSpec& spec, std::string_view object);

  /// {"index":N, inside "choices":[ : what follows begins with a comma.
  void open_choice(std::size_t index, std::string& out) const;
  /// "logprobs" (null where null), "finish_reason":null, "token_ids" where asked for, and the end of the event.
  void close_piece(const Json& logprobs, std::span<const OutToken> tokens, const UsageCounts& usage,
                   std::string& out) const;
  /// An event of one choice, as a tree.
  void write(const Json& choice, const UsageCounts& usage, std::string& out) const;
  /// Ends an event of one choice that was written as text, its closing brace included.
  void close(const UsageCounts& usage, std::string& out) const { close(usage, false, out); }
  /// The last events: the usage where it was asked for, and [DONE].
  void write_end(const UsageCounts& usage, std::string& out) const;

 private:
  void close(const UsageCounts& usage, bool with_usage, std::string& out) const;

  const OutputSpec& spec_;
  std::string prefix_;  ///< up to and including "choices":[
};

/// An error and [DONE], for a stream that cannot be completed.
void write_failure(const Error& error, std::string& out);

/// {"id":...,"choices":[ ... ],"usage":{...}, ...more}: choices are appended one at a time, for as a tree an answer
/// takes many times the memory of its text.
std::string document_begin(const ResponseMeta& meta, std::string_view object);
void document_end(const UsageCounts& usage, const Json& more, std::string& out);

/// What is known before the first token.
UsageCounts first_usage(const AnswerContext& context);
Json openai_usage(const UsageCounts& usage);
/// What ended a choice beside the model: a stop string, a stop id, or null.
Json stop_reason(const OutputSpec& spec, const ChoiceEnd& end);
Json ids_json(std::span<const OutToken> tokens);
Json ids_json(std::span<const TokenId> ids);

}  // namespace barg::server
