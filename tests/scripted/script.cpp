#include "scripted/script.h"

#include <optional>
#include <utility>

#include "base/json.h"

namespace barg::test {
namespace {

constexpr std::string_view kMarker = "[[script ", kMarkerEnd = "]]", kDefault = "default";

/// Each character by itself, so that no literal of an added token is ever whole.
void encode_plain(std::string_view text, const Tokenizer& tokenizer, std::vector<TokenId>& out) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const auto ids = tokenizer.encode(text.substr(begin, end - begin),
                                      {.add_special_tokens = false, .parse_special_tokens = false});
    out.insert(out.end(), ids.begin(), ids.end());
    begin = end;
  }
}

Result<TokenId> token_of(const Json& name, const Tokenizer& tokenizer) {
  const auto id = name.is_string() ? tokenizer.find(name.as_string()) : std::nullopt;
  if (id) return *id;
  return fail(ErrorCode::kInvalidValue, "the tokenizer has no token " + dump_json(name));
}

Result<TokenId> byte_token(const Json& byte, const Tokenizer& tokenizer) {
  if (byte.type() == Json::Type::kInt) {
    const std::string bytes(1, static_cast<char>(byte.as_int()));
    for (TokenId id = 0; id < tokenizer.size(); ++id) {
      if (tokenizer.token_bytes(id) == bytes) return id;
    }
  }
  return fail(ErrorCode::kInvalidValue, "the tokenizer has no token of the byte " + dump_json(byte));
}

Result<void> add_piece(const Json& piece, const Tokenizer& tokenizer, std::vector<TokenId>& out) {
  if (piece.is_string()) {
    const auto ids =
        tokenizer.encode(piece.as_string(), {.add_special_tokens = false, .parse_special_tokens = true});
    out.insert(out.end(), ids.begin(), ids.end());
    return {};
  }
  if (const Json* plain = piece.find("plain"); plain && plain->is_string()) {
    encode_plain(plain->as_string(), tokenizer, out);
    return {};
  }
  const Json* token = piece.find("token");
  const Json* byte = piece.find("byte");
  if (!token && !byte)
    return fail(ErrorCode::kInvalidValue, "a piece is text or {token, plain or byte: value}");
  const Result<TokenId> id = token ? token_of(*token, tokenizer) : byte_token(*byte, tokenizer);
  if (!id) return std::unexpected(id.error());
  out.push_back(*id);
  return {};
}

Result<std::vector<TokenId>> encode_pieces(const Json& pieces, const Tokenizer& tokenizer) {
  if (!pieces.is_array()) return fail(ErrorCode::kInvalidValue, "pieces are a list");
  std::vector<TokenId> out;
  for (const Json& piece : pieces.as_array()) {
    if (auto ok = add_piece(piece, tokenizer, out); !ok) return std::unexpected(ok.error());
  }
  return out;
}

Result<void> read_choices(const Json& json, const Tokenizer& tokenizer, Script& out) {
  const Json* pieces = json.find("pieces");
  const Json* choices = json.find("choices");
  if ((pieces != nullptr) == (choices != nullptr) ||
      (choices && (!choices->is_array() || choices->size() == 0)))
    return fail(ErrorCode::kInvalidValue, "a script has pieces, or choices");
  const Json::Array all = pieces ? Json::Array{*pieces} : choices->as_array();
  for (const Json& choice : all) {
    auto ids = encode_pieces(choice, tokenizer);
    if (!ids) return std::unexpected(ids.error());
    out.choices.push_back(std::move(*ids));
  }
  return {};
}

Result<Script> read_script(const Json& json, const Tokenizer& tokenizer) {
  Script out;
  out.end = tokenizer.eos().value_or(kNoToken);
  if (json.is_string()) {
    auto ids = encode_pieces(Json(Json::Array{json}), tokenizer);
    if (!ids) return std::unexpected(ids.error());
    out.choices.push_back(std::move(*ids));
    return out;
  }
  if (auto ok = read_choices(json, tokenizer, out); !ok) return std::unexpected(ok.error());
  if (const Json* end = json.find("end")) {
    const Result<TokenId> id = end->is_null() ? Result<TokenId>(kNoToken) : token_of(*end, tokenizer);
    if (!id) return std::unexpected(id.error());
    out.end = *id;
  }
  const auto number = [&](std::string_view key, double otherwise) {
    const Json* value = json.find(key);
    return value && value->is_number() ? value->as_double() : otherwise;
  };
  out.delay_s = number("delay_ms", 0) / 1000;
  out.first_delay_s = number("first_delay_ms", 0) / 1000;
  out.fail_after = static_cast<std::int32_t>(number("fail_after", -1));
  return out;
}

}  // namespace

Result<std::shared_ptr<const Scripts>> Scripts::read(std::string_view json,
                                                     std::shared_ptr<const Tokenizer> tokenizer) {
  auto parsed = parse_json(json, {.max_members = 0});
  if (!parsed) return std::unexpected(parsed.error());
  if (!parsed->is_object()) return fail(ErrorCode::kBadFile, "the scripts are one JSON object");
  auto out = std::make_shared<Scripts>();
  out->tokenizer_ = std::move(tokenizer);
  for (const auto& [name, value] : parsed->as_object()) {
    auto script = read_script(value, *out->tokenizer_);
    if (!script) {
      script.error().message = "script " + json_quote(name) + ": " + script.error().message;
      return std::unexpected(script.error());
    }
    out->scripts_.emplace(name, std::move(*script));
  }
  if (!out->scripts_.contains(kDefault))
    out->scripts_.emplace(kDefault, read_script(Json("Barg is a leaf."), *out->tokenizer_).value());
  return out;
}

const Script& Scripts::of_prompt(std::span<const TokenId> prompt) const {
  const std::string text = tokenizer_->decode({prompt.begin(), prompt.end()}, false);
  std::string_view name = kDefault;
  const std::size_t at = text.rfind(kMarker);
  const std::size_t end = at == text.npos ? at : text.find(kMarkerEnd, at);
  if (end != text.npos) name = std::string_view(text).substr(at + kMarker.size(), end - at - kMarker.size());
  const auto found = scripts_.find(name);
  return found != scripts_.end() ? found->second : scripts_.find(kDefault)->second;
}

}  // namespace barg::test
