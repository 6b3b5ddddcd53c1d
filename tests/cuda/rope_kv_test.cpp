// Norm, rotation and KV write: to the bit what the CPU's specification stores where numbers are finite.
#include "cuda/rope_kv.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "attention_case.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;
using emu::Order;
using Kind = emu::Finding::Kind;

struct RopeCase {
  KvType kv = KvType::kF16;
  int dim = 64, q_heads = 3, kv_heads = 1, block_tokens = 16, rotary_dim = 64;
  bool interleaved = false, norm = false;
  std::vector<Rows> rows{{1, 0, 3}, {2, 15, 2}, {3, 70, 1}};
  float k_factor = 1, v_factor = 1;  ///< of what is stored in row 1
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct RopeResult {
  std::vector<float> q, k, v;  ///< before: [rows][heads][D]
  std::vector<float> cos, sin, q_norm, k_norm;
  std::vector<float> rotated;
  std::vector<std::byte> planes;  ///< [rows][kv heads][2 planes of a token: row, scale of 4 bytes]
  std::size_t token_bytes = 0;
  std::set<Kind> kinds;
  std::string text;
  std::vector<emu::SiteCount> sites;
  std::uint64_t written = 0;
};

std::vector<float> normals(std::mt19937& random, std::size_t n) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

template <class T>
T* uploaded(Device& device, const std::vector<T>& data, const char* name) {
  auto* const p = static_cast<T*>(device.allocate(data.size() * sizeof(T), name));
  device.upload(p, data.data(), data.size() * sizeof(T));
  return p;
}

template <KvType kKv>
void launch_rope(Device& device, const RopeKvArgs& args) {
  const LaunchShape shape{.grid_x = rope_kv_grid(args.rows, args.num_q_heads, args.kv.num_kv_heads),
                          .threads = kRopeThreads};
  switch (args.kv.head_dim) {
    case 64: return launch<rope_kv_kernel<kKv, 64>>(device.stream(), shape, args);
    case 96: return launch<rope_kv_kernel<kKv, 96>>(device.stream(), shape, args);
    case 128: return launch<rope_kv_kernel<kKv, 128>>(device.stream(), shape, args);
    default: return launch<rope_kv_kernel<kKv, 256>>(device.stream(), shape, args);
  }
}

RopeResult run_rope(const RopeCase& c) {
  Device device(c.schedule);
  std::mt19937 random(static_cast<unsigned>(c.dim + c.q_heads));
  RopeResult r;
  std::size_t rows = 0;
  int blocks = 2;
  for (const Rows& s : c.rows) {
    rows += static_cast<std::size_t>(s.count);
    blocks += (s.position + s.count + c.block_tokens - 1) / c.block_tokens;
  }
  const auto dim = static_cast<std::size_t>(c.dim), nq = static_cast<std::size_t>(c.q_heads),
             nkv = static_cast<std::size_t>(c.kv_heads), half = static_cast<std::size_t>(c.rotary_dim) / 2;
  // One buffer of q, k, v side by side, as the projection leaves it.
  const std::size_t stride = (nq + 2 * nkv) * dim;
  std::vector<float> qkv = normals(random, rows * stride);
  for (std::size_t i = 0; i < nkv * dim; ++i) {
    qkv[stride + nq * dim + i] *= c.k_factor;
    qkv[stride + (nq + nkv) * dim + i] *= c.v_factor;
  }
  const auto take = [&](std::vector<float>& to, const std::vector<float>& from, std::size_t at, std::size_t n) {
    for (std::size_t row = 0; row < rows; ++row) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * stride + at);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(n));
    }
  };
  take(r.q, qkv, 0, nq * dim);
  take(r.k, qkv, nq * dim, nkv * dim);
  take(r.v, qkv, (nq + nkv) * dim, nkv * dim);
  r.cos = normals(random, rows * half);
  r.sin = normals(random, rows * half);
  r.q_norm = normals(random, dim);
  r.k_norm = normals(random, dim);

  RopeKvArgs args{};
  args.q = uploaded(device, qkv, "qkv");
  args.k = args.q + nq * dim;
  args.v = args.k + nkv * dim;
  args.q_stride = args.kv_stride = static_cast<std::int64_t>(stride);
  args.q_norm = c.norm ? uploaded(device, r.q_norm, "q norm") : nullptr;
  args.k_norm = c.norm ? uploaded(device, r.k_norm, "k norm") : nullptr;
  args.norm_eps = 1e-6f;
  args.norm_offset = 1;
  if (half > 0) args.cos = uploaded(device, r.cos, "cos");
  if (half > 0) args.sin = uploaded(device, r.sin, "sin");
  args.rotary_dim = c.rotary_dim;
  args.interleaved = c.interleaved;
  args.num_q_heads = c.q_heads;
  args.rows = static_cast<std::int32_t>(rows);
  const auto plane = static_cast<std::int64_t>(kv_plane_bytes(c.kv, c.block_tokens, c.dim));
  args.kv.block_stride = 2 * plane * c.kv_heads + 512;
  args.kv.head_stride = 2 * plane;
  args.kv.v_offset = plane;
  args.kv.block_tokens = c.block_tokens;
  args.kv.num_kv_heads = c.kv_heads;
  args.kv.head_dim = c.dim;
  args.kv.base = static_cast<std::byte*>(device.allocate(static_cast<std::size_t>(blocks * args.kv.block_stride), "kv"));
  std::vector<ops::Segment> segments;
  std::vector<std::vector<BlockId>> tables;
  BlockId next = blocks;
  int row = 0;
  for (const Rows& s : c.rows) {
    tables.emplace_back();
    for (int b = 0; b * c.block_tokens < s.position + s.count; ++b) tables.back().push_back(--next);
    segments.push_back({row, s.count, s.position, uploaded(device, tables.back(), "table")});
    row += s.count;
  }
  args.segments = uploaded(device, segments, "segments");
  args.num_segments = static_cast<std::int32_t>(segments.size());
  device.set_fault(c.fault);
  device.count_sites(true);
  switch (c.kv) {
    case KvType::kF16: launch_rope<KvType::kF16>(device, args); break;
    case KvType::kBF16: launch_rope<KvType::kBF16>(device, args); break;
    case KvType::kFp8: launch_rope<KvType::kFp8>(device, args); break;
  }
  for (const emu::Finding& f : device.take_findings()) {
    r.kinds.insert(f.kind);
    r.text += std::string(emu::kind_name(f.kind)) + " at " + f.where + ": " + f.what + "\n";
  }
  r.sites = device.take_sites();
  r.written = device.take_traffic(args.kv.base).written;
  std::vector<float> after(qkv.size());
  device.download(after.data(), args.q, after.size() * 4);
  take(r.rotated, after, 0, nq * dim);
  const auto row_bytes = static_cast<std::size_t>(kv_row_bytes(c.kv, c.dim));
  r.token_bytes = row_bytes + 4;
  for (std::size_t s = 0; s < c.rows.size(); ++s) {
    for (int i = 0; i < c.rows[s].count; ++i) {
      const int position = c.rows[s].position + i;
      for (int head = 0; head < c.kv_heads; ++head) {
        for (int p = 0; p < 2; ++p) {
          const BlockId block = tables[s][static_cast<std::size_t>(position / c.block_tokens)];
          const std::byte* const at =
              args.kv.base + block * args.kv.block_stride + head * args.kv.head_stride + p * plane;
          const auto slot = static_cast<std::size_t>(position % c.block_tokens);
          std::vector<std::byte> token(r.token_bytes);
          device.download(token.data(), at + slot * row_bytes, row_bytes);
          const std::byte* const scales = at + static_cast<std::size_t>(c.block_tokens) * row_bytes;
          if (c.kv == KvType::kFp8) device.download(token.data() + row_bytes, scales + 4 * slot, 4);
          r.planes.insert(r.planes.end(), token.begin(), token.end());
        }
      }
    }
  }
  return r;
}

/// RMSNorm of a head, in the order that the kernel promises.
void normalise(std::vector<float>& x, const std::vector<float>& weight) {
  float lanes[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 32] = ops::fma(x[i], x[i], lanes[i % 32]);
  for (int width = 16; width >= 1; width /= 2) {
    float folded[32];
    for (int l = 0; l < 32; ++l) folded[l] = lanes[l] + lanes[l ^ width];
    std::copy_n(folded, 32, lanes);
  }
  const float scale = 1.0f / std::sqrt(lanes[0] / static_cast<float>(x.size()) + 1e-6f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale * (weight[i] + 1);
}

/// One head of one row after norm and rotation.
std::vector<float> turned(const RopeCase& c, const RopeResult& r, const std::vector<float>& from, std::size_t row,
                          std::size_t at, const std::vector<float>& norm) {
  const auto dim = static_cast<std::size_t>(c.dim), half = static_cast<std::size_t>(c.rotary_dim) / 2;
  std::vector<float> x(from.begin() + static_cast<std::ptrdiff_t>(at), from.begin() + static_cast<std::ptrdiff_t>(at + dim));
  if (c.norm) normalise(x, norm);
  for (std::size_t i = 0; i < half; ++i) {
    float& a = x[c.interleaved ? 2 * i : i];
    float& b = x[c.interleaved ? 2 * i + 1 : i + half];
    const float cos = r.cos[row * half + i], sin = r.sin[row * half + i], a0 = a;
    a = a * cos - b * sin;
    b = b * cos + a0 * sin;
  }
  return x;
}

/// A token of one plane as it must be stored: its numbers, then its scale. `bad`: K or V is not finite.
std::vector<std::byte> token_of(const RopeCase& c, const std::vector<float>& x, bool bad, bool is_key) {
  std::vector<std::byte> out;
  if (c.kv == KvType::kFp8) {
    float most = 0;
    bool finite = true;
    for (const float v : x) most = std::max(most, std::fabs(v)), finite = finite && std::isfinite(v);
    float scale = most / 448.0f, inverse = 1.0f / scale;
    if (!finite) scale = ops::bits_float(0x7fc00000u), inverse = 0;
    for (const float v : x) out.push_back(static_cast<std::byte>(inverse == 0 ? 0 : ops::f32_to_f8(v * inverse)));
    out.resize(out.size() + 4);
    std::memcpy(out.data() + out.size() - 4, &scale, 4);
    return out;
  }
  for (const float v : x) {
    std::uint16_t h = c.kv == KvType::kF16 ? ops::f32_to_f16(v) : ops::f32_to_bf16(v);
    const std::uint16_t exponent = c.kv == KvType::kF16 ? 0x7c00 : 0x7f80;
    if (bad && is_key) h = 0x7fff;
    if (!is_key && (h & exponent) == exponent) h = 0;
    out.push_back(static_cast<std::byte>(h & 0xff));
    out.push_back(static_cast<std::byte>(h >> 8));
  }
  out.resize(out.size() + 4);
  return out;
}

bool fits(const RopeCase& c, const std::vector<float>& x) {
  const float limit = c.kv == KvType::kF16 ? 65520 : INFINITY;
  return std::all_of(x.begin(), x.end(), [&](float v) { return std::fabs(v) < limit; });
}

bool is_right(const RopeCase& c, const RopeResult& r) {
  const auto dim = static_cast<std::size_t>(c.dim), nq = static_cast<std::size_t>(c.q_heads),
             nkv = static_cast<std::size_t>(c.kv_heads);
  std::vector<float> q;
  std::vector<std::byte> planes;
  for (std::size_t row = 0; row < r.q.size() / (nq * dim); ++row) {
    for (std::size_t h = 0; h < nq; ++h) {
      const std::vector<float> x = turned(c, r, r.q, row, (row * nq + h) * dim, r.q_norm);
      q.insert(q.end(), x.begin(), x.end());
    }
    for (std::size_t h = 0; h < nkv; ++h) {
      const std::size_t at = (row * nkv + h) * dim;
      const std::vector<float> k = turned(c, r, r.k, row, at, r.k_norm);
      const auto begin = r.v.begin() + static_cast<std::ptrdiff_t>(at);
      const std::vector<float> v(begin, begin + c.dim);
      const bool bad = !fits(c, k) || !fits(c, v);
      for (const std::vector<std::byte>& token : {token_of(c, k, bad, true), token_of(c, v, bad, false)})
        planes.insert(planes.end(), token.begin(), token.end());
    }
  }
  const bool same = q.size() == r.rotated.size() && std::memcmp(q.data(), r.rotated.data(), 4 * q.size()) == 0;
  return same && planes == r.planes;
}

void expect_right(const RopeCase& c) {
  const RopeResult r = run_rope(c);
  EXPECT_EQ(r.text, "");
  EXPECT_TRUE(is_right(c, r)) << name_of(c.kv) << " dim " << c.dim << " rotary " << c.rotary_dim;
}

TEST(RopeKv, RotatesAndWrites) {
  int turn = 0;
  for (const KvType kv : {KvType::kF16, KvType::kBF16, KvType::kFp8}) {
    for (const int dim : {64, 96, 128, 256}) {
      RopeCase c;
      c.kv = kv;
      c.dim = dim;
      c.rotary_dim = std::array{dim, dim / 2, 20, 0, dim - 6}[static_cast<std::size_t>(turn) % 5];
      c.interleaved = turn % 2 == 1;
      c.norm = turn % 3 != 0;
      c.q_heads = 1 + turn % 4;
      c.kv_heads = 1 + turn % 2;
      c.block_tokens = 16 << turn % 3;
      c.schedule = {static_cast<Order>(turn % 3), static_cast<Order>((turn + 1) % 3), {}, static_cast<std::uint64_t>(turn)};
      ++turn;
      expect_right(c);
    }
  }
}

TEST(RopeKv, FindsTheSegmentOfARowAmongMany) {
  RopeCase c;
  c.rows.clear();
  for (int s = 0; s < 37; ++s) c.rows.push_back({s, s, s % 3});
  expect_right(c);
}

TEST(RopeKv, NumbersThatAreNotFiniteGoToTheKey) {
  for (const KvType kv : {KvType::kF16, KvType::kBF16, KvType::kFp8}) {
    for (const float factor : {INFINITY, NAN, 1e30f}) {
      RopeCase c;
      c.kv = kv;
      c.v_factor = factor;
      expect_right(c);
      std::swap(c.k_factor, c.v_factor);
      expect_right(c);
    }
  }
}

TEST(RopeKv, AccessesAreWide) {
  for (const KvType kv : {KvType::kF16, KvType::kFp8}) {
    RopeCase c;
    c.kv = kv;
    c.norm = true;
    const RopeResult r = run_rope(c);
    if (!emu::hooked()) continue;
    EXPECT_EQ(r.written, 6U * 2 * (r.token_bytes - (kv == KvType::kFp8 ? 0 : 4)));
    for (const emu::SiteCount& s : r.sites) {
      // The segments of 32 lanes are 24 bytes apart; they are read once a warp.
      if (s.where == "rope_kv.cuh:" + std::to_string(test::line_after("rope_kv.cuh", "bool find_segment", "row_begin")) ||
          s.where == "rope_kv.cuh:" + std::to_string(test::line_after("rope_kv.cuh", "bool find_segment", "row_count")))
        continue;
      EXPECT_LE(10 * s.units, (s.shared ? 10 : 11) * s.ideal) << s.where;
    }
  }
}

TEST(RopeKvFaults, EachIsSeenByItsDetector) {
  struct Mutant {
    const char* name;
    Kind detector;  ///< kDeadlock: the numbers are wrong
    RopeCase shape;
    emu::Fault fault;
  };
  const auto value = [](const char* name, std::function<double(double)> f) {
    return emu::Fault{.kind = emu::Fault::Kind::kValue, .name = name, .value = std::move(f)};
  };
  RopeCase plain, partial, fp8, norm, bad;
  partial.rotary_dim = 40;  // of 64 the other half of a pair is the same lane's
  fp8.kv = KvType::kFp8;
  norm.norm = true;
  bad.v_factor = INFINITY;
  const Kind numbers = Kind::kDeadlock;
  const std::vector<Mutant> mutants = {
      {"no barrier of the warp", Kind::kRace, partial,
       {.kind = emu::Fault::Kind::kNoWarpBarrier,
        .file_ends_with = "rope_kv.cuh",
        .line = test::line_after("rope_kv.cuh", "The other half of each pair", "sync_warp();")}},
      {"the slot behind the right one", numbers, plain, value("rope.position", [](double x) { return x + 1; })},
      {"pairs with itself", numbers, plain, value("rope.other", [](double x) { return x < 32 ? x + 32 : x - 32; })},
      {"eps is too large", numbers, norm, value("rope.eps", [](double) { return 1e-3; })},
      {"the scale of codes twice", numbers, fp8, value("rope.inverse", [](double x) { return x * x; })},
      {"a bad number stays in V alone", numbers, bad, value("rope.poison", [](double) { return 0; })},
  };
  for (const Mutant& m : mutants) {
    if (m.detector == Kind::kRace && !emu::hooked()) continue;
    RopeCase c = m.shape;
    EXPECT_EQ(run_rope(c).text, "");
    c.fault = m.fault;
    const RopeResult r = run_rope(c);
    EXPECT_TRUE(m.detector == numbers ? !is_right(c, r) : r.kinds.contains(m.detector)) << m.name << ": " << r.text;
  }
}

}  // namespace
}  // namespace barg::cuda
