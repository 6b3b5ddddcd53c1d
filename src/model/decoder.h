// Decoder: packed weights of one decoder-only model and its forward pass, driven by DecoderSpec's flags.
// Calls the device only through OpTable, one op after the other on one Stream.
//
// Invariants: (1) hidden states and logits of a row are a function of its tokens and weights only: never of
// the other rows, of chunking or of where its blocks lie. (2) forward() allocates nothing and keeps nothing
// between calls but the KV it writes. (3) Every projection goes through one linear() helper; all_reduce is
// called after each row-parallel projection, also at world size 1.
//
// Threads: load() once; forward() and logits() from one thread at a time. The stream and the table must
// outlive the decoder. It does not: sample, own KV memory, know sequences or the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "barg/result.h"
#include "model/decoder_spec.h"
#include "model/forward.h"
#include "model/memory.h"
#include "model/model_files.h"
#include "ops.h"

namespace barg::model {

struct DecoderOptions {
  Recipe recipe = Recipe::kF32;
  std::int32_t context = 0;  ///< the longest sequence that will be served (fix_context); 0: max_positions
  Memory* memory = nullptr;  ///< that the table's operations work in; nullptr: the host's
};

/// Scratch of one forward pass: one aligned allocation, reused step after step. Movable.
class Workspace {
 public:
  /// Memory of the host.
  explicit Workspace(std::size_t bytes);
  /// Memory that somebody else owns.
  Workspace(std::byte* data, std::size_t bytes) : data_(data), size_(bytes), borrowed_(true) {}
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool borrowed_ = false;
};

class Decoder {
 public:
  using Progress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;
  /// The residual stream [rows, hidden]: layer -1 after the embedding, then after each layer; each of several
  /// streams by itself, in order.
  using Observer = std::function<void(std::int32_t layer, const float* x, std::int32_t rows)>;

  /// Packs every tensor into one arena, dropping file pages as it goes. Fails by name on a tensor that is
  /// missing, misshapen or of a type kernels cannot read.
  static Result<std::unique_ptr<Decoder>> load(const ModelFiles& files, const ops::OpTable& ops,
                                               ops::Stream& stream, const DecoderOptions& options,
                                               const Progress& progress = {});
  /// Exact bytes load() will allocate for weights; the same errors, without reading weights.
  static Result<std::uint64_t> weight_bytes(const ModelFiles& files, const ops::OpTable& ops, Recipe recipe);
  /// Exact bytes a Workspace for `max_rows` rows needs.
  static std::size_t workspace_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                     std::int32_t max_rows);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const DecoderSpec& spec() const;
  Recipe recipe() const;
  const std::vector<LayerGroup>& groups() const;
  std::size_t workspace_bytes(std::int32_t max_rows) const;
  std::uint64_t weight_bytes() const;

  /// Computes all rows and writes their K and V; hidden_out [wanted rows, hidden] after the final norm.
  /// REQUIRES 0 < batch.rows <= the max_rows `workspace` was sized for; tokens in [0, vocab_rows); positions
  /// in [0, spec().max_positions); one GroupKv per group; of a bidirectional model whole prompts, of which all rows
  /// are wanted.
  void forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out);
  /// REQUIRES spec().generates(). out [rows, vocab_rows] from rows of hidden_out (dense). Same limit on rows. block_max, if there:
  /// [rows, ceil(vocab_rows / ops::kBlockMax)], the largest logit of each block (LinearParams::block_max). `stride`: of
  /// rows of `out`, if they are not dense.
  void logits(const float* hidden, std::int32_t rows, Workspace& workspace, float* out,
              float* block_max = nullptr, std::int64_t stride = 0);

  /// For tests; costs nothing when empty.
  void set_observer(Observer observer);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace barg::model
