// The `gpt2` kind of GGUF vocabulary. What a file leaves out is implied by the name in tokenizer.ggml.pre: split
// pattern, normalizer, ignore_merges, BOS. The table follows the tokenizer.json of the models, not llama.cpp,
// where the two differ (NFC).
#include <algorithm>
#include <array>
#include <span>

#include "base/utf8.h"
#include "text/tokenizer_spec.h"

namespace barg::text {
namespace {

using std::string_view;

enum class First : std::uint8_t { kNone, kDigits, kDeepSeekCoder, kDeepSeekV3 };

struct Pre {
  string_view name;
  const char* pattern;       ///< last step; nullptr: `first` has all
  First first = First::kNone;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;      ///< when tokenizer.ggml.add_bos_token is absent
};

constexpr Pre kPres[] = {
    {"gpt-2", patterns::kGpt2},
    {"phi-2", patterns::kGpt2},
    {"mpt", patterns::kGpt2, First::kNone, true},
    {"olmo", patterns::kGpt2, First::kNone, true},
    {"smollm", patterns::kGpt2, First::kDigits},
    {"starcoder", patterns::kGpt2, First::kDigits},
    {"refact", patterns::kGpt2, First::kDigits},
    {"command-r", patterns::kGpt2, First::kDigits, true},
    {"llama-bpe", patterns::kLlama3, First::kNone, false, true, true},
    {"llama-v3", patterns::kLlama3, First::kNone, false, true, true},
    {"llama3", patterns::kLlama3, First::kNone, false, true, true},
    {"qwen2", patterns::kQwen2, First::kNone, true},
    {"stablelm2", patterns::kQwen2, First::kNone, true},
    {"deepseek-r1-qwen", patterns::kQwen2, First::kNone, true},
    {"qwen35", patterns::kQwen35, First::kNone, true},
    {"gpt-4o", patterns::kO200k, First::kNone, false, true},
    {"tekken", patterns::kTekken, First::kNone, false, true, true},
    {"deepseek-coder", nullptr, First::kDeepSeekCoder},
    {"deepseek-v3", patterns::kDeepSeekV3, First::kDeepSeekV3},
};

std::unexpected<Error> bad(string_view field, const std::string& what) {
  const std::string name = "tokenizer.ggml." + std::string(field);
  return fail(ErrorCode::kBadFile, name + ": " + what, name);
}

Result<const Pre*> find_pre(const std::string& name) {
  for (const Pre& p : kPres) {
    if (p.name == name) return &p;
  }
  std::string known;
  for (const Pre& p : kPres) known += (known.empty() ? "" : ", ") + std::string(p.name);
  return fail(ErrorCode::kUnsupported,
              "tokenizer.ggml.pre: " + (name.empty() ? "missing" : "\"" + name.substr(0, 64) + "\" is not supported") +
                  "; known are " + known,
              "tokenizer.ggml.pre");
}

Result<void> add_patterns(TokenizerSpec& spec, std::span<const char* const> list) {
  for (const char* pattern : list) {
    auto step = SplitStep::from_pattern(pattern, SplitBehavior::kIsolated, false);
    if (!step) return std::unexpected(step.error());
    spec.steps.push_back({std::move(*step)});
  }
  return {};
}

Result<void> add_steps(TokenizerSpec& spec, const Pre& pre) {
  static constexpr const char* kCoder[] = {"[\r\n]", patterns::kSpaceLetters, patterns::kSpacePunctuation,
                                           "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"};
  static constexpr const char* kV3[] = {patterns::kDigits3, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"};
  const auto digits = [&] { spec.steps.push_back({SplitStep(digit_matcher(), SplitBehavior::kIsolated, false)}); };
  Result<void> r;
  switch (pre.first) {
    case First::kNone: break;
    case First::kDigits: digits(); break;
    case First::kDeepSeekCoder:
      r = add_patterns(spec, kCoder);
      digits();
      break;
    case First::kDeepSeekV3: r = add_patterns(spec, kV3); break;
  }
  if (!r || !pre.pattern) return r;
  return add_patterns(spec, std::span(&pre.pattern, 1));
}

// "[PAD50254]": rows that a converter invented to fill the embedding; no token stands behind them.
bool is_padding(string_view token, std::int32_t type) {
  if (type != 4 && type != 5) return false;
  if (!token.starts_with("[PAD") || !token.ends_with("]") || token.size() < 6) return false;
  const string_view digits = token.substr(4, token.size() - 5);
  return digits.find_first_not_of("0123456789") == string_view::npos;
}

Result<void> read_tokens(const VocabData& v, TokenizerSpec& spec) {
  constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
  if (v.tokens.empty()) return bad("tokens", "missing or empty");
  if (v.tokens.size() > static_cast<std::size_t>(kMaxTokens)) return bad("tokens", "too many");
  if (!v.token_types.empty() && v.token_types.size() != v.tokens.size()) {
    return bad("token_type", "has " + std::to_string(v.token_types.size()) + " entries for " +
                                 std::to_string(v.tokens.size()) + " tokens");
  }
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const std::int32_t type = v.token_types.empty() ? kNormal : v.token_types[i];
    const auto id = static_cast<TokenId>(i);
    if (is_padding(v.tokens[i], type)) continue;
    spec.vocab->add(id, v.tokens[i]);
    if ((type != kControl && type != kUserDefined) || v.tokens[i].empty()) continue;
    if (v.tokens[i].size() > kMaxLiteralBytes) return bad("tokens", "entry " + std::to_string(i) + " is too long");
    // A literal is cut out of the text: what stands around it must be whole characters again.
    if (!is_valid_utf8(v.tokens[i])) return bad("tokens", "entry " + std::to_string(i) + " is not valid UTF-8");
    spec.added.push_back({.id = id, .content = v.tokens[i], .special = type == kControl});
    spec.bpe.never_whole.push_back(id);
  }
  spec.size = spec.vocab->size();
  return {};
}

Result<void> read_merges(const VocabData& v, TokenizerSpec& spec) {
  spec.merges.reserve(v.merges.size());
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    const string_view line = v.merges[i];
    const auto wrong = [&](const char* what) { return bad("merges", "entry " + std::to_string(i) + " " + what); };
    const std::size_t space = line.find(' ', 1);  // a token is not empty, so the first byte is none of the border
    if (space == string_view::npos) return wrong("is not two tokens with a space between them");
    const string_view left = line.substr(0, space), right = line.substr(space + 1);
    const auto a = spec.vocab->find(left), b = spec.vocab->find(right);
    if (!a || !b) return wrong("names a token that is not in the vocabulary");
    const auto joined = spec.vocab->find(std::string(left) + std::string(right));
    if (!joined) return wrong("makes a token that is not in the vocabulary");
    spec.merges.push_back({*a, *b, *joined});
  }
  return {};
}

Result<void> read_special_ids(const VocabData& v, const Pre& pre, TokenizerSpec& spec) {
  struct Role {
    const std::optional<TokenId>& id;
    const char* key;
    const char* name;
  };
  const std::array<Role, 6> roles = {{{v.bos, "bos_token_id", "bos_token"},
                                      {v.eos, "eos_token_id", "eos_token"},
                                      {v.unk, "unknown_token_id", "unk_token"},
                                      {v.pad, "padding_token_id", "pad_token"},
                                      {v.eot, "eot_token_id", "eot_token"},
                                      {v.eom, "eom_token_id", "eom_token"}}};
  for (const Role& r : roles) {
    if (!r.id) continue;
    const auto count = static_cast<TokenId>(v.tokens.size());
    if (*r.id < 0 || *r.id >= count) return bad(r.key, std::to_string(*r.id) + " is outside the vocabulary");
    spec.roles.emplace_back(r.name, v.tokens[static_cast<std::size_t>(*r.id)]);
  }
  spec.bos = v.bos;
  spec.eos = v.eos;
  if (v.add_bos.value_or(pre.add_bos)) {
    if (!v.bos) return bad("bos_token_id", "missing, but a BOS is to be added");
    spec.prefix.push_back(*v.bos);
  }
  if (v.add_eos.value_or(false)) {
    if (!v.eos) return bad("eos_token_id", "missing, but add_eos_token is set");
    spec.suffix.push_back(*v.eos);
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_gguf(const VocabData& v) {
  if (v.ggml_model != "gpt2") {
    return fail(ErrorCode::kUnsupported,
                "tokenizer.ggml.model: \"" + v.ggml_model.substr(0, 64) + "\" is not supported; known is gpt2",
                "tokenizer.ggml.model");
  }
  const auto pre = find_pre(v.ggml_pre);
  if (!pre) return std::unexpected(pre.error());
  TokenizerSpec spec;
  spec.nfc = (*pre)->nfc;
  spec.bpe.ignore_merges = (*pre)->ignore_merges;
  if (auto r = add_steps(spec, **pre); !r) return std::unexpected(r.error());
  if (auto r = read_tokens(v, spec); !r) return std::unexpected(r.error());
  if (auto r = read_merges(v, spec); !r) return std::unexpected(r.error());
  if (auto r = read_special_ids(v, **pre, spec); !r) return std::unexpected(r.error());
  return spec;
}

}  // namespace barg::text
