// GEMM launches on the emulated device: what a test wants multiplied, and what came of it. Weights are a function of
// (format, matrix, shape), activations of (row, column), so that a row can be computed among any others. Used by one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda/gemm_plan.h"
#include "emu/emu.h"

namespace barg::cuda {

/// What follows a product: in its launch, or `alone` in the next.
struct Behind {
  bool norm = false;
  bool norm_out = true;
  int q_heads = 0, kv_heads = 1, head_dim = 64;  ///< q_heads: with rotation and KV write; then n is that of all heads
  KvType kv = KvType::kF16;
  bool head_norm = true, interleaved = false;
  bool alone = false;
};

struct GemmCase {
  GemmFormat format = GemmFormat::kBF16;
  Half type = Half::kBF16;
  int n = 64, k = 256;
  int rows = 8, first_row = 0;  ///< rows first_row, first_row + 1, ... of the activations
  bool bias = false, accumulate = false, gated = false;
  ops::Activation activation = ops::Activation::kSilu;
  bool out = true;  ///< false: 16 bits only
  int workers = 132;
  std::optional<GemmTile> tile{};  ///< nullopt: as planned
  std::optional<bool> shared_out{};
  int staging_rows = 32;  ///< repacked at a time
  int bad_row = -1;       ///< one of its activations is infinite
  Behind behind{};
  emu::Schedule schedule{};
  emu::Fault fault{};
  bool count_sites = false;
};

struct GemmResult {
  std::vector<float> out;           ///< [rows, n]
  std::vector<std::uint16_t> half;  ///< the same, in c.type
  std::vector<float> normed;        ///< [rows, n] behind the product
  std::vector<std::uint16_t> normed_half;
  std::vector<std::byte> kv;        ///< all blocks
  std::vector<std::byte> weight;    ///< packed; of a gated product all of gate before up
  std::set<emu::Finding::Kind> kinds;
  std::string text;  ///< of the findings
  bool gaps_are_untouched = false, counters_are_zero = false;
  GemmPlan plan;
  std::uint64_t weight_read = 0, x_read = 0, out_read = 0, kv_written = 0;  ///< bytes
  std::vector<emu::SiteCount> sites;
};
GemmResult run_gemm(const GemmCase& c);

/// Memory and parameters of what follows a product. Lives as long as the device.
class BehindLaunch {
 public:
  /// Tells the product's launch of it, unless it is to be alone. REQUIRES args.out, out_stride and rows.
  BehindLaunch(emu::Device& device, const GemmCase& c, const GemmPlan& plan, GemmArgs& args);
  /// In a launch of its own.
  void launch();
  void take(GemmResult& result);

 private:
  void make_norm();
  void make_rope();

  emu::Device& device_;
  const GemmCase& c_;
  const GemmArgs& product_;
  GemmNorm norm_{};
  GemmRope rope_{};
  std::size_t counters_ = 0, kv_bytes_ = 0;
};

/// The largest error of a row, relative to the size of what it should be, in float64 over the numbers that the file's
/// blocks and the activations say.
double worst_error(const GemmCase& c, const std::vector<float>& out);
/// What worst_error() may be: no weight is rounded, and sums are f32. (Products that cancel minima cost some digits; weights
/// in f16 would be off by 1e-4.)
inline constexpr double kGemmTolerance = 2e-5;

std::string name_of(const GemmCase& c);

}  // namespace barg::cuda
