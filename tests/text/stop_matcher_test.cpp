// Stop strings against a naive matcher, over all ways to cut the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/detokenizer.h"

namespace barg::text::stop_matcher_test {
namespace {

struct Naive {
  std::string text;
  int stop = -1;
};

// First end position at which some stop string ends; the longest one there; the text before it (or through it).
Naive naive(const std::vector<std::string>& stops, bool include, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (std::size_t k = 0; k < stops.size(); ++k) {
      const std::string& s = stops[k];
      if (s.empty() || s.size() > end || text.compare(end - s.size(), s.size(), s) != 0) continue;
      if (best < 0 || s.size() > stops[static_cast<std::size_t>(best)].size()) best = static_cast<int>(k);
    }
    if (best >= 0) {
      return {text.substr(0, include ? end : end - stops[static_cast<std::size_t>(best)].size()), best};
    }
  }
  return {text, -1};
}

// Longest suffix of `text` that is a proper prefix of a stop string.
std::size_t live_prefix(const std::vector<std::string>& stops, const std::string& text) {
  std::size_t best = 0;
  for (const std::string& s : stops) {
    for (std::size_t n = 1; n < s.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, s, 0, n) == 0) best = std::max(best, n);
    }
  }
  return best;
}

std::string random_text(std::mt19937& rng, std::size_t most, int letters) {
  std::string s(rng() % (most + 1), 'a');
  for (char& c : s) c = static_cast<char>('a' + static_cast<int>(rng() % static_cast<unsigned>(letters)));
  return s;
}

TEST(StopMatcher, EqualsTheNaiveMatcherForEverySplit) {
  std::mt19937 rng(11);
  int stopped = 0, open = 0;
  for (int round = 0; round < 20000; ++round) {
    const int letters = 1 + static_cast<int>(rng() % 3);
    std::vector<std::string> stops(rng() % 5);
    for (std::string& s : stops) s = random_text(rng, 6, letters);
    const std::string text = random_text(rng, 24, letters);
    const bool include = rng() % 2;
    const Naive want = naive(stops, include, text);
    (want.stop >= 0 ? stopped : open) += 1;
    StopMatcher m(stops, include);
    std::string shown, fed;
    int stop = -1;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = std::min<std::size_t>(1 + rng() % 6, text.size() - at);
      const StopMatcher::Out out = m.push(std::string_view(text).substr(at, n));
      fed += text.substr(at, n);
      at += n;
      shown += out.text;
      stop = out.stop;
      if (stop >= 0) continue;  // later pushes must stay silent
      ASSERT_EQ(m.held(), live_prefix(stops, fed)) << "holds back more or less than the live prefix";
      ASSERT_EQ(shown.size() + m.held(), fed.size());
    }
    const StopMatcher::Out last = m.flush();
    shown += last.text;
    ASSERT_EQ(shown, want.text) << "text " << text;
    ASSERT_EQ(last.stop, want.stop) << "text " << text;
    ASSERT_EQ(m.stopped(), want.stop >= 0);
  }
  EXPECT_GT(stopped, 2000);
  EXPECT_GT(open, 2000);
}

TEST(StopMatcher, HoldsOnlyALivePrefix) {
  StopMatcher m({"</answer>"}, false);
  EXPECT_EQ(m.push("a < b").text, "a < b");
  EXPECT_EQ(m.push(" </ans").text, " ");
  EXPECT_EQ(m.held(), 5u);
  EXPECT_EQ(m.push("x").text, "</ansx");
  EXPECT_EQ(m.push("</answer").text, "");
  const auto out = m.push("> more");
  EXPECT_EQ(out.text, "");
  EXPECT_EQ(out.stop, 0);
}

TEST(StopMatcher, EarliestEndWinsThenTheLongest) {
  StopMatcher inner({"abcde", "bcd"}, false);
  auto out = inner.push("xabcde");
  EXPECT_EQ(out.stop, 1);
  EXPECT_EQ(out.text, "xa");
  StopMatcher same_end({"d", "bcd", "cd"}, false);
  out = same_end.push("abcd");
  EXPECT_EQ(out.stop, 1);
  EXPECT_EQ(out.text, "a");
}

TEST(StopMatcher, IncludeStopShowsTheWholeString) {
  StopMatcher m({"END"}, true);
  EXPECT_EQ(m.push("the E").text, "the ");
  const auto out = m.push("ND and more");
  EXPECT_EQ(out.text, "END");
  EXPECT_EQ(out.stop, 0);
  EXPECT_EQ(m.push("silent").text, "");
  EXPECT_EQ(m.flush().text, "");
  EXPECT_EQ(m.flush().stop, 0);
}

TEST(StopMatcher, FlushGivesWhatWasHeld) {
  StopMatcher m({"###"}, false);
  EXPECT_EQ(m.push("title ##").text, "title ");
  const auto out = m.flush();
  EXPECT_EQ(out.text, "##");
  EXPECT_EQ(out.stop, -1);
  EXPECT_EQ(m.push("#").text, "") << "a flushed text is over: its end is no prefix any more";
  EXPECT_EQ(m.held(), 1u);
}

TEST(StopMatcher, NoStopsAndEmptyStopsHoldNothing) {
  StopMatcher none({}, false);
  EXPECT_EQ(none.push("anything").text, "anything");
  StopMatcher empty({"", "x"}, false);
  EXPECT_EQ(empty.push("abc").text, "abc");
  EXPECT_EQ(empty.push("x").stop, 1);
}

TEST(StopMatcher, LongHostileStopsStayLinear) {
  const std::string run(200'000, 'a');
  StopMatcher m({run + "b", run}, false);
  std::string shown;
  for (int i = 0; i < 4; ++i) {
    shown += m.push(std::string(100'000, 'a') + "c").text;
    ASSERT_EQ(m.held(), 0u);
  }
  EXPECT_EQ(shown.size(), 400'004u);
  EXPECT_EQ(m.push(run).stop, 1);
}

TEST(StopMatcher, MultiByteStopsNeverCutACharacter) {
  StopMatcher m({"\xC3\xA9t\xC3\xA9"}, false);
  EXPECT_EQ(m.push("caf\xC3\xA8").text, "caf\xC3\xA8");
  EXPECT_EQ(m.push("\xC3\xA9").text, "");
  EXPECT_EQ(m.push("t").text, "");
  EXPECT_EQ(m.push("\xC3\xA9").stop, 0);
}

}  // namespace
}  // namespace barg::text::stop_matcher_test
