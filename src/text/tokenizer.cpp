// PipelineTokenizer: the pipeline of Hugging Face tokenizers.
//
//   text -> literals (not normalised) -> normalizer -> literals (normalised) -> pre-tokens -> model -> ids
#include "barg/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"

namespace barg {
namespace text {
namespace {

using std::string_view;

constexpr std::size_t kShownPattern = 120;

// Control tokens that end a turn in the published formats.
constexpr string_view kEndNames[] = {"<|eot_id|>", "<|im_end|>",    "<|end|>",  "<|return|>", "<|call|>",       "<end_of_turn>",
                                     "<turn|>",    "<|endoftext|>", "<|eom_id|>", "<EOT>",    "<|end_of_text|>"};

std::unique_ptr<const TokenModel> make_model(const std::shared_ptr<const Vocab>& vocab, ModelSpec&& model,
                                             std::vector<TokenId> controls) {
  std::sort(controls.begin(), controls.end());
  if (auto* bpe = std::get_if<BpeSpec>(&model)) {
    bpe->options.never_whole = std::move(controls);
    return std::make_unique<Bpe>(vocab, bpe->merges, std::move(bpe->options));
  }
  if (auto* unigram = std::get_if<UnigramOptions>(&model)) {
    return std::make_unique<Unigram>(vocab, std::move(*unigram), controls);
  }
  if (const auto* pieces = std::get_if<WordPieceOptions>(&model)) {
    return std::make_unique<WordPiece>(*vocab, *pieces, controls);
  }
  return std::make_unique<WordLevel>(vocab, std::get<WordLevelSpec>(model).unk, std::move(controls));
}

class PipelineTokenizer final : public Tokenizer {
 public:
  PipelineTokenizer(TokenizerSpec spec, const VocabData& data)
      : vocab_(std::move(spec.vocab)), added_(vocab_->printable()), normalizer_(std::move(spec.normalizer)),
        steps_(std::move(spec.steps)), model_(make_model(vocab_, std::move(spec.model), std::move(spec.controls))),
        prefix_(std::move(spec.prefix)), suffix_(std::move(spec.suffix)), size_(spec.size), bos_(spec.bos),
        eos_(spec.eos), roles_(std::move(spec.roles)) {
    for (TokenId id = 0; id < vocab_->size(); ++id) {
      if (vocab_->has(id)) set_text(spec.decoder, id, vocab_->bytes(id));
    }
    special_.assign(static_cast<std::size_t>(size_), false);
    max_text_bytes_ = bytes_of_a_token();
    std::vector<AddedToken> raw, normalized;
    for (AddedToken& t : spec.added) add(std::move(t), spec.decoder, raw, normalized);
    raw_ = AddedTokens(std::move(raw));
    normalized_ = AddedTokens(std::move(normalized));
    collect_end_ids(data);
  }

  std::vector<TokenId> encode(string_view text, const EncodeOptions& options) const override {
    return encode_whole(text, options).ids;
  }
  std::vector<TokenId> encode_marked(const std::vector<MarkedText>& pieces) const override {
    return encode_pieces(pieces).ids;
  }
  Result<std::vector<TokenId>> try_encode(string_view text, const EncodeOptions& options) const override {
    return checked(encode_whole(text, options));
  }
  Result<std::vector<TokenId>> try_encode_marked(const std::vector<MarkedText>& pieces) const override {
    return checked(encode_pieces(pieces));
  }

  string_view token_bytes(TokenId id) const override { return texts_.middle(id); }
  string_view first_token_bytes(TokenId id) const override { return texts_.first(id); }
  bool is_special(TokenId id) const override {
    return id >= 0 && static_cast<std::size_t>(id) < special_.size() && special_[static_cast<std::size_t>(id)];
  }
  bool is_added(TokenId id) const override { return added_.has(id); }
  const std::vector<TokenId>& end_ids() const override { return end_ids_; }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  string_view special_text(string_view role) const override {
    for (const auto& [name, text] : roles_) {
      if (name == role) return text;
    }
    return {};
  }
  std::optional<TokenId> find(string_view token) const override {
    const auto id = added_.find(token);
    return id ? id : vocab_->find(token);
  }
  std::int32_t size() const override { return size_; }
  std::optional<std::size_t> max_text_bytes() const override { return max_text_bytes_; }
  string_view kind() const override { return model_->kind(); }

 private:
  struct Encoded {
    std::vector<TokenId> ids;
    string_view gave_up;  ///< the pattern that left some of the text as it was; empty: none did
  };

  static Result<std::vector<TokenId>> checked(Encoded&& encoded) {
    if (encoded.gave_up.empty()) return std::move(encoded.ids);
    return fail(ErrorCode::kInvalidValue,
                "this model's tokenizer cannot split the text: its pattern " +
                    json_quote(encoded.gave_up.substr(0, complete_utf8_prefix(encoded.gave_up.substr(0, kShownPattern)))) + " takes too many steps on it");
  }

  Encoded encode_whole(string_view text, const EncodeOptions& options) const {
    Encoded out;
    if (options.add_special_tokens) out.ids = prefix_;
    std::string repaired;
    if (!is_valid_utf8(text)) text = repaired = repair_utf8(text);
    encode_text(text, SpecialRule{.all = options.parse_special_tokens}, out);
    if (options.add_special_tokens) out.ids.insert(out.ids.end(), suffix_.begin(), suffix_.end());
    return out;
  }

  Encoded encode_pieces(const std::vector<MarkedText>& pieces) const {
    std::string joined;
    std::vector<Span> trusted;
    for (const MarkedText& p : pieces) {
      const std::size_t begin = joined.size();
      joined += is_valid_utf8(p.text) ? std::string(p.text) : repair_utf8(p.text);
      if (!p.trusted || joined.size() == begin) continue;
      if (!trusted.empty() && trusted.back().end == begin) {
        trusted.back().end = joined.size();
      } else {
        trusted.push_back({begin, joined.size()});
      }
    }
    Encoded out;
    const bool whole = trusted.size() == 1 && trusted[0] == Span{0, joined.size()};
    encode_text(joined, SpecialRule{.all = whole, .trusted = whole ? nullptr : &trusted}, out);
    return out;
  }

  /// Of a printable vocabulary `token` is bytes already.
  void set_text(const TokenDecoder& decoder, TokenId id, string_view token) {
    if (vocab_->printable() && decoder.is_byte_level()) return texts_.set(id, token, token);
    const std::string text = decoder.decode(token, false);
    texts_.set(id, text, decoder.first_is_like_others() ? text : decoder.decode(token, true));
  }

  /// What the model makes of text, without literals.
  std::optional<std::size_t> bytes_of_a_token() const {
    if (std::ranges::any_of(steps_, [](const PreTokenizerPtr& s) { return s->removes(); })) return std::nullopt;
    const auto shrinks = normalizer_ ? normalizer_->shrinks() : 1;
    const auto bytes = model_->max_bytes();
    if (!shrinks || !bytes) return std::nullopt;
    return std::max<std::size_t>(*bytes * *shrinks, 1);
  }

  /// A literal is a token, too: it may have swallowed any number of spaces beside it.
  void bound_by(const AddedToken& literal) {
    if (literal.lstrip || literal.rstrip) max_text_bytes_.reset();
    if (!max_text_bytes_) return;
    const auto shrinks = literal.normalized && normalizer_ ? normalizer_->shrinks() : 1;
    max_text_bytes_ = std::max(*max_text_bytes_, literal.content.size() * shrinks.value_or(1));
  }

  void add(AddedToken token, const TokenDecoder& decoder, std::vector<AddedToken>& raw,
           std::vector<AddedToken>& normalized) {
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
    const bool known = added_.has(token.id);
    if (!known) added_.add(token.id, token.content);
    if (token.normalized) token.content = text::normalized(normalizer_.get(), repair_utf8(token.content));
    // One that has been normalised is decoded so, too.
    if (!known) set_text(decoder, token.id, vocab_->printable() ? vocab_->read(token.content).first : token.content);
    // Without a normalizer the second pass still comes after the first, so the two stay apart.
    if (token.content.empty()) return;
    bound_by(token);
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }

  void collect_end_ids(const VocabData& data) {
    for (const auto& id : {data.eos, data.eot, data.eom, eos_}) {
      if (id) end_ids_.push_back(*id);
    }
    end_ids_.insert(end_ids_.end(), data.eos_ids.begin(), data.eos_ids.end());
    const auto control = [&](string_view name) -> std::optional<TokenId> {
      const auto id = find(name);
      return id && is_special(*id) ? id : std::nullopt;
    };
    // In the harmony format <|end|> closes one message of a turn, not the turn.
    const bool harmony = control("<|return|>") && control("<|call|>");
    for (const string_view name : kEndNames) {
      const auto id = control(name);
      if (id && !(harmony && name == "<|end|>")) end_ids_.push_back(*id);
    }
    std::erase_if(end_ids_, [&](TokenId id) { return id < 0 || id >= size_; });
    std::sort(end_ids_.begin(), end_ids_.end());
    end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  }

  void encode_text(string_view text, const SpecialRule& rule, Encoded& out) const {
    std::vector<Segment> segments;
    raw_.find(text, rule, segments);
    std::vector<Span> inside;
    for (const Segment& s : segments) {
      if (s.id != kNoToken) {
        out.ids.push_back(s.id);
        continue;
      }
      SpecialRule inner = rule;
      if (rule.trusted) {
        inside = clip(*rule.trusted, s.span);
        inner.all = inside.size() == 1 && inside[0].size() == s.span.size();
        inner.trusted = inner.all ? nullptr : &inside;
      }
      encode_normalized(text.substr(s.span.begin, s.span.size()), inner, s.span.begin == 0, out);
    }
  }

  // The ranges that lie in `window`, relative to it.
  static std::vector<Span> clip(const std::vector<Span>& ranges, Span window) {
    std::vector<Span> out;
    auto at = std::lower_bound(ranges.begin(), ranges.end(), window.begin,
                               [](const Span& r, std::size_t begin) { return r.end <= begin; });
    for (; at != ranges.end() && at->begin < window.end; ++at) {
      out.push_back({std::max(at->begin, window.begin) - window.begin, std::min(at->end, window.end) - window.begin});
    }
    return out;
  }

  void encode_normalized(string_view text, SpecialRule rule, bool at_start, Encoded& out) const {
    std::string changed;
    const std::vector<Span> nowhere;
    if (normalizer_ && !normalizer_->leaves(text)) {
      changed = text;
      Normalizing state = normalizing(text);
      normalizer_->run(changed, state);
      at_start = at_start && !state.cut;
      if (!state.gave_up.empty()) out.gave_up = state.gave_up;
      if (changed != text) {
        text = changed;
        // Origins do not survive a change of the text: unless all of it was the template's own, no special
        // literal of the second pass (no published model has one) is recognised here.
        if (rule.trusted) rule.trusted = &nowhere;
      }
    }
    if (normalized_.empty()) return encode_plain(text, at_start, out);
    std::vector<Segment> segments;
    normalized_.find(text, rule, segments);
    for (const Segment& s : segments) {
      if (s.id != kNoToken) {
        out.ids.push_back(s.id);
      } else {
        encode_plain(text.substr(s.span.begin, s.span.size()), at_start && s.span.begin == 0, out);
      }
    }
  }

  void encode_plain(string_view text, bool at_start, Encoded& out) const {
    PreTokens tokens(text, at_start);
    for (const PreTokenizerPtr& step : steps_) step->run(tokens);
    if (!tokens.gave_up().empty()) out.gave_up = tokens.gave_up();
    for (const Span& p : tokens.pieces()) model_->encode(tokens.piece(p), out.ids);
  }

  std::shared_ptr<const Vocab> vocab_;  ///< what the model works with
  Vocab added_;                         ///< goes before it in every look-up
  NormalizerPtr normalizer_;
  AddedTokens raw_, normalized_;
  std::vector<PreTokenizerPtr> steps_;
  std::unique_ptr<const TokenModel> model_;
  TokenTexts texts_;
  std::vector<TokenId> prefix_, suffix_;
  std::vector<bool> special_;
  std::optional<std::size_t> max_text_bytes_;
  std::int32_t size_;
  std::vector<TokenId> end_ids_;
  std::optional<TokenId> bos_, eos_;
  std::vector<std::pair<std::string, std::string>> roles_;
};

}  // namespace
}  // namespace text

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  text::Detokenizer detokenizer(*this, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) out += detokenizer.push(id);
  return out += detokenizer.flush();
}

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const VocabData& vocab) {
  if (vocab.tokenizer_json.empty() && vocab.ggml_model.empty()) {
    return fail(ErrorCode::kUnsupported, "the model has no tokenizer: neither tokenizer.json nor tokenizer.ggml.model",
                "tokenizer.json");
  }
  auto spec = vocab.tokenizer_json.empty() ? text::read_tokenizer_gguf(vocab) : text::read_tokenizer_json(vocab);
  if (!spec) return std::unexpected(spec.error());
  return std::make_shared<text::PipelineTokenizer>(std::move(*spec), vocab);
}

}  // namespace barg
