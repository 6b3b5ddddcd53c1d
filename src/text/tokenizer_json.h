// What the readers of tokenizer.json share: errors that name the field, and members that may be absent.
//
//   tokenizer_json.cpp          the file, added_tokens, post_processor, tokenizer_config.json
//   tokenizer_json_model.cpp    model
//   tokenizer_json_steps.cpp    normalizer, pre_tokenizer
//   tokenizer_json_decoder.cpp  decoder
//
// Every type that is not supported is an error that names its field; nothing is skipped in silence but `truncation` and
// `padding`, which do not concern serving, `dropout`, which concerns training, and offsets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer_spec.h"

namespace barg::text {

inline std::unexpected<Error> bad_json(const std::string& field, const std::string& what) {
  return fail(ErrorCode::kBadFile, "tokenizer.json: " + field + " " + what, field);
}

inline std::unexpected<Error> unsupported_json(const std::string& field, std::string_view value) {
  return fail(ErrorCode::kUnsupported,
              "tokenizer.json: " + field + " \"" + std::string(value.substr(0, 64)) + "\" is not supported", field);
}

/// Absent and null are the same everywhere in these files.
inline const Json* member(const Json& j, std::string_view key) {
  const Json* m = j.find(key);
  return m && !m->is_null() ? m : nullptr;
}

inline std::string_view text_of(const Json& j, std::string_view key) {
  const Json* m = member(j, key);
  return m && m->is_string() ? std::string_view(m->as_string()) : std::string_view();
}

inline bool flag_of(const Json& j, std::string_view key, bool absent) {
  const Json* m = member(j, key);
  return m && m->is_bool() ? m->as_bool() : absent;
}

/// `absent` where there is none; nullopt for what is no number from 0 to 2^31 - 1.
inline std::optional<std::size_t> count_of(const Json& j, std::string_view key, std::size_t absent) {
  const Json* m = member(j, key);
  if (!m) return absent;
  if (m->type() != Json::Type::kInt || m->as_int() < 0 || m->as_int() > INT32_MAX) return std::nullopt;
  return static_cast<std::size_t>(m->as_int());
}

/// A token id. Failure: kBadFile.
Result<TokenId> id_of(const Json* j, const std::string& field);

/// Does `pre_tokenizer` end with ByteLevel?
bool ends_byte_level(const Json* pre_tokenizer);
/// Does BPE of this model work on bytes, given that pre-tokens end up as bytes?
bool may_be_bytes(const Json& model);

// Readers of one member each, which may be null. `spec.vocab` is there before them all.
Result<void> read_model(const Json* j, TokenizerSpec& spec);
Result<void> read_normalizer(const Json* j, TokenizerSpec& spec);
Result<void> read_pre_tokenizer(const Json* j, TokenizerSpec& spec);
Result<void> read_decoder(const Json* j, TokenizerSpec& spec);

/// {"Regex": ...} or {"String": ...}. Failure: kBadFile, kUnsupported.
Result<std::unique_ptr<Matcher>> read_pattern(const Json& j, const std::string& field);

}  // namespace barg::text
