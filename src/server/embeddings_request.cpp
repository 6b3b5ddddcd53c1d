#include "server/embeddings_request.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/request_rules.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr double kInt32Max = 2147483647;
constexpr std::string_view kFormats[] = {"float", "base64"};

constexpr FieldSpec kRows[] = {
    {.name = "input", .about = "A string, strings, token ids, or arrays of token ids; at most 2048 of them.", .required = true},
    {.name = "model", .type = kString, .about = "A name the server serves; the first model if absent.", .max = 4096},
    {.name = "encoding_format", .type = kString,
     .about = "float: arrays of numbers (the default); base64: of little-endian float32.", .values = kFormats},
    {.name = "dimensions", .type = kInteger,
     .about = "The first so many numbers, where the model's config.json says is_matryoshka; else its own size only.",
     .min = 1, .max = kInt32Max},
    {.name = "normalize", .type = kBool, .about = "Vectors of length 1; what the model's files say if absent."},
    {.name = "truncate_prompt_tokens", .type = kInteger,
     .about = "Cut longer inputs behind so many tokens, special ones counted; -1: the context length.", .min = -1,
     .max = kInt32Max},
    {.name = "add_special_tokens", .type = kBool, .about = "Add to texts what the tokenizer adds (the default)."},
    {.name = "priority", .type = kAny, .about = "interactive, standard, batch, or a number: lower is sooner."},
    {.name = "cache_salt", .type = kString, .about = "Prefixes are shared only among equal salts.", .max = 128},
    {.name = "cache_pin_s", .type = kNumber, .about = "Keep these inputs in the cache for so many seconds.", .min = 0,
     .max = 7 * 86'400},
    {.name = "strict_params", .type = kBool, .about = "Refuse fields that would be ignored."},
    {.name = "user", .type = kString, .about = "Ignored.", .max = 1024, .effect = kIgnored},
};

std::int32_t read_size(Fields& f, const EmbeddingInfo& model) {
  const auto asked = f.integer("dimensions");
  if (!asked || *asked == model.size) return model.size;
  const auto& sizes = model.sizes;
  const bool listed = sizes.empty() || std::find(sizes.begin(), sizes.end(), *asked) != sizes.end();
  if (model.matryoshka && *asked < model.size && listed) return static_cast<std::int32_t>(*asked);
  std::string known = std::to_string(model.size);
  if (model.matryoshka && sizes.empty()) known = "1 to " + known;
  for (const std::int32_t size : sizes) {
    if (size != model.size) known += ", " + std::to_string(size);
  }
  f.fail(ErrorCode::kInvalidValue,
         "dimensions must be " + known + " for this model" +
             (model.matryoshka ? "" : ": its files do not say that a part of its vectors can stand alone"),
         "dimensions");
  return model.size;
}

std::optional<std::int32_t> read_truncation(Fields& f, std::int32_t max_model_len) {
  const auto asked = f.integer("truncate_prompt_tokens");
  if (!asked) return std::nullopt;
  if (*asked == 0)
    f.fail(ErrorCode::kInvalidValue, "truncate_prompt_tokens must be -1 or at least 1", "truncate_prompt_tokens");
  return *asked < 0 ? max_model_len : static_cast<std::int32_t>(std::min<std::int64_t>(*asked, max_model_len));
}

}  // namespace

std::span<const FieldSpec> embeddings_fields() { return kRows; }

Result<EmbeddingsRequest> parse_embeddings_request(const Json& body, const EngineInfo& info) {
  Fields f(body, kRows);
  f.get("model");
  EmbeddingsRequest out;
  ApiRequest& common = out.common;
  common.prompts = read_inputs(f, "input", kMaxInputs, info.vocab_size);
  out.base64 = f.string("encoding_format").value_or("float") == "base64";
  out.size = read_size(f, info.embedding);
  out.normalise = f.boolean("normalize").value_or(info.embedding.normalise);
  out.truncate = read_truncation(f, info.max_model_len);
  common.add_special_tokens = f.boolean("add_special_tokens").value_or(true);
  read_identity(f, common);
  f.string("user");
  auto finished = finish_request(std::move(common), f);
  if (!finished) return std::unexpected(finished.error());
  common = std::move(*finished);
  return out;
}

}  // namespace barg::server
