// TokenLanguage: a Constraint over token ids as they are, for tests of what uses constraints. An automaton as a table,
// with exact distances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "barg/constraint.h"
#include "base/env.h"

namespace barg::test {

class TokenLanguage final : public Constraint, public std::enable_shared_from_this<TokenLanguage> {
 public:
  struct State {
    std::map<TokenId, std::size_t> next;
    bool accepting = false;
    std::int32_t distance = -1;  ///< tokens to acceptance; -1: none leads there
  };

  /// States that lead nowhere are left out of every mask. State 0 is the start. REQUIRES no letter to be an end id.
  TokenLanguage(std::int32_t vocab, std::vector<State> states, std::vector<TokenId> end_ids,
                std::map<TokenId, int> newlines = {})
      : vocab_(vocab), states_(std::move(states)), end_ids_(std::move(end_ids)), newlines_(std::move(newlines)) {
    for (State& s : states_) {
      s.distance = s.accepting ? 0 : -1;
      for (const TokenId id : end_ids_) EXPECT_FALSE(s.next.contains(id)) << id << " is a letter and an end";
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (State& s : states_) {
        for (const auto& [id, to] : s.next) {
          const std::int32_t d = states_[to].distance;
          if (d < 0 || (s.distance >= 0 && s.distance <= d + 1)) continue;
          s.distance = d + 1;
          changed = true;
        }
      }
    }
  }

  /// `states` states over the ids of [first, vocab) that do not end, about `ways` of them from each; always with some
  /// whole output.
  static std::shared_ptr<TokenLanguage> random(Rng& rng, std::int32_t vocab, TokenId first, std::size_t states, int ways,
                                               std::vector<TokenId> end_ids) {
    const auto letter = [&](TokenId id) {
      while (std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end()) id = id + 1 < vocab ? id + 1 : first;
      return id;
    };
    std::vector<State> table(states);
    table.back().accepting = true;
    for (std::size_t s = 0; s < states; ++s) {
      if (rng.below(6) == 0) table[s].accepting = true;
      for (int w = 0; w < ways; ++w) {
        const auto id = first + static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(vocab - first)));
        table[s].next[letter(id)] = std::min(states - 1, s + rng.below(3));
      }
      if (s + 1 < states) table[s].next[letter(first + static_cast<TokenId>(s % 7))] = s + 1;
    }
    return std::make_shared<TokenLanguage>(vocab, std::move(table), std::move(end_ids));
  }

  std::unique_ptr<ConstraintState> start(bool after_reasoning) const override {
    return std::make_unique<Run>(shared_from_this(), after_reasoning ? 2 : 0);
  }
  std::int32_t min_tokens() const override { return states_[0].distance; }

  /// Is `ids` a whole output? A last end id may be there or not.
  bool whole(std::vector<TokenId> ids) const {
    if (!ids.empty() && is_end(ids.back())) ids.pop_back();
    std::size_t at = 0;
    for (const TokenId id : ids) {
      const auto found = states_[at].next.find(id);
      if (found == states_[at].next.end()) return false;
      at = found->second;
    }
    return states_[at].accepting;
  }
  bool is_end(TokenId id) const { return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end(); }

 private:
  static constexpr std::size_t kEnded = SIZE_MAX;
  struct Place {
    std::size_t state = 0;
    int newlines = 0;  ///< that may still come
  };

  class Run final : public ConstraintState {
   public:
    Run(std::shared_ptr<const TokenLanguage> language, int newlines) : language_(std::move(language)) {
      places_.push_back({0, newlines});
    }
    TokenMask mask(std::int32_t budget) override {
      EXPECT_GE(budget, 1);
      const std::size_t words = (static_cast<std::size_t>(language_->vocab_) + 63) / 64;
      fits_.assign(words, 0);
      all_.assign(words, 0);
      const Place place = places_.back();
      if (place.state == kEnded || language_->states_[place.state].accepting) {
        for (const TokenId id : language_->end_ids_) add(id, true);
      }
      if (place.state != kEnded) {
        for (const auto& [id, to] : language_->states_[place.state].next) {
          const std::int32_t d = language_->states_[to].distance;
          if (d >= 0) add(id, d <= budget - 1);
        }
        for (const auto& [id, count] : language_->newlines_) {
          if (count <= place.newlines) add(id, language_->min_tokens() <= budget - 1);
        }
      }
      return {.fits = set(fits_), .language = set(all_)};
    }
    void push(TokenId id) override {
      Place place = places_.back();
      const auto newline = language_->newlines_.find(id);
      if (newline != language_->newlines_.end() && newline->second <= place.newlines) {
        place.newlines -= newline->second;
      } else if (language_->is_end(id)) {
        ASSERT_TRUE(place.state == kEnded || language_->states_[place.state].accepting) << "ended too early";
        place = {kEnded, 0};
      } else {
        ASSERT_NE(place.state, kEnded) << "a token behind the end";
        const auto found = language_->states_[place.state].next.find(id);
        ASSERT_NE(found, language_->states_[place.state].next.end()) << "token " << id << " is not of the language";
        place = {found->second, 0};
      }
      places_.push_back(place);
    }
    void rewind(std::int32_t count) override {
      ASSERT_LT(static_cast<std::size_t>(count), places_.size());
      places_.resize(static_cast<std::size_t>(count) + 1);
    }

   private:
    void add(TokenId id, bool fits) {
      const auto bit = std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
      all_[static_cast<std::size_t>(id) / 64] |= bit;
      if (fits) fits_[static_cast<std::size_t>(id) / 64] |= bit;
    }
    static TokenSet set(const std::vector<std::uint64_t>& words) {
      std::int32_t count = 0;
      for (const std::uint64_t w : words) count += __builtin_popcountll(w);
      return {.words = words, .count = count};
    }

    std::shared_ptr<const TokenLanguage> language_;
    std::vector<Place> places_;
    std::vector<std::uint64_t> fits_, all_;
  };

  std::int32_t vocab_;
  std::vector<State> states_;
  std::vector<TokenId> end_ids_;
  std::map<TokenId, int> newlines_;
};

}  // namespace barg::test
