// Which bytes of an output became text.
#include "server/text_trace.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace barg::server::text_trace_test {
namespace {

using text::OutputEvent;
using text::OutputEvents;
using Kind = OutputEvent::Kind;

/// Plays a parser: gives bytes, and says what came out.
struct Played {
  TextTrace trace;
  OutputEvents events;

  void step(std::string_view bytes, std::size_t held, std::vector<std::pair<Kind, std::string>> said = {}) {
    const TextTrace::Mark since = TextTrace::end_of(events);
    trace.give(bytes);
    for (auto& [kind, text] : said) {
      if (!events.empty() && events.back().kind == kind && kind != Kind::kToolStart) {
        events.back().text += text;
        continue;
      }
      OutputEvent event;
      event.kind = kind;
      event.text = text;
      events.push_back(std::move(event));
    }
    trace.took(events, since, held);
  }
  std::pair<std::size_t, std::size_t> find(std::size_t begin, std::size_t end) {
    const TextTrace::Range r = trace.find(begin, end);
    return {r.begin, r.end};
  }
};
using Range = std::pair<std::size_t, std::size_t>;

TEST(TextTrace, ReasoningLayoutAndMarkersAreNoText) {
  Played p;
  p.step("<think>", 0);
  p.step("h", 0, {{Kind::kReasoning, "h"}});
  p.step("</think>", 0);
  p.step("\n", 0);
  p.step("Y", 0, {{Kind::kText, "Y"}});
  p.step("es", 0, {{Kind::kText, "es"}});
  EXPECT_EQ(p.find(0, 7), Range(0, 0));
  EXPECT_EQ(p.find(7, 8), Range(0, 0));
  EXPECT_EQ(p.find(8, 16), Range(0, 0));
  EXPECT_EQ(p.find(16, 17), Range(0, 0));
  EXPECT_EQ(p.find(16, 18), Range(0, 1)) << "a token of layout and text";
  EXPECT_EQ(p.find(17, 20), Range(0, 3));
}

TEST(TextTrace, WhatWasHeldIsTextOrNot) {
  Played p;
  p.step("a", 0, {{Kind::kText, "a"}});
  p.step(" ", 1);
  p.step("<", 2);
  p.step("b", 0, {{Kind::kText, " <b"}});
  p.step("\n", 1);
  p.step("[CALL]", 0, {{Kind::kToolStart, "f"}});
  p.step("{}", 0, {{Kind::kToolArgs, "{}"}, {Kind::kToolEnd, ""}});
  p.step("c", 0, {{Kind::kText, "c"}});
  EXPECT_EQ(p.find(0, 3), Range(0, 3));
  EXPECT_EQ(p.find(3, 4), Range(3, 4));
  EXPECT_EQ(p.find(4, 13), Range(0, 0));
  EXPECT_EQ(p.find(13, 14), Range(4, 5)) << "counted on in the joined text";
}

TEST(TextTrace, SpacesInFrontOfAMarkerAndTheRestOfABrokenCall) {
  Played p;
  p.step("  <t>", 0, {{Kind::kText, "  "}});
  EXPECT_EQ(p.find(0, 2), Range(0, 2));
  EXPECT_EQ(p.find(2, 5), Range(0, 0));
  p.step("{x}", 3);
  p.step("x}", 0, {{Kind::kToolStart, "f"}, {Kind::kToolEnd, ""}, {Kind::kText, "x}"}});
  EXPECT_EQ(p.find(5, 8), Range(0, 0)) << "what is said behind a call is the end of what was given";
  EXPECT_EQ(p.find(8, 10), Range(2, 4));
}

TEST(TextTrace, AMarkerOfThePromptIsNobodysToken) {
  Played p;
  p.step("H", 0, {{Kind::kText, "<think>\nH"}});
  p.step("i", 0, {{Kind::kText, "i"}});
  EXPECT_EQ(p.find(0, 1), Range(8, 9));
  EXPECT_EQ(p.find(1, 2), Range(9, 10));
}

TEST(TextTrace, LongOutputsAreForgottenAsTheyAreAskedFor) {
  Played p;
  for (std::size_t i = 0; i < 100'000; ++i) {
    p.events.clear();
    p.step("x", 0, {{Kind::kText, "x"}});
    ASSERT_EQ(p.find(i, i + 1), Range(i, i + 1));
  }
}

}  // namespace
}  // namespace barg::server::text_trace_test
