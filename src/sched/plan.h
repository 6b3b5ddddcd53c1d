// StepPlan and StepResult: the only things that cross between the scheduler (decisions) and the runner
// (computation). Plain data in flat arrays, no pointers into anybody's state; moved, never shared.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "barg/request.h"
#include "barg/result.h"
#include "barg/types.h"

namespace barg::sched {

/// In StepPlan::tokens: "the token that the previous step samples for this sequence". The runner resolves it
/// on the device, so step n+1 may launch before step n's tokens reach the host.
inline constexpr TokenId kPendingToken = -2;

/// What an item wants out of its rows.
enum class Want : std::uint8_t {
  kNothing,  // a prefill chunk that is not the last
  kLogits,   // logits of rows [logits_begin, count)
  kPooled,   // one vector, from the states of rows [logits_begin, count): the last rows of the prompt
};

/// Rows of one sequence: positions [start, start + count).
struct PlanItem {
  SeqId seq{};
  std::uint32_t epoch = 0;         ///< raised at every preemption; a result of another epoch is stale
  std::int32_t start = 0;
  std::int32_t count = 0;
  std::int32_t token_offset = 0;   ///< into StepPlan::tokens, `count` entries
  std::int32_t table_offset = 0;   ///< into StepPlan::tables, num_groups consecutive entries
  Want want = Want::kNothing;
  std::int32_t logits_begin = 0;   ///< row within the item; with kLogits and kPooled
  bool sample = false;             ///< the last row's logits choose the token at position start + count
  std::int32_t output_index = 0;   ///< with sample: how many output tokens precede the new one
};

/// A slice of StepPlan::block_ids: entry i is the block of tokens [i*B, (i+1)*B) or kNoBlock (left the window).
struct TableSlice {
  std::int32_t offset = 0;
  std::int32_t length = 0;
};

/// Copy the first `tokens` tokens of a block to another (forks and adopted tails), before the step computes.
struct BlockCopy {
  std::int32_t group = 0;
  BlockId src = kNoBlock;
  BlockId dst = kNoBlock;
  std::int32_t tokens = 0;
};

struct StepPlan {
  StepId id{};
  std::int32_t num_groups = 1;
  std::vector<PlanItem> items;        ///< no sequence twice
  std::vector<TokenId> tokens;
  std::vector<TableSlice> tables;     ///< [item][group]
  std::vector<BlockId> block_ids;
  std::vector<BlockCopy> copies;
  double predicted_s = 0;             ///< the cost model's forecast

  std::int32_t rows() const {
    std::int32_t n = 0;
    for (const auto& i : items) n += i.count;
    return n;
  }
};

enum class ItemStatus : std::uint8_t {
  kOk,
  kBadLogits,  // NaN, +inf or everything masked (or a vector that is not finite): this request fails, no other
};

struct ItemResult {
  SeqId seq{};
  std::uint32_t epoch = 0;
  std::int32_t position = 0;                   ///< of tokens[0] in the sequence (prompt included)
  std::vector<OutputToken> tokens;             ///< empty unless the item sampled
  std::vector<TokenLogprobs> prompt_logprobs;  ///< of the tokens at positions start+1+logits_begin ...
  std::vector<float> pooled{};                 ///< with kPooled
  ItemStatus status = ItemStatus::kOk;
};

struct StepResult {
  StepId id{};
  std::vector<ItemResult> items;   ///< same order as the plan's
  double seconds = 0;              ///< how long the device worked
  std::optional<Error> fatal;      ///< the device is lost: every request fails
  StepPlan spent{};                ///< the plan on its way home: its memory is used again, no more
};

}  // namespace barg::sched
