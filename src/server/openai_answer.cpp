#include "server/openai_answer.h"

#include <charconv>

#include "server/api_error.h"

namespace barg::server {
namespace {

Json head(const ResponseMeta& meta, std::string_view object) {
  return Json::object({{"id", meta.id},
                       {"object", object},
                       {"created", meta.created},
                       {"model", meta.model},
                       {"system_fingerprint", meta.fingerprint}});
}

/// An object's text up to its last member, and the begin of "choices".
std::string opened(const ResponseMeta& meta, std::string_view object) {
  std::string text = dump_json(head(meta, object));
  text.pop_back();
  return text + ",\"choices\":[";
}

}  // namespace

ChunkFrame::ChunkFrame(const ResponseMeta& meta, const OutputSpec& spec, std::string_view object)
    : spec_(spec), prefix_("data: " + opened(meta, object)) {}

void ChunkFrame::open_choice(std::size_t index, std::string& out) const {
  out += prefix_;
  out += "{\"index\":";
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, index).ptr);
}

/// usage: null on every event where a usage was asked for, as OpenAI does.
void ChunkFrame::close(const UsageCounts& usage, bool with_usage, std::string& out) const {
  out += ']';
  if (with_usage || spec_.continuous_usage) {
    out += ",\"usage\":";
    out += dump_json(openai_usage(usage));
  } else if (spec_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void ChunkFrame::close_piece(const Json& logprobs, std::span<const OutToken> tokens, const UsageCounts& usage,
                             std::string& out) const {
  out += ",\"logprobs\":";
  if (logprobs.is_null()) {
    out += "null";
  } else {
    out += dump_json(logprobs);
  }
  out += ",\"finish_reason\":null";
  if (spec_.return_token_ids) {
    out += ",\"token_ids\":";
    out += dump_json(ids_json(tokens));
  }
  out += '}';
  close(usage, false, out);
}

void ChunkFrame::write(const Json& choice, const UsageCounts& usage, std::string& out) const {
  out += prefix_;
  out += dump_json(choice);
  close(usage, false, out);
}

void ChunkFrame::write_end(const UsageCounts& usage, std::string& out) const {
  if (spec_.include_usage) {
    out += prefix_;
    close(usage, true, out);
  }
  out += "data: [DONE]\n\n";
}

void write_failure(const Error& error, std::string& out) {
  out += "data: ";
  out += dump_json(error_json(error));
  out += "\n\ndata: [DONE]\n\n";
}

std::string document_begin(const ResponseMeta& meta, std::string_view object) { return opened(meta, object); }

void document_end(const UsageCounts& usage, const Json& more, std::string& out) {
  out += "],";
  Json rest = Json::object({{"usage", openai_usage(usage)}});
  for (const auto& [name, value] : more.as_object()) rest.set(name, value);
  out.append(dump_json(rest), 1);
}

UsageCounts first_usage(const AnswerContext& context) {
  UsageCounts usage;
  for (const PromptInfo& prompt : context.prompts) usage.prompt += static_cast<std::int64_t>(prompt.ids.size());
  return usage;
}

Json openai_usage(const UsageCounts& usage) {
  const auto& [device, dram, disk, remote] = usage.by_place;
  const Json by_tier = Json::object({{"device", device}, {"dram", dram}, {"disk", disk}, {"remote", remote}});
  return Json::object({{"prompt_tokens", usage.prompt},
                       {"completion_tokens", usage.output},
                       {"total_tokens", usage.prompt + usage.output},
                       {"prompt_tokens_details",
                        Json::object({{"cached_tokens", usage.cached}, {"cached_tokens_by_tier", by_tier}})},
                       {"completion_tokens_details", Json::object({{"reasoning_tokens", usage.reasoning}})}});
}

Json stop_reason(const OutputSpec& spec, const ChoiceEnd& end) {
  if (end.stop_string >= 0) return spec.stop[static_cast<std::size_t>(end.stop_string)];
  if (end.stop_id != kNoToken) return end.stop_id;
  return nullptr;
}

Json ids_json(std::span<const OutToken> tokens) {
  Json::Array out;
  for (const OutToken& t : tokens) out.emplace_back(t.id);
  return Json(std::move(out));
}

Json ids_json(std::span<const TokenId> ids) {
  Json::Array out;
  for (const TokenId id : ids) out.emplace_back(id);
  return Json(std::move(out));
}

}  // namespace barg::server
