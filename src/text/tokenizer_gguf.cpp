// The `gpt2` kind of GGUF vocabulary, and the table of kinds. What a file leaves out is implied by the name in
// tokenizer.ggml.pre: split pattern, normalizer, ignore_merges, BOS. The rows follow the tokenizer.json of the models, not
// llama.cpp, where the two differ (NFC).
#include <algorithm>
#include <array>
#include <span>

#include "base/utf8.h"
#include "text/tokenizer_gguf.h"

namespace barg::text {
namespace {

using std::string_view;

enum class First : std::uint8_t { kNone, kDigits, kDeepSeekCoder, kDeepSeekLlm, kDeepSeekV3 };

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
    {"falcon3", patterns::kLlama3, First::kNone, false, true, true},
    {"lfm2", patterns::kLlama3, First::kNone, false, true, true},
    {"pixtral", patterns::kLlama3, First::kNone, false, true, true},
    {"midm-2.0", patterns::kLlama3, First::kNone, false, true, true},
    {"smaug-bpe", patterns::kLlama3, First::kNone, false, true},
    {"dbrx", patterns::kLlama3},
    {"glm4", patterns::kLlama3},
    {"chatglm-bpe", patterns::kLlama3},
    {"qwen2", patterns::kQwen2, First::kNone, true},
    {"stablelm2", patterns::kQwen2, First::kNone, true},
    {"deepseek-r1-qwen", patterns::kQwen2, First::kNone, true},
    {"qwen35", patterns::kQwen35, First::kNone, true},
    {"gpt-4o", patterns::kO200k, First::kNone, false, true},
    {"llama4", patterns::kO200k, First::kNone, false, true},
    {"minimax-m2", patterns::kO200k},
    {"tekken", patterns::kTekken, First::kNone, false, true, true},
    {"falcon-h1", patterns::kTekken, First::kNone, false, true, true},
    {"kimi-k2", patterns::kKimi, First::kNone, false, true},
    {"seed-coder", patterns::kSeedCoder},
    {"deepseek-llm", nullptr, First::kDeepSeekLlm},
    {"deepseek-coder", nullptr, First::kDeepSeekCoder},
    {"deepseek-v3", patterns::kDeepSeekV3, First::kDeepSeekV3},
    {"hunyuan-dense", patterns::kDeepSeekV3, First::kDeepSeekV3},
    {"joyai-llm", patterns::kDeepSeekV3, First::kDeepSeekV3},
};

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
    spec.steps.push_back(split_step(std::move(*step)));
  }
  return {};
}

Result<void> add_steps(TokenizerSpec& spec, const Pre& pre) {
  static constexpr const char* kCoder[] = {"[\r\n]", patterns::kSpaceLetters, patterns::kSpacePunctuation,
                                           "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"};
  static constexpr const char* kLlm[] = {"[\r\n]", patterns::kDeepSeekLetters, patterns::kDeepSeekPunctuation,
                                         patterns::kTrailingSpaces, "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"};
  static constexpr const char* kV3[] = {patterns::kDigits3, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"};
  const auto digits = [&] {
    spec.steps.push_back(split_step(SplitStep(digit_matcher(), SplitBehavior::kIsolated, false)));
  };
  Result<void> r;
  switch (pre.first) {
    case First::kNone: break;
    case First::kDigits: digits(); break;
    case First::kDeepSeekCoder:
      r = add_patterns(spec, kCoder);
      digits();
      break;
    case First::kDeepSeekLlm:
      r = add_patterns(spec, kLlm);
      digits();
      break;
    case First::kDeepSeekV3: r = add_patterns(spec, kV3); break;
  }
  if (!r || !pre.pattern) return r;
  return add_patterns(spec, std::span(&pre.pattern, 1));
}

Result<void> read_tokens(const VocabData& v, TokenizerSpec& spec) {
  if (auto r = check_gguf_lists(v); !r) return r;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const std::int32_t type = gguf_type(v, i);
    const auto id = static_cast<TokenId>(i);
    if (is_gguf_padding(v, i)) continue;
    spec.vocab->add(id, v.tokens[i]);
    if ((type != kControl && type != kUserDefined) || v.tokens[i].empty()) continue;
    if (auto r = add_gguf_literal(v, i, spec); !r) return r;
    if (type == kUserDefined) spec.controls.push_back(id);
  }
  spec.size = spec.vocab->size();
  return {};
}

Result<TokenizerSpec> read_gguf_gpt2(const VocabData& v) {
  const auto pre = find_pre(v.ggml_pre);
  if (!pre) return std::unexpected(pre.error());
  TokenizerSpec spec;
  spec.vocab = std::make_shared<Vocab>(true);
  if ((*pre)->nfc) spec.normalizer = form_normalizer(NormalForm::kNfc);
  spec.decoder.add({.kind = TokenDecoder::Kind::kByteLevel});
  BpeSpec bpe;
  bpe.options.ignore_merges = (*pre)->ignore_merges;
  if (auto r = add_steps(spec, **pre); !r) return std::unexpected(r.error());
  if (auto r = read_tokens(v, spec); !r) return std::unexpected(r.error());
  if (auto r = read_gguf_merges(v, *spec.vocab, bpe); !r) return std::unexpected(r.error());
  spec.model = std::move(bpe);
  if (auto r = read_gguf_ids(v, (*pre)->add_bos, false, spec); !r) return std::unexpected(r.error());
  return spec;
}

}  // namespace

Result<void> check_gguf_lists(const VocabData& v) {
  if (v.tokens.empty()) return bad_gguf("tokens", "missing or empty");
  if (v.tokens.size() > static_cast<std::size_t>(kMaxTokens)) return bad_gguf("tokens", "too many");
  if (!v.token_types.empty() && v.token_types.size() != v.tokens.size()) {
    return bad_gguf("token_type", "has " + std::to_string(v.token_types.size()) + " entries for " +
                                      std::to_string(v.tokens.size()) + " tokens");
  }
  return {};
}

bool is_gguf_padding(const VocabData& v, std::size_t i) {
  const std::int32_t type = gguf_type(v, i);
  if (type != kUserDefined && type != kUnused) return false;
  const string_view token = v.tokens[i];
  if (!token.starts_with("[PAD") || !token.ends_with("]") || token.size() < 6) return false;
  return token.substr(4, token.size() - 5).find_first_not_of("0123456789") == string_view::npos;
}

Result<void> add_gguf_literal(const VocabData& v, std::size_t i, TokenizerSpec& spec) {
  const std::string& token = v.tokens[i];
  if (token.size() > kMaxLiteralBytes) return bad_gguf("tokens", "entry " + std::to_string(i) + " is too long");
  spec.literal_bytes += token.size();
  if (spec.literal_bytes > kMaxAllLiteralBytes) return bad_gguf("tokens", "has literals of more than 16 MiB in all");
  // A literal is cut out of the text: what stands around it must be whole characters again.
  if (!is_valid_utf8(token)) return bad_gguf("tokens", "entry " + std::to_string(i) + " is not valid UTF-8");
  const bool special = gguf_type(v, i) != kUserDefined;
  spec.added.push_back({.id = static_cast<TokenId>(i), .content = token, .special = special});
  if (special) spec.controls.push_back(static_cast<TokenId>(i));
  return {};
}

Result<void> read_gguf_merges(const VocabData& v, const Vocab& vocab, BpeSpec& spec) {
  spec.merges.reserve(v.merges.size());
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    const string_view line = v.merges[i];
    const auto wrong = [&](const char* what) { return bad_gguf("merges", "entry " + std::to_string(i) + " " + what); };
    const std::size_t space = line.find(' ', 1);  // a token is not empty, so the first byte is none of the border
    if (space == string_view::npos) return wrong("is not two tokens with a space between them");
    const string_view left = line.substr(0, space), right = line.substr(space + 1);
    const auto a = vocab.find(left), b = vocab.find(right);
    if (!a || !b) return wrong("names a token that is not in the vocabulary");
    const auto joined = vocab.find(std::string(left) + std::string(right));
    if (!joined) return wrong("makes a token that is not in the vocabulary");
    spec.merges.push_back({*a, *b, *joined});
  }
  return {};
}

Result<void> read_gguf_ids(const VocabData& v, bool add_bos, bool add_eos, TokenizerSpec& spec) {
  struct Role {
    const std::optional<TokenId>& id;
    const char* key;
    const char* name;
  };
  const std::array<Role, 9> roles = {{{v.bos, "bos_token_id", "bos_token"},
                                      {v.eos, "eos_token_id", "eos_token"},
                                      {v.unk, "unknown_token_id", "unk_token"},
                                      {v.pad, "padding_token_id", "pad_token"},
                                      {v.eot, "eot_token_id", "eot_token"},
                                      {v.eom, "eom_token_id", "eom_token"},
                                      {v.sep, "seperator_token_id", "sep_token"},
                                      {v.cls, "cls_token_id", "cls_token"},
                                      {v.mask, "mask_token_id", "mask_token"}}};
  for (const Role& r : roles) {
    if (!r.id) continue;
    const auto count = static_cast<TokenId>(v.tokens.size());
    if (*r.id < 0 || *r.id >= count) return bad_gguf(r.key, std::to_string(*r.id) + " is outside the vocabulary");
    spec.roles.emplace_back(r.name, v.tokens[static_cast<std::size_t>(*r.id)]);
  }
  spec.bos = v.bos;
  spec.eos = v.eos;
  if (v.add_bos.value_or(add_bos)) {
    if (!v.bos) return bad_gguf("bos_token_id", "missing, but a BOS is to be added");
    spec.prefix.push_back(*v.bos);
  }
  if (v.add_eos.value_or(add_eos)) {
    if (!v.eos) return bad_gguf("eos_token_id", "missing, but an EOS is to be added");
    spec.suffix.push_back(*v.eos);
  }
  return {};
}

Result<TokenizerSpec> read_tokenizer_gguf(const VocabData& v) {
  struct Kind {
    string_view name;
    Result<TokenizerSpec> (*read)(const VocabData&);
  };
  static constexpr Kind kKinds[] = {
      {"gpt2", read_gguf_gpt2}, {"llama", read_gguf_llama}, {"gemma4", read_gguf_gemma4}, {"bert", read_gguf_bert},
      {"t5", read_gguf_t5}};
  const auto* kind = std::ranges::find(kKinds, v.ggml_model, &Kind::name);
  if (kind != std::end(kKinds)) return kind->read(v);
  std::string known;
  for (const Kind& k : kKinds) known += (known.empty() ? "" : ", ") + std::string(k.name);
  return fail(ErrorCode::kUnsupported,
              "tokenizer.ggml.model: \"" + v.ggml_model.substr(0, 64) + "\" is not supported; known are " + known,
              "tokenizer.ggml.model");
}

}  // namespace barg::text
