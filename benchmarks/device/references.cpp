#include "device/references.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/env.h"
#include "cuda/kv_layout.h"
#include "math.h"

namespace barg::check {
namespace {

constexpr int kQ = 0, kK = 1, kV = 2;

void put_half(std::byte* to, float x) {
  const std::uint16_t h = ops::f32_to_f16(x);
  std::memcpy(to, &h, 2);
}

cuda::KvType kv_type(DType t) {
  return t == DType::kF16 ? cuda::KvType::kF16 : t == DType::kBF16 ? cuda::KvType::kBF16 : cuda::KvType::kFp8;
}

float number(int what, std::int32_t sequence, std::int32_t position, std::int32_t head, std::int32_t d) {
  return normal_of(static_cast<std::uint64_t>(what) << 60 ^ static_cast<std::uint64_t>(sequence) << 48 ^
                   static_cast<std::uint64_t>(position) << 24 ^ static_cast<std::uint64_t>(head) << 12 ^
                   static_cast<std::uint64_t>(d));
}

/// cos and sin of pair i at a position, as they are given to the kernels.
float angle(std::int32_t position, std::int32_t i, std::int32_t dim, bool sin) {
  const double x = position * std::pow(10000.0, -2.0 * i / dim);
  return static_cast<float>(sin ? std::sin(x) : std::cos(x));
}

double rotated(int what, std::int32_t sequence, std::int32_t position, std::int32_t head, std::int32_t d, std::int32_t dim) {
  const std::int32_t half = dim / 2, i = d % half;
  const double a = number(what, sequence, position, head, i), b = number(what, sequence, position, head, i + half);
  const double c = angle(position, i, dim, false), s = angle(position, i, dim, true);
  return d < half ? a * c - b * s : b * c + a * s;
}

}  // namespace

float normal_of(std::uint64_t place) {
  Rng rng(place * 0x9e3779b97f4a7c15u + 12345);
  const std::uint64_t a = rng.next(), b = rng.next();
  const auto part = [](std::uint64_t x) { return static_cast<float>(x >> 40) * 0x1p-24F; };
  return (part(a) + part(a << 24) + part(b) + part(b << 24) - 2) * 1.7F;
}

std::vector<float> normals(std::size_t count, std::uint64_t seed, float size) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = size * normal_of(seed << 40 ^ i);
  return out;
}

double error(std::span<const float> got, std::span<const double> want) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || !std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    off += std::pow(got[i] - want[i], 2);
    size += want[i] * want[i];
  }
  return std::sqrt(off / std::max(size, 1e-30));
}

std::uint16_t to_half(cuda::Half type, float x) {
  return type == cuda::Half::kF16 ? ops::f32_to_f16(x) : ops::f32_to_bf16(x);
}
double from_half(cuda::Half type, std::uint16_t h) {
  return static_cast<double>(type == cuda::Half::kF16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h));
}

// ---- matrices

StoredMatrix::StoredMatrix(DType t, std::int32_t rows, std::int32_t columns, std::uint64_t seed) : type(t), n(rows), k(columns) {
  const auto block = static_cast<std::size_t>(block_bytes(t));
  bytes.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(k / static_cast<std::int32_t>(block_elements(t))) * block);
  Rng rng(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next() >> 11);
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    std::byte* const b = bytes.data() + at;
    const float size = 0.004F + 0.01F * static_cast<float>(rng.uniform());
    const float x = 10 * (size - 0.009F);
    const std::uint16_t bf16 = ops::f32_to_bf16(x);
    switch (t) {
      case DType::kBF16: std::memcpy(b, &bf16, 2); break;
      case DType::kF16: put_half(b, x); break;
      case DType::kQ4_1:
        put_half(b, size);
        put_half(b + 2, -8 * size);
        break;
      case DType::kQ4_K:
        put_half(b, size);
        put_half(b + 2, size);
        break;
      case DType::kQ6_K: put_half(b + 208, size / 30); break;
      default: put_half(b, size);
    }
  }
}

/// As ggml dequantises it.
double StoredMatrix::weight(std::int32_t row, std::int32_t column) const {
  const auto elements = static_cast<std::int32_t>(block_elements(type));
  const std::byte* const b = bytes.data() + (static_cast<std::size_t>(row) * static_cast<std::size_t>(k / elements) +
                                             static_cast<std::size_t>(column / elements)) *
                                                static_cast<std::size_t>(block_bytes(type));
  const auto u8 = [&](int i) { return std::to_integer<int>(b[i]); };
  const auto s8 = [&](int i) { return static_cast<int>(static_cast<std::int8_t>(b[i])); };
  const auto u16 = [&](int i) { return static_cast<std::uint16_t>(u8(i) | u8(i + 1) << 8); };
  const auto f16 = [&](int i) { return static_cast<double>(ops::f16_to_f32(u16(i))); };
  const int e = column % elements;
  switch (type) {
    case DType::kF16: return f16(0);
    case DType::kBF16: return static_cast<double>(ops::bf16_to_f32(u16(0)));
    case DType::kQ8_0: return f16(0) * s8(2 + e);
    case DType::kQ4_0: return f16(0) * ((e < 16 ? u8(2 + e) & 15 : u8(2 + e - 16) >> 4) - 8);
    case DType::kQ4_1: return f16(0) * (e < 16 ? u8(4 + e) & 15 : u8(4 + e - 16) >> 4) + f16(2);
    case DType::kQ4_K: {
      const int j = e / 32;
      const int scale = j < 4 ? u8(4 + j) & 63 : (u8(8 + j) & 15) | (u8(j) >> 6) << 4;
      const int minimum = j < 4 ? u8(8 + j) & 63 : u8(8 + j) >> 4 | (u8(4 + j) >> 6) << 4;
      const int two = u8(16 + e / 64 * 32 + e % 32);
      return f16(0) * scale * (j % 2 == 0 ? two & 15 : two >> 4) - f16(2) * minimum;
    }
    case DType::kQ6_K: {
      const int half = e / 128, i = e % 32, quarter = e % 128 / 32;
      const int low = u8(64 * half + i + quarter % 2 * 32) >> (quarter >= 2 ? 4 : 0) & 15;
      const int high = u8(128 + 32 * half + i) >> 2 * quarter & 3;
      return f16(208) * s8(192 + e / 16) * ((low | high << 4) - 32);
    }
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

ops::PackedWeight packed(Lab& lab, const ops::OpTable& ops, const StoredMatrix& m) {
  ops::PackedWeight out{.n = m.n, .k = m.k, .dtype = m.type, .data = nullptr};
  const std::size_t bytes = ops.packed_bytes(m.type, m.n, m.k, ops::Packing::kStored);
  if (bytes == 0) return out;
  std::byte* const to = lab.allocate(bytes);
  ops.pack(lab.stream(), {.src = m.bytes.data(), .n = m.n, .k = m.k, .dtype = m.type, .dst = to});
  lab.check().must(lab.queue().uploader().finish());
  out.data = to;
  return out;
}

// ---- sequences

Sequences::Sequences(Lab& lab, const AttentionCase& c, std::int32_t sequences, std::int32_t longest)
    : lab_(lab), case_(c), blocks_each_((longest + c.block_tokens - 1) / c.block_tokens) {
  const auto plane = static_cast<std::int64_t>(cuda::kv_plane_bytes(kv_type(c.kv), c.block_tokens, c.dim));
  const std::int32_t blocks = sequences * blocks_each_;
  view_ = {.base = nullptr,
           .block_stride = 2 * plane * c.kv_heads,
           .head_stride = 2 * plane,
           .v_offset = plane,
           .dtype = c.kv,
           .block_tokens = c.block_tokens,
           .num_kv_heads = c.kv_heads,
           .head_dim = c.dim};
  kv_bytes_ = static_cast<std::size_t>(blocks * view_.block_stride);
  view_.base = lab.room<std::byte>(kv_bytes_);
  std::vector<BlockId> table(static_cast<std::size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  Rng rng(7);
  for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[rng.below(i)]);
  tables_ = lab.put(table);
}

void Sequences::prepare(const std::vector<Run>& runs) {
  lab_.sync();
  segments_.clear();
  rows_ = 0;
  std::vector<float> q, k, v, cos, sin;
  for (const Run& r : runs) {
    segments_.push_back({rows_, r.count, r.position, tables_ + static_cast<std::ptrdiff_t>(r.sequence) * blocks_each_});
    rows_ += r.count;
    for (std::int32_t p = r.position; p < r.position + r.count; ++p) {
      for (std::int32_t h = 0; h < case_.group * case_.kv_heads; ++h) {
        for (std::int32_t d = 0; d < case_.dim; ++d) q.push_back(number(kQ, r.sequence, p, h, d));
      }
      for (std::int32_t h = 0; h < case_.kv_heads; ++h) {
        for (std::int32_t d = 0; d < case_.dim; ++d) {
          k.push_back(number(kK, r.sequence, p, h, d));
          v.push_back(number(kV, r.sequence, p, h, d));
        }
      }
      for (std::int32_t i = 0; i < case_.dim / 2; ++i) {
        cos.push_back(angle(p, i, case_.dim, false));
        sin.push_back(angle(p, i, case_.dim, true));
      }
    }
  }
  q_ = lab_.put(q);
  k_ = lab_.put(k);
  v_ = lab_.put(v);
  cos_ = lab_.put(cos);
  sin_ = lab_.put(sin);
  out_ = lab_.room<float>(static_cast<std::size_t>(rows_) * row_floats());
  const std::span<const std::byte> host = std::as_bytes(std::span(segments_));
  lab_.queue().bind(host.data(), host.size(), reinterpret_cast<std::byte*>(lab_.put(segments_)));
  plan();
}

/// As a step's batch is planned.
void Sequences::plan() {
  const bool wide =
      std::any_of(segments_.begin(), segments_.end(), [&](const auto& s) { return s.row_count * case_.group > 16; });
  const std::int32_t workers = 2 * lab_.queue().workers();
  std::int32_t queries = 0;
  cuda::with_attention_shape(kv_type(case_.kv), case_.dim, wide, cuda::kLeastBlockShared, [&]<class S>() { queries = S::kQueries; });
  cuda::AttentionPlan plan;
  cuda::plan_attention({.segments = segments_.data(),
                        .num_segments = static_cast<std::int32_t>(segments_.size()),
                        .queries = queries,
                        .group = case_.group,
                        .num_kv_heads = case_.kv_heads,
                        .head_dim = case_.dim,
                        .window = case_.window,
                        .workers = workers,
                        .max_slot_floats = lab_.queue().slot_floats()},
                       plan);
  const auto count = static_cast<std::int32_t>(plan.items.size());
  lab_.queue().set_attention({{.segments = segments_.data(),
                               .items = lab_.put(plan.items),
                               .num_items = lab_.put(std::vector<std::int32_t>{count}),
                               .wide = wide,
                               .grid = std::min(workers, count)}});
}

void Sequences::attend() {
  const auto& ops = cuda::cuda_ops(cuda::Half::kBF16);
  ops.attention(lab_.stream(), {.q = q_,
                                .q_stride = static_cast<std::int64_t>(row_floats()),
                                .out = out_,
                                .out_stride = static_cast<std::int64_t>(row_floats()),
                                .scale = 1 / std::sqrt(static_cast<float>(case_.dim)),
                                .window = case_.window,
                                .num_q_heads = case_.group * case_.kv_heads,
                                .kv = view_,
                                .segments = segments_.data(),
                                .num_segments = static_cast<std::int32_t>(segments_.size()),
                                .workspace = nullptr});
}

std::vector<float> Sequences::run(const std::vector<Run>& runs) {
  prepare(runs);
  const auto& ops = cuda::cuda_ops(cuda::Half::kBF16);
  ops.rope_kv_write(lab_.stream(), {.q = q_,
                                    .k = k_,
                                    .v = v_,
                                    .q_stride = static_cast<std::int64_t>(row_floats()),
                                    .kv_stride = std::int64_t{case_.kv_heads} * case_.dim,
                                    .cos = cos_,
                                    .sin = sin_,
                                    .rotary_dim = case_.dim,
                                    .num_q_heads = case_.group * case_.kv_heads,
                                    .kv = view_,
                                    .segments = segments_.data(),
                                    .num_segments = static_cast<std::int32_t>(segments_.size())});
  attend();
  return lab_.get(out_, static_cast<std::size_t>(rows_) * row_floats());
}

/// What the arena holds of a head of K or V.
const std::vector<double>& Sequences::stored_head(int what, std::int32_t sequence, std::int32_t position,
                                                  std::int32_t head) const {
  const std::uint64_t key = static_cast<std::uint64_t>(what) << 60 ^ static_cast<std::uint64_t>(sequence) << 48 ^
                            static_cast<std::uint64_t>(position) << 16 ^ static_cast<std::uint64_t>(head);
  std::vector<double>& out = heads_[key];
  if (!out.empty()) return out;
  double most = 0;
  for (std::int32_t d = 0; d < case_.dim; ++d) {
    out.push_back(what == kK ? rotated(kK, sequence, position, head, d, case_.dim)
                             : static_cast<double>(number(kV, sequence, position, head, d)));
    most = std::max(most, std::fabs(out.back()));
  }
  const auto scale = static_cast<float>(most) / 448;
  for (double& x : out) {
    const auto f = static_cast<float>(x);
    if (case_.kv == DType::kF16) {
      x = from_half(cuda::Half::kF16, ops::f32_to_f16(f));
    } else if (case_.kv == DType::kBF16) {
      x = from_half(cuda::Half::kBF16, ops::f32_to_bf16(f));
    } else {
      x = static_cast<double>(ops::f8_to_f32_256th(ops::f32_to_f8(f * (1 / scale)))) * 256 * static_cast<double>(scale);
    }
  }
  return out;
}

std::vector<double> Sequences::reference(const std::vector<Run>& runs) const {
  std::vector<double> out;
  const auto dim = static_cast<std::size_t>(case_.dim);
  for (const Run& r : runs) {
    for (std::int32_t p = r.position; p < r.position + r.count; ++p) {
      for (std::int32_t h = 0; h < case_.group * case_.kv_heads; ++h) {
        std::vector<double> q, scores;
        for (std::int32_t d = 0; d < case_.dim; ++d) q.push_back(rotated(kQ, r.sequence, p, h, d, case_.dim));
        const std::int32_t first = case_.window > 0 ? std::max(0, p - case_.window + 1) : 0;
        for (std::int32_t j = first; j <= p; ++j) {
          const auto& key = stored_head(kK, r.sequence, j, h / case_.group);
          scores.push_back(std::inner_product(q.begin(), q.end(), key.begin(), 0.0) / std::sqrt(case_.dim));
        }
        const double most = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        std::vector<double> head(dim);
        for (std::int32_t j = first; j <= p; ++j) {
          const double e = std::exp(scores[static_cast<std::size_t>(j - first)] - most);
          const auto& value = stored_head(kV, r.sequence, j, h / case_.group);
          sum += e;
          for (std::size_t d = 0; d < dim; ++d) head[d] += e * value[d];
        }
        for (const double x : head) out.push_back(x / sum);
      }
    }
  }
  return out;
}

}  // namespace barg::check
