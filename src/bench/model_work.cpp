#include "bench/model_work.h"

#include <algorithm>
#include <cmath>

#include "ops.h"

namespace barg::bench {
namespace {

/// Two operations a weight, at the ceiling of what multiplies this type in this recipe.
Work matrix_row(const model::Tensor& t, Recipe recipe) {
  Work w;
  const double operations = 2.0 * static_cast<double>(t.elements());
  const DType type = t.type.dtype.value_or(DType::kF32);
  const bool blocks = ops::prepared_form(Recipe::kInt8, type) == ops::Form::kInt8;
  if (recipe == Recipe::kBF16) {
    w.bf16_operations = operations;
  } else if (recipe != Recipe::kInt8 || !blocks) {
    w.f32_operations = operations;
  } else if (type == DType::kQ8_0 || type == DType::kS8Per16 || type == DType::kS8Min) {
    w.int8_operations = operations;
  } else {
    w.int4_operations = operations;
  }
  return w;
}

Work times(const Work& w, double n) {
  return {w.weight_bytes * n, w.kv_bytes * n, w.f32_operations * n, w.int8_operations * n,
          w.int4_operations * n, w.bf16_operations * n};
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  f32_operations += other.f32_operations;
  int8_operations += other.int8_operations;
  int4_operations += other.int4_operations;
  bf16_operations += other.bf16_operations;
  return *this;
}

ModelWork::ModelWork(const model::ModelFiles& files, const model::DecoderSpec& spec,
                     const runtime::MemoryPlan& plan)
    : weight_bytes_(static_cast<double>(plan.weight_bytes)) {
  const model::Tensor* embedding = files.find("token_embd.weight");
  const model::Tensor* table = spec.per_layer.width > 0 ? files.find("per_layer_token_embd.weight") : nullptr;
  const model::Tensor* output = spec.tied ? embedding : files.find("output.weight");
  const model::ExpertSpec& experts = spec.experts;
  if (experts.count > 0) chosen_share_ = static_cast<double>(experts.chosen) / experts.count;
  for (const model::Tensor& t : files.tensors()) {
    const bool stack = t.shape.size() == 3 && t.shape[0] == experts.count;
    if (stack || (t.name.find(".experts.") != t.name.npos && t.shape.size() == 2)) {
      parameters_ += t.elements();
      row_ += times(matrix_row(t, plan.recipe), chosen_share_);
      expert_bytes_ += static_cast<double>(plan.recipe == Recipe::kBF16 ? 2 * t.elements() : t.bytes.size());
      continue;
    }
    if (t.shape.size() != 2) continue;
    if (&t == table || (&t == embedding && &t != output)) {
      weight_bytes_ -= static_cast<double>(t.bytes.size());
      continue;
    }
    parameters_ += t.elements();
    if (&t == output)
      output_bytes_ =
          static_cast<double>(plan.recipe == Recipe::kBF16 ? 2 * t.elements() : t.bytes.size());
    (&t == output ? logits_row_ : row_) += matrix_row(t, plan.recipe);
  }
  const auto groups = model::layer_groups(spec);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups_.push_back({static_cast<double>(plan.block_bytes[g]) / plan.block_tokens,
                       4.0 * groups[g].head_dim * spec.num_q_heads * model::group_readers(spec, groups[g]),
                       groups[g].window});
  }
}

Work ModelWork::step(std::int32_t start, std::int32_t rows, std::int32_t sequences,
                     std::int32_t logits_rows) const {
  Work w = times(row_, static_cast<double>(rows) * sequences);
  w += times(logits_row_, logits_rows);
  w.weight_bytes = weight_bytes_ - (logits_rows == 0 ? output_bytes_ : 0) -
                   expert_bytes_ * std::pow(1 - chosen_share_, static_cast<double>(rows) * sequences);
  for (const Group& g : groups_) {
    const std::int32_t held = g.window > 0 ? std::min(start + rows, g.window + rows - 1) : start + rows;
    w.kv_bytes += g.bytes_per_token * held * sequences;
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::int32_t keys = g.window > 0 ? std::min(start + r + 1, g.window) : start + r + 1;
      w.f32_operations += g.operations_per_key * keys * sequences;
    }
  }
  return w;
}

double bandwidth_share(const Work& work, const ops::Limits& limits, double seconds) {
  if (limits.read_gbytes <= 0 || seconds <= 0) return 0;
  return (work.weight_bytes + work.kv_bytes) / (limits.read_gbytes * 1e9) / seconds;
}

double arithmetic_share(const Work& work, const ops::Limits& limits, double seconds) {
  if (limits.f32_gflops <= 0 || limits.int8_gops <= 0 || limits.int4_gops <= 0 || seconds <= 0) return 0;
  // The scalar path does bf16 by f32 FMAs.
  const double bf16_gflops = limits.bf16_gflops > 0 ? limits.bf16_gflops : limits.f32_gflops;
  return (work.f32_operations / limits.f32_gflops + work.int8_operations / limits.int8_gops +
          work.int4_operations / limits.int4_gops + work.bf16_operations / bf16_gflops) /
         1e9 / seconds;
}

}  // namespace barg::bench
