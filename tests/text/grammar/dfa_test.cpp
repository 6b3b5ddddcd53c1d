#include "text/grammar/dfa.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/utf8.h"

namespace barg::text::grammar::dfa_test {
namespace {

using Words = std::set<std::string>;
constexpr std::size_t kLongest = 6;

// All words over a, b, c and z (which tables do not know) of at most `longest` letters.
std::vector<std::string> all_words(std::size_t longest) {
  std::vector<std::string> words{""};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() == longest) break;
    for (const char c : {'a', 'b', 'c', 'z'}) words.push_back(words[i] + c);
  }
  return words;
}

// An automaton as a table, and the words that it accepts by running the table.
struct Table {
  std::uint32_t states = 1;
  std::vector<Dfa::State> to;  // [states][4]: other bytes, a, b, c
  std::vector<std::uint8_t> accepting;

  bool accepts(const std::string& word) const {
    Dfa::State s = 0;
    for (const char c : word) {
      s = to[s * 4 + (c >= 'a' && c <= 'c' ? static_cast<std::size_t>(c - 'a' + 1) : 0)];
      if (s == Dfa::kDead) return false;
    }
    return accepting[s] != 0;
  }
  Dfa dfa() const {
    std::array<std::uint8_t, 256> class_of{};
    for (const char c : {'a', 'b', 'c'})
      class_of[static_cast<std::size_t>(c)] = static_cast<std::uint8_t>(c - 'a' + 1);
    return Dfa::make(class_of, 4, to, accepting, 0);
  }
};

Table random_table(std::mt19937& rng) {
  Table t;
  t.states = 1 + rng() % 6;
  for (std::uint32_t s = 0; s < t.states; ++s) {
    for (int c = 0; c < 4; ++c) {
      const bool dead = c == 0 || rng() % 3 == 0;
      t.to.push_back(dead ? Dfa::kDead : static_cast<Dfa::State>(rng() % t.states));
    }
    t.accepting.push_back(rng() % 3 == 0 ? 1 : 0);
  }
  return t;
}

Words words_of(const std::function<bool(const std::string&)>& accepts) {
  Words words;
  for (const std::string& w : all_words(kLongest)) {
    if (accepts(w)) words.insert(w);
  }
  return words;
}

Words words_of(const Dfa& dfa) {
  return words_of([&](const std::string& w) { return dfa.matches(w); });
}

// The structure that dfa.h promises, by definition.
void expect_sound(const Dfa& dfa) {
  if (dfa.empty()) {
    EXPECT_EQ(dfa.start(), Dfa::kDead);
    return;
  }
  std::uint32_t worst = 0;
  std::set<std::vector<bool>> futures;
  for (Dfa::State s = 0; s < dfa.num_states(); ++s) {
    std::uint32_t shortest = Dfa::kInfinite;
    std::vector<bool> future;
    for (const std::string& w : all_words(kLongest)) {
      Dfa::State t = s;
      for (const char c : w) t = t == Dfa::kDead ? t : dfa.next(t, static_cast<std::uint8_t>(c));
      const bool accepted = t != Dfa::kDead && dfa.accepting(t);
      future.push_back(accepted);
      if (accepted && shortest == Dfa::kInfinite) shortest = static_cast<std::uint32_t>(w.size());
    }
    EXPECT_EQ(dfa.min_bytes(s), shortest);
    EXPECT_TRUE(futures.insert(future).second) << "two states accept the same words";
    worst = std::max(worst, shortest);
  }
  EXPECT_EQ(dfa.worst_min_bytes(), worst);
}

TEST(Dfa, MakeKeepsTheLanguageAndIsMinimal) {
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    const Table t = random_table(rng);
    const Dfa dfa = t.dfa();
    EXPECT_EQ(words_of(dfa), words_of([&](const std::string& w) { return t.accepts(w); }));
    EXPECT_LE(dfa.num_states(), t.states);
    expect_sound(dfa);
  }
}

TEST(Dfa, EqualLanguagesAreEqualValues) {
  std::mt19937 rng(2);
  int equal = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Dfa a = random_table(rng).dfa();
    const Dfa b = random_table(rng).dfa();
    // Of at most 6 states each, a word of 11 letters may be needed; those that differ later are few and
    // unequal.
    const bool same = dfa_subtract(a, b)->empty() && dfa_subtract(b, a)->empty();
    EXPECT_EQ(dfa_equal(a, b), same);
    equal += same && !a.empty() ? 1 : 0;
  }
  EXPECT_GT(equal, 20);
}

TEST(Dfa, ProductsAreSetOperations) {
  std::mt19937 rng(3);
  for (int i = 0; i < 300; ++i) {
    const Table x = random_table(rng), y = random_table(rng);
    const Dfa a = x.dfa(), b = y.dfa();
    const Words both = words_of([&](const std::string& w) { return x.accepts(w) && y.accepts(w); });
    EXPECT_EQ(words_of(*dfa_intersect(a, b)), both);
    EXPECT_EQ(words_of(*dfa_unite(a, b)),
              words_of([&](const auto& w) { return x.accepts(w) || y.accepts(w); }));
    EXPECT_EQ(words_of(*dfa_subtract(a, b)),
              words_of([&](const auto& w) { return x.accepts(w) && !y.accepts(w); }));
    if (!both.empty()) {
      EXPECT_FALSE(dfa_disjoint(a, b));
    }
    EXPECT_EQ(dfa_disjoint(a, b), dfa_intersect(a, b)->empty());
    expect_sound(*dfa_unite(a, b));
  }
}

TEST(Dfa, ConcatAndRepeatByTheirDefinition) {
  std::mt19937 rng(4);
  for (int i = 0; i < 150; ++i) {
    const Table x = random_table(rng), y = random_table(rng);
    const Dfa a = x.dfa(), b = y.dfa();
    const auto concat = [&](const std::string& w) {
      for (std::size_t k = 0; k <= w.size(); ++k) {
        if (x.accepts(w.substr(0, k)) && y.accepts(w.substr(k))) return true;
      }
      return false;
    };
    EXPECT_EQ(words_of(*dfa_concat(a, b)), words_of(concat));
    const int min = static_cast<int>(rng() % 4);
    const int max = rng() % 3 == 0 ? -1 : min + static_cast<int>(rng() % 3);
    // reach[k]: the places that k items can end at.
    const auto repeat = [&](const std::string& w) {
      std::set<std::size_t> reach{0};
      const int most = max < 0 ? min + static_cast<int>(kLongest) + 1 : max;
      for (int k = 0; k <= most; ++k) {
        if (k >= min && reach.contains(w.size())) return true;
        std::set<std::size_t> next;
        for (const std::size_t from : reach) {
          for (std::size_t to = from; to <= w.size(); ++to) {
            if (x.accepts(w.substr(from, to - from))) next.insert(to);
          }
        }
        reach = next;
      }
      return false;
    };
    EXPECT_EQ(words_of(*dfa_repeat(a, min, max)), words_of(repeat)) << min << ".." << max;
  }
}

TEST(Dfa, Literals) {
  std::mt19937 rng(5);
  for (int i = 0; i < 200; ++i) {
    Words words;
    for (std::uint32_t k = rng() % 8; k > 0; --k) {
      std::string w;
      for (std::uint32_t n = rng() % 5; n > 0; --n) w += static_cast<char>('a' + rng() % 3);
      words.insert(w);
    }
    const Dfa dfa = dfa_literals({words.rbegin(), words.rend()});
    EXPECT_EQ(words_of(dfa), words);
    const auto listed = dfa_words(dfa, words.size());
    ASSERT_TRUE(listed);
    EXPECT_TRUE(std::equal(listed->begin(), listed->end(), words.begin(), words.end()));
    if (!words.empty()) {
      EXPECT_FALSE(dfa_words(dfa, words.size() - 1));
    }
  }
  EXPECT_TRUE(dfa_literals({}).empty());
  EXPECT_TRUE(dfa_literal("").matches(""));
  std::string every_byte;
  for (int b = 0; b < 256; ++b) every_byte += static_cast<char>(b);
  EXPECT_TRUE(dfa_literal(every_byte).matches(every_byte));
  EXPECT_EQ(dfa_literal(every_byte).num_states(), 257U);
  EXPECT_FALSE(dfa_words(*dfa_repeat(dfa_literal("a"), 0, -1), 1000)) << "words without end";
}

TEST(Dfa, ValidUtf8) {
  const Dfa dfa = dfa_valid_utf8();
  const auto check = [&](const std::string& s) {
    ASSERT_EQ(dfa.matches(s), is_valid_utf8(s)) << testing::PrintToString(s);
  };
  for (std::uint32_t two = 0; two < 0x10000; ++two) {
    check({static_cast<char>(two >> 8), static_cast<char>(two)});
    // With one and two bytes after it that complete what can be completed.
    check({static_cast<char>(two >> 8), static_cast<char>(two), '\x80'});
    check({static_cast<char>(two >> 8), static_cast<char>(two), '\xBF', '\x80'});
  }
  check("\xF4\x8F\xBF\xBF");
  check("\xF4\x90\x80\x80");
}

TEST(Dfa, CharacterLengths) {
  const auto lengths = [](const std::vector<std::string>& words) {
    return dfa_char_lengths(dfa_literals(words));
  };
  const DfaLengths some = lengths({"a\xC3\xA9\xE4\xB8\xAD", "\xF0\x9F\x98\x80\xF0\x9F\x98\x80", "abcdef"});
  EXPECT_EQ(some.fewest, 2);
  EXPECT_EQ(some.most, 6);
  EXPECT_EQ(lengths({""}).most, 0);
  const DfaLengths endless = dfa_char_lengths(*dfa_concat(dfa_literal("\xC3\xA9\xC3\xA9"), dfa_valid_utf8()));
  EXPECT_EQ(endless.fewest, 2);
  EXPECT_EQ(endless.most, std::nullopt);
}

TEST(Dfa, LimitsEndWhatWouldGrow) {
  // Words whose k-th letter from the end is an a: 2^k states.
  const Dfa letter = dfa_literals({"a", "b"});
  const Dfa any = *dfa_repeat(letter, 0, -1);
  const Dfa a = *dfa_concat(any, dfa_literal("a"));
  EXPECT_EQ(dfa_concat(a, *dfa_repeat(letter, 9, 9))->num_states(), 1024U);
  for (const auto& result : {dfa_concat(a, *dfa_repeat(letter, 30, 30)), dfa_repeat(letter, 0, 1'000'000'000),
                             dfa_repeat(letter, 0, 20'000), dfa_intersect(a, a, {.states = 1})}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(result.error().message.find("too large"), std::string::npos);
  }
}

}  // namespace
}  // namespace barg::text::grammar::dfa_test
