#include "text/tokenizer_added.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

// Start of the code point that ends before `end`. REQUIRES end > 0.
std::size_t previous(std::string_view s, std::size_t end) {
  std::size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool word_before(std::string_view s, std::size_t at) {
  return at > 0 && is_word(decode_utf8(s, previous(s, at)).value);
}

bool word_after(std::string_view s, std::size_t at) { return at < s.size() && is_word(decode_utf8(s, at).value); }

// Where the white space before `at` begins, not before `floor`: what another literal has is not looked at again.
std::size_t spaces_before(std::string_view s, std::size_t at, std::size_t floor, std::size_t& work) {
  while (at > floor) {
    ++work;
    const std::size_t p = previous(s, at);
    if (!(class_at(s, p).bits & kSpace)) break;
    at = p;
  }
  return at;
}

// Ends of white space. Literals that lie in one run of it ask for the same end again and again.
class SpaceEnds {
 public:
  std::size_t after(std::string_view s, std::size_t at, std::size_t& work) {
    if (at >= run_.begin && at <= run_.end) return run_.end;
    run_ = {at, at};
    for (;;) {
      ++work;
      const ClassAt c = class_at(s, run_.end);
      if (!(c.bits & kSpace)) return run_.end;
      run_.end += c.bytes;
    }
  }

 private:
  Span run_{1, 0};  // all of it is white space, and nothing behind it
};

// As if spelt backwards.
bool backwards_less(std::string_view a, std::string_view b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend(), [](char x, char y) {
    return static_cast<unsigned char>(x) < static_cast<unsigned char>(y);
  });
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::uint32_t> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const AddedToken &x = tokens_[a], &y = tokens_[b];
    return x.content == y.content ? x.special && !y.special : backwards_less(x.content, y.content);
  });
  const auto same = [&](std::uint32_t a, std::uint32_t b) { return tokens_[a].content == tokens_[b].content; };
  order.erase(std::unique(order.begin(), order.end(), same), order.end());
  build_trie(order);
  link();
}

// A node is a range of `order`, whose literals end alike.
void AddedTokens::build_trie(const std::vector<std::uint32_t>& order) {
  struct Range {
    std::uint32_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, static_cast<std::uint32_t>(order.size()), 0}};
  nodes_.resize(1);
  bytes_.resize(1);
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    const Range range = ranges[node];
    std::uint32_t i = range.begin;
    nodes_[node].first_child = static_cast<State>(nodes_.size());
    const auto literal = [&](std::uint32_t k) { return std::string_view(tokens_[order[k]].content); };
    if (range.depth > 0 && literal(i).size() == range.depth) {
      nodes_[node].token = static_cast<std::int32_t>(order[i++]);
    }
    while (i < range.end) {
      const auto byte = [&](std::uint32_t k) { return literal(k)[literal(k).size() - 1 - range.depth]; };
      const std::uint32_t first = i;
      CHECK(!literal(i).empty() && literal(i).size() <= kMaxLiteralBytes);
      while (i < range.end && byte(i) == byte(first)) ++i;
      if (node == 0) roots_[static_cast<unsigned char>(byte(first))] = static_cast<State>(nodes_.size());
      nodes_.emplace_back();
      bytes_.push_back(byte(first));
      ranges.push_back({first, i, range.depth + 1});
    }
  }
  nodes_.push_back({.first_child = static_cast<State>(nodes_.size())});
}

// Parents come before their children, and what they fail to is nearer to the root than they are.
void AddedTokens::link() {
  std::size_t unused = 0;
  for (State node = 0; node + 1 < nodes_.size(); ++node) {
    for (State c = nodes_[node].first_child; c < nodes_[node + 1].first_child; ++c) {
      Node& n = nodes_[c];
      n.fail = node == 0 ? 0 : step(nodes_[node].fail, bytes_[c], unused);
      const bool special = n.token >= 0 && tokens_[static_cast<std::size_t>(n.token)].special;
      n.ordinary = n.token >= 0 && !special ? n.token : nodes_[n.fail].ordinary;
      if (n.token < 0) n.token = nodes_[n.fail].token;
    }
  }
}

AddedTokens::State AddedTokens::child(State state, char byte) const {
  if (state == 0) return roots_[static_cast<unsigned char>(byte)];
  const auto begin = bytes_.begin() + nodes_[state].first_child, end = bytes_.begin() + nodes_[state + 1].first_child;
  const auto at = std::lower_bound(begin, end, byte, [](char x, char y) {
    return static_cast<unsigned char>(x) < static_cast<unsigned char>(y);
  });
  return at != end && *at == byte ? static_cast<State>(at - bytes_.begin()) : 0;
}

AddedTokens::State AddedTokens::step(State state, char byte, std::size_t& work) const {
  for (;;) {
    ++work;
    const State next = child(state, byte);
    if (next != 0 || state == 0) return next;
    state = nodes_[state].fail;
  }
}

void AddedTokens::scan(std::string_view text, Span span, bool ordinary_only, std::vector<Hit>& hits,
                       std::size_t& work) const {
  State state = 0;
  for (std::size_t at = span.end; at > span.begin;) {
    state = step(state, text[--at], work);
    const std::int32_t token = ordinary_only ? nodes_[state].ordinary : nodes_[state].token;
    if (token >= 0) hits.push_back({at, token});
  }
}

// Special ones are looked for in each trusted range as if there were nothing else: what sticks out is not seen.
std::vector<AddedTokens::Hit> AddedTokens::hits_by_trust(std::string_view text, const std::vector<Span>& trusted,
                                                         std::size_t& work) const {
  std::vector<Hit> ordinary, inside, out;
  scan(text, {0, text.size()}, true, ordinary, work);
  for (std::size_t k = trusted.size(); k-- > 0;) scan(text, trusted[k], false, inside, work);
  const auto length = [&](const Hit& h) { return tokens_[static_cast<std::size_t>(h.token)].content.size(); };
  std::size_t i = 0, j = 0;
  while (i < ordinary.size() || j < inside.size()) {
    const bool have_i = i < ordinary.size(), have_j = j < inside.size();
    if (have_i && have_j && ordinary[i].at == inside[j].at) {
      out.push_back(length(ordinary[i]) > length(inside[j]) ? ordinary[i] : inside[j]);
      ++i, ++j;
    } else if (have_i && (!have_j || ordinary[i].at > inside[j].at)) {
      out.push_back(ordinary[i++]);
    } else {
      out.push_back(inside[j++]);
    }
  }
  return out;
}

void AddedTokens::find(std::string_view text, const SpecialRule& rule, std::vector<Segment>& out,
                       std::size_t* work) const {
  std::size_t steps = 0, done = 0, free_from = 0;
  std::vector<Hit> hits;
  if (!empty() && rule.trusted) {
    hits = hits_by_trust(text, *rule.trusted, steps);
  } else if (!empty()) {
    scan(text, {0, text.size()}, false, hits, steps);
  }
  SpaceEnds spaces;
  for (std::size_t k = hits.size(); k-- > 0;) {
    const AddedToken& token = tokens_[static_cast<std::size_t>(hits[k].token)];
    std::size_t begin = hits[k].at, end = begin + token.content.size();
    if (begin < free_from) continue;
    free_from = end;
    if (token.special && !rule.all && !rule.trusted) continue;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin, done, steps), done);
    if (token.rstrip) end = spaces.after(text, end, steps);
    if (begin >= end) {  // all of it is white space that the token before swallowed
      done = std::max(done, end);
      continue;
    }
    if (done < begin) out.push_back({{done, begin}, kNoToken});
    out.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, kNoToken});
  if (work) *work += steps;
}

}  // namespace barg::text
