// tokenizer.json (and tokenizer_config.json) of byte-level BPE models. Every type that is not supported is an
// error that names its field; nothing is skipped in silence but `truncation` and `padding`, which do not concern
// serving, and `dropout`, which concerns training.
#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

using std::string;
using std::string_view;

constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kMaxAround = 64;  // tokens that a template puts around the text

std::unexpected<Error> bad(const string& field, const string& what) {
  return fail(ErrorCode::kBadFile, "tokenizer.json: " + field + " " + what, field);
}

std::unexpected<Error> unsupported(const string& field, string_view value) {
  return fail(ErrorCode::kUnsupported,
              "tokenizer.json: " + field + " \"" + string(value.substr(0, 64)) + "\" is not supported", field);
}

// Absent and null are the same everywhere in these files.
const Json* member(const Json& j, string_view key) {
  const Json* m = j.find(key);
  return m && !m->is_null() ? m : nullptr;
}

string_view text_of(const Json& j, string_view key) {
  const Json* m = member(j, key);
  return m && m->is_string() ? string_view(m->as_string()) : string_view();
}

bool flag_of(const Json& j, string_view key, bool absent) {
  const Json* m = member(j, key);
  return m && m->is_bool() ? m->as_bool() : absent;
}

Result<TokenId> id_of(const Json* j, const string& field) {
  if (!j || !j->is_integer() || j->type() == Json::Type::kUint || j->as_int() < 0 || j->as_int() >= kMaxTokens) {
    return bad(field, "is not a token id from 0 to " + std::to_string(kMaxTokens - 1));
  }
  return static_cast<TokenId>(j->as_int());
}

// ---- normalizer

Result<void> read_normalizer(const Json* j, const string& field, TokenizerSpec& spec) {
  if (!j) return {};
  const string_view type = text_of(*j, "type");
  if (type == "NFC") {
    spec.nfc = true;
    return {};
  }
  const Json* list = member(*j, "normalizers");
  if (type != "Sequence" || !list || !list->is_array()) return unsupported(field + ".type", type);
  for (const Json& part : list->as_array()) {
    const string_view inner = text_of(part, "type");
    if (inner != "NFC") return unsupported(field + ".normalizers.type", inner);
    spec.nfc = true;
  }
  return {};
}

// ---- pre_tokenizer

Result<void> add_pattern(TokenizerSpec& spec, string_view pattern, SplitBehavior behavior, bool invert,
                         const string& field) {
  auto step = SplitStep::from_pattern(pattern, behavior, invert);
  if (!step) return fail(step.error().code, "tokenizer.json: " + field + ": " + step.error().message, field);
  spec.steps.push_back({std::move(*step)});
  return {};
}

Result<void> read_split(const Json& j, const string& field, TokenizerSpec& spec) {
  static constexpr std::array<std::pair<string_view, SplitBehavior>, 5> kBehaviors = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  const string_view name = text_of(j, "behavior");
  const auto* behavior = std::find_if(kBehaviors.begin(), kBehaviors.end(), [&](auto& b) { return b.first == name; });
  if (behavior == kBehaviors.end()) return unsupported(field + ".behavior", name);
  const bool invert = flag_of(j, "invert", false);
  const Json* pattern = member(j, "pattern");
  const Json* regex = pattern ? member(*pattern, "Regex") : nullptr;
  const Json* literal = pattern ? member(*pattern, "String") : nullptr;
  if (regex && regex->is_string()) {
    return add_pattern(spec, regex->as_string(), behavior->second, invert, field + ".pattern.Regex");
  }
  if (!literal || !literal->is_string()) return bad(field + ".pattern", "is neither {\"Regex\"} nor {\"String\"}");
  spec.steps.push_back({SplitStep(literal_matcher(literal->as_string()), behavior->second, invert)});
  return {};
}

// Sets `byte_level` when the text has become bytes; nothing may follow then.
Result<void> read_step(const Json& j, const string& field, TokenizerSpec& spec, bool& byte_level) {
  const string_view type = text_of(j, "type");
  if (byte_level) return bad(field, "follows ByteLevel, which must be the last pre-tokenizer");
  if (spec.steps.size() >= kMaxSteps) return bad(field, "is one pre-tokenizer too many");
  if (type == "Split") return read_split(j, field, spec);
  if (type == "Digits") {
    const bool single = flag_of(j, "individual_digits", false);
    spec.steps.push_back(
        {SplitStep(digit_matcher(), single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false)});
    return {};
  }
  if (type != "ByteLevel") return unsupported(field + ".type", type);
  byte_level = true;
  if (flag_of(j, "add_prefix_space", true)) spec.steps.push_back({std::nullopt});
  if (!flag_of(j, "use_regex", true)) return {};
  return add_pattern(spec, patterns::kGpt2, SplitBehavior::kIsolated, false, field);
}

Result<void> read_pre_tokenizer(const Json* j, TokenizerSpec& spec) {
  const string field = "pre_tokenizer";
  bool byte_level = false;
  if (j && text_of(*j, "type") == "Sequence") {
    const Json* list = member(*j, "pretokenizers");
    if (!list || !list->is_array()) return bad(field + ".pretokenizers", "is missing");
    for (std::size_t i = 0; i < list->size(); ++i) {
      const string part = field + ".pretokenizers[" + std::to_string(i) + "]";
      if (auto r = read_step(list->as_array()[i], part, spec, byte_level); !r) return r;
    }
  } else if (j) {
    if (auto r = read_step(*j, field, spec, byte_level); !r) return r;
  }
  if (!byte_level) {
    return fail(ErrorCode::kUnsupported, "tokenizer.json: pre_tokenizer without ByteLevel is not supported", field);
  }
  return {};
}

// ---- model

Result<void> read_vocab(const Json* j, TokenizerSpec& spec) {
  if (!j || !j->is_object()) return bad("model.vocab", "is not an object");
  for (const auto& [spelling, value] : j->as_object()) {
    const auto id = id_of(&value, "model.vocab");
    if (!id) return std::unexpected(id.error());
    if (spec.vocab->has(*id)) return bad("model.vocab", "has id " + std::to_string(*id) + " twice");
    spec.vocab->add(*id, spelling);
  }
  return {};
}

Result<void> read_merges(const Json* j, TokenizerSpec& spec) {
  const string field = "model.merges";
  if (!j || !j->is_array()) return bad(field, "is not a list");
  spec.merges.reserve(j->size());
  for (const Json& m : j->as_array()) {
    string_view left, right;
    if (m.is_string()) {
      const string_view line = m.as_string();
      const std::size_t space = line.find(' ');
      if (space == string_view::npos || line.find(' ', space + 1) != string_view::npos) {
        return bad(field, "entry " + std::to_string(spec.merges.size()) + " is not two tokens with a space between");
      }
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (m.is_array() && m.size() == 2 && m.as_array()[0].is_string() && m.as_array()[1].is_string()) {
      left = m.as_array()[0].as_string();
      right = m.as_array()[1].as_string();
    } else {
      return bad(field, "entry " + std::to_string(spec.merges.size()) + " is neither a string nor a pair");
    }
    const auto a = spec.vocab->find(left), b = spec.vocab->find(right);
    const auto joined = a && b ? spec.vocab->find(string(left) + string(right)) : std::nullopt;
    if (!joined) return bad(field, "entry " + std::to_string(spec.merges.size()) + " is not made of known tokens");
    spec.merges.push_back({*a, *b, *joined});
  }
  return {};
}

Result<void> read_model(const Json* j, TokenizerSpec& spec) {
  if (!j) return bad("model", "is missing");
  // The oldest files have no type; only BPE has merges.
  const string_view type = text_of(*j, "type");
  if (type != "BPE" && !(type.empty() && member(*j, "merges"))) return unsupported("model.type", type);
  if (flag_of(*j, "byte_fallback", false)) return unsupported("model.byte_fallback", "true");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_of(*j, key).empty()) return unsupported(string("model.") + key, text_of(*j, key));
  }
  if (auto r = read_vocab(member(*j, "vocab"), spec); !r) return r;
  if (auto r = read_merges(member(*j, "merges"), spec); !r) return r;
  spec.bpe.ignore_merges = flag_of(*j, "ignore_merges", false);
  spec.bpe.fuse_unk = flag_of(*j, "fuse_unk", false);
  if (const string_view unk = text_of(*j, "unk_token"); !unk.empty()) {
    const auto id = spec.vocab->find(unk);
    if (!id) return bad("model.unk_token", "is not in the vocabulary");
    spec.bpe.unk = *id;
  }
  return {};
}

// ---- added_tokens

Result<void> read_added(const Json* j, TokenizerSpec& spec) {
  const string field = "added_tokens";
  if (!j) return {};
  if (!j->is_array()) return bad(field, "is not a list");
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
    // NFC can make a text longer, up to three times.
    const std::size_t size =
        token.normalized && spec.nfc ? to_nfc(token.content).size() : token.content.size();
    if (std::max(size, token.content.size()) > kMaxLiteralBytes) {
      return bad(field, "has a literal above 4096 bytes");
    }
    if (token.special) spec.bpe.never_whole.push_back(token.id);
    spec.size = std::max(spec.size, token.id + 1);
    spec.added.push_back(std::move(token));
  }
  return {};
}

// ---- post_processor

Result<void> read_template(const Json& j, const string& field, TokenizerSpec& spec) {
  const Json* single = member(j, "single");
  const Json* specials = member(j, "special_tokens");
  if (!single || !single->is_array()) return bad(field + ".single", "is not a list");
  if (single->size() > kMaxAround) return bad(field + ".single", "has more than 64 items");
  bool seen = false;
  for (const Json& item : single->as_array()) {
    if (const Json* sequence = member(item, "Sequence")) {
      if (seen || text_of(*sequence, "id") != "A") return unsupported(field + ".single", "more than one sequence");
      seen = true;
      continue;
    }
    const Json* token = member(item, "SpecialToken");
    if (!token) return bad(field + ".single", "has an item that is neither Sequence nor SpecialToken");
    const Json* entry = specials ? member(*specials, text_of(*token, "id")) : nullptr;
    const Json* ids = entry ? member(*entry, "ids") : nullptr;
    if (!ids || !ids->is_array()) return bad(field + ".special_tokens", "lacks a token that `single` names");
    if (ids->size() > kMaxAround) return bad(field + ".special_tokens", "has more than 64 ids for one token");
    for (const Json& value : ids->as_array()) {
      const auto id = id_of(&value, field + ".special_tokens.ids");
      if (!id) return std::unexpected(id.error());
      (seen ? spec.suffix : spec.prefix).push_back(*id);
    }
  }
  return {};
}

Result<void> read_post_processor(const Json* j, TokenizerSpec& spec) {
  const string field = "post_processor";
  if (!j) return {};
  const string_view type = text_of(*j, "type");
  if (type == "ByteLevel") return {};  // offsets only
  if (type == "TemplateProcessing") return read_template(*j, field, spec);
  const Json* list = member(*j, "processors");
  if (type != "Sequence" || !list || !list->is_array()) return unsupported(field + ".type", type);
  bool templated = false;
  for (const Json& part : list->as_array()) {
    const string_view inner = text_of(part, "type");
    if (inner == "ByteLevel") continue;
    if (inner != "TemplateProcessing" || templated) return unsupported(field + ".processors.type", inner);
    templated = true;
    if (auto r = read_template(part, field + ".processors", spec); !r) return r;
  }
  return {};
}

Result<void> read_decoder(const Json* j) {
  const string_view type = j ? text_of(*j, "type") : string_view("null");
  if (type == "ByteLevel") return {};
  const Json* list = j ? member(*j, "decoders") : nullptr;
  if (type == "Sequence" && list && list->is_array() && list->size() == 1 &&
      text_of(list->as_array()[0], "type") == "ByteLevel") {
    return {};
  }
  return unsupported("decoder.type", type);
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
      if (!has_token(spec, id)) return bad("post_processor", "adds id " + std::to_string(id) + ", which has no token");
    }
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(const VocabData& v) {
  const auto parsed = parse_json(v.tokenizer_json, {.max_members = 0, .reject_duplicate_keys = false});
  if (!parsed) return fail(ErrorCode::kBadFile, "tokenizer.json: " + parsed.error().message);
  const Json& file = *parsed;
  if (!file.is_object()) return fail(ErrorCode::kBadFile, "tokenizer.json: not an object");
  TokenizerSpec spec;
  // What decides about support comes first: the reason shown is then the most useful one.
  if (auto r = read_model(member(file, "model"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_normalizer(member(file, "normalizer"), "normalizer", spec); !r) return std::unexpected(r.error());
  if (auto r = read_pre_tokenizer(member(file, "pre_tokenizer"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_added(member(file, "added_tokens"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_post_processor(member(file, "post_processor"), spec); !r) return std::unexpected(r.error());
  if (auto r = read_decoder(member(file, "decoder")); !r) return std::unexpected(r.error());
  spec.size = std::max(spec.size, spec.vocab->size());
  if (auto r = read_config(v, spec); !r) return std::unexpected(r.error());
  if (auto r = check_ids(spec); !r) return std::unexpected(r.error());
  const auto known = [&](std::optional<TokenId> id) { return id && has_token(spec, *id) ? id : std::nullopt; };
  if (!spec.bos) spec.bos = known(v.bos);
  if (!spec.eos) spec.eos = known(v.eos);
  return spec;
}

}  // namespace barg::text
