// Step 4: what may not change a bit: how many rows there are, who else is in the batch, chunks, graphs, which kernel does a
// product's norm.
#include <algorithm>

#include "device/check.h"
#include "device/references.h"

namespace barg::check {
namespace {

using cuda::Half;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

void linear(Lab& lab, const ops::PackedWeight& w, const float* x, std::int32_t rows, float* out, std::byte* workspace) {
  cuda::cuda_ops(Half::kBF16)
      .linear(lab.stream(), {.weight = w,
                             .recipe = Recipe::kBF16,
                             .x = x,
                             .rows = rows,
                             .x_stride = w.k,
                             .bias = nullptr,
                             .out = out,
                             .out_stride = w.n,
                             .workspace = workspace});
}

void products(Check& check) {
  Lab lab(check);
  const auto& ops = cuda::cuda_ops(Half::kBF16);
  const bool small = check.small();
  const std::int32_t n = small ? 64 : 1024, k = small ? 512 : 4096, most = small ? 130 : 1000;
  std::vector<std::int32_t> counts = {1, 2, 3, 8, 16, 63, 64, 65, 128, most};
  if (small) counts = {1, 3, 8, 16, 64, 65, most};
  lab.reserve([&] {
    for (const std::int32_t rows : counts) linear(lab, {.n = n, .k = k, .dtype = DType::kBF16}, nullptr, rows, nullptr, nullptr);
  });
  const auto x = normals(size(std::int64_t{most} * k), 1);
  for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_K}) {
    const ops::PackedWeight w = packed(lab, ops, StoredMatrix(type, n, k, 2));
    const float* const in = lab.put(x);
    std::byte* const workspace = lab.allocate(ops.prepared_bytes(most, k, Recipe::kBF16));
    const auto rows_of = [&](std::int32_t first, std::int32_t rows) {
      float* const out = lab.room<float>(size(std::int64_t{rows} * n));
      linear(lab, w, in + std::int64_t{first} * k, rows, out, workspace);
      return lab.get(out, size(std::int64_t{rows} * n));
    };
    const auto whole = rows_of(0, most);
    std::string differs;
    for (const std::int32_t rows : counts) {
      const auto part = rows_of(0, rows);
      if (!std::equal(part.begin(), part.end(), whole.begin())) differs += " " + std::to_string(rows);
    }
    const auto alone = rows_of(most - 1, 1);
    if (!std::equal(alone.begin(), alone.end(), whole.end() - n)) differs += " alone";
    check.right(std::string("rows of products, ") + dtype_name(type), differs.empty(),
                differs.empty() ? "1 to " + std::to_string(most) + " rows" : "other bits with rows:" + differs);
    lab.clear();
  }
}

void graphs(Check& check) {
  Lab lab(check);
  const auto& ops = cuda::cuda_ops(Half::kBF16);
  const std::int32_t n = 256, k = 512, rows = 5;
  lab.reserve([&] { linear(lab, {.n = n, .k = k, .dtype = DType::kBF16}, nullptr, rows, nullptr, nullptr); });
  const ops::PackedWeight w = packed(lab, ops, StoredMatrix(DType::kBF16, n, k, 3));
  const float* const x = lab.put(normals(size(rows * k), 4));
  const float* const weight = lab.put(normals(size(n), 5));
  std::byte* const workspace = lab.allocate(ops.prepared_bytes(rows, k, Recipe::kBF16));
  const auto issue = [&](float* product, float* normed) {
    linear(lab, w, x, rows, product, workspace);
    ops.rms_norm(lab.stream(), {.x = product, .weight = weight, .weight_offset = 0, .eps = 1e-5F, .rows = rows, .dim = n, .out = normed});
  };
  const auto result = [&](cuda::Fusing fusing, bool graph) {
    lab.queue().set_fusing(fusing);
    float* const product = lab.room<float>(size(rows * n));
    float* const normed = lab.room<float>(size(rows * n));
    if (graph) {
      const cuda::GraphId g = lab.capture(1, [&](int) { issue(product, normed); });
      for (int i = 0; i < 3; ++i) check.must(lab.device().launch(lab.queue().id(), g));
    } else {
      issue(product, normed);
    }
    return lab.get(normed, size(rows * n));
  };
  const auto eager = result(cuda::Fusing::kNever, false);
  check.right("a graph's replay and the same launches", result(cuda::Fusing::kNever, true) == eager);
  check.right("a norm in the product's kernel and by itself", result(cuda::Fusing::kAlways, false) == eager);
}

void attention(Check& check) {
  Lab lab(check);
  lab.reserve([] {});
  const std::int32_t longest = check.small() ? 300 : 2000, prompt = longest - 4;
  for (const DType kv : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    if (check.small() && kv == DType::kBF16) continue;
    const AttentionCase c{.kv = kv, .dim = check.small() ? 64 : 128, .group = 4, .kv_heads = check.small() ? 1 : 8};
    Sequences s(lab, c, 4, longest);
    const auto whole = s.run({{0, 0, prompt}, {1, 0, 33}, {2, 0, 5}});
    const auto first = whole.begin();
    const auto width = static_cast<std::ptrdiff_t>(s.row_floats());
    const std::string name = std::string(", ") + dtype_name(kv);
    bool chunks = true;
    for (std::int32_t begin = 0; begin < prompt; begin += 101) {
      const std::int32_t count = std::min(101, prompt - begin);
      const auto part = s.run({{0, begin, count}});
      chunks = chunks && std::equal(part.begin(), part.end(), first + begin * width);
    }
    check.right("a prompt in chunks and as a whole" + name, chunks);
    bool decoded = true;
    for (const std::int32_t position : {0, 15, 31, 32, 255, 256, prompt - 1}) {
      const auto row = s.run({{0, position, 1}});
      decoded = decoded && std::equal(row.begin(), row.end(), first + position * width);
    }
    check.right("a decoded row and the prompt's" + name, decoded);
    const auto alone = s.run({{0, prompt, 1}});
    const auto beside = s.run({{1, 33, 1}, {0, prompt, 1}, {2, 5, 3}, {3, 0, 1}});
    check.right("a row alone and in a batch" + name, std::equal(alone.begin(), alone.end(), beside.begin() + width));
    lab.clear();
  }
}

}  // namespace

void invariance(Check& check) {
  products(check);
  graphs(check);
  attention(check);
}

}  // namespace barg::check
