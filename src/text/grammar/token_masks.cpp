#include "text/grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace barg::text::grammar {
namespace {

/// Of a walk that begins now. Where the last ended, or what of it is remembered, makes no difference.
WalkLimits limits_from(const Machine::Walk& walk, std::int64_t work) {
  return {.work = walk.work() + work, .forgetful = true};
}

}  // namespace

std::int32_t count_bits(std::span<const std::uint64_t> words) {
  std::int32_t count = 0;
  for (const std::uint64_t w : words) count += std::popcount(w);
  return count;
}

TokenMasks::TokenMasks(Machine& machine, const UsableTokens& usable, std::int64_t work)
    : machine_(machine), usable_(usable), work_(work), distance_(machine, usable, work) {}

void TokenMasks::add_ends(TokenBits& words) const {
  for (const TokenId id : usable_.ends) set_bit(words, id);
}

std::shared_ptr<const StateMask> TokenMasks::language(const Machine::StatePtr& state) {
  if (auto known = masks_.find(state)) return known;
  auto made = std::make_shared<const StateMask>(make_language(state));
  masks_.put(state, made);
  return made;
}

StateMask TokenMasks::make_language(const Machine::StatePtr& state) {
  StateMask out = walked(state);
  if (!out.whole) add_short(state, out);
  if (Machine::accepting(*state)) add_ends(out.words);
  out.count = count_bits(out.words);
  return out;
}

void TokenMasks::add_short(const Machine::StatePtr& state, StateMask& mask) {
  const auto take = [&](TokenId id, const Machine::State* to) {
    set_bit(mask.words, id);
    mask.worst_bytes = std::max(mask.worst_bytes, Machine::min_bytes(*to));
  };
  for (const auto& [id, to] : distance_.spelled_tokens(state)) take(id, to.get());
  Machine::Walk walk(machine_);
  each_byte(walk, state.get(), usable_, take);
}

/// All but end tokens.
StateMask TokenMasks::walked(const Machine::StatePtr& state) {
  Machine::Walk walk(machine_);
  const Machine::StatePtr own = walk.keep(state.get());
  const Machine::State* like = walk.like(own.get());
  StateMask out;
  if (like == own.get()) {
    out = walk_language(walk, like);
  } else {
    const Machine::StatePtr shared = walk.keep(like);
    auto known = masks_.find(shared);
    if (known == nullptr) {
      known = std::make_shared<const StateMask>(walk_language(walk, like));
      masks_.put(shared, known);
    }
    out = *known;
  }
  const auto take = [&](TokenId id, const Machine::State* to) {
    set_bit(out.words, id);
    out.worst_bytes = std::max(out.worst_bytes, Machine::min_bytes(*to));
  };
  if (!each_quoted(walk, own.get(), usable_, limits_from(walk, work_), take)) out.whole = false;
  for (const TokenId id : walk.tokens(own.get())) {
    const Machine::State* to = walk.next_token(own.get(), id);
    if (to != nullptr && usable_.may_name(id, *to)) take(id, to);
  }
  return out;
}

/// All but quoted tokens, tokens of the grammar and end tokens.
StateMask TokenMasks::walk_language(Machine::Walk& walk, const Machine::State* state) const {
  const Vocabulary& vocabulary = *usable_.vocabulary;
  StateMask out{.words = TokenBits(vocabulary.words(), 0)};
  WalkLimits limits = limits_from(walk, work_);
  WalkStack stack(vocabulary);
  const auto spelled = [&](const TrieNode& node, const Machine::State* to) {
    bool any = false;
    for (TokenId id = node.token; id != kNoToken; id = vocabulary.same(id)) {
      if (!has_bit(usable_.walked, id)) continue;
      set_bit(out.words, id);
      any = true;
    }
    if (any) out.worst_bytes = std::max(out.worst_bytes, Machine::min_bytes(*to));
  };
  if (const std::int64_t run = Machine::plain_run(*state); run > 0) {
    const Vocabulary::Plain plain = vocabulary.plain_up_to(run);
    for (std::size_t w = 0; w < out.words.size(); ++w) out.words[w] = plain.words[w] & usable_.walked[w];
    out.worst_bytes = Machine::plain_run_worst(*state);
    out.whole = walk_trie(walk, state, vocabulary.odd(), -1, stack, limits, spelled);
    const auto chars = static_cast<int>(std::min<std::int64_t>(plain.chars, 255));
    out.whole = walk_trie(walk, state, vocabulary.plain(), chars, stack, limits, spelled) && out.whole;
  } else {
    out.whole = walk_trie(walk, state, vocabulary.all(), -1, stack, limits, spelled);
  }
  return out;
}

/// With the states of the groups, which live as long as `states` has them.
std::shared_ptr<const TokenMasks::Groups> TokenMasks::groups(Machine::StatePtr state, States& states) {
  {
    Machine::Walk walk(machine_);
    state = walk.keep(walk.like(walk.keep(state.get()).get()));
  }
  if (auto known = groups_.find(state)) {
    for (const Group& group : *known) states.push_back(group.state.lock());
    if (std::find(states.begin(), states.end(), nullptr) == states.end()) return known;
    states.clear();
  }
  auto made = std::make_shared<const Groups>(make_groups(state, states));
  groups_.put(state, made);
  return made;
}

TokenMasks::Groups TokenMasks::make_groups(const Machine::StatePtr& state, States& states) {
  Groups out;
  std::unordered_map<const Machine::State*, std::size_t> index;
  const Machine::State* last = nullptr;  // neighbours in the trie often lead to one state
  std::size_t at = 0;
  const auto group = [&](TokenId id, const Machine::State* to, auto&& keep) {
    if (to != last) {
      const auto [found, added] = index.try_emplace(to, out.size());
      if (added) {
        states.push_back(keep());
        out.push_back({.state = states.back(), .ids = {}, .bits = {}});
      }
      last = to;
      at = found->second;
    }
    out[at].ids.push_back(id);
  };
  bool whole = true;
  {
    Machine::Walk walk(machine_);
    const auto take = [&](TokenId id, const Machine::State* to) {
      group(id, to, [&] { return walk.keep(to); });
    };
    WalkStack stack(*usable_.vocabulary);
    WalkLimits limits = limits_from(walk, work_);
    whole = each_token(walk, state.get(), usable_, stack, limits, take);
    if (!whole) each_byte(walk, state.get(), usable_, take);
  }
  if (!whole) {
    for (const auto& [id, to] : distance_.spelled_tokens(state)) group(id, to.get(), [&] { return to; });
  }
  const std::size_t words = usable_.vocabulary->words();
  for (Group& group : out) {
    if (group.ids.size() < 2 * words) {
      group.ids.shrink_to_fit();
      continue;
    }
    group.bits.assign(words, 0);
    for (const TokenId id : group.ids) set_bit(group.bits, id);
    group.ids = {};
  }
  return out;
}

void TokenMasks::add(const Group& group, TokenBits& words) {
  for (const TokenId id : group.ids) set_bit(words, id);
  for (std::size_t w = 0; w < group.bits.size(); ++w) words[w] |= group.bits[w];
}

/// False: none of them fits.
bool TokenMasks::narrow_quoted(const Machine::StatePtr& state, std::int64_t tokens, TokenBits& words) {
  std::vector<std::pair<TokenId, Machine::StatePtr>> ways;
  bool whole = true;
  {
    Machine::Walk walk(machine_);
    whole = each_quoted(walk, state.get(), usable_, limits_from(walk, work_),
                        [&](TokenId id, const Machine::State* to) { ways.emplace_back(id, walk.keep(to)); });
  }
  if (!whole) {
    for (auto& way : distance_.spelled_tokens(state)) ways.push_back(std::move(way));
  }
  bool any = false;
  for (const auto& [id, to] : ways) {
    if (!distance_.within(to, tokens)) continue;
    set_bit(words, id);
    any = true;
  }
  return any;
}

void TokenMasks::narrow(const Machine::StatePtr& state, std::int64_t tokens, TokenBits& words) {
  States states;
  const auto all = groups(state, states);
  bool any = Machine::accepting(*state);
  if (any) add_ends(words);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!distance_.within(states[i], tokens)) continue;
    add((*all)[i], words);
    any = true;
  }
  if (narrow_quoted(state, tokens, words) || any) return;
  std::int64_t least = TokenDistance::kNever;
  for (const Machine::StatePtr& s : states) least = std::min(least, distance_.tokens(s));
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (distance_.tokens(states[i]) == least) add((*all)[i], words);
  }
}

}  // namespace barg::text::grammar
