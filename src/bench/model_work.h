// What a step of a model must move and compute at least, from its files alone, and what share of a machine's
// ceilings a measured time is. Pure arithmetic, any thread.
//
// Moved: every weight once a step (the output projection: only in steps that want logits; of an untied
// embedding only rows are gathered: it does not count; of experts those that rows choose, if they choose at random) and every visible key and value once a step. Computed: two operations a weight and row (the output projection:
// for rows whose logits are wanted), four a head dimension, query head, row and visible key.
#pragma once

#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "cpu/limits.h"
#include "model/model_files.h"
#include "runtime/memory_plan.h"

namespace barg::bench {

/// Bytes and operations, by the ceiling that bounds them.
struct Work {
  double weight_bytes = 0, kv_bytes = 0;
  double f32_operations = 0, int8_operations = 0, int4_operations = 0, bf16_operations = 0;

  Work& operator+=(const Work& other);
};

class ModelWork {
 public:
  /// `plan` says recipe and KV; the files must be those it was made from.
  ModelWork(const model::ModelFiles& files, const model::DecoderSpec& spec, const runtime::MemoryPlan& plan);

  /// One step: `sequences` of them compute `rows` rows each from position `start` on, and want the logits of
  /// `logits_rows` rows in all.
  Work step(std::int32_t start, std::int32_t rows, std::int32_t sequences, std::int32_t logits_rows) const;

  /// Weights that a step multiplies with, a tied embedding once.
  std::uint64_t parameters() const { return parameters_; }

 private:
  struct Group {
    double bytes_per_token, operations_per_key;
    std::int32_t window;
  };
  double weight_bytes_ = 0, output_bytes_ = 0;  ///< all that a step may move, and of it the output projection
  double expert_bytes_ = 0, chosen_share_ = 1;  ///< of experts, and what of them a row takes
  std::uint64_t parameters_ = 0;
  Work row_, logits_row_;  ///< operations of one row in the layers, and in the output projection
  std::vector<Group> groups_;
};

/// The time that memory alone would take over the time it took; 0 when the ceiling is not known.
double bandwidth_share(const Work& work, const ops::Limits& limits, double seconds);
/// The same of the arithmetic, each operation at the ceiling of its instruction.
double arithmetic_share(const Work& work, const ops::Limits& limits, double seconds);

}  // namespace barg::bench
