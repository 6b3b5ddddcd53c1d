// Quantised matrices as Hugging Face checkpoints hold them, made of drawn numbers, beside the values they stand for.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "model/hf_builder.h"

namespace barg::model::test {

/// A tensor of a safetensors file to be written.
struct Entry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string safetensors(const std::vector<Entry>& entries) {
  std::string header = "{", data;
  for (const Entry& e : entries) {
    std::string shape;
    for (const std::int64_t d : e.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
    header += (header.size() > 1 ? ",\"" : "\"") + e.name + "\":{\"dtype\":\"" + e.dtype + "\",\"shape\":[" +
              shape + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + e.bytes.size()) + "]}";
    data += e.bytes;
  }
  return safetensors_file(header + "}", data);
}

/// A cheap stream of numbers.
struct Draw {
  std::uint64_t state;
  std::uint32_t operator()(std::uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33) % below;
  }
};

template <class T>
std::string bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

/// A matrix [n, k] in some format, and its values.
struct Quantised {
  std::vector<Entry> entries;
  std::vector<float> values;
};

/// FP8 with a scale for each block of 32 by 32.
inline Quantised fp8(const std::string& x, std::int64_t n, std::int64_t k, Draw& draw) {
  constexpr std::int64_t kBlock = 32;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k));
  for (auto& c : codes) c = static_cast<std::uint8_t>(draw(2) << 7 | draw(0x7f));
  std::vector<float> scales;
  const std::int64_t columns = (k + kBlock - 1) / kBlock;
  for (std::int64_t i = 0; i < (n + kBlock - 1) / kBlock * columns; ++i)
    scales.push_back(1e-4f * static_cast<float>(1 + draw(1000)) / 300.0f);
  Quantised q;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint8_t c = codes[static_cast<std::size_t>(row * k + i)];
      const int exponent = c >> 3 & 15, fraction = c & 7;
      const double value = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
      const float scale = scales[static_cast<std::size_t>(row / kBlock * columns + i / kBlock)];
      q.values.push_back(static_cast<float>(c < 128 ? value : -value) * scale);
    }
  }
  q.entries = {{x + ".weight", "F8_E4M3", {n, k}, bytes_of(codes)},
               {x + ".weight_scale_inv", "F32", {(n + kBlock - 1) / kBlock, columns}, bytes_of(scales)}};
  return q;
}

/// MXFP4 of a stack of matrices [count, n, k].
inline Quantised mxfp4(const std::string& x, std::int64_t count, std::int64_t n, std::int64_t k, Draw& draw) {
  constexpr std::int64_t kRun = 32;
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(count * n * k / 2));
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(count * n * k / kRun));
  for (auto& b : blocks) b = static_cast<std::uint8_t>(draw(256));
  for (auto& s : scales) s = static_cast<std::uint8_t>(119 + draw(5));
  Quantised q;
  for (std::int64_t i = 0; i < count * n * k; ++i) {
    const int code = blocks[static_cast<std::size_t>(i / 2)] >> (i % 2 * 4) & 15;
    const float value = std::ldexp(kValues[code & 7], scales[static_cast<std::size_t>(i / kRun)] - 127);
    q.values.push_back(code < 8 ? value : -value);
  }
  q.entries = {{x + "_blocks", "U8", {count, n, k / kRun, kRun / 2}, bytes_of(blocks)},
               {x + "_scales", "U8", {count, n, k / kRun}, bytes_of(scales)}};
  return q;
}

}  // namespace barg::model::test
