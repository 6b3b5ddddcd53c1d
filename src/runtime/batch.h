// BatchBuilder: a StepPlan (decisions) as a ForwardBatch (tensors), and the list of rows whose logits are
// wanted.
//
// Owns the arrays behind the batch and reuses them, so a steady-state step allocates nothing. Block tables
// are not copied: segments point into the plan, which must outlive the use of the batch. Device thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/forward.h"
#include "runtime/kv_memory.h"
#include "sched/plan.h"

namespace barg::runtime {

/// A row of the batch whose logits, or state for a pooled vector, somebody wants: ForwardBatch::wanted says which.
struct LogitsRow {
  std::int32_t item = 0;      ///< in the plan
  std::int32_t position = 0;  ///< of the row's own token; its logits choose the next one
  bool sample = false;        ///< choose the token; otherwise only prompt logprobs are wanted
};

class BatchBuilder {
 public:
  /// `last_tokens[i]` replaces kPendingToken in item i (unused otherwise). The batch is valid until the next
  /// call. REQUIRES a well-formed plan: tables cover their rows, every block a row writes exists (checked).
  const model::ForwardBatch& build(const sched::StepPlan& plan, std::span<const TokenId> last_tokens,
                                   const KvMemory& kv);

  /// Of the last built plan, one for each wanted row.
  std::span<const LogitsRow> logits_rows() const { return logits_rows_; }

 private:
  void add_item(const sched::StepPlan& plan, std::size_t index, TokenId last_token, const KvMemory& kv);

  struct Segments {
    std::vector<ops::Segment> all, wanted;
  };
  model::ForwardBatch batch_;
  std::vector<std::int32_t> tokens_, positions_, wanted_;
  std::vector<Segments> segments_;  // of each group
  std::vector<LogitsRow> logits_rows_;
};

/// Executes the plan's copies of blocks, in order, before the step computes.
void copy_blocks(const sched::StepPlan& plan, const KvMemory& kv, const ops::OpTable& ops,
                 ops::Stream& stream);

}  // namespace barg::runtime
