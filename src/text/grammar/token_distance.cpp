#include "text/grammar/token_distance.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace barg::text::grammar {

TokenDistance::TokenDistance(Machine& machine, const UsableTokens& usable, std::int64_t work)
    : machine_(machine), usable_(usable), work_(work), bytes_(machine.alphabet()), stack_(*usable.vocabulary) {
  constexpr std::string_view kClosers = "\"}],:0";  // most ways to an end begin with one of these
  const auto rank = [&](std::uint8_t byte) { return std::pair(kClosers.find(static_cast<char>(byte)), byte); };
  std::sort(bytes_.begin(), bytes_.end(), [&](std::uint8_t a, std::uint8_t b) { return rank(a) < rank(b); });
}

bool TokenDistance::within(const Machine::StatePtr& state, std::int64_t tokens) {
  const std::int64_t bytes = Machine::min_bytes(*state);
  if (bytes <= tokens) return true;
  if (tokens <= 0 || bytes / usable_.vocabulary->longest_bytes() > tokens) return false;
  const std::lock_guard lock(mutex_);
  if (known_.size() > kRemembered) known_.clear();
  return spelled(state) <= tokens || found(state) <= tokens;
}

std::int64_t TokenDistance::tokens(const Machine::StatePtr& state) {
  const std::lock_guard lock(mutex_);
  if (known_.size() > kRemembered) known_.clear();
  return std::min({Machine::min_bytes(*state), spelled(state), found(state)});
}

TokenDistance::Known& TokenDistance::know(const Machine::StatePtr& state) {
  Known& known = known_[state.get()];
  if (known.state.expired()) known = Known{.state = state, .next = {}};
  return known;
}

/// The state behind the first symbol of the shortest text; nullptr: none comes nearer to an end.
Machine::StatePtr TokenDistance::step(Machine::Walk& walk, const Machine::StatePtr& from) {
  Known& known = know(from);
  if (Machine::StatePtr next = known.next.lock()) return next;
  const std::int64_t before = walk.work();
  const Machine::State* state = from.get();
  const std::int64_t here = Machine::min_bytes(*state);
  const auto nearer = [here](const Machine::State* to) { return to != nullptr && Machine::min_bytes(*to) < here; };
  const auto take = [&](std::int32_t symbol, const Machine::State* to) {
    Machine::StatePtr next = walk.keep(to);
    known.symbol = symbol;
    known.next = next;
    known.work = walk.work() - before;
    return next;
  };
  for (const std::uint8_t byte : bytes_) {
    if (const Machine::State* to = walk.next(state, byte); nearer(to)) return take(byte, to);
  }
  for (const TokenId id : walk.tokens(state)) {
    const Machine::State* to = walk.next_token(state, id);
    if (nearer(to) && usable_.may_name(id, *to)) return take(kTokens + id, to);
  }
  return nullptr;
}

TokenDistance::Path TokenDistance::path(Machine::Walk& walk, Machine::StatePtr at, std::int64_t symbols) {
  Path out;
  std::int64_t work = 0;
  for (; !Machine::accepting(*at) && symbols > 0; --symbols) {
    Machine::StatePtr next = step(walk, at);
    if (next == nullptr) return out;
    const Known& known = know(at);
    work += known.work;
    out.symbols.push_back(known.symbol);
    out.states.push_back(std::exchange(at, std::move(next)));
    if (work > work_) return out;
  }
  out.whole = Machine::accepting(*at);
  out.states.push_back(std::move(at));
  return out;
}

std::int64_t TokenDistance::spelled(const Machine::StatePtr& from) {
  const std::int64_t bytes = Machine::min_bytes(*from);
  if (bytes == 0 || bytes > kLongestText) return bytes;
  if (const Known& known = know(from); known.spelled != kUnknown) return known.spelled;
  Machine::Walk walk(machine_);
  const Path text = path(walk, from, kLongestText);
  if (!text.whole) return know(from).spelled = kNever;
  std::vector<std::int64_t> behind(text.symbols.size() + 1, 0);  // tokens for what follows
  for (std::size_t i = text.symbols.size(); i-- > 0;) {
    Known& at = know(text.states[i]);
    if (at.spelled == kUnknown) at.spelled = spell(text.symbols, i, behind);
    behind[i] = at.spelled;
  }
  return behind[0];
}

std::vector<std::pair<TokenId, Machine::StatePtr>> TokenDistance::spelled_tokens(const Machine::StatePtr& from) {
  const std::lock_guard lock(mutex_);
  if (known_.size() > kRemembered) known_.clear();
  const Vocabulary& vocabulary = *usable_.vocabulary;
  Machine::Walk walk(machine_);
  const Path text = path(walk, from, vocabulary.longest_bytes());
  std::vector<std::pair<TokenId, Machine::StatePtr>> out;
  std::uint32_t node = Vocabulary::kRoot;
  for (std::size_t i = 0; i + 1 < text.states.size() && text.symbols[i] < kTokens; ++i) {
    node = vocabulary.child(node, static_cast<std::uint8_t>(text.symbols[i]));
    if (node == Vocabulary::kNoChild) break;
    for (TokenId id = vocabulary.all()[node].token; id != kNoToken; id = vocabulary.same(id)) {
      if (has_bit(usable_.spelled, id)) out.emplace_back(id, text.states[i + 1]);
    }
  }
  return out;
}

/// Fewest tokens for the symbols from `from` on.
std::int64_t TokenDistance::spell(const std::vector<std::int32_t>& symbols, std::size_t from,
                                  const std::vector<std::int64_t>& behind) const {
  if (symbols[from] >= kTokens) return 1 + behind[from + 1];
  const Vocabulary& vocabulary = *usable_.vocabulary;
  std::int64_t best = kNever;
  std::uint32_t node = Vocabulary::kRoot;
  for (std::size_t i = from; i < symbols.size() && symbols[i] < kTokens; ++i) {
    node = vocabulary.child(node, static_cast<std::uint8_t>(symbols[i]));
    if (node == Vocabulary::kNoChild) break;
    if (usable_.any(vocabulary.all()[node])) best = std::min(best, 1 + behind[i + 1]);
  }
  return best;
}

std::int64_t TokenDistance::found(const Machine::StatePtr& from) {
  Known& known = know(from);
  if (known.found == kUnknown) known.found = search(from.get());
  return known.found;
}

/// Level after level, each of them whole.
std::int64_t TokenDistance::search(const Machine::State* from) {
  if (Machine::accepting(*from)) return 0;
  Machine::Walk walk(machine_);
  const Machine::State* start = walk.keep(from).get();  // as a way back to it would find it
  std::unordered_set<const Machine::State*> seen{start};
  std::vector<const Machine::State*> level{start}, next;
  WalkLimits limits{.nodes = kSearchSteps, .work = walk.work() + work_ / 4};
  for (std::int64_t tokens = 1; !level.empty(); ++tokens) {
    bool ends = false;
    for (const Machine::State* state : level) {
      const auto reach = [&](TokenId, const Machine::State* to) {
        ends |= Machine::accepting(*to);
        if (seen.insert(to).second) next.push_back(to);
      };
      if (!each_token(walk, state, usable_, stack_, limits, reach)) return kNever;
      if (!each_quoted(walk, state, usable_, limits, reach)) return kNever;
    }
    if (ends) return tokens;
    level.swap(next);
    next.clear();
  }
  return kNever;
}

}  // namespace barg::text::grammar
