#include "text/grammar/token_constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <thread>

#include "base/env.h"
#include "base/json.h"
#include "support/grammars.h"
#include "text/grammar/token_distance.h"
#include "text/grammar/token_masks.h"
#include "tokenizer_data.h"

namespace barg::text::grammar::token_constraint_test {
namespace {

using test::GrammarBuilder;
using test::ListTokenizer;
using StatePtr = Machine::StatePtr;

std::vector<TokenId> ids_in(const TokenSet& set) {
  std::vector<TokenId> out;
  for (std::size_t w = 0; w < set.words.size(); ++w) {
    for (std::uint64_t bits = set.words[w]; bits != 0; bits &= bits - 1) {
      out.push_back(static_cast<TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
  return out;
}

StatePtr after(Machine& machine, StatePtr state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state != nullptr) state = machine.next(state, static_cast<std::uint8_t>(c));
  }
  return state;
}

UsableTokens all_usable(std::shared_ptr<const Vocabulary> vocabulary) {
  UsableTokens out;
  out.spelled.assign(vocabulary->present().begin(), vocabulary->present().end());
  out.drawable.assign(vocabulary->words(), ~std::uint64_t{0});
  out.vocabulary = std::move(vocabulary);
  out.split_quoted();
  return out;
}

std::shared_ptr<const Constraint> constraint_of(const std::shared_ptr<Machine>& machine,
                                                const std::shared_ptr<const Vocabulary>& vocabulary,
                                                TokenConstraintOptions options) {
  auto made = make_token_constraint(machine, vocabulary, std::move(options));
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? *made : nullptr;
}

// ---- vocabulary

TEST(Vocabulary, TriesHoldEveryTokenOnce) {
  const std::vector<std::string> tokens = {"b", "", "ab", "a", "abc", "ab", "\"", "\xC3", "\xC3\xA9", "\xA9x", "a\n", "marker", "\xC3\xA9\xC3\xA9"};
  const std::vector<TokenId> markers = {11};
  const auto v = make_vocabulary(ListTokenizer(tokens), markers, 70);
  EXPECT_EQ(v->size(), 70);
  EXPECT_EQ(v->words(), 2U);
  EXPECT_EQ(v->find("ab"), 2);
  EXPECT_EQ(v->same(2), 5);
  EXPECT_EQ(v->same(5), kNoToken);
  EXPECT_EQ(v->find("marker"), kNoToken);
  EXPECT_EQ(v->find(""), kNoToken);
  EXPECT_EQ(v->single('a'), 3);
  EXPECT_EQ(v->single('x'), kNoToken);
  EXPECT_EQ(v->longest_bytes(), 4);
  for (TokenId id = 0; id < 13; ++id) {
    const bool there = id != 1 && id != 11;
    EXPECT_EQ(has_bit(v->present(), id), there) << id;
    EXPECT_EQ(v->bytes(id), there ? tokens[static_cast<std::size_t>(id)] : "") << id;
  }
  std::string path(8, ' ');
  std::map<std::string, TokenId> walked;
  for (const TrieNode& n : v->all()) {
    path[n.depth - 1U] = static_cast<char>(n.byte);
    if (n.token != kNoToken) walked[path.substr(0, n.depth)] = n.token;
  }
  EXPECT_EQ(walked.size(), 10U);
  EXPECT_EQ(walked["abc"], 4);
  EXPECT_EQ(ids_in({.words = v->plain_up_to(1).words, .count = 0}), (std::vector<TokenId>{0, 3, 8}));
  EXPECT_EQ(ids_in({.words = v->plain_up_to(2).words, .count = 0}), (std::vector<TokenId>{0, 2, 3, 5, 8, 12}));
  EXPECT_EQ(ids_in({.words = v->plain_up_to(900).words, .count = 0}), (std::vector<TokenId>{0, 2, 3, 4, 5, 8, 12}));
  EXPECT_EQ(v->plain_up_to(2).chars, 2);
  EXPECT_GT(v->plain_up_to(3).chars, 900);
}

TEST(Vocabulary, PlainIsWholeCharactersWithoutWhatJsonEscapes) {
  EXPECT_EQ(plain_chars("abc"), 3);
  EXPECT_EQ(plain_chars(" \xE2\x82\xAC\xF0\x9F\x98\x80"), 3);
  for (const char* odd : {"a\"", "\\", "\n", "\xE2\x82", "\x82\xAC", "\xED\xA0\x80", "\xC0\x80"}) EXPECT_EQ(plain_chars(odd), -1) << odd;
}

// ---- masks

/// Every token, byte by byte.
std::vector<TokenId> brute_force(Machine& machine, const Vocabulary& vocabulary, const StatePtr& state,
                                 const std::vector<TokenId>& ends) {
  std::vector<TokenId> out;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    const bool is_end = std::find(ends.begin(), ends.end(), id) != ends.end();
    const bool allowed = is_end ? Machine::accepting(*state) : !bytes.empty() && after(machine, state, bytes) != nullptr;
    if (allowed || machine.next_token(state, id) != nullptr) out.push_back(id);
  }
  return out;
}

class PublishedMasks : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedMasks, EqualBruteForce) {
  const auto tokenizer = test::published_tokenizer(GetParam());
  if (tokenizer == nullptr) GTEST_SKIP() << test::kNoShared;
  const std::int32_t size = tokenizer->size() + 37;
  const auto vocabulary = make_vocabulary(*tokenizer, {}, size);
  const std::vector<TokenId> ends = {size - 1};
  Rng rng(7);
  int with_run = 0, narrowed = 0;
  // One that forgets in the middle of its walks, too.
  const bool forgetful = std::string_view(GetParam()) == "smollm2";
  for (const auto& [name, machine, json] : test::some_machines({.memory_bytes = std::size_t{1} << (forgetful ? 16 : 26)})) {
    const auto constraint = constraint_of(machine, vocabulary, {.end_ids = ends});
    ASSERT_NE(constraint, nullptr);
    const bool slow = name == "map";  // every token leads to a state of its own
    for (int run = 0; run < (slow ? 1 : 3); ++run) {
      const auto state = constraint->start(false);
      StatePtr at = machine->start();
      for (int step = 0; step < (slow ? 5 : 12); ++step) {
        const auto mask = state->mask(1000);
        with_run += Machine::plain_run(*at) > 0 ? 1 : 0;
        const auto allowed = ids_in(mask.language);
        ASSERT_EQ(allowed, brute_force(*machine, *vocabulary, at, ends)) << name << ", step " << step;
        ASSERT_EQ(mask.language.count, std::ssize(allowed));
        // A narrow one, against the distances token by token.
        UsableTokens usable = all_usable(vocabulary);
        TokenDistance distance(*machine, usable);
        const auto budget = static_cast<std::int32_t>(1 + rng.below(6));
        const auto tight = state->mask(budget);
        const bool possible = distance.within(at, budget);  // else what is nearest to an end
        for (int i = 0; possible && i < 200; ++i) {
          const TokenId id = allowed[rng.below(allowed.size())];
          const bool fits = id == ends[0] || distance.within(after(*machine, at, vocabulary->bytes(id)), budget - 1);
          ASSERT_EQ(tight.fits.has(id), fits) << name << ", step " << step << ", budget " << budget << ", token " << id;
        }
        narrowed += tight.narrowed() && possible ? 1 : 0;
        // On by a token, mostly a short one.
        TokenId id = allowed[rng.below(allowed.size())];
        for (int tries = 0; tries < 4 && vocabulary->bytes(id).size() > 3; ++tries) id = allowed[rng.below(allowed.size())];
        if (id == ends[0]) break;
        state->push(id);
        at = after(*machine, at, vocabulary->bytes(id));
      }
    }
  }
  EXPECT_GT(with_run, 20);
  EXPECT_GT(narrowed, 10);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, PublishedMasks, ::testing::Values("gpt-2", "smollm2", "llama3", "qwen2", "deepseek-v3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// ---- distances, on vocabularies where everything can be tried

/// All single bytes that the machines need, and random strings over a few letters that their texts have.
std::shared_ptr<const Vocabulary> small_vocabulary(Rng& rng, const std::vector<std::uint8_t>& alphabet, std::string_view texts,
                                                   int extra) {
  std::vector<std::string> tokens = {""};  // 0: the end token
  for (const std::uint8_t b : alphabet) tokens.emplace_back(1, static_cast<char>(b));
  for (int i = 0; i < extra; ++i) {
    const std::size_t from = rng.below(texts.size());
    tokens.emplace_back(texts.substr(from, 2 + rng.below(6)));
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  return make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
}

/// Breadth first over all tokens; no bound but `most` levels.
std::int64_t brute_distance(Machine& machine, const Vocabulary& vocabulary, const StatePtr& from, int most) {
  std::vector<StatePtr> level{from};
  std::set<StatePtr> seen{from};
  for (int d = 0; d <= most; ++d) {
    std::vector<StatePtr> next;
    for (const StatePtr& s : level) {
      if (Machine::accepting(*s)) return d;
      for (TokenId id = 0; id < vocabulary.size(); ++id) {
        const StatePtr to = vocabulary.bytes(id).empty() ? nullptr : after(machine, s, vocabulary.bytes(id));
        if (to != nullptr && seen.insert(to).second) next.push_back(to);
      }
    }
    level = std::move(next);
  }
  return -1;
}

struct SmallGrammar {
  const char* name;
  std::shared_ptr<Machine> machine;
  const char* texts;  ///< pieces of these become tokens
};

std::vector<SmallGrammar> small_grammars() {
  std::vector<SmallGrammar> out;
  {
    GrammarBuilder b;
    out.push_back({"choice", b.compile(b.words({"positive", "negative", "no", "maybe so"})), "positivenegativenomaybe so"});
  }
  {
    GrammarBuilder b;
    out.push_back({"short_in_tokens", b.compile(b.words({"xyz", "abcdefgh"})), "abcdefghabcdefgh"});
  }
  {
    GrammarBuilder b;
    b.grammar.spacing = Spacing::kNone;
    out.push_back({"object", b.compile(b.object({{"a", b.words({"1", "22", "333"}), true}, {"bc", b.words({"[]", "{}"}), false}})),
                   "{\"a\":1,\"bc\":[]}{\"a\":333}{\"a\":22"});
  }
  {
    GrammarBuilder b;
    const auto item = b.choice({b.text("ab"), b.text("c"), b.sequence({b.text("("), b.text("cc"), b.text(")")})});
    out.push_back({"repeat", b.compile(b.sequence({b.repeat(item, b.text(","), 2, 5), b.text(";")})), "ab,c,(cc),ab;c,c;(cc);"});
  }
  {
    GrammarBuilder b;
    const auto inner = b.later();
    const auto pair = b.sequence({b.text("<"), b.choice({inner, b.text("x")}), b.text(">")});
    b.set(inner, pair);
    out.push_back({"nested", b.compile(inner), "<x><<x>><<<x>>>>>>"});
  }
  return out;
}

TEST(TokenDistance, EqualsBruteForceOnSmallGrammars) {
  Rng rng(99);
  int checked = 0;
  for (const auto& [name, machine, texts] : small_grammars()) {
    for (int round = 0; round < 12; ++round) {
      const auto vocabulary = small_vocabulary(rng, machine->alphabet(), texts, static_cast<int>(rng.below(25)));
      const UsableTokens usable = all_usable(vocabulary);
      TokenDistance distance(*machine, usable);
      for (int walk = 0; walk < 6; ++walk) {
        StatePtr at = machine->start();
        for (int step = 0; step < 8; ++step) {
          const std::int64_t want = brute_distance(*machine, *vocabulary, at, 40);
          ASSERT_GE(want, 0) << name;
          ASSERT_EQ(distance.tokens(at), want) << name << ", round " << round;
          for (std::int64_t d = 0; d < want + 2; ++d) ASSERT_EQ(distance.within(at, d), d >= want) << name;
          ++checked;
          std::vector<StatePtr> ways;
          for (TokenId id = 1; id < vocabulary->size(); ++id) {
            if (auto to = after(*machine, at, vocabulary->bytes(id))) ways.push_back(to);
          }
          if (ways.empty()) break;
          at = ways[rng.below(ways.size())];
        }
      }
      EXPECT_EQ(constraint_of(machine, vocabulary, {.end_ids = {0}})->min_tokens(),
                brute_distance(*machine, *vocabulary, machine->start(), 40));
    }
  }
  EXPECT_GT(checked, 1000);
}

/// What masks rely on: from a bound of d > 0 some token leads to one of at most d - 1. Also where the search gives up.
TEST(TokenDistance, EveryBoundHasAFirstStep) {
  const auto tokenizer = test::published_tokenizer("smollm2");
  if (tokenizer == nullptr) GTEST_SKIP() << test::kNoShared;
  const auto vocabulary = make_vocabulary(*tokenizer, {}, tokenizer->size());
  const UsableTokens usable = all_usable(vocabulary);
  Rng rng(4);
  int below_bytes = 0;
  for (const auto& [name, machine, json] : test::some_machines()) {
    TokenDistance distance(*machine, usable), fresh(*machine, usable);
    for (int run = 0; run < 3; ++run) {
      StatePtr at = machine->start();
      for (int step = 0; step < 8; ++step) {
        const std::int64_t d = distance.tokens(at);
        ASSERT_EQ(fresh.tokens(at), d) << name;
        below_bytes += d < Machine::min_bytes(*at) ? 1 : 0;
        std::vector<StatePtr> ways;
        bool stepped = d == 0;
        for (TokenId id = 0; id < vocabulary->size(); ++id) {
          if (vocabulary->bytes(id).empty()) continue;
          const StatePtr to = after(*machine, at, vocabulary->bytes(id));
          if (to == nullptr) continue;
          if (rng.below(1 + ways.size() / 4) == 0) ways.push_back(to);
          stepped = stepped || distance.within(to, d - 1);
        }
        ASSERT_TRUE(stepped) << name << ", step " << step;
        if (ways.empty()) break;
        at = ways[rng.below(ways.size())];
      }
    }
  }
  EXPECT_GT(below_bytes, 20);
}

// ---- whole outputs

struct Output {
  std::vector<TokenId> ids;
  std::string text;
  bool ended = false;
};

/// Draws at random from what fits. With `eager`, an end token only where there is nothing else.
Output generate(const Constraint& constraint, const Vocabulary& vocabulary, std::int32_t budget, Rng& rng, bool eager) {
  Output out;
  const auto state = constraint.start(false);
  for (std::int32_t left = budget; left > 0; --left) {
    const TokenMask mask = state->mask(left);
    EXPECT_GE(mask.fits.count, 1);
    auto ids = ids_in(mask.fits);
    EXPECT_EQ(std::ssize(ids), mask.fits.count);
    for (const TokenId id : ids) EXPECT_TRUE(mask.language.has(id));
    if (ids.empty()) return out;
    TokenId id = ids[rng.below(ids.size())];
    if (eager && vocabulary.bytes(id).empty() && ids.size() > 1) id = ids[ids[0] == id ? 1 : 0];
    if (rng.below(3) == 0) {  // a step computed again
      state->push(id);
      state->rewind(static_cast<std::int32_t>(out.ids.size()));
      EXPECT_EQ(ids_in(state->mask(left).fits), ids);
    }
    state->push(id);
    out.ids.push_back(id);
    out.text += vocabulary.bytes(id);
    if (vocabulary.bytes(id).empty()) {
      out.ended = true;
      break;
    }
  }
  return out;
}

TEST(TokenConstraint, EveryOutputIsWholeWhateverTheBudget) {
  Rng rng(12);
  int ended = 0, cut = 0;
  for (const auto& [name, machine, texts] : small_grammars()) {
    for (int round = 0; round < 6; ++round) {
      const auto vocabulary = small_vocabulary(rng, machine->alphabet(), texts, static_cast<int>(rng.below(25)));
      const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}});
      for (int run = 0; run < 30; ++run) {
        const auto budget = constraint->min_tokens() + static_cast<std::int32_t>(rng.below(12));
        const Output out = generate(*constraint, *vocabulary, budget, rng, run % 2 == 0);
        ASSERT_EQ(first_failure(*machine, out.text), std::nullopt) << name << ": " << out.text;
        (out.ended ? ended : cut) += 1;
      }
    }
  }
  EXPECT_GT(ended, 200);
  EXPECT_GT(cut, 100);
}

TEST(TokenConstraint, EveryOutputIsWholeWithARealVocabulary) {
  const auto tokenizer = test::published_tokenizer("smollm2");
  if (tokenizer == nullptr) GTEST_SKIP() << test::kNoShared;
  const std::int32_t size = tokenizer->size() + 1;
  const auto vocabulary = make_vocabulary(*tokenizer, {}, size);
  Rng rng(31);
  // Machines that forget what they know all the time, too.
  for (const std::size_t memory : {std::size_t{64} << 20, std::size_t{1} << 16}) {
    for (const auto& [name, machine, json] : test::some_machines({.memory_bytes = memory})) {
      const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {size - 1}});
      for (int run = 0; run < 25; ++run) {
        const auto budget = std::max(constraint->min_tokens() + static_cast<std::int32_t>(rng.below(run < 15 ? 6 : 40)), 1);
        const Output out = generate(*constraint, *vocabulary, budget, rng, run % 2 == 0);
        ASSERT_EQ(first_failure(*machine, out.text), std::nullopt) << name << ", budget " << budget << ": " << out.text;
        if (json) {
          ASSERT_TRUE(parse_json(out.text)) << out.text;
        }
      }
    }
  }
}

/// Texts of an odd number of letters, read in ways that double with every letter: the dearest first.
std::shared_ptr<Machine> ambiguous() {
  GrammarBuilder b;
  const auto letter = b.words({"a", "b"});
  const auto text = b.later();
  b.set(text, b.choice({b.sequence({letter, text, letter, b.text("cc")}), b.sequence({letter, text, letter}), letter}));
  return b.compile(text, {.memory_bytes = 1 << 20});
}

TEST(TokenConstraint, WhereAGrammarIsTooAmbiguousTokensAreShortAndOutputsWhole) {
  std::vector<std::string> tokens = {"", "a", "b", "c"};
  for (std::size_t i = 1; tokens.size() < 1000; ++i) {
    for (const char c : {'a', 'b', 'c'}) tokens.push_back(tokens[i] + c);
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
  const auto machine = ambiguous(), other = ambiguous();
  const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}, .work = 20'000});
  const auto again = constraint_of(other, vocabulary, {.end_ids = {0}, .work = 20'000});
  Rng rng(3);
  for (int run = 0; run < 12; ++run) {
    const auto budget = constraint->min_tokens() + static_cast<std::int32_t>(rng.below(14));
    const Output out = generate(*constraint, *vocabulary, budget, rng, true);
    ASSERT_EQ(first_failure(*machine, out.text), std::nullopt) << "budget " << budget << ": " << out.text;
  }
  // Masks that are not whole, the same whatever was asked before.
  int fewer = 0;
  const auto state = constraint->start(false), fresh = again->start(false);
  StatePtr at = machine->start();
  for (int step = 0; step < 14; ++step) {
    const auto allowed = ids_in(state->mask(60).language);
    ASSERT_EQ(allowed, ids_in(fresh->mask(60).language)) << step;
    ASSERT_EQ(ids_in(state->mask(9).fits), ids_in(fresh->mask(9).fits)) << step;
    const auto all = brute_force(*machine, *vocabulary, at, {0});
    EXPECT_TRUE(std::ranges::includes(all, allowed));
    fewer += allowed.size() < all.size() ? 1 : 0;
    const auto id = static_cast<TokenId>(1 + rng.below(2));
    ASSERT_TRUE(std::ranges::binary_search(allowed, id)) << "a byte is always there";
    state->push(id);
    fresh->push(id);
    at = after(*machine, at, vocabulary->bytes(id));
  }
  EXPECT_GT(fewer, 3);
}

TEST(TokenConstraint, AMaskDependsOnOutputsAndBudgetAlone) {
  const auto tokenizer = test::published_tokenizer("gpt-2");
  if (tokenizer == nullptr) GTEST_SKIP() << test::kNoShared;
  const std::int32_t size = tokenizer->size() + 1;
  const auto vocabulary = make_vocabulary(*tokenizer, {}, size);
  Rng rng(8);
  const auto machines = test::some_machines(), others = test::some_machines({.memory_bytes = 1 << 16});
  for (std::size_t m = 0; m < machines.size(); ++m) {
    const auto used = constraint_of(machines[m].machine, vocabulary, {.end_ids = {size - 1}});
    for (int run = 0; run < 10; ++run) generate(*used, *vocabulary, used->min_tokens() + 8, rng, true);
    const auto fresh = constraint_of(others[m].machine, vocabulary, {.end_ids = {size - 1}});
    ASSERT_EQ(fresh->min_tokens(), used->min_tokens());
    const auto budget = used->min_tokens() + 6;
    const Output out = generate(*used, *vocabulary, budget, rng, true);
    const auto a = used->start(false), b = fresh->start(false);
    for (std::size_t i = 0; i < out.ids.size(); ++i) {
      const auto left = budget - static_cast<std::int32_t>(i);
      ASSERT_EQ(ids_in(a->mask(left).fits), ids_in(b->mask(left).fits)) << machines[m].name << ", output " << i;
      a->push(out.ids[i]);
      b->push(out.ids[i]);
    }
  }
}

TEST(TokenConstraint, SequencesOnManyThreadsGetWhatTheyGetAlone) {
  const auto tokenizer = test::published_tokenizer("smollm2");
  if (tokenizer == nullptr) GTEST_SKIP() << test::kNoShared;
  const std::int32_t size = tokenizer->size() + 1;
  const auto vocabulary = make_vocabulary(*tokenizer, {}, size);
  const auto make = [&] {
    std::vector<std::shared_ptr<const Constraint>> out;
    for (const auto& m : test::some_machines({.memory_bytes = 1 << 18})) {
      out.push_back(constraint_of(m.machine, vocabulary, {.end_ids = {size - 1}}));
    }
    return out;
  };
  const auto run = [&](const Constraint& c, std::uint64_t seed) {
    Rng rng(seed);
    return generate(c, *vocabulary, std::max(c.min_tokens() + static_cast<std::int32_t>(seed % 9), 1), rng, true).ids;
  };
  const auto shared = make(), own = make();
  std::array<std::vector<std::vector<TokenId>>, 4> got;
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 30; ++i) got[t].push_back(run(*shared[i % shared.size()], 100 * t + i));
    });
  }
  threads.clear();
  for (std::size_t t = 0; t < got.size(); ++t) {
    for (std::uint64_t i = 0; i < 30; ++i) ASSERT_EQ(got[t][i], run(*own[i % own.size()], 100 * t + i));
  }
}

TEST(TokenConstraint, RewindsToAnyPlace) {
  GrammarBuilder b;
  std::vector<std::string> tokens = {""};
  for (int c = 1; c < 256; ++c) tokens.emplace_back(1, static_cast<char>(c));
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, 256);
  const auto constraint = constraint_of(b.compile(b.array(b.string(0, 2))), vocabulary, {.end_ids = {0}});
  std::string text = "[";
  for (int i = 0; i < 40; ++i) text += i % 2 == 0 ? "\"ab\"," : "\"\",";
  const auto state = constraint->start(false);
  std::vector<std::vector<TokenId>> masks = {ids_in(state->mask(500).fits)};
  for (const char c : text) {
    state->push(static_cast<TokenId>(c));
    masks.push_back(ids_in(state->mask(500).fits));
  }
  Rng rng(6);
  std::size_t at = text.size();
  for (int round = 0; round < 60; ++round) {
    const std::size_t to = rng.below(at + 1);
    state->rewind(static_cast<std::int32_t>(to));
    ASSERT_EQ(ids_in(state->mask(500).fits), masks[to]);
    for (at = to; at < std::min(text.size(), to + rng.below(120)); ++at) state->push(static_cast<TokenId>(text[at]));
    ASSERT_EQ(ids_in(state->mask(500).fits), masks[at]);
  }
}

// ---- the request's own lists, and single rules

std::shared_ptr<const Vocabulary> letters(std::vector<std::string> more = {}) {
  std::vector<std::string> tokens = {""};
  for (int b = 1; b < 128; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (auto& t : more) tokens.push_back(std::move(t));
  const auto size = static_cast<std::int32_t>(tokens.size());
  return make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
}

TEST(TokenConstraint, ChoicesWithOneOrTwoTokensLeft) {
  GrammarBuilder b;
  const auto machine = b.compile(b.words({"positive", "negative"}));
  // 128..: whole, halves
  const auto vocabulary = letters({"positive", "nega", "tive", "posi", "negativ"});
  const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}});
  EXPECT_EQ(constraint->min_tokens(), 1);
  const auto state = constraint->start(false);
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{128}));
  EXPECT_TRUE(state->mask(1).narrowed());
  EXPECT_EQ(ids_in(state->mask(2).fits), (std::vector<TokenId>{128, 129, 131, 132}));
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{'n', 'p', 128, 129, 131, 132}));
  EXPECT_FALSE(state->mask(9).narrowed());
  state->push(131);
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{130}));
  state->push(130);
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{0}));
  state->push(0);
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{0}));
  // Below what is needed: the nearest.
  const auto banned = constraint_of(machine, vocabulary, {.end_ids = {0}, .banned = {128}});
  EXPECT_EQ(banned->min_tokens(), 2);
  EXPECT_EQ(ids_in(banned->start(false)->mask(1).fits), (std::vector<TokenId>{129, 131, 132}));
}

TEST(TokenConstraint, ListsOfTheRequestCount) {
  GrammarBuilder b;
  const auto machine = b.compile(b.text("ab"));
  const auto vocabulary = letters({"ab"});
  const auto error = [&](TokenConstraintOptions options) {
    const auto made = make_token_constraint(machine, vocabulary, std::move(options));
    EXPECT_FALSE(made);
    return made ? std::string() : made.error().message;
  };
  EXPECT_NE(error({.end_ids = {0}, .banned = {'b'}}).find("0x62 (b)"), std::string::npos);
  EXPECT_NE(error({.end_ids = {0, 'a'}}).find("0x61 (a)"), std::string::npos) << "a stop id is no text";
  EXPECT_NE(error({.end_ids = {0}, .banned = {0}}).find("end token"), std::string::npos);
  EXPECT_NE(error({.end_ids = {}}).find("end token"), std::string::npos);
  EXPECT_NE(error({.end_ids = {0}, .allowed = {'a', 'b', 128}}).find("end token"), std::string::npos);
  const auto made = constraint_of(machine, vocabulary, {.end_ids = {0, 1, 7}, .banned = {1}, .allowed = {0, 'a', 'b', 7}});
  const auto state = made->start(false);
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{'a'}));
  state->push('a');
  state->push('b');
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{0, 7}));
}

TEST(TokenConstraint, NewlinesBetweenReasoningAndText) {
  GrammarBuilder b;
  const auto machine = b.compile(b.text("ab"));
  const auto vocabulary = letters({"\n\n", "\n\n\n", "\n"});
  const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}});
  EXPECT_EQ(ids_in(constraint->start(false)->mask(5).fits), (std::vector<TokenId>{'a'}));
  const auto state = constraint->start(true);
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{'\n', 'a', 128, 130}));
  EXPECT_EQ(ids_in(state->mask(2).fits), (std::vector<TokenId>{'a'}));
  EXPECT_TRUE(state->mask(2).narrowed());
  state->push('\n');
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{'\n', 'a', 130}));
  state->push(130);
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{'a'}));
  state->rewind(1);
  state->push('a');
  EXPECT_EQ(ids_in(state->mask(5).fits), (std::vector<TokenId>{'b'}));
  // A text that begins with a newline has its own.
  GrammarBuilder own;
  const auto lines = constraint_of(own.compile(own.words({"\nx", "y"})), vocabulary, {.end_ids = {0}});
  const auto line = lines->start(true);
  EXPECT_EQ(ids_in(line->mask(5).fits), (std::vector<TokenId>{'\n', 'y', 130}));
  line->push('\n');
  EXPECT_EQ(ids_in(line->mask(5).fits), (std::vector<TokenId>{'x'}));
}

TEST(TokenConstraint, TokensOfTheGrammar) {
  GrammarBuilder b;
  // 128: a marker around a word; 129 ends the output and completes the text.
  const auto call = b.sequence({b.token(128), b.repeat(b.words({"x", "yy"}), kNoNode, 1, 3), b.token(129)});
  const auto machine = b.compile(b.choice({call, b.text("no")}));
  std::vector<std::string> tokens = {""};
  for (int c = 1; c < 128; ++c) tokens.emplace_back(1, static_cast<char>(c));
  for (const char* more : {"", "", "xyy", "no"}) tokens.emplace_back(more);
  const auto size = static_cast<std::int32_t>(tokens.size());
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
  EXPECT_EQ(machine->token_alphabet(), (std::vector<TokenId>{128, 129}));
  const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0, 129}});
  EXPECT_EQ(constraint->min_tokens(), 1);
  const auto state = constraint->start(false);
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{'n', 128, 131}));
  EXPECT_EQ(ids_in(state->mask(3).fits), (std::vector<TokenId>{'n', 128, 131}));
  EXPECT_EQ(ids_in(state->mask(2).fits), (std::vector<TokenId>{'n', 131}));
  state->push(128);
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{'x', 'y', 130}));
  state->push(130);
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{'x', 'y', 129}));
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{129}));
  state->push(129);
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{0, 129})) << "nothing behind the end";
  const auto made = make_token_constraint(machine, vocabulary, {.end_ids = {0}, .banned = {128}});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("token 128"), std::string::npos);
}

TEST(TokenConstraint, NamesAreToldApartInTokensOfManyQuotes) {
  GrammarBuilder b;
  b.grammar.spacing = Spacing::kNone;
  const auto machine = b.compile(b.open_object(b.string()));
  std::vector<std::string> tokens = {""};
  for (int c = 1; c < 256; ++c) tokens.emplace_back(1, static_cast<char>(c));
  for (const char* more : {"b\":\"\",\"ab\"", "b\":\"\",\"\"", "b\":\"\",\"b\"", "\":\"\",\"zz\"", "zz\"", "z\":\"x",
                           "\":\"\",\"kind\"", "kind\":"}) {
    tokens.emplace_back(more);
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
  EXPECT_EQ(vocabulary->quoted(), (std::vector<TokenId>{256, 257, 258, 259, 261, 262}));
  const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}});
  Rng rng(77);
  std::int64_t refused = 0;
  for (int run = 0; run < 60; ++run) {
    const auto state = constraint->start(false);
    StatePtr at = machine->start();
    std::string text = run % 2 == 0 ? "{\"zz\":\"\",\"" : "{\"a\":\"\",\"q\":\"\",\"";
    for (int i = 0; i < 5; ++i) text += std::string(rng.below(3), "abz"[rng.below(3)]);
    for (const char c : text) {
      const auto allowed = ids_in(state->mask(1000).language);
      ASSERT_EQ(allowed, brute_force(*machine, *vocabulary, at, {0})) << text;
      for (const TokenId id : vocabulary->quoted()) refused += std::count(allowed.begin(), allowed.end(), id) == 0;
      state->push(static_cast<TokenId>(static_cast<std::uint8_t>(c)));
      at = machine->next(at, static_cast<std::uint8_t>(c));
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenConstraint, NamesOfFewAreToldApart) {
  const auto names = std::make_shared<const Dfa>(dfa_literals({"a", "b", "ab", "ba", "abb"}));
  std::vector<std::string> tokens = {""};
  for (int c = 1; c < 128; ++c) tokens.emplace_back(1, static_cast<char>(c));
  for (const char* more : {"\":1", "\":1,", "b\":1,", "\":1,\"", "\":1,\"a", "\":1,\"ab", "ab\"", "\":1}", "{\"a"}) {
    tokens.emplace_back(more);
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
  Rng rng(5);
  for (const std::int64_t least : {0, 1, 3}) {
    GrammarBuilder b;
    b.grammar.spacing = Spacing::kNone;
    ObjectNode node;
    node.others = {{names, b.text("1")}};
    node.min_properties = least;
    const auto machine = b.compile(b.grammar.add(std::move(node)));
    const auto constraint = constraint_of(machine, vocabulary, {.end_ids = {0}});
    for (int run = 0; run < 200; ++run) {
      const auto state = constraint->start(false);
      StatePtr at = machine->start();
      auto budget = constraint->min_tokens() + static_cast<std::int32_t>(rng.below(9));
      for (TokenId id = kNoToken; id != 0; --budget) {
        const TokenMask mask = state->mask(std::max(budget, 1));
        ASSERT_EQ(ids_in(mask.language), brute_force(*machine, *vocabulary, at, {0}));
        const auto allowed = ids_in(mask.fits);
        id = allowed[rng.below(allowed.size())];
        ASSERT_TRUE(budget > 0 || id == 0) << "it would not end in time";
        state->push(id);
        for (const char c : vocabulary->bytes(id)) at = machine->next(at, static_cast<std::uint8_t>(c));
      }
    }
  }
}

TEST(TokenConstraint, TokensMayEndInsideACharacter) {
  GrammarBuilder b;
  std::vector<std::string> tokens = {""};
  for (int c = 1; c < 256; ++c) tokens.emplace_back(1, static_cast<char>(c));
  for (const char* more : {"\"\xE2", "\x82\xAC\"", "a\xF0\x9F", "\xE2\x82\xAC", "\xED\xA0"}) tokens.emplace_back(more);
  const auto size = static_cast<std::int32_t>(tokens.size());
  const auto vocabulary = make_vocabulary(ListTokenizer(std::move(tokens)), {}, size);
  const auto constraint = constraint_of(b.compile(b.string(1, 2)), vocabulary, {.end_ids = {0}});
  const auto state = constraint->start(false);
  EXPECT_EQ(ids_in(state->mask(9).fits), (std::vector<TokenId>{'"', 256}));
  EXPECT_TRUE(state->mask(2).fits.has(256)) << "the euro and a quote are one token";
  state->push(256);
  EXPECT_TRUE(state->mask(9).fits.has(257));
  EXPECT_FALSE(state->mask(9).fits.has('"'));
  EXPECT_EQ(ids_in(state->mask(1).fits), (std::vector<TokenId>{257}));
  state->rewind(0);
  state->push('"');
  EXPECT_TRUE(state->mask(9).fits.has(258));
  EXPECT_TRUE(state->mask(9).fits.has(259));
  EXPECT_FALSE(state->mask(9).fits.has(260)) << "no surrogates";
  state->push('a');
  EXPECT_FALSE(state->mask(9).fits.has(258)) << "a third character begins in it";
}

}  // namespace
}  // namespace barg::text::grammar::token_constraint_test
