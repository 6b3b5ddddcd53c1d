// Step 3: every operation of the CUDA tables, and the sampler, against float64 at small shapes. Outputs are NaN before.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/device_kernel.h"
#include "cuda/gemm_unpack.cuh"
#include "cuda/kv_copy.cuh"
#include "cuda/sample_kernels.h"
#include "device/check.h"
#include "device/references.h"
#include "math.h"

namespace barg::check {
namespace {

using cuda::Half;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
const char* name_of(Half t) { return t == Half::kF16 ? "f16" : "bf16"; }

class Correctness {
 public:
  explicit Correctness(Check& check) : check_(check), lab_(check) {
    lab_.reserve([&] {
      const ops::PackedWeight w{.n = 160, .k = columns(), .dtype = DType::kBF16};
      for (const std::int32_t rows : {1, 9, 70, 130}) linear(Half::kBF16, w, nullptr, rows, nullptr, nullptr, false, nullptr);
      gated(Half::kBF16, w, w, nullptr, 70, nullptr, nullptr);
    });
  }

  void run() {
    for (const Half t : {Half::kF16, Half::kBF16}) {
      norms(t);
      products(t);
      gate(t);
    }
    unpacked<cuda::GemmFormat::kBF16>(DType::kBF16);
    unpacked<cuda::GemmFormat::kQ8_0>(DType::kQ8_0);
    unpacked<cuda::GemmFormat::kQ4_K>(DType::kQ4_K);
    rows();
    staged();
    angles();
    attention();
    sampler();
  }

 private:
  std::int32_t columns() const { return check_.small() ? 512 : 4096; }
  const ops::OpTable& ops(Half t) const { return cuda::cuda_ops(t); }
  void near(const std::string& name, double off, double most) {
    char text[64];
    std::snprintf(text, sizeof text, "off by %.1e of %.1e", off, most);
    check_.right(name, off <= most, text);
  }

  void norms(Half t) {
    for (const std::int32_t groups : {1, 3}) {
      const std::int32_t rows = 3, dim = 576;
      const auto x = normals(size(rows * groups * dim), 1, 3), weight = normals(size(dim), 2);
      float* const out = lab_.room<float>(x.size());
      const float eps = 1e-5F;
      ops(t).norm(lab_.stream(), {.kind = ops::NormKind::kRms,
                                  .x = lab_.put(x),
                                  .x_stride = groups * dim,
                                  .weight = lab_.put(weight),
                                  .weight_stride = 0,
                                  .bias = nullptr,
                                  .weight_offset = 1,
                                  .eps = eps,
                                  .rows = rows,
                                  .groups = groups,
                                  .dim = dim,
                                  .out = out,
                                  .out_stride = groups * dim});
      std::vector<double> want;
      for (std::size_t g = 0; g < size(rows * groups); ++g) {
        double sum = 0;
        for (std::size_t i = 0; i < size(dim); ++i) sum += std::pow(static_cast<double>(x[g * size(dim) + i]), 2);
        for (std::size_t i = 0; i < size(dim); ++i)
          want.push_back(x[g * size(dim) + i] / std::sqrt(sum / dim + static_cast<double>(eps)) * (static_cast<double>(weight[i]) + 1));
      }
      near("norm of " + std::to_string(groups) + " groups, " + name_of(t), error(lab_.get(out, x.size()), want), 3e-7);
    }
    lab_.clear();
  }

  void linear(Half t, const ops::PackedWeight& w, const float* x, std::int32_t rows, const float* bias, float* out,
              bool accumulate, void* workspace) {
    ops(t).linear(lab_.stream(), {.weight = w,
                                  .recipe = Recipe::kBF16,
                                  .x = x,
                                  .rows = rows,
                                  .x_stride = w.k,
                                  .bias = bias,
                                  .out = out,
                                  .out_stride = w.n,
                                  .workspace = workspace,
                                  .accumulate = accumulate});
  }
  void gated(Half t, const ops::PackedWeight& gate, const ops::PackedWeight& up, const float* x, std::int32_t rows, float* out,
             void* workspace) {
    ops(t).gated_linear(lab_.stream(), {.gate = gate,
                                        .up = up,
                                        .recipe = Recipe::kBF16,
                                        .x = x,
                                        .rows = rows,
                                        .x_stride = gate.k,
                                        .gate_bias = nullptr,
                                        .up_bias = nullptr,
                                        .out = out,
                                        .prepared_out = nullptr,
                                        .workspace = workspace});
  }

  /// x times the weights of a row of the matrix.
  static double product(const StoredMatrix& m, std::int32_t row, const double* x) {
    double sum = 0;
    for (std::int32_t i = 0; i < m.k; ++i) sum += m.weight(row, i) * x[i];
    return sum;
  }

  void products(Half t) {
    constexpr double kMost = 3e-5;  // no weight is rounded, sums are f32
    const std::int32_t n = 80, k = columns(), most = 70;
    const auto x = normals(size(most * k), 3);
    std::vector<double> rounded;
    for (const float v : x) rounded.push_back(from_half(t, to_half(t, v)));
    for (const DType type : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
      const std::string name = std::string(dtype_name(type)) + " by " + name_of(t);
      const StoredMatrix gate(type, n, k, 4), up(type, n, k, 5);
      const ops::PackedWeight packed_gate = packed(lab_, ops(t), gate), packed_up = packed(lab_, ops(t), up);
      if (packed_gate.data == nullptr) {
        const bool other = type == (t == Half::kF16 ? DType::kBF16 : DType::kF16);
        if (!other) check_.right("product of " + name, false, "there is no kernel");
        continue;
      }
      std::vector<std::vector<double>> sums(2);  // [gate, up][rows, n]
      for (std::int32_t r = 0; r < most; ++r) {
        for (std::int32_t i = 0; i < n; ++i) {
          sums[0].push_back(product(gate, i, rounded.data() + std::ptrdiff_t{r} * k));
          sums[1].push_back(r < 9 ? product(up, i, rounded.data() + std::ptrdiff_t{r} * k) : 0);
        }
      }
      const auto bias = normals(size(n), 6);
      float* const put_x = lab_.put(x);
      float* const put_bias = lab_.put(bias);
      std::byte* const workspace = lab_.allocate(ops(t).prepared_bytes(most, k, Recipe::kBF16));
      double off = 0;
      for (const std::int32_t rows : {1, 9, most}) {
        float* const out = lab_.put(std::vector<float>(size(rows * n), 1));
        linear(t, packed_gate, put_x, rows, put_bias, out, true, workspace);
        std::vector<double> want(sums[0].begin(), sums[0].begin() + rows * n);
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += 1 + static_cast<double>(bias[i % size(n)]);
        off = std::max(off, error(lab_.get(out, want.size()), want));
      }
      near("product of " + name, off, kMost);
      const std::int32_t rows = 9;
      float* const out = lab_.room<float>(size(rows * n));
      gated(t, packed_gate, packed_up, put_x, rows, out, workspace);
      std::vector<double> want;
      for (std::size_t i = 0; i < size(rows * n); ++i) want.push_back(sums[0][i] / (1 + std::exp(-sums[0][i])) * sums[1][i]);
      near("gated product of " + name, error(lab_.get(out, want.size()), want), 4 * kMost);
      embed(t, gate, packed_gate, name);
      lab_.clear();
    }
  }

  void embed(Half t, const StoredMatrix& m, const ops::PackedWeight& w, const std::string& name) {
    const std::vector<std::int32_t> ids = {0, m.n - 1, 7, 7, 33};
    float* const out = lab_.room<float>(ids.size() * size(m.k));
    ops(t).embed(lab_.stream(), {.table = w, .ids = lab_.put(ids), .rows = static_cast<std::int32_t>(ids.size()), .scale = 2, .out = out});
    std::vector<double> want;
    for (const std::int32_t id : ids) {
      for (std::int32_t i = 0; i < m.k; ++i) want.push_back(2 * m.weight(id, i));
    }
    near("rows of " + name, error(lab_.get(out, want.size()), want), 1e-6);
  }

  /// Rows of 16-bit numbers for a library's product, out of a packed matrix.
  template <cuda::GemmFormat F>
  void unpacked(DType type) {
    const StoredMatrix m(type, 40, 512, 12);
    const ops::PackedWeight w = packed(lab_, ops(Half::kBF16), m);
    auto* const to = lab_.room<std::uint16_t>(size(m.n * m.k));
    lab_.queue().launch(cuda::kernel<cuda::gemm_unpack_kernel<F, Half::kBF16>>(),
                        {.grid_x = cuda::gemm_unpack_grid(F, m.n, m.k), .threads = cuda::kGemmUnpackThreads},
                        cuda::GemmUnpackArgs{static_cast<const std::byte*>(w.data), m.n, m.k, to});
    std::vector<float> got;
    std::vector<double> want;
    for (const std::uint16_t h : lab_.get(to, size(m.n * m.k))) got.push_back(ops::bf16_to_f32(h));
    for (std::int32_t i = 0; i < m.n * m.k; ++i) want.push_back(m.weight(i / m.k, i % m.k));
    near(std::string("numbers of ") + dtype_name(type) + " spelt out", error(got, want), type == DType::kBF16 ? 0 : 3e-3);
    lab_.clear();
  }

  /// KV blocks to a staging buffer and back to other places.
  void staged() {
    const std::int64_t floats = 5000, bytes = 4 * floats;
    const auto blocks = normals(size(4 * floats), 13);
    auto* const arena = reinterpret_cast<std::byte*>(lab_.put(blocks));
    auto* const staging = lab_.room<std::byte>(size(2 * bytes));
    const auto move = [&](const cuda::Kernel& kernel, const std::vector<BlockId>& ids) {
      const std::vector<cuda::KvStagedGroup> group = {{arena, bytes, bytes, lab_.put(ids), 0}};
      lab_.queue().launch(kernel, cuda::kv_copy_launch(bytes, 2, 1), cuda::KvStageArgs{lab_.put(group), staging, bytes});
    };
    move(cuda::kernel<cuda::kv_gather_kernel>(), {3, 1});
    move(cuda::kernel<cuda::kv_scatter_kernel>(), {0, 2});
    std::vector<double> want;
    for (const std::int64_t b : {3, 1, 1, 3}) want.insert(want.end(), blocks.begin() + b * floats, blocks.begin() + (b + 1) * floats);
    near("blocks to a staging buffer and back", error(lab_.get(reinterpret_cast<float*>(arena), want.size()), want), 0);
    lab_.clear();
  }

  void gate(Half t) {
    const std::int32_t rows = 3, dim = 200;
    const auto x = normals(size(2 * rows * dim), 7, 2);
    for (const bool silu : {true, false}) {
      float* const in = lab_.put(x);
      float* const out = lab_.room<float>(size(rows * dim));
      ops(t).gate_mul(lab_.stream(), {.gate = in,
                                      .up = in + dim,
                                      .in_stride = 2 * dim,
                                      .rows = rows,
                                      .dim = dim,
                                      .out = out,
                                      .activation = silu ? ops::Activation::kSilu : ops::Activation::kGeluTanh});
      std::vector<double> want;
      for (std::int32_t i = 0; i < rows * dim; ++i) {
        const double g = x[size(i / dim * 2 * dim + i % dim)], u = x[size(i / dim * 2 * dim + i % dim + dim)];
        const double z = silu ? g : 2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        want.push_back(g / (1 + std::exp(-z)) * u);
      }
      near(std::string(silu ? "silu" : "gelu") + " of gates, " + name_of(t), error(lab_.get(out, want.size()), want), 1e-6);
    }
    lab_.clear();
  }

  void rows() {
    const std::int32_t count = 1000;
    const auto x = normals(size(count), 8), y = normals(size(count), 9);
    float* const to = lab_.put(x);
    const auto& table = ops(Half::kBF16);
    table.add_scaled(lab_.stream(), {.x = to, .y = lab_.put(y), .scale = 0.5F, .count = count});
    table.scale_logits(lab_.stream(), {.x = to, .x_stride = 250, .rows = 4, .dim = 250, .scale = 3, .softcap = 0, .block_max = nullptr});
    std::vector<double> want;
    for (std::size_t i = 0; i < x.size(); ++i) want.push_back(3 * (x[i] + 0.5 * static_cast<double>(y[i])));
    near("scaled sums", error(lab_.get(to, want.size()), want), 1e-6);
    float* const kept = lab_.put(x);
    table.keep_rows(lab_.stream(), {.rows = kept, .stride = 100, .width = 100, .wanted = lab_.put(std::vector<std::int32_t>{0, 3, 4, 9}), .count = 4});
    want.clear();
    for (const std::size_t row : {0U, 3U, 4U, 9U}) want.insert(want.end(), x.begin() + row * 100, x.begin() + row * 100 + 100);
    near("wanted rows", error(lab_.get(kept, want.size()), want), 0);
    const std::vector<BlockId> from = {2, 0}, into = {1, 3};
    const auto blocks = normals(4 * 64, 10);
    float* const arena = lab_.put(blocks);
    table.copy_blocks(lab_.stream(), {.base = reinterpret_cast<std::byte*>(arena), .block_stride = 256, .src = from.data(), .dst = into.data(), .count = 2});
    want.clear();
    for (const std::size_t b : {0U, 2U, 2U, 0U}) want.insert(want.end(), blocks.begin() + b * 64, blocks.begin() + b * 64 + 64);
    near("copied blocks", error(lab_.get(arena, want.size()), want), 0);
    lab_.clear();
  }

  void angles() {
    std::vector<float> frequencies;
    for (int i = 0; i < 64; ++i) frequencies.push_back(static_cast<float>(std::pow(500000.0, -i / 64.0)));
    const std::vector<std::int32_t> positions = {0, 1, 4095, 131071};
    float* const cos = lab_.room<float>(256);
    float* const sin = lab_.room<float>(256);
    ops(Half::kBF16).rope_angles(lab_.stream(), {.frequencies = lab_.put(frequencies), .count = 64, .scale = 1, .positions = lab_.put(positions), .rows = 4, .cos = cos, .sin = sin});
    std::vector<double> want_cos, want_sin;
    for (const std::int32_t p : positions) {
      for (const float f : frequencies) {
        want_cos.push_back(std::cos(p * static_cast<double>(f)));
        want_sin.push_back(std::sin(p * static_cast<double>(f)));
      }
    }
    near("rotation angles", std::max(error(lab_.get(cos, 256), want_cos), error(lab_.get(sin, 256), want_sin)), 1e-6);
    lab_.clear();
  }

  /// A prompt, a chunk behind one, and single rows at the ends of blocks, tiles and splits.
  void attention() {
    std::vector<AttentionCase> cases = {{.kv = DType::kF16, .dim = 64, .group = 3},
                                        {.kv = DType::kBF16, .dim = 128, .group = 4, .window = 100},
                                        {.kv = DType::kF8E4M3, .dim = 128, .group = 8, .kv_heads = 1}};
    if (!check_.small()) {
      for (const std::int32_t dim : {64, 96, 128, 256}) {
        for (const DType kv : {DType::kF16, DType::kBF16, DType::kF8E4M3}) cases.push_back({.kv = kv, .dim = dim, .group = 7, .block_tokens = 32});
      }
    }
    for (const AttentionCase& c : cases) {
      const std::int32_t longest = check_.small() ? 258 : 520;
      Sequences s(lab_, c, 4, longest);
      double off = 0;
      std::vector<std::vector<Run>> steps = {{{0, 0, 40}, {1, 0, 17}, {2, 0, longest - 3}}, {{0, 40, 30}, {1, 17, 1}, {2, longest - 3, 1}, {3, 0, 1}}, {{2, longest - 2, 1}}};
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto got = s.run(steps[i]);
        if (i == 0) continue;  // many rows to recompute; step 4 holds them against these
        off = std::max(off, error(got, s.reference(steps[i])));
      }
      near(std::string("attention over ") + dtype_name(c.kv) + ", heads of " + std::to_string(c.dim) + ", groups of " + std::to_string(c.group), off, c.kv == DType::kF16 ? 2e-3 : 1.5e-2);
      lab_.clear();
    }
  }

  void sampler() {
    const std::int32_t vocab = check_.small() ? 3000 : 128256, rows = 3;
    const std::int64_t stride = (vocab + 3) / 4 * 4;
    const auto logits = normals(size(rows * stride), 11, 3);
    cuda::SampleRow row{};
    row.top_p = row.repetition = 1;
    row.forced = kNoToken;
    row.log_min_p = -INFINITY;
    row.top_logprobs = 2;
    auto* const out = lab_.room<cuda::SampledToken>(rows);
    cuda::launch_sample(lab_.queue(), rows,
                        {.logits = lab_.put(logits),
                         .stride = stride,
                         .vocab = vocab,
                         .scratch = nullptr,
                         .rows = lab_.put(std::vector<cuda::SampleRow>(rows, row)),
                         .out = out,
                         .top_ids = lab_.room<TokenId>(rows * cuda::kMaxTopLogprobs),
                         .top_logprobs = lab_.room<float>(rows * cuda::kMaxTopLogprobs)});
    const auto tokens = lab_.get(out, rows);
    bool best = true;
    std::vector<float> got;
    std::vector<double> want;
    for (std::int32_t r = 0; r < rows; ++r) {
      const float* const x = logits.data() + r * stride;
      const std::ptrdiff_t at = std::max_element(x, x + vocab) - x;
      best = best && tokens[size(r)].id == at && tokens[size(r)].rank == 1;
      double sum = 0;
      for (std::int32_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(x[i] - x[at]));
      want.push_back(-std::log(sum));
      got.push_back(tokens[size(r)].logprob);
    }
    check_.right("the largest logit is chosen", best);
    near("logarithms of probabilities", error(got, want), 1e-6);
    lab_.clear();
  }

  Check& check_;
  Lab lab_;
};

}  // namespace

void correctness(Check& check) { Correctness(check).run(); }

}  // namespace barg::check
