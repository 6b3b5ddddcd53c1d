// Looking for literals in a run of symbols: one at a place (OneOf), or wherever one begins (LiteralScan). Private to
// src/text; state of one parser, not thread-safe; the literals outlive them. Linear: what a failed match had read is
// given back, and a literal is short.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/check.h"
#include "text/dialect_bound.h"

namespace barg::text {

using Symbols = std::vector<Symbol>;
using Pushback = std::deque<Symbol>;  ///< symbols to be read again, before what comes next

inline void give_back(Pushback& again, std::span<const Symbol> symbols) {
  again.insert(again.begin(), symbols.begin(), symbols.end());
}

/// Which of at most 32 literals stands here. Empty literals never do; of equal ones, and of one that begins
/// another, the first to end counts.
class OneOf {
 public:
  static constexpr int kMore = -1, kNone = -2;

  void begin(std::uint32_t alive) {
    alive_ = alive;
    read_.clear();
  }
  void begin_all(std::size_t count) {
    CHECK(count < 32);
    begin((1U << count) - 1U);
  }
  /// kMore, kNone, or the index of the literal that is complete. The symbols since begin() are in read().
  int push(std::span<const Literal* const> literals, Symbol s) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < literals.size(); ++i) {
      if ((alive_ >> i & 1U) == 0 || literals[i]->size() <= read_.size() || !same((*literals[i])[read_.size()], s)) continue;
      if (literals[i]->size() == read_.size() + 1) {
        read_.push_back(s);
        return static_cast<int>(i);
      }
      next |= 1U << i;
    }
    read_.push_back(s);
    alive_ = next;
    return next != 0 ? kMore : kNone;
  }
  const Symbols& read() const { return read_; }

 private:
  std::uint32_t alive_ = 0;
  Symbols read_;
};

/// Literals among other symbols. A symbol that begins none is `plain`; those behind it come back through `again`.
class LiteralScan {
 public:
  static constexpr int kHeld = -1, kPlain = -2;

  /// `allowed`: which literals count, asked where a match begins.
  template <class Allowed>
  int push(std::span<const Literal* const> literals, const Allowed& allowed, Symbol s, Pushback& again, Symbol& plain) {
    if (!active_) {
      std::uint32_t alive = 0;
      for (std::size_t i = 0; i < literals.size(); ++i) {
        if (!literals[i]->empty() && same((*literals[i])[0], s) && allowed(i)) alive |= 1U << i;
      }
      if (alive == 0) {
        plain = s;
        return kPlain;
      }
      match_.begin(alive);
      active_ = true;
    }
    const int found = match_.push(literals, s);
    if (found == OneOf::kMore) return kHeld;
    active_ = false;
    if (found >= 0) return found;
    plain = match_.read().front();
    give_back(again, std::span(match_.read()).subspan(1));
    match_.begin(0);
    return kPlain;
  }
  /// The symbols of the literal just found, or those held.
  const Symbols& read() const { return match_.read(); }
  bool holding() const { return active_; }
  void clear() {
    active_ = false;
    match_.begin(0);
  }

 private:
  OneOf match_;
  bool active_ = false;
};

}  // namespace barg::text
