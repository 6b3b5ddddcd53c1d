// CudaBatch: the arrays of one step in the form in which a device reads them: one run of pinned memory that is copied as a
// whole to a place that is always the same (cuda/queue.h).
//
// A step of so many rows always has its arrays at the same places, up to what only the device's pointers lead to (block
// tables, masks, biases). So a captured graph reads what a later step of the same form left there. Forms: a bucket of rows,
// each the one row of a sequence, to which rows are added until there are `rows` (they belong to no segment, so they write
// nothing that is kept); or any other step, whose form is its own.
//
// Owns nothing. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/queue.h"
#include "cuda/sampler.h"
#include "model/forward.h"
#include "sched/plan.h"

namespace barg::runtime {

/// Pinned memory with a copy on the device, given out from the front.
class StagedMemory {
 public:
  StagedMemory(std::byte* host, std::byte* device, std::size_t bytes) : host_(host), device_(device), bytes_(bytes) {}

  /// The next `count`; empty when they do not fit any more.
  template <class T>
  std::span<T> take(std::size_t count) {
    constexpr std::size_t kAlign = 16;
    const std::size_t at = (used_ + kAlign - 1) / kAlign * kAlign;
    if (count > (bytes_ - std::min(at, bytes_)) / sizeof(T)) {
      full_ = true;
      return {};
    }
    used_ = at + count * sizeof(T);
    return {reinterpret_cast<T*>(host_ + at), count};
  }
  template <class T>
  T* on_device(T* p) const {
    return reinterpret_cast<T*>(device_ + (reinterpret_cast<const std::byte*>(p) - host_));
  }
  /// A copy there; nullptr for nothing.
  template <class T>
  const T* put(std::span<const T> values) {
    if (values.empty()) return nullptr;
    const std::span<T> to = take<T>(values.size());
    if (to.empty()) return nullptr;
    std::copy(values.begin(), values.end(), to.begin());
    return on_device(to.data());
  }

  std::byte* host() const { return host_; }
  std::byte* device() const { return device_; }
  std::size_t capacity() const { return bytes_; }
  std::size_t used() const { return used_; }
  bool full() const { return full_; }

 private:
  std::byte *host_, *device_;
  std::size_t bytes_, used_ = 0;
  bool full_ = false;
};

class CudaBatch {
 public:
  struct Shape {
    DType kv_dtype;
    std::int32_t num_q_heads;
    std::int32_t workers;  ///< multiprocessors
    std::int64_t slot_floats;
    std::vector<model::LayerGroup> groups;
  };
  explicit CudaBatch(Shape shape) : shape_(std::move(shape)) {}

  /// Whether every row is the only one of its sequence, and wanted.
  static bool decodes(const model::ForwardBatch& built, const sched::StepPlan& plan);
  /// Writes `built` (of `plan`, by BatchBuilder) to `memory`, with rows added up to `rows`; 0: as it is. Of a bucket all
  /// rows are wanted. The result is valid as long as what lies in `memory`.
  const model::ForwardBatch& stage(const model::ForwardBatch& built, const sched::StepPlan& plan, std::int32_t rows,
                                   StagedMemory& memory);
  /// Of the staged batch, for Queue::set_attention().
  const std::vector<cuda::AttentionWork>& attention() const { return attention_; }
  /// [max(rows, wanted)] of the staged batch, to be filled.
  std::span<cuda::SampleRow> samples() const { return samples_; }

 private:
  struct Planned {
    std::span<cuda::AttentionItem> items;
    std::span<std::int32_t> count;
  };
  std::span<const ops::Segment> segments(std::span<const ops::Segment> from, std::size_t count, std::int32_t rows,
                                         StagedMemory& memory);
  void plan(std::size_t group, std::span<const ops::Segment> segments, bool bucket, StagedMemory& memory);

  const Shape shape_;
  model::ForwardBatch batch_;
  std::vector<cuda::AttentionWork> attention_;
  std::span<cuda::SampleRow> samples_;
  cuda::AttentionPlan plan_;  ///< memory for the next
};

}  // namespace barg::runtime
