// The meaning of a Grammar, plainly: all its words up to a length, as sets, by the words of node.h. Slow, and
// written without a look at the machine. A token is the byte 1 + id.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/grammar/node.h"

namespace barg::test {

using text::grammar::kNoNode;
using text::grammar::NodeId;
using Words = std::set<std::string>;

class Reference {
 public:
  Reference(const text::grammar::Grammar& grammar, std::size_t longest, std::size_t most_words)
      : grammar_(grammar), longest_(longest), most_(most_words) {}

  /// nullopt: too many words to go on.
  std::optional<Words> words() {
    table_.assign(grammar_.nodes.size(), {});
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < table_.size(); ++i) {
        Words now = std::visit([&](const auto& node) { return of(node); }, grammar_.nodes[i]);
        if (overflow_ || now.size() > most_) return std::nullopt;
        changed = changed || now.size() != table_[i].size();
        table_[i] = std::move(now);
      }
    }
    return table_[grammar_.root];
  }

 private:
  using G = text::grammar::Grammar;
  const Words& at(NodeId id) const { return table_[id]; }

  void add(Words& out, std::string word) {
    if (word.size() <= longest_) out.insert(std::move(word));
    if (out.size() > most_) overflow_ = true;
  }

  Words join(const Words& a, const Words& b) {
    Words out;
    for (const std::string& x : a) {
      for (const std::string& y : b) {
        if (x.size() + y.size() <= longest_ && !overflow_) add(out, x + y);
      }
    }
    return out;
  }

  // All words of an automaton, by trying every byte.
  Words all(const text::grammar::Dfa& dfa, std::size_t longest) {
    Words out;
    if (!dfa.empty()) walk(dfa, dfa.start(), "", longest, out);
    return out;
  }
  void walk(const text::grammar::Dfa& dfa, std::uint32_t q, const std::string& word, std::size_t longest,
            Words& out) {
    if (dfa.accepting(q)) out.insert(word);
    if (out.size() > most_) overflow_ = true;
    if (word.size() == longest || overflow_) return;
    for (int b = 0; b < 256; ++b) {
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to != text::grammar::Dfa::kDead) walk(dfa, to, word + static_cast<char>(b), longest, out);
    }
  }

  Words of(const text::grammar::BytesNode& n) { return all(*n.dfa, longest_); }
  Words of(const text::grammar::TokenNode& n) { return {std::string(1, static_cast<char>(1 + n.id))}; }
  Words of(const text::grammar::RefNode& n) { return at(n.target); }

  Words of(const text::grammar::ChoiceNode& n) {
    Words out;
    for (const NodeId option : n.options) out.insert(at(option).begin(), at(option).end());
    return out;
  }

  Words of(const text::grammar::SequenceNode& n) {
    Words out = {""};
    for (const NodeId part : n.parts) out = join(out, at(part));
    return out;
  }

  Words of(const text::grammar::RepeatNode& n) {
    Words out;
    if (n.min == 0) out.insert("");
    Words some = at(n.item);
    const auto enough = n.min + static_cast<std::int64_t>(longest_) + 2;
    for (std::int64_t k = 1; k <= enough && (n.max < 0 || k <= n.max); ++k) {
      if (k >= n.min) out.insert(some.begin(), some.end());
      if (n.separator != kNoNode) some = join(some, at(n.separator));
      some = join(some, at(n.item));
    }
    return out;
  }

  // --- strings ---

  static Words hexes(unsigned unit) {
    Words out = {""};
    for (int shift = 12; shift >= 0; shift -= 4) {
      Words more;
      const unsigned digit = unit >> shift & 15;
      for (const std::string& w : out) {
        more.insert(w + "0123456789abcdef"[digit]);
        more.insert(w + "0123456789ABCDEF"[digit]);
      }
      out = more;
    }
    return out;
  }
  static Words spellings(char32_t c) {
    Words out;
    std::string plain;
    append_utf8(plain, c);
    if (c >= 0x20 && c != '"' && c != '\\') out.insert(plain);
    static constexpr std::pair<char32_t, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},
                                                           {'\b', 'b'}, {'\f', 'f'},  {'\n', 'n'},
                                                           {'\r', 'r'}, {'\t', 't'}};
    for (const auto& [character, letter] : kShort) {
      if (character == c) out.insert(std::string("\\") + letter);
    }
    if (c < 0x10000) {
      for (const std::string& h : hexes(c)) out.insert("\\u" + h);
      return out;
    }
    for (const std::string& high : hexes(0xD800 + ((c - 0x10000) >> 10))) {
      for (const std::string& low : hexes(0xDC00 + ((c - 0x10000) & 0x3FF)))
        out.insert("\\u" + high + "\\u" + low);
    }
    return out;
  }
  Words spelled(const std::string& text) {
    Words out = {"\""};
    for (std::size_t i = 0; i < text.size();) out = join(out, spellings(next_code_point(text, i)));
    return join(out, {"\""});
  }
  static std::int64_t characters(const std::string& text) {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < text.size(); ++n) next_code_point(text, i);
    return n;
  }
  Words of(const text::grammar::StringNode& n) {
    Words out;
    for (const std::string& text : all(*n.content, longest_)) {
      const std::int64_t size = characters(text);
      if (!is_valid_utf8(text) || size < n.min_chars || (n.max_chars >= 0 && size > n.max_chars)) continue;
      const Words more = spelled(text);
      out.insert(more.begin(), more.end());
    }
    return out;
  }

  // --- objects and arrays ---

  Words spaces() {
    Words out = {""};
    if (grammar_.spacing == text::grammar::Spacing::kNone) return out;
    out.insert(" ");
    Words lines = {"\n"};
    for (std::size_t k = 0; k <= std::min<std::size_t>(60, longest_); ++k) {
      out.insert(lines.begin(), lines.end());
      lines = join(lines, {" ", "\t"});
    }
    return out;
  }

  struct Members {
    const text::grammar::ObjectNode& node;
    std::size_t place = 0;
    std::int64_t count = 0;
    bool others = false;  // declared ones are over
    std::set<std::string> names = {};
  };
  // `so_far` has everything from the brace to before a further member's comma, or the closing brace.
  void members(const Members& m, const Words& so_far, Words& out) {
    if (so_far.empty() || overflow_) return;
    bool missing = false;
    for (std::size_t i = m.place; i < m.node.properties.size(); ++i)
      missing = missing || m.node.properties[i].required;
    if (!missing && m.count >= m.node.min_properties) {
      const Words whole = join(join(so_far, m.count > 0 ? spaces() : Words{""}), {"}"});
      out.insert(whole.begin(), whole.end());
    }
    if (m.node.max_properties >= 0 && m.count >= m.node.max_properties) return;
    const Words head = m.count > 0 ? join(join(join(so_far, spaces()), {","}), spaces()) : so_far;
    for (std::size_t i = m.place; i < m.node.properties.size() && !m.others; ++i) {
      Members next = m;
      next.place = i + 1;
      ++next.count;
      next.names.insert(m.node.properties[i].name);
      members(next, join(head, member(m.node.properties[i].name, m.node.properties[i].value)), out);
      if (m.node.properties[i].required) break;
    }
    if (missing) return;
    for (const auto& other : m.node.others) {
      for (const std::string& name : all(*other.names, longest_)) {
        if (!is_valid_utf8(name) || m.names.contains(name) || declared(m.node, name)) continue;
        Members next = m;
        next.others = true;
        next.place = m.node.properties.size();
        ++next.count;
        next.names.insert(name);
        members(next, join(head, member(name, other.value)), out);
      }
    }
  }
  static bool declared(const text::grammar::ObjectNode& node, const std::string& name) {
    return std::any_of(node.properties.begin(), node.properties.end(),
                       [&](const auto& p) { return p.name == name; });
  }
  Words member(const std::string& name, NodeId value) {
    return join(join(join(join(spelled(name), spaces()), {":"}), spaces()), at(value));
  }
  Words of(const text::grammar::ObjectNode& n) {
    Words out;
    members({.node = n}, join({"{"}, spaces()), out);
    return out;
  }

  void items(const text::grammar::ArrayNode& n, std::int64_t count, std::int64_t counted, std::uint64_t taken,
             const Words& so_far, Words& out) {
    if (so_far.empty() || overflow_) return;
    if (count >= n.min_items && (n.contains == kNoNode || counted >= n.min_contains)) {
      const Words whole = join(join(so_far, count > 0 ? spaces() : Words{""}), {"]"});
      out.insert(whole.begin(), whole.end());
    }
    if (n.max_items >= 0 && count >= n.max_items) return;
    const Words head = count > 0 ? join(join(join(so_far, spaces()), {","}), spaces()) : so_far;
    const auto go = [&](NodeId item, std::int64_t more, std::uint64_t mask) {
      if (n.max_contains >= 0 && counted + more > n.max_contains) return;
      items(n, count + 1, counted + more, mask, join(head, at(item)), out);
    };
    if (count < static_cast<std::int64_t>(n.prefix.size())) return go(n.prefix[count], 0, taken);
    if (n.items == kNoNode) return;
    if (n.each_once) {
      const auto& options = std::get<text::grammar::ChoiceNode>(grammar_.nodes[n.items]).options;
      for (std::size_t i = 0; i < options.size(); ++i) {
        if ((taken >> i & 1) == 0) go(options[i], 0, taken | std::uint64_t{1} << i);
      }
      return;
    }
    if (n.contains != kNoNode) go(n.contains, 1, taken);
    go(n.not_contains != kNoNode ? n.not_contains : n.items, 0, taken);
  }
  Words of(const text::grammar::ArrayNode& n) {
    Words out;
    items(n, 0, 0, 0, join({"["}, spaces()), out);
    return out;
  }

  const G& grammar_;
  std::size_t longest_, most_;
  bool overflow_ = false;
  std::vector<Words> table_;
};

}  // namespace barg::test
