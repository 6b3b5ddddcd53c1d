// CpuRunner: the Runner of the CPU back end. One device thread executes commands (sequence added, sequence
// removed, step) strictly in the order the engine gave them, so nothing it owns needs a lock:
//
//   engine thread --- commands ---> device thread: resolve pending tokens, copy blocks, forward,
//                 <--- results ----                logits in sub-batches, prompt logprobs, sample (or pool)
//
// Invariants: (1) Results come in launch order. (2) A row with NaN or +inf fails its own item and nothing
// else. (3) Logits exist for at most kLogitsRows rows at a time, whatever a step asks for. (4) A step in the
// steady state allocates nothing, log-probabilities and vectors apart. It does not: decide anything, know the
// scheduler, keep the model's files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cpu/cpu.h"
#include "model/decoder.h"
#include "runtime/kv_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/runner.h"

namespace barg::runtime {

struct CpuRunnerParts {
  RunnerInfo info;
  MemoryPlan plan;
  std::unique_ptr<ops::CpuDevice> device;
  std::unique_ptr<model::Decoder> decoder;  ///< loaded on `device`
  KvMemory kv;
};

class CpuRunner final : public Runner {
 public:
  /// Allocates scratch and starts the device thread. Throws std::bad_alloc only.
  explicit CpuRunner(CpuRunnerParts parts);
  /// Finishes what was launched, then stops.
  ~CpuRunner() override;

  const RunnerInfo& info() const override;
  void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) override;
  void remove_sequence(SeqId seq) override;
  void launch(sched::StepPlan plan) override;
  std::optional<sched::StepResult> collect(bool wait) override;
  void recycle(sched::StepResult&& result) override;
  KvAccess* kv_access() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace barg::runtime
