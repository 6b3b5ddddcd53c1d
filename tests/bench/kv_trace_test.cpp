// Traces of block ids: what is read, what is refused, and the offline optimum against all that a cache could
// do.
#include "bench/kv_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/env.h"
#include "support/data.h"
#include "support/temp_dir.h"
#include "trace_of.h"

namespace barg::bench::kv_trace_test {
namespace {

using testing::trace_of;

Result<std::vector<TraceRow>> read_text(const std::string& text) {
  return read_trace(test::scratch().write("trace.jsonl", text));
}

void expect_refused(const std::string& text, const std::string& part) {
  const auto rows = read_text(text);
  ASSERT_FALSE(rows) << text;
  EXPECT_NE(rows.error().message.find(part), std::string::npos) << rows.error().message;
}

const std::string kGood = R"({"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]})";

TEST(TraceFile, RowsComeInTheOrderOfTime) {
  const auto rows =
      read_text("{\"timestamp\": 900.5, \"input_length\": 9, \"output_length\": 0}\r\n\n  \n" + kGood + "\n");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_DOUBLE_EQ((*rows)[0].at_s, 0.005);
  EXPECT_EQ((*rows)[0].blocks, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ((*rows)[0].input_length, 700);
  EXPECT_EQ((*rows)[0].output_length, 3);
  EXPECT_DOUBLE_EQ((*rows)[1].at_s, 0.9005);
  EXPECT_TRUE((*rows)[1].blocks.empty());
}

TEST(TraceFile, WhatIsWrongIsNamedWithItsLine) {
  expect_refused("", "has no rows");
  expect_refused("\n \n", "has no rows");
  expect_refused(kGood + "\nnot json\n", ":2: ");
  expect_refused("[1,2]", "expected an object");
  expect_refused("7", "expected an object");
  expect_refused(R"({"input_length": 1, "output_length": 1})", "timestamp");
  expect_refused(R"({"timestamp": "1", "input_length": 1, "output_length": 1})", "timestamp");
  expect_refused(R"({"timestamp": 1e300, "input_length": 1, "output_length": 1})", "timestamp");
  expect_refused(R"({"timestamp": 1, "input_length": 0, "output_length": 1})", "input_length");
  expect_refused(R"({"timestamp": 1, "input_length": -5, "output_length": 1})", "input_length");
  expect_refused(R"({"timestamp": 1, "input_length": 99999999999, "output_length": 1})", "input_length");
  expect_refused(R"({"timestamp": 1, "input_length": 1.5, "output_length": 1})", "input_length");
  expect_refused(R"({"timestamp": 1, "input_length": 1, "output_length": -1})", "output_length");
  expect_refused(R"({"timestamp": 1, "input_length": 1})", "output_length");
  expect_refused(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, -2]})",
                 "hash_ids");
  expect_refused(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, "a"]})",
                 "hash_ids");
  expect_refused(
      R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [99999999999999999999]})",
      ":1: ");
  EXPECT_EQ(read_trace("/nowhere/at/all").error().code, ErrorCode::kNotFound);
}

// Whatever a line says: rows or one sentence.
TEST(TraceFile, DamagedLinesAreRefusedOrRead) {
  Rng rng(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = kGood + "\n" + kGood;
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const std::size_t at = rng.below(text.size());
      switch (rng.below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.below(8));
          break;
        case 2:
          text.insert(at, 1 + rng.below(3), "{}[],:\"9-e.\n"[rng.below(12)]);
          break;
        default:
          text.insert(at, text.substr(rng.below(text.size()), rng.below(30)));
      }
      if (text.empty()) text = " ";
    }
    const auto rows = read_text(text);
    if (!rows) {
      ASSERT_NE(rows.error().message.find("trace.jsonl"), std::string::npos) << rows.error().message;
      continue;
    }
    const KvTrace trace = make_kv_trace(*rows);
    ASSERT_EQ(trace.begin.size(), trace.size() + 1);
    ASSERT_LE(optimum_hits(trace, 3), trace.nodes.size());
  }
}

TEST(KvTrace, ABlockIsItsIdBehindAllIdsBeforeIt) {
  const KvTrace trace = trace_of({{1, 2, 3}, {1, 2, 4}, {}, {2, 3}, {1, 2, 3, 1}});
  ASSERT_EQ(trace.size(), 4U);  // nothing to ask for: left out
  const auto list = [&](std::size_t i) {
    return std::vector(trace.request(i).begin(), trace.request(i).end());
  };
  EXPECT_EQ(list(0), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(list(1), (std::vector<std::int32_t>{0, 1, 3}));
  EXPECT_EQ(list(2), (std::vector<std::int32_t>{4, 5}));
  EXPECT_EQ(list(3), (std::vector<std::int32_t>{0, 1, 2, 6}));
  EXPECT_EQ(trace.distinct, 7);
  EXPECT_EQ(trace.longest, 4U);
  EXPECT_EQ(trace.tokens, 12U * kTraceBlock);
  EXPECT_EQ(trace.at_s[2], 3.0);
}

// Every set of blocks that a cache may hold after each request, and the most hits on the way to it.
std::uint64_t best_by_trying(const KvTrace& trace, int capacity) {
  std::map<std::uint32_t, std::uint64_t> best{{0, 0}};
  for (std::size_t i = 0; i < trace.size(); ++i) {
    std::uint32_t request = 0;
    for (const std::int32_t node : trace.request(i)) request |= 1U << node;
    std::map<std::uint32_t, std::uint64_t> next;
    for (const auto& [set, score] : best) {
      std::uint64_t hits = 0;
      for (const std::int32_t node : trace.request(i)) {
        if ((set >> node & 1U) == 0) break;
        ++hits;
      }
      const std::uint32_t all = set | request;
      for (std::uint32_t kept = all;; kept = (kept - 1) & all) {
        if (std::popcount(kept) <= capacity) {
          std::uint64_t& value = next[kept];
          value = std::max(value, score + hits);
        }
        if (kept == 0) break;
      }
    }
    best.swap(next);
  }
  std::uint64_t most = 0;
  for (const auto& [set, score] : best) most = std::max(most, score);
  return most;
}

TEST(KvTrace, TheOptimumIsWhatTryingEverythingFinds) {
  Rng rng(11);
  int useful = 0;
  for (int round = 0; round < 120; ++round) {
    std::vector<std::vector<std::uint64_t>> requests(5 + rng.below(4));
    for (auto& ids : requests) {
      ids.resize(1 + rng.below(3));
      for (std::size_t d = 0; d < ids.size(); ++d) ids[d] = rng.below(d == 0 ? 2 : 3);
    }
    const KvTrace trace = trace_of(requests);
    if (trace.distinct > 10) continue;
    for (int capacity = 1; capacity <= 4; ++capacity) {
      const std::uint64_t hits = optimum_hits(trace, static_cast<std::uint64_t>(capacity));
      ASSERT_EQ(hits, best_by_trying(trace, capacity)) << "round " << round << ", capacity " << capacity;
      useful += hits > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(useful, 100);
  EXPECT_EQ(optimum_hits(trace_of({{1}, {1}}), 0), 0U);
}

TEST(KvTrace, TheOptimumOfTheReferenceTraces) {
  const std::string path = test::shared_data("traces/mooncake_conversation.jsonl");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  const auto rows = read_trace(path);
  ASSERT_TRUE(rows) << rows.error().message;
  const KvTrace trace = make_kv_trace(*rows);
  EXPECT_EQ(trace.size(), 12'031U);
  EXPECT_EQ(trace.nodes.size(), 288'500U);
  EXPECT_EQ(trace.distinct, 182'790);
  const auto rate = [&](std::uint64_t capacity) {
    return static_cast<double>(optimum_hits(trace, capacity)) / static_cast<double>(trace.nodes.size());
  };
  EXPECT_NEAR(rate(1760), 0.241, 0.005);
  EXPECT_NEAR(rate(16'000), 0.366, 0.005);
}

}  // namespace
}  // namespace barg::bench::kv_trace_test
