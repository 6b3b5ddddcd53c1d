// Queue: what lies behind ops::Stream on a CUDA device: one stream of a Device, the scratch that kernels share, and where
// on the device the batch of a step lies. Operations (ops.h) return nothing, so the first failure is kept here until
// somebody asks; until then nothing more is issued.
//
// Batches. A step's arrays (tokens, segments, ...) are written to pinned memory and copied as they are to a place on the
// device that is always the same. Operations are given the host's addresses, and pass on the device's: on_device().
//
// Scratch is allocated once. measure() says how much: between begin_measure() and reserve() operations launch nothing and
// only note what they would need for as many rows as they get or fewer, so that the same code which computes is asked.
//
// Fusing. A product is held back until the next operation is known: the norm of its rows, or the rotation of what it made
// and the write of K and V, may be done by the same kernel, and norms of heads by whatever rotates. Whether they are
// changes no bit. flush() issues what is held; every launch does so first.
//
// Threads: one at a time. The Device outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/attention_plan.h"
#include "cuda/device.h"
#include "cuda/device_memory.h"
#include "cuda/gemm.h"
#include "cuda/gemm_lt.h"

namespace barg::cuda {

/// The work list of the attention of one group's layers over some segments.
struct AttentionWork {
  const ops::Segment* segments;  ///< as operations name them: the host's address
  const AttentionItem* items;    ///< of the device, as num_items
  const std::int32_t* num_items;
  bool wide;          ///< which tile (attention.cuh)
  std::int32_t grid;  ///< blocks to launch
};

/// What waits for the operation behind it.
struct Held {
  bool product = false;
  GemmFormat format{};
  GemmArgs args;  ///< without work and scratch
  void (*multiply)(class Queue&, GemmFormat, const GemmArgs&) = nullptr;
  int norms = 0;
  ops::NormParams norm[2];  ///< of heads, in place, behind the product
  void (*normalise)(class Queue&, const ops::NormParams&) = nullptr;
};

/// When norms and rotations go into the product's kernel: where the planner thinks that it pays, or wherever there is one.
enum class Fusing : std::uint8_t { kWhereItPays, kAlways, kNever };

class Queue {
 public:
  /// Pieces in which weights travel.
  static constexpr std::size_t kUploadPiece = std::size_t{8} << 20;
  /// Floats for splits of attention that are shared out, for each multiprocessor.
  static constexpr std::int64_t kSlotFloats = std::int64_t{128} << 10;

  static Status create(Device& device, std::unique_ptr<Queue>& out);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  ops::Stream& stream() { return reinterpret_cast<ops::Stream&>(*this); }
  static Queue& of(ops::Stream& stream) { return reinterpret_cast<Queue&>(stream); }

  Device& device() { return device_; }
  StreamId id() const { return stream_; }
  Uploader& uploader() { return uploader_; }
  std::int32_t workers() const { return device_.info().multiprocessors; }

  /// Of everything since the last call.
  Status take_status();
  /// Keeps the first that is not ok.
  void note(Status status);
  bool stopped() const { return measuring_ || !status_.ok(); }

  /// Issues a kernel, unless measuring or after a failure.
  template <class Args>
  void launch(const Kernel& kernel, const LaunchShape& shape, const Args& args) {
    flush();
    if (stopped()) return;
    ++launches_;
    note(cuda::launch(device_, stream_, kernel, shape, args));
  }
  /// Kernels issued so far.
  std::int64_t launches() const { return launches_; }

  /// A library that multiplies more than kOwnRows rows (`invariant: false`); nullptr: nothing does but the own kernels.
  void set_library(std::unique_ptr<GemmLt> library) { library_ = std::move(library); }
  GemmLt* library() const { return library_.get(); }
  static constexpr std::int32_t kOwnRows = 64;
  static constexpr std::size_t kLibraryWorkspace = std::size_t{32} << 20;

  // What is held.
  void set_fusing(Fusing f) { fusing_ = f; }
  Fusing fusing() const { return fusing_; }
  Held& held() { return held_; }
  void flush();

  // The batch.
  /// [host, host + bytes) has a copy at `device`, as far as operations are concerned from now on.
  void bind(const std::byte* host, std::size_t bytes, std::byte* device);
  void set_attention(std::vector<AttentionWork> work) { attention_ = std::move(work); }
  /// What is not of the batch lies on the device already.
  template <class T>
  T* on_device(T* p) const {
    const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(host_);
    return at < batch_bytes_ ? reinterpret_cast<T*>(batch_ + at) : p;
  }
  /// What ids below 0 name in the batch's tokens: -1 - i is number i of these, which a step before has written.
  void set_previous_ids(const std::int32_t* ids) { previous_ids_ = ids; }
  const std::int32_t* previous_ids() const { return previous_ids_; }
  /// nullptr: nobody planned for these.
  const AttentionWork* attention(const ops::Segment* segments) const;

  // Scratch.
  void begin_measure() { measuring_ = true; }
  bool measuring() const { return measuring_; }
  /// Of matrix products (gemm_plan.h).
  void need(std::int64_t partial_bytes, std::int64_t counters);
  /// Whether so much was reserved.
  bool has_scratch(std::int64_t partial_bytes, std::int64_t counters) const {
    return partial_bytes <= partial_bytes_ && counters <= num_counters_;
  }
  /// Of products by the library: a weight spelt out, and rows of f32 behind it.
  void need_library(std::size_t weight_bytes, std::size_t rows_bytes);
  std::byte* library_weight() const { return library_weight_; }
  float* library_rows() const { return reinterpret_cast<float*>(library_rows_); }
  std::byte* library_workspace() const { return library_workspace_; }
  /// Ends measuring, and allocates.
  Status reserve();
  float* partials() const { return reinterpret_cast<float*>(partials_); }
  std::int32_t* counters() const { return reinterpret_cast<std::int32_t*>(counters_); }
  float* slots() const { return reinterpret_cast<float*>(slots_); }
  std::int32_t* slot_counters() const { return reinterpret_cast<std::int32_t*>(slot_counters_); }
  std::int64_t slot_floats() const { return kSlotFloats * workers(); }

 private:
  explicit Queue(Device& device) : device_(device) {}

  Device& device_;
  StreamId stream_{};
  Uploader uploader_;
  Status status_;
  std::int64_t launches_ = 0;
  const std::byte* host_ = nullptr;
  std::size_t batch_bytes_ = 0;
  std::byte* batch_ = nullptr;
  const std::int32_t* previous_ids_ = nullptr;
  std::vector<AttentionWork> attention_;
  Held held_;
  Fusing fusing_ = Fusing::kWhereItPays;
  bool measuring_ = false;
  std::int64_t partial_bytes_ = 0, num_counters_ = 0;
  std::unique_ptr<GemmLt> library_;
  std::size_t library_weight_bytes_ = 0, library_rows_bytes_ = 0;
  std::byte *library_weight_ = nullptr, *library_rows_ = nullptr, *library_workspace_ = nullptr;
  DeviceArena scratch_;
  std::byte *partials_ = nullptr, *counters_ = nullptr, *slots_ = nullptr, *slot_counters_ = nullptr;
};

/// The operations of models whose activations have these 16 bits. What they lack of ops.h, their `features` say; every
/// other field is there. Weights: gemm_plan.h's formats, and F32, which is rounded to the activations' type once.
const ops::OpTable& cuda_ops(Half activations);

/// Queries that a block of attention takes, in the narrow tile or the wide one. REQUIRES that attention is not refused.
std::int32_t attention_queries(DType kv, std::int32_t head_dim, bool wide);
/// Why attention over heads of this size, shared by so many queries, in this KV type, has no kernel there; empty: it has.
std::string attention_refusal(const DeviceInfo& device, DType kv, std::int32_t head_dim, std::int32_t num_q_heads,
                              std::int32_t num_kv_heads);

}  // namespace barg::cuda
