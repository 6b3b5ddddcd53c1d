#include "text/grammar/token_constraint.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "text/grammar/token_masks.h"
#include "text/grammar/usable_tokens.h"

namespace barg::text::grammar {
namespace {

constexpr int kNewlines = 2;  // between reasoning and answer, at most

class TokenConstraint final : public Constraint, public std::enable_shared_from_this<TokenConstraint> {
 public:
  TokenConstraint(std::shared_ptr<Machine> machine, UsableTokens usable, std::int64_t work)
      : machine_(std::move(machine)), usable_(std::move(usable)), masks_(*machine_, usable_, work) {
    ends_.words.assign(usable_.vocabulary->words(), 0);
    for (const TokenId id : usable_.ends) set_bit(ends_.words, id);
    ends_.count = static_cast<std::int32_t>(usable_.ends.size());
    min_tokens_ = static_cast<std::int32_t>(
        std::min<std::int64_t>(masks_.distance().tokens(machine_->start()), std::numeric_limits<std::int32_t>::max()));
    find_newlines();
  }

  std::unique_ptr<ConstraintState> start(bool after_reasoning) const override;
  std::int32_t min_tokens() const override { return min_tokens_; }

  Machine& machine() const { return *machine_; }
  TokenMasks& masks() const { return masks_; }
  const UsableTokens& usable() const { return usable_; }
  const StateMask& ends() const { return ends_; }
  /// Tokens of so many newlines that may stand before the text.
  const std::vector<std::pair<TokenId, int>>& newlines() const { return newlines_; }

 private:
  void find_newlines() {
    if (machine_->next(machine_->start(), '\n') != nullptr) return;  // they are the text's own
    const Vocabulary& vocabulary = *usable_.vocabulary;
    for (int count = 1; count <= kNewlines; ++count) {
      TokenId id = vocabulary.find(std::string(static_cast<std::size_t>(count), '\n'));
      for (; id != kNoToken; id = vocabulary.same(id)) {
        if (has_bit(usable_.spelled, id)) newlines_.emplace_back(id, count);
      }
    }
  }

  const std::shared_ptr<Machine> machine_;
  const UsableTokens usable_;
  mutable TokenMasks masks_;  // thread-safe: what it remembers changes nothing
  StateMask ends_;
  std::vector<std::pair<TokenId, int>> newlines_;
  std::int32_t min_tokens_ = 0;
};

/// Where one output stands.
struct Place {
  Machine::StatePtr state;
  int newlines = 0;  ///< that may still come before the text
  bool ended = false;
};

class TokenConstraintState final : public ConstraintState {
 public:
  TokenConstraintState(std::shared_ptr<const TokenConstraint> owner, bool after_reasoning)
      : owner_(std::move(owner)), after_reasoning_(after_reasoning) {
    begin();
  }

  TokenMask mask(std::int32_t budget) override {
    const Place& place = places_.back();
    if (place.ended) return {.fits = set_of(owner_->ends()), .language = set_of(owner_->ends())};
    held_ = owner_->masks().language(place.state);
    TokenMask out{.fits = set_of(*held_), .language = set_of(*held_)};
    if (held_->worst_bytes > budget - 1) {
      fits_.assign(held_->words.size(), 0);
      owner_->masks().narrow(place.state, budget - 1, fits_);
      // Walks that ended early did not end at the same token.
      for (std::size_t w = 0; w < fits_.size(); ++w) fits_[w] &= held_->words[w];
      out.fits = {.words = fits_, .count = count_bits(fits_)};
    }
    if (place.newlines > 0) add_newlines(place, budget, out);
    if (out.language.count == 0) out.fits = out.language = set_of(owner_->ends());
    return out;
  }

  void push(TokenId id) override {
    ids_.push_back(id);
    follow(id);
  }

  void rewind(std::int32_t count) override {
    CHECK(count >= 0 && static_cast<std::size_t>(count) <= ids_.size());
    ids_.resize(static_cast<std::size_t>(count));
    if (ids_.size() >= left_behind_) {
      places_.resize(ids_.size() - left_behind_ + 1);
      return;
    }
    begin();
    for (const TokenId id : ids_) follow(id);
  }

 private:
  static constexpr std::size_t kPlaces = 8;  // rewinding further back starts again: old states keep much memory alive

  static TokenSet set_of(const StateMask& mask) { return {.words = mask.words, .count = mask.count}; }

  void begin() {
    left_behind_ = 0;
    places_.clear();
    places_.push_back({.state = owner_->machine().start(), .newlines = after_reasoning_ ? kNewlines : 0});
  }

  void follow(TokenId id) {
    Place next = places_.back();
    if (!next.ended) advance(next, id);
    places_.push_back(std::move(next));
    if (places_.size() <= kPlaces) return;
    places_.pop_front();
    ++left_behind_;
  }

  /// Behind them the text has not begun, and one token of the budget is gone.
  void add_newlines(const Place& place, std::int32_t budget, TokenMask& out) {
    const bool fit = owner_->min_tokens() <= budget - 1;
    language_.assign(out.language.words.begin(), out.language.words.end());
    if (out.fits.words.data() != fits_.data()) fits_.assign(out.fits.words.begin(), out.fits.words.end());
    for (const auto& [id, count] : owner_->newlines()) {
      if (count > place.newlines) continue;
      set_bit(language_, id);
      if (fit) set_bit(fits_, id);
    }
    out.language = {.words = language_, .count = count_bits(language_)};
    out.fits = {.words = fits_, .count = count_bits(fits_)};
  }

  void advance(Place& place, TokenId id) const {
    for (const auto& [newline, count] : owner_->newlines()) {
      if (newline != id || count > place.newlines) continue;
      place.newlines -= count;
      return;
    }
    place.newlines = 0;
    const bool ends = owner_->usable().is_end(id);
    if (auto named = owner_->machine().next_token(place.state, id)) {
      place.state = std::move(named);
      place.ended = ends;
    } else if (ends) {
      place.ended = true;
    } else {
      for (const char c : owner_->usable().vocabulary->bytes(id)) {
        place.state = owner_->machine().next(place.state, static_cast<std::uint8_t>(c));
        CHECK(place.state != nullptr);
      }
    }
  }

  const std::shared_ptr<const TokenConstraint> owner_;
  const bool after_reasoning_;
  std::vector<TokenId> ids_;               // pushed
  std::size_t left_behind_ = 0;            // places before those that are kept
  std::deque<Place> places_;               // where the output stood before its first token and behind each
  std::shared_ptr<const StateMask> held_;  // what the last mask shows
  TokenBits fits_, language_;
};

std::unique_ptr<ConstraintState> TokenConstraint::start(bool after_reasoning) const {
  return std::make_unique<TokenConstraintState>(shared_from_this(), after_reasoning);
}

UsableTokens usable_tokens(std::shared_ptr<const Vocabulary> vocabulary, const TokenConstraintOptions& options) {
  UsableTokens out;
  const std::int32_t size = vocabulary->size();
  const auto each = [size](const std::vector<TokenId>& ids, auto f) {
    for (const TokenId id : ids) {
      if (id >= 0 && id < size) f(id);
    }
  };
  out.drawable.assign(vocabulary->words(), 0);
  for (TokenId id = 0; options.allowed.empty() && id < size; ++id) set_bit(out.drawable, id);
  each(options.allowed, [&](TokenId id) { set_bit(out.drawable, id); });
  each(options.banned, [&](TokenId id) { clear_bit(out.drawable, id); });
  out.spelled.assign(vocabulary->present().begin(), vocabulary->present().end());
  for (std::size_t w = 0; w < out.spelled.size(); ++w) out.spelled[w] &= out.drawable[w];
  each(options.end_ids, [&](TokenId id) {
    clear_bit(out.spelled, id);
    if (has_bit(out.drawable, id)) out.ends.push_back(id);
  });
  std::sort(out.ends.begin(), out.ends.end());
  out.ends.erase(std::unique(out.ends.begin(), out.ends.end()), out.ends.end());
  out.vocabulary = std::move(vocabulary);
  out.split_quoted();
  return out;
}

std::string name_of(std::uint8_t byte) {
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "0x%02X", byte);
  const bool visible = byte > 0x20 && byte < 0x7F;
  return std::string(hex.data()) + (visible ? std::string(" (") + static_cast<char>(byte) + ")" : "");
}

/// Whatever the output has begun with, single bytes and the grammar's own tokens lead to its end.
Result<void> check_ways_out(const Machine& machine, const UsableTokens& usable) {
  if (usable.ends.empty()) {
    return fail(ErrorCode::kInvalidValue, "no end token may be sampled, so a structured output could not end");
  }
  const Vocabulary& vocabulary = *usable.vocabulary;
  for (const std::uint8_t byte : machine.alphabet()) {
    TokenId id = vocabulary.single(byte);
    while (id != kNoToken && !has_bit(usable.spelled, id)) id = vocabulary.same(id);
    if (id != kNoToken) continue;
    return fail(ErrorCode::kInvalidValue, "the structured output may need the byte " + name_of(byte) +
                                              ", and no token that may be sampled is this byte alone");
  }
  for (const TokenId id : machine.token_alphabet()) {
    if (id >= 0 && id < vocabulary.size() && has_bit(usable.drawable, id)) continue;
    return fail(ErrorCode::kInvalidValue,
                "the structured output may need the token " + std::to_string(id) + ", which may not be sampled");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Constraint>> make_token_constraint(std::shared_ptr<Machine> machine,
                                                                std::shared_ptr<const Vocabulary> vocabulary,
                                                                TokenConstraintOptions options) {
  UsableTokens usable = usable_tokens(std::move(vocabulary), options);
  if (auto ok = check_ways_out(*machine, usable); !ok) return std::unexpected(ok.error());
  return std::make_shared<const TokenConstraint>(std::move(machine), std::move(usable), options.work);
}

}  // namespace barg::text::grammar
