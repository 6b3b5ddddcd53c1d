// Step 5: how long kernels take at the shapes of Llama-8B and Qwen3-0.6B, by replays of graphs over memory that no cache
// holds, against what gemm_predictions.csv and predictions.csv say.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "cuda/device_kernel.h"
#include "cuda/sample_kernels.h"
#include "device/check.h"
#include "device/probe.cuh"
#include "device/references.h"

namespace barg::check {
namespace {

using cuda::FillKind;
using cuda::Half;

/// More than what caches hold several times.
constexpr std::size_t kRotated = std::size_t{256} << 20;
constexpr int kNodes = 20;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

struct Product {
  std::string matrix;
  std::int32_t n = 0, k = 0;
  DType weights{};
  std::int32_t rows = 0;
  double microseconds = 0;
};

/// gemm_predictions.csv: matrix,n,k,weights,rows,microseconds,bound.
std::vector<Product> read_products(const std::string& folder) {
  std::vector<Product> out;
  std::ifstream in(folder + "/gemm_predictions.csv");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#") || line.starts_with("matrix,")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    Product p;
    std::string type;
    fields >> p.matrix >> p.n >> p.k >> type >> p.rows >> p.microseconds;
    p.weights = type == "BF16" ? DType::kBF16 : type == "Q8_0" ? DType::kQ8_0 : DType::kQ4_K;
    if (fields || p.microseconds > 0) out.push_back(p);
  }
  return out;
}

class Timing {
 public:
  explicit Timing(Check& check) : check_(check), lab_(check) {}

  void run() {
    products();
    attention();
    norm_and_sampler();
  }

 private:
  const ops::OpTable& ops() const { return cuda::cuda_ops(Half::kBF16); }

  void fill(std::byte* to, std::size_t bytes, cuda::FillArgs how) {
    how.words = reinterpret_cast<std::uint32_t*>(to);
    how.count = static_cast<std::int64_t>(bytes / 4);
    lab_.queue().launch(cuda::kernel<cuda::fill_kernel>(), {.grid_x = 8 * lab_.queue().workers(), .threads = cuda::kProbeThreads}, how);
  }
  static cuda::FillArgs all(FillKind kind) {
    return {.words = nullptr, .count = 0, .unit = 1, .scales_at = 1, .supers_at = 1, .codes = kind, .scales = kind, .supers = kind, .seed = 3};
  }
  /// Units of packed matrices (cuda/gemm.h).
  static cuda::FillArgs weights(DType type) {
    if (type == DType::kBF16) return all(FillKind::kBF16);
    const auto layout = cuda::gemm_layout(type == DType::kQ8_0 ? cuda::GemmFormat::kQ8_0 : cuda::GemmFormat::kQ4_K);
    return {.words = nullptr,
            .count = 0,
            .unit = layout.bytes() / 4,
            .scales_at = layout.scales_at() / 4,
            .supers_at = layout.supers_at() / 4,
            .codes = FillKind::kBits,
            .scales = type == DType::kQ8_0 ? FillKind::kScales : FillKind::kSixBits,
            .supers = FillKind::kScales,
            .seed = 4};
  }

  void multiply(const Product& p, std::byte* w, void* x, float* out) {
    if (p.matrix != "gate_up") {
      return ops().linear(lab_.stream(), {.weight = {.n = p.n, .k = p.k, .dtype = p.weights, .data = w},
                                          .recipe = Recipe::kBF16,
                                          .x = nullptr,
                                          .rows = p.rows,
                                          .x_stride = p.k,
                                          .bias = nullptr,
                                          .out = out,
                                          .out_stride = p.n,
                                          .workspace = nullptr,
                                          .prepared = x});
    }
    const std::size_t half = ops().packed_bytes(p.weights, p.n / 2, p.k, ops::Packing::kStored);
    ops().gated_linear(lab_.stream(), {.gate = {.n = p.n / 2, .k = p.k, .dtype = p.weights, .data = w},
                                       .up = {.n = p.n / 2, .k = p.k, .dtype = p.weights, .data = w + half},
                                       .recipe = Recipe::kBF16,
                                       .x = nullptr,
                                       .rows = p.rows,
                                       .x_stride = p.k,
                                       .gate_bias = nullptr,
                                       .up_bias = nullptr,
                                       .out = nullptr,
                                       .prepared_out = out,
                                       .workspace = nullptr,
                                       .prepared = x});
  }

  void products() {
    auto all_products = read_products(check_.options().predictions);
    if (all_products.empty()) check_.stop("there is no gemm_predictions.csv in " + check_.options().predictions);
    if (check_.small()) {
      all_products.resize(3);
      for (Product& p : all_products) p = {p.matrix, 128, 512, p.weights, std::min(p.rows, 8), p.microseconds};
      all_products.push_back({"gate_up", 128, 512, DType::kQ4_K, 3, 1});
    }
    std::size_t most_weights = 0, most_x = 0, most_out = 0;
    for (const Product& p : all_products) {
      most_weights = std::max(most_weights, ops().packed_bytes(p.weights, p.n, p.k, ops::Packing::kStored) + 65536);
      most_x = std::max(most_x, 2 * size(std::int64_t{p.rows} * p.k));
      most_out = std::max(most_out, 4 * size(std::int64_t{p.rows} * p.n));
    }
    lab_.reserve([&] {
      for (const Product& p : all_products) multiply(p, nullptr, nullptr, nullptr);
    });
    const std::size_t room = check_.small() ? most_weights : std::max(most_weights, 2 * kRotated);
    std::byte* const w = lab_.allocate(room);
    std::byte* const x = lab_.allocate(most_x);
    auto* const out = reinterpret_cast<float*>(lab_.allocate(most_out));
    fill(x, most_x, all(FillKind::kBF16));
    for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
      fill(w, room, weights(type));
      for (const Product& p : all_products) {
        if (p.weights != type) continue;
        const std::size_t bytes = (ops().packed_bytes(type, p.n, p.k, ops::Packing::kStored) + 255) / 256 * 256;
        // Copies begin where units do.
        const auto layout_bytes = size(type == DType::kBF16 ? 1 : cuda::gemm_layout(type == DType::kQ8_0 ? cuda::GemmFormat::kQ8_0 : cuda::GemmFormat::kQ4_K).bytes());
        const std::size_t step = (bytes + 256 * layout_bytes - 1) / (256 * layout_bytes) * (256 * layout_bytes);
        const std::size_t copies = std::max<std::size_t>(1, room / step);
        const int nodes = p.rows > 64 ? 4 : kNodes;
        const double seconds = lab_.seconds(nodes, [&](int i) { multiply(p, w + size(i) % copies * step, x, out); });
        const std::string name = p.matrix + " " + dtype_name(type) + " x " + std::to_string(p.rows);
        check_.measured(name, 1e6 * seconds, Prediction{p.microseconds, "us", false});
      }
    }
    lab_.clear();
  }

  /// Decode and prefill over K and V that are all there.
  void attention() {
    struct Shape {
      std::string name;
      AttentionCase c;
      std::int32_t sequences, context, rows;
    };
    const AttentionCase llama{.kv = DType::kF16, .dim = 128, .group = 4, .kv_heads = 8}, qwen{.kv = DType::kF16, .dim = 128, .group = 2, .kv_heads = 8};
    std::vector<Shape> shapes = {{"Llama-8B decode attention 64 x 4k", llama, 64, 4096, 1},
                                 {"Llama-8B decode attention 128 x 1k", llama, 128, 1024, 1},
                                 {"Llama-8B decode attention 1 x 1k", llama, 1, 1024, 1},
                                 {"Qwen3-0.6B decode attention 1 x 1k", qwen, 1, 1024, 1},
                                 {"Qwen3-0.6B decode attention 64 x 4k", qwen, 64, 4096, 1},
                                 {"Llama-8B prefill attention 4k", llama, 1, 4096, 4096}};
    if (check_.small()) shapes = {{"decode attention", {.group = 2, .kv_heads = 1}, 3, 100, 1}, {"prefill attention", {.group = 2, .kv_heads = 1}, 1, 40, 40}};
    for (const Shape& s : shapes) {
      lab_.reserve([] {});
      Sequences sequences(lab_, s.c, s.sequences, s.context);
      fill(sequences.kv(), sequences.kv_bytes(), all(FillKind::kF16));
      std::vector<Run> runs;
      for (std::int32_t i = 0; i < s.sequences; ++i) runs.push_back({i, s.context - s.rows, s.rows});
      sequences.prepare(runs);
      const double seconds = lab_.seconds(s.rows > 1 ? 2 : kNodes, [&](int) { sequences.attend(); });
      if (s.rows == 1 && s.sequences > 1)
        check_.measured(s.name, static_cast<double>(sequences.kv_bytes()) / seconds / 1e12, "TB/s");
      else
        check_.measured(s.name, 1e6 * seconds, "us");
      lab_.clear();
    }
  }

  void norm_and_sampler() {
    const std::int32_t dim = check_.small() ? 256 : 4096, vocab = check_.small() ? 2000 : 128256;
    for (const std::int32_t rows : {1, 64, 4096}) {
      if (check_.small() && rows > 64) continue;
      auto* const x = reinterpret_cast<float*>(lab_.allocate(4 * size(std::int64_t{rows} * dim)));
      auto* const half = lab_.allocate(2 * size(std::int64_t{rows} * dim));
      const float* const weight = lab_.put(normals(size(dim), 1));
      fill(reinterpret_cast<std::byte*>(x), 4 * size(std::int64_t{rows} * dim), all(FillKind::kFloats));
      const double seconds = lab_.seconds(kNodes, [&](int) {
        ops().rms_norm(lab_.stream(), {.x = x, .weight = weight, .weight_offset = 0, .eps = 1e-5F, .rows = rows, .dim = dim, .out = nullptr, .prepared = half});
      });
      check_.measured("norm of 4096 x " + std::to_string(rows), 1e6 * seconds, "us");
      lab_.clear();
    }
    for (const std::int32_t rows : {1, 64}) {
      const std::int32_t count = check_.small() ? 1 : rows;
      auto* const logits = reinterpret_cast<float*>(lab_.allocate(4 * size(std::int64_t{count} * vocab)));
      fill(reinterpret_cast<std::byte*>(logits), 4 * size(std::int64_t{count} * vocab), all(FillKind::kFloats));
      for (const bool greedy : {true, false}) {
        cuda::SampleRow row{};
        row.repetition = 1;
        row.top_p = greedy ? 1 : 0.95F;
        row.temperature = greedy ? 0 : 0.8F;
        row.forced = kNoToken;
        row.log_min_p = -INFINITY;
        row.top_logprobs = -1;
        const cuda::SampleArgs args{.logits = logits,
                                    .stride = vocab,
                                    .vocab = vocab,
                                    .scratch = nullptr,
                                    .rows = lab_.put(std::vector<cuda::SampleRow>(size(count), row)),
                                    .out = lab_.room<cuda::SampledToken>(size(count)),
                                    .top_ids = nullptr,
                                    .top_logprobs = nullptr};
        const double seconds = lab_.seconds(kNodes, [&](int) { cuda::launch_sample(lab_.queue(), count, args); });
        check_.measured(std::string(greedy ? "greedy" : "top-p") + " choice x " + std::to_string(rows), 1e6 * seconds, "us");
      }
      lab_.clear();
    }
  }

  Check& check_;
  Lab lab_;
};

}  // namespace

void timing(Check& check) { Timing(check).run(); }

}  // namespace barg::check
