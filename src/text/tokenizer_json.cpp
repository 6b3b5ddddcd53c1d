// tokenizer.json as a whole, and tokenizer_config.json.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <utility>

namespace barg::text {
namespace {

using std::string;
using std::string_view;

constexpr std::size_t kMaxAround = 64;  // tokens that a template puts around the text

// ---- added_tokens

Result<void> read_added(const Json* j, TokenizerSpec& spec) {
  const string field = "added_tokens";
  if (!j) return {};
  if (!j->is_array()) return bad_json(field, "is not a list");
  for (const Json& t : j->as_array()) {
    const auto id = id_of(member(t, "id"), field + ".id");
    if (!id) return std::unexpected(id.error());
    AddedToken token{.id = *id,
                     .content = string(text_of(t, "content")),
                     .single_word = flag_of(t, "single_word", false),
                     .lstrip = flag_of(t, "lstrip", false),
                     .rstrip = flag_of(t, "rstrip", false),
                     .normalized = flag_of(t, "normalized", false),
                     .special = flag_of(t, "special", false)};
    if (token.content.empty()) continue;
    // A normalizer can make a text longer.
    const std::size_t size =
        token.normalized ? normalized(spec.normalizer.get(), token.content).size() : token.content.size();
    if (std::max(size, token.content.size()) > kMaxLiteralBytes) {
      return bad_json(field, "has a literal above 4096 bytes");
    }
    spec.literal_bytes += std::max(size, token.content.size());
    if (spec.literal_bytes > kMaxAllLiteralBytes) return bad_json(field, "has literals of more than 16 MiB in all");
    if (token.special) spec.controls.push_back(token.id);
    spec.size = std::max(spec.size, token.id + 1);
    spec.added.push_back(std::move(token));
  }
  return {};
}

// ---- post_processor

Result<void> read_template(const Json& j, const string& field, TokenizerSpec& spec) {
  const Json* single = member(j, "single");
  const Json* specials = member(j, "special_tokens");
  if (!single || !single->is_array()) return bad_json(field + ".single", "is not a list");
  if (single->size() > kMaxAround) return bad_json(field + ".single", "has more than 64 items");
  bool seen = false;
  for (const Json& item : single->as_array()) {
    if (const Json* sequence = member(item, "Sequence")) {
      if (seen || text_of(*sequence, "id") != "A") return unsupported_json(field + ".single", "more than one sequence");
      seen = true;
      continue;
    }
    const Json* token = member(item, "SpecialToken");
    if (!token) return bad_json(field + ".single", "has an item that is neither Sequence nor SpecialToken");
    const Json* entry = specials ? member(*specials, text_of(*token, "id")) : nullptr;
    const Json* ids = entry ? member(*entry, "ids") : nullptr;
    if (!ids || !ids->is_array()) return bad_json(field + ".special_tokens", "lacks a token that `single` names");
    if (ids->size() > kMaxAround) return bad_json(field + ".special_tokens", "has more than 64 ids for one token");
    for (const Json& value : ids->as_array()) {
      const auto id = id_of(&value, field + ".special_tokens.ids");
      if (!id) return std::unexpected(id.error());
      (seen ? spec.suffix : spec.prefix).push_back(*id);
    }
  }
  return {};
}

// BertProcessing and RobertaProcessing: "cls" and "sep" are pairs of a token and its id.
Result<void> read_pair(const Json& j, const string& field, TokenizerSpec& spec) {
  for (const char* key : {"cls", "sep"}) {
    const Json* pair = member(j, key);
    if (!pair || !pair->is_array() || pair->size() != 2) return bad_json(field + "." + key, "is not [token, id]");
    const auto id = id_of(&pair->as_array()[1], field + "." + key);
    if (!id) return std::unexpected(id.error());
    (key[0] == 'c' ? spec.prefix : spec.suffix).push_back(*id);
  }
  return {};
}

// `around`: one that puts tokens around the text has been read; a second would put more around those.
Result<void> read_processor(const Json& j, const string& field, bool& around, TokenizerSpec& spec) {
  const string_view type = text_of(j, "type");
  if (type == "ByteLevel") return {};  // offsets only
  const bool paired = type == "BertProcessing" || type == "RobertaProcessing";
  if ((type != "TemplateProcessing" && !paired) || around) return unsupported_json(field + ".type", type);
  around = true;
  return paired ? read_pair(j, field, spec) : read_template(j, field, spec);
}

Result<void> read_post_processor(const Json* j, TokenizerSpec& spec) {
  const string field = "post_processor";
  if (!j) return {};
  bool around = false;
  const Json* list = member(*j, "processors");
  if (text_of(*j, "type") != "Sequence" || !list || !list->is_array()) return read_processor(*j, field, around, spec);
  for (const Json& part : list->as_array()) {
    if (auto r = read_processor(part, field + ".processors", around, spec); !r) return r;
  }
  return {};
}

// ---- tokenizer_config.json

// "bos_token" and relatives are a string or {"content": string}.
string_view role_text(const Json& config, string_view role) {
  const Json* m = member(config, role);
  if (!m) return {};
  if (m->is_string()) return m->as_string();
  return text_of(*m, "content");
}

// transformers rebuilds the post-processor of these classes from add_bos_token and add_eos_token.
bool template_from_config(string_view tokenizer_class) {
  for (const char* prefix : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"}) {
    if (tokenizer_class.starts_with(prefix)) return true;
  }
  return false;
}

// Added tokens hide those of the model.
std::optional<TokenId> find_token(const TokenizerSpec& spec, string_view text) {
  for (const AddedToken& t : spec.added) {
    if (t.content == text) return t.id;
  }
  return spec.vocab->find(text);
}

bool has_token(const TokenizerSpec& spec, TokenId id) {
  return spec.vocab->has(id) || std::ranges::any_of(spec.added, [&](const AddedToken& t) { return t.id == id; });
}

Result<void> read_config(const VocabData& v, TokenizerSpec& spec) {
  if (v.tokenizer_config_json.empty()) return {};
  const auto parsed = parse_json(v.tokenizer_config_json, {.max_members = 0, .reject_duplicate_keys = false});
  if (!parsed) return fail(ErrorCode::kBadFile, "tokenizer_config.json: " + parsed.error().message);
  const Json& config = *parsed;
  for (const char* role : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token",
                           "mask_token", "eot_token", "eom_token"}) {
    const string_view text = role_text(config, role);
    if (!text.empty()) spec.roles.emplace_back(role, text);
  }
  const string_view bos = role_text(config, "bos_token"), eos = role_text(config, "eos_token");
  if (!bos.empty()) spec.bos = find_token(spec, bos);
  if (!eos.empty()) spec.eos = find_token(spec, eos);
  const Json* add_bos = member(config, "add_bos_token");
  const Json* add_eos = member(config, "add_eos_token");
  if (!template_from_config(text_of(config, "tokenizer_class")) || (!add_bos && !add_eos)) return {};
  if (add_bos && add_bos->is_bool()) {
    spec.prefix.clear();
    if (add_bos->as_bool() && spec.bos) spec.prefix.push_back(*spec.bos);
  }
  if (add_eos && add_eos->is_bool()) {
    spec.suffix.clear();
    if (add_eos->as_bool() && spec.eos) spec.suffix.push_back(*spec.eos);
  }
  return {};
}

Result<void> check_ids(const TokenizerSpec& spec) {
  for (const auto* list : {&spec.prefix, &spec.suffix}) {
    for (const TokenId id : *list) {
      if (!has_token(spec, id)) return bad_json("post_processor", "adds id " + std::to_string(id) + ", which has no token");
    }
  }
  return {};
}

}  // namespace

Result<TokenId> id_of(const Json* j, const string& field) {
  if (!j || !j->is_integer() || j->type() == Json::Type::kUint || j->as_int() < 0 || j->as_int() >= kMaxTokens) {
    return bad_json(field, "is not a token id from 0 to " + std::to_string(kMaxTokens - 1));
  }
  return static_cast<TokenId>(j->as_int());
}

Result<TokenizerSpec> read_tokenizer_json(const VocabData& v) {
  const auto parsed = parse_json(v.tokenizer_json, {.max_members = 0, .reject_duplicate_keys = false});
  if (!parsed) return fail(ErrorCode::kBadFile, "tokenizer.json: " + parsed.error().message);
  const Json& file = *parsed;
  if (!file.is_object()) return fail(ErrorCode::kBadFile, "tokenizer.json: not an object");
  TokenizerSpec spec;
  const Json* model = member(file, "model");
  if (!model) return bad_json("model", "is missing");
  spec.vocab = std::make_shared<Vocab>(ends_byte_level(member(file, "pre_tokenizer")) && may_be_bytes(*model));
  // What decides about support comes first: the reason shown is then the most useful one.
  if (auto r = read_model(model, spec); !r) return std::unexpected(r.error());
  if (auto r = read_normalizer(member(file, "normalizer"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_pre_tokenizer(member(file, "pre_tokenizer"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_added(member(file, "added_tokens"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_post_processor(member(file, "post_processor"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_decoder(member(file, "decoder"), spec); !r) return std::unexpected(r.error());
  spec.size = std::max(spec.size, spec.vocab->size());
  if (auto r = read_config(v, spec); !r) return std::unexpected(r.error());
  if (auto r = check_ids(spec); !r) return std::unexpected(r.error());
  const auto known = [&](std::optional<TokenId> id) { return id && has_token(spec, *id) ? id : std::nullopt; };
  if (!spec.bos) spec.bos = known(v.bos);
  if (!spec.eos) spec.eos = known(v.eos);
  return spec;
}

}  // namespace barg::text
