#include "model/quants.h"

#include <cstring>

#include "math.h"
#include "model/quant_grids.h"
#include "model/quant_runs.h"

namespace barg::model {
namespace {

// A converter reads one block of the file and writes its runs of 32 one after the other.

using Byte = std::uint8_t;

const Byte* bytes_of(const std::byte* p) { return reinterpret_cast<const Byte*>(p); }
std::uint16_t u16(const Byte* p) { return load_u16(p); }
std::uint32_t u32(const Byte* p) { return load_u32(p); }
float f16(const Byte* p) { return ops::f16_to_f32(u16(p)); }

/// Byte j's halves as elements j and j + 16, with the fifth bits of `high` on top.
void nibbles_with_bits(const Byte* nibbles, std::uint32_t high, Byte* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<Byte>((nibbles[j] & 15) | (high >> j & 1u) << 4);
    codes[j + 16] = static_cast<Byte>(nibbles[j] >> 4 | (high >> (j + 16) & 1u) << 4);
  }
}

void from_q5_0(const std::byte* block, std::byte* out) {  // Q8_0
  const Byte* b = bytes_of(block);
  Byte codes[kRun];
  nibbles_with_bits(b + 6, u32(b + 2), codes);
  std::int8_t q[kRun];
  for (int e = 0; e < kRun; ++e) q[e] = static_cast<std::int8_t>(codes[e] - 16);
  Run run(out);
  run.put(b, 2);
  run.put_bytes(q);
}

void from_q5_1(const std::byte* block, std::byte* out) {  // kU5Min
  const Byte* b = bytes_of(block);
  Byte codes[kRun];
  nibbles_with_bits(b + 8, u32(b + 4), codes);
  Run run(out);
  run.put_float(f16(b));
  run.put_float(f16(b + 2));
  run.put_nibbles(codes);
  run.put_bits(codes, 4);
}

void from_q2_k(const std::byte* block, std::byte* out) {  // kU2MinPer16
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kU2MinPer16)) {
    const Byte* qs = b + 16 + r / 4 * 32;
    Byte codes[kRun];
    for (int e = 0; e < kRun; ++e) codes[e] = static_cast<Byte>(qs[e] >> (2 * (r % 4)) & 3);
    const Byte s0 = b[2 * r], s1 = b[2 * r + 1];
    const Byte factors[4] = {static_cast<Byte>(s0 & 15), static_cast<Byte>(s1 & 15),
                             static_cast<Byte>(s0 >> 4), static_cast<Byte>(s1 >> 4)};
    Run run(out);
    run.put(b + 80, 4);
    run.put(factors, 4);
    run.put_pairs(codes);
  }
}

void from_q3_k(const std::byte* block, std::byte* out) {  // kS3Per16
  const Byte* b = bytes_of(block);
  const Byte* s = b + 96;
  const float d = f16(b + 108);
  const auto scale = [&](int i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    return d * static_cast<float>((low | high << 4) - 32);
  };
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kS3Per16)) {
    const Byte* qs = b + 32 + r / 4 * 32;
    Byte codes[kRun];
    for (int e = 0; e < kRun; ++e)
      codes[e] = static_cast<Byte>((qs[e] >> (2 * (r % 4)) & 3) | (b[e] >> r & 1) << 2);
    Run run(out);
    run.put_float(scale(2 * r));
    run.put_float(scale(2 * r + 1));
    run.put_pairs(codes);
    run.put_bits(codes, 2);
  }
}

/// Scale and minimum of run r of Q4_K and Q5_K: d * a and -(dmin * b) of six bits each.
void put_k_scales(const Byte* b, int r, Run& run) {
  const Byte* s = b + 4;
  const int scale = r < 4 ? s[r] & 63 : (s[r + 4] & 15) | (s[r - 4] >> 6) << 4;
  const int minimum = r < 4 ? s[r + 4] & 63 : s[r + 4] >> 4 | (s[r] >> 6) << 4;
  run.put_float(f16(b) * static_cast<float>(scale));
  run.put_float(-(f16(b + 2) * static_cast<float>(minimum)));
}

void from_q4_k(const std::byte* block, std::byte* out) {  // kU4Min
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kU4Min)) {
    const Byte* qs = b + 16 + r / 2 * 32;
    Byte codes[kRun];
    for (int e = 0; e < kRun; ++e) codes[e] = static_cast<Byte>(r % 2 == 0 ? qs[e] & 15 : qs[e] >> 4);
    Run run(out);
    put_k_scales(b, r, run);
    run.put_nibbles(codes);
  }
}

void from_q5_k(const std::byte* block, std::byte* out) {  // kU5Min
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kU5Min)) {
    const Byte *qh = b + 16, *qs = b + 48 + r / 2 * 32;
    Byte codes[kRun];
    for (int e = 0; e < kRun; ++e)
      codes[e] = static_cast<Byte>((r % 2 == 0 ? qs[e] & 15 : qs[e] >> 4) | (qh[e] >> r & 1) << 4);
    Run run(out);
    put_k_scales(b, r, run);
    run.put_nibbles(codes);
    run.put_bits(codes, 4);
  }
}

void from_q6_k(const std::byte* block, std::byte* out) {  // kS8Per16
  const Byte* b = bytes_of(block);
  const float d = f16(b + 208);
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kS8Per16)) {
    const int n = r / 4, t = r % 4;
    const Byte *ql = b + 64 * n + 32 * (t % 2), *qh = b + 128 + 32 * n;
    std::int8_t q[kRun];
    for (int e = 0; e < kRun; ++e) {
      const int low = t < 2 ? ql[e] & 15 : ql[e] >> 4, high = qh[e] >> (2 * t) & 3;
      q[e] = static_cast<std::int8_t>((low | high << 4) - 32);
    }
    Run run(out);
    for (int h = 0; h < 2; ++h)
      run.put_float(d * static_cast<float>(static_cast<std::int8_t>(b[192 + 2 * r + h])));
    run.put_bytes(q);
  }
}

void from_iq4_nl(const std::byte* block, std::byte* out) {  // kIQ4
  const Byte* b = bytes_of(block);
  Run run(out);
  run.put_float(f16(b));
  run.put(b + 2, 16);
}

void from_iq4_xs(const std::byte* block, std::byte* out) {  // kIQ4
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kIQ4)) {
    const int low = b[4 + r / 2] >> (4 * (r % 2)) & 15, high = u16(b + 2) >> (2 * r) & 3;
    Run run(out);
    run.put_float(f16(b) * static_cast<float>((low | high << 4) - 32));
    run.put(b + 8 + 16 * r, 16);
  }
}

void from_mxfp4(const std::byte* block, std::byte* out) {  // kFP4
  const Byte* b = bytes_of(block);
  Run run(out);
  run.put_float(half_power_of_two(b[0]));
  run.put(b + 1, 16);
}

/// UE4M3: four bits of exponent with bias 7, three of fraction, no sign.
float ue4m3(Byte code) {
  if (code == 0x7f) return 0.0f;
  return ops::f8_to_f32_256th(code & 0x7f) * 256.0f;
}

void from_nvfp4(const std::byte* block, std::byte* out) {  // kFP4Per16
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 2; ++r, out += block_bytes(DType::kFP4Per16)) {
    Byte codes[kRun];
    for (int e = 0; e < kRun; ++e) {
      const Byte two = b[4 + 16 * r + 8 * (e / 16) + e % 8];
      codes[e] = static_cast<Byte>(e % 16 < 8 ? two & 15 : two >> 4);
    }
    Run run(out);
    for (int h = 0; h < 2; ++h) run.put_float(ue4m3(b[2 * r + h]) * 0.5f);
    run.put_nibbles(codes);
  }
}

/// Runs of d * code - d: TQ's -1, 0, 1 as the codes 0, 1, 2.
void put_ternary(const Byte* d, const Byte* codes, std::byte* out) {  // kU2MinPer16
  constexpr Byte kOnes[4] = {1, 1, 1, 1};
  for (int r = 0; r < 8; ++r, out += block_bytes(DType::kU2MinPer16)) {
    Run run(out);
    run.put(d, 2);
    run.put(d, 2);
    run.put(kOnes, 4);
    run.put_pairs(codes + kRun * r);
  }
}

void from_tq1_0(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  Byte codes[256];
  Byte* to = codes;
  // `count` bytes of up to five digits to base 3, most significant first: all their first digits, then the
  // next.
  const auto digits = [&](const Byte* from, int count, int places) {
    unsigned power = 1;
    for (int n = 0; n < places; ++n, power *= 3) {
      for (int m = 0; m < count; ++m) *to++ = static_cast<Byte>((from[m] * power & 255u) * 3 >> 8);
    }
  };
  digits(b, 32, 5);
  digits(b + 32, 16, 5);
  digits(b + 48, 4, 4);
  put_ternary(b + 52, codes, out);
}

void from_tq2_0(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  Byte codes[256];
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<Byte>(b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
  put_ternary(b + 64, codes, out);
}

// --- lattices --------------------------------------------------------------------------------------------

constexpr std::int8_t kIq2Levels[4] = {8, 25, 43, 0};
constexpr std::int8_t kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::int8_t kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/// The eighth sign makes their number even.
unsigned even_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(__builtin_popcount(seven)) & 1u) << 7;
}

/// `Count` levels of `Bits` bits of a point, negated where `signs` has a bit.
template <int Bits, int Count>
void put_point(std::uint16_t point, const std::int8_t* levels, unsigned signs, std::int8_t* q) {
  for (int j = 0; j < Count; ++j) {
    const std::int8_t level = levels[point >> (Bits * j) & ((1 << Bits) - 1)];
    q[j] = static_cast<std::int8_t>((signs >> j & 1u) != 0 ? -level : level);
  }
}

std::byte* put_lattice_run(float first, float second, const std::int8_t* q, std::byte* out) {  // kS8Per16
  Run run(out);
  run.put_float(first);
  run.put_float(second);
  run.put_bytes(q);
  return out + block_bytes(DType::kS8Per16);
}

void from_iq2_xxs(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    const Byte* index = b + 2 + 8 * r;
    const std::uint32_t rest = u32(index + 4);
    std::int8_t q[kRun];
    for (int l = 0; l < 4; ++l)
      put_point<2, 8>(kIq2XxsGrid[index[l]], kIq2Levels, even_signs(rest >> (7 * l) & 127), q + 8 * l);
    const float scale = f16(b) * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
    out = put_lattice_run(scale, scale, q, out);
  }
}

/// d * (0.5 + four bits) / 4 of both halves of a run.
float iq2_scale(const Byte* d, Byte scales, int half) {
  return f16(d) * (0.5f + static_cast<float>(scales >> (4 * half) & 15)) * 0.25f;
}

void from_iq2_xs(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    std::int8_t q[kRun];
    for (int l = 0; l < 4; ++l) {
      const unsigned v = u16(b + 2 + 8 * r + 2 * l);
      put_point<2, 8>(kIq2XsGrid[v & 511], kIq2Levels, even_signs(v >> 9), q + 8 * l);
    }
    out = put_lattice_run(iq2_scale(b, b[66 + r], 0), iq2_scale(b, b[66 + r], 1), q, out);
  }
}

void from_iq2_s(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    const Byte *low = b + 2 + 4 * r, *signs = b + 34 + 4 * r;
    const unsigned high = b[66 + r];
    std::int8_t q[kRun];
    for (int l = 0; l < 4; ++l)
      put_point<2, 8>(kIq2SGrid[low[l] | (high << (8 - 2 * l) & 0x300u)], kIq2Levels, signs[l], q + 8 * l);
    out = put_lattice_run(iq2_scale(b, b[74 + r], 0), iq2_scale(b, b[74 + r], 1), q, out);
  }
}

void from_iq3_xxs(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    const Byte* index = b + 2 + 8 * r;
    const std::uint32_t rest = u32(b + 66 + 4 * r);
    std::int8_t q[kRun];
    for (int l = 0; l < 8; ++l) {
      const unsigned signs = even_signs(rest >> (7 * (l / 2)) & 127) >> (4 * (l % 2));
      put_point<3, 4>(kIq3XxsGrid[index[l]], kIq3XxsLevels, signs, q + 4 * l);
    }
    const float scale = f16(b) * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    out = put_lattice_run(scale, scale, q, out);
  }
}

void from_iq3_s(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    const Byte *low = b + 2 + 8 * r, *signs = b + 74 + 4 * r;
    const unsigned high = b[66 + r];
    std::int8_t q[kRun];
    for (int l = 0; l < 8; ++l) {
      const unsigned point = low[l] | (high >> l & 1u) << 8;
      put_point<3, 4>(kIq3SGrid[point], kIq3SLevels, static_cast<unsigned>(signs[l / 2]) >> (4 * (l % 2)),
                      q + 4 * l);
    }
    const float scale = f16(b) * static_cast<float>(1 + 2 * (b[106 + r / 2] >> (4 * (r % 2)) & 15));
    out = put_lattice_run(scale, scale, q, out);
  }
}

/// Eight times (-1, 0 or 1, and an eighth more or less): the scale takes the factor back.
void put_iq1_point(unsigned point, bool less, std::int8_t* q) {
  for (int j = 0; j < 8; ++j) {
    const int level = (kIq1Grid[point] >> (2 * j) & 3) - 1;
    q[j] = static_cast<std::int8_t>(8 * level + (less ? -1 : 1));
  }
}

void from_iq1_s(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  for (int r = 0; r < 8; ++r) {
    const unsigned high = u16(b + 34 + 2 * r);
    std::int8_t q[kRun];
    for (int l = 0; l < 4; ++l)
      put_iq1_point(b[2 + 4 * r + l] | (high >> (3 * l) & 7u) << 8, (high & 0x8000u) != 0, q + 8 * l);
    const float scale = f16(b) * static_cast<float>(2 * (high >> 12 & 7u) + 1) * 0.125f;
    out = put_lattice_run(scale, scale, q, out);
  }
}

void from_iq1_m(const std::byte* block, std::byte* out) {
  const Byte* b = bytes_of(block);
  const Byte* s = b + 48;
  const unsigned d_bits =
      u16(s) >> 12 | (u16(s + 2) >> 8 & 0xf0u) | (u16(s + 4) >> 4 & 0xf00u) | (u16(s + 6) & 0xf000u);
  const float d = ops::f16_to_f32(static_cast<std::uint16_t>(d_bits));
  for (int r = 0; r < 8; ++r) {
    std::int8_t q[kRun];
    for (int l = 0; l < 4; ++l) {
      const unsigned high = static_cast<unsigned>(b[32 + 2 * r + l / 2]) >> (4 * (l % 2));
      put_iq1_point(b[4 * r + l] | (high & 7u) << 8, (high & 8u) != 0, q + 8 * l);
    }
    const auto scale = [&](int half) {
      const unsigned bits = static_cast<unsigned>(u16(s + r / 2 * 2)) >> (6 * (r % 2) + 3 * half) & 7u;
      return d * static_cast<float>(2 * bits + 1) * 0.125f;
    };
    out = put_lattice_run(scale(0), scale(1), q, out);
  }
}

struct Row {
  std::uint32_t id;
  GgmlConversion conversion;
};

constexpr Row kConversions[] = {
    {6, {DType::kQ8_0, from_q5_0}},         {7, {DType::kU5Min, from_q5_1}},
    {10, {DType::kU2MinPer16, from_q2_k}},  {11, {DType::kS3Per16, from_q3_k}},
    {12, {DType::kU4Min, from_q4_k}},       {13, {DType::kU5Min, from_q5_k}},
    {14, {DType::kS8Per16, from_q6_k}},     {16, {DType::kS8Per16, from_iq2_xxs}},
    {17, {DType::kS8Per16, from_iq2_xs}},   {18, {DType::kS8Per16, from_iq3_xxs}},
    {19, {DType::kS8Per16, from_iq1_s}},    {20, {DType::kIQ4, from_iq4_nl}},
    {21, {DType::kS8Per16, from_iq3_s}},    {22, {DType::kS8Per16, from_iq2_s}},
    {23, {DType::kIQ4, from_iq4_xs}},       {29, {DType::kS8Per16, from_iq1_m}},
    {34, {DType::kU2MinPer16, from_tq1_0}}, {35, {DType::kU2MinPer16, from_tq2_0}},
    {39, {DType::kFP4, from_mxfp4}},        {40, {DType::kFP4Per16, from_nvfp4}},
};

std::size_t row_elements(const Tensor& t) { return static_cast<std::size_t>(t.shape.back()); }

}  // namespace

float half_power_of_two(std::uint8_t exponent) {
  const std::uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23;
  return ops::bits_float(bits);
}

const GgmlConversion* ggml_conversion(std::uint32_t id) {
  for (const Row& row : kConversions) {
    if (row.id == id) return &row.conversion;
  }
  return nullptr;
}

std::int64_t row_count(const Tensor& t) {
  std::int64_t n = 1;
  for (std::size_t i = 0; i + 1 < t.shape.size(); ++i) n *= t.shape[i];
  return n;
}

std::size_t read_row_bytes(const Tensor& t) {
  return row_elements(t) / block_elements(*t.type.dtype) * block_bytes(*t.type.dtype);
}

bool stored_as_read(const Tensor& t) { return t.source == nullptr && t.type.convert == nullptr; }

void read_rows(const Tensor& t, std::int64_t row, std::int64_t count, std::byte* out) {
  if (t.source != nullptr) return t.source->read(row, count, out);
  const std::size_t blocks = row_elements(t) / t.type.block_elements, row_bytes = blocks * t.type.block_bytes;
  const std::byte* from = t.bytes.data() + static_cast<std::size_t>(row) * row_bytes;
  if (t.type.convert == nullptr) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * row_bytes);
    return;
  }
  const std::size_t out_bytes =
      t.type.block_elements / block_elements(*t.type.dtype) * block_bytes(*t.type.dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count) * blocks; ++i)
    t.type.convert(from + i * t.type.block_bytes, out + i * out_bytes);
}

}  // namespace barg::model
