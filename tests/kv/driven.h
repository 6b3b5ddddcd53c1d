// What the tests of KvManager share: descriptions of pools, and sequences driven by hand. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/manager.h"

namespace barg::kv {

inline StepId step(std::uint64_t n) { return static_cast<StepId>(n); }

inline GroupSpec full(std::int64_t blocks) { return {GroupKind::kFull, 0, blocks, 1}; }
inline GroupSpec window(std::int32_t w, std::int64_t blocks) {
  return {GroupKind::kSlidingWindow, w, blocks, 1};
}
inline ManagerOptions options(std::vector<GroupSpec> groups, std::int32_t block = 4) {
  ManagerOptions o;
  o.block_tokens = block;
  o.groups = std::move(groups);
  return o;
}

inline std::vector<TokenId> count_from(TokenId first, int n) {
  std::vector<TokenId> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}

/// One sequence driven by hand.
struct Driven {
  KvManager* kv;
  std::vector<TokenId> tokens;
  KvSeq seq;
  std::vector<TailCopy> copies;
  std::optional<std::int32_t> hit;
  std::int32_t computed = 0;

  Driven(KvManager& m, std::vector<TokenId> t, std::string_view salt = "")
      : kv(&m), tokens(std::move(t)), seq(m.open(root_key("r", salt))) {}
  TokenView log() const { return {tokens, {}, {}}; }
  Driven& admit(StepId at = step(1), bool counts = true) {
    KvManager::Transaction txn(*kv);
    hit =
        kv->admit(seq, log(),
                  {.read_until = log().size(), .rows = 8, .keep = {}, .step = at, .counts = counts}, copies);
    if (hit) txn.commit();
    computed = hit.value_or(0);
    return *this;
  }
  Driven& compute(std::int32_t to, StepId at = step(0)) {
    EXPECT_TRUE(kv->reserve(seq, to));
    kv->publish(seq, log(), to, at);
    kv->advance(seq, to);
    computed = to;
    return *this;
  }
  Driven& all(StepId at = step(0)) { return compute(log().size(), at); }
  void end(StepId fence = step(0)) {
    kv->release(seq, fence);
    kv->close(seq);
  }
};

/// One that there is room for.
struct Admitted : Driven {
  Admitted(KvManager& m, std::vector<TokenId> t, bool counts = true) : Driven(m, std::move(t)) {
    admit(step(1), counts);
    EXPECT_TRUE(hit.has_value());
  }
};

}  // namespace barg::kv
