// CudaRunner: the Runner of a CUDA device, or of the emulated one. One device thread executes commands in the order the
// engine gave them, as CpuRunner's does, but does not wait for a step before it issues the next:
//
//   engine thread --- commands ---> device thread: stage and upload the batch, replay the bucket's graph (or issue the
//                                   kernels), download what was chosen -> in flight -> results, in order
//
// What a step chooses stays on the device too: each sequence has a place there where its newest token lies, and the next
// step's embedding reads it from there. So step n + 1 is issued before step n's tokens reach the host, unless something on
// the host needs them first (a constraint's mask; counts to be made anew).
//
// Graphs. A step of single rows (decode) is rounded up to a bucket of rows; each bucket is captured when it is first
// wanted: forward pass, logits, choice. Every other step is issued kernel by kernel.
//
// Invariants: (1) Results come in launch order. (2) A row with NaN or +inf fails its own item and nothing else. (3) At most
// kFlights steps are in flight, each with its own pinned memory. (4) A lost device, or a step that does not end in time,
// fails this step and all that follow. The device thread looks at the clock; where it hangs itself, in a call that the
// driver does not return from, the engine's thread does, in collect(), some time later. Then whoever destroys the runner
// would wait for ever too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/device.h"
#include "cuda/queue.h"
#include "model/decoder.h"
#include "runtime/cuda_memory.h"
#include "runtime/kv_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/runner.h"

namespace barg::runtime {

struct CudaRunnerParts {
  RunnerInfo info;
  MemoryPlan plan;
  std::unique_ptr<cuda::Device> device;
  std::unique_ptr<cuda::Queue> queue;   ///< on `device`
  std::unique_ptr<CudaMemory> memory;   ///< of `queue`
  const ops::OpTable* ops = nullptr;
  std::unique_ptr<model::Decoder> decoder;  ///< loaded there
  KvMemory kv;                              ///< allocated there
  bool graphs = true;
  std::size_t batch_bytes = 0;  ///< LoadOptions::cuda_batch_bytes
  std::chrono::milliseconds step_limit{60'000};  ///< after which a step counts as hung
};

class CudaRunner final : public Runner {
 public:
  /// Allocates scratch, measures what kernels need of it, and starts the device thread.
  static Result<std::unique_ptr<CudaRunner>> create(CudaRunnerParts parts);
  /// Finishes what was launched, then stops. Waits for the device.
  ~CudaRunner() override;

  const RunnerInfo& info() const override;
  void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) override;
  void remove_sequence(SeqId seq) override;
  void launch(sched::StepPlan plan) override;
  std::optional<sched::StepResult> collect(bool wait) override;
  void recycle(sched::StepResult&& result) override;
  /// A block at a time, by the device thread through a pinned buffer, on a stream of its own beside the steps'.
  KvAccess* kv_access() override;

  /// Since the start; any thread.
  struct Counts {
    std::int64_t steps = 0, graph_steps = 0, captures = 0;
    std::int64_t ahead = 0;  ///< steps that were issued while the one before was in flight
  };
  Counts counts() const;

 private:
  struct Impl;
  explicit CudaRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace barg::runtime
