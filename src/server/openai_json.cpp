#include "server/openai_json.h"

#include "server/json_fields.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxIgnoredShown = 16;
constexpr std::size_t kMaxIgnoredNameBytes = 64;

using enum FieldType;

constexpr FieldSpec kModelRow[] = {
    {.name = "model", .type = kString, .about = "A name the server serves; the first model if absent.", .max = 4096},
};
constexpr FieldSpec kTokenizeRows[] = {
    kModelRow[0],
    {.name = "prompt", .type = kString, .about = "The text.", .required = true},
    {.name = "add_special_tokens", .type = kBool, .about = "Add BOS and EOS as the tokenizer does (the default)."},
};
constexpr FieldSpec kDetokenizeRows[] = {
    kModelRow[0],
    {.name = "tokens", .type = kTokenIds, .about = "The ids.", .required = true},
};

}  // namespace

std::span<const FieldSpec> tokenize_fields() { return kTokenizeRows; }
std::span<const FieldSpec> detokenize_fields() { return kDetokenizeRows; }

Result<std::optional<std::string>> parse_model_name(const Json& body) {
  Fields fields(body, kModelRow);
  auto name = fields.string("model");
  if (!fields.ok() && body.is_object() && body.find("model")->is_string()) {
    return fail(ErrorCode::kNotFound, "no model has such a long name", "model");
  }
  if (!fields.ok()) return std::unexpected(*fields.error());
  return name;
}

Result<TokenizeRequest> parse_tokenize_request(const Json& body) {
  Fields fields(body, kTokenizeRows);
  fields.get("model");
  TokenizeRequest request;
  if (const Json* prompt = fields.get("prompt"); !prompt) {
    fields.fail(ErrorCode::kMissingParameter, "prompt is missing", "prompt");
  }
  request.text = fields.string("prompt").value_or("");
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  if (!fields.ok()) return std::unexpected(*fields.error());
  return request;
}

Result<std::vector<TokenId>> parse_detokenize_request(const Json& body, std::int32_t vocab_size) {
  Fields fields(body, kDetokenizeRows);
  if (!fields.get("tokens")) fields.fail(ErrorCode::kMissingParameter, "tokens is missing", "tokens");
  auto ids = fields.token_ids("tokens", vocab_size);
  if (!fields.ok()) return std::unexpected(*fields.error());
  return ids;
}

std::string ignored_header(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kMaxIgnoredShown; ++i) {
    if (!out.empty()) out += ", ";
    for (const char c : names[i].substr(0, kMaxIgnoredNameBytes)) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         std::string_view("_.-[]").find(c) != std::string_view::npos;
      out += plain ? c : '?';
    }
  }
  if (names.size() > kMaxIgnoredShown) out += ", ...";
  return out;
}

}  // namespace barg::server
