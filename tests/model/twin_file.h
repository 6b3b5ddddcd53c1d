// What tests share that write a checkpoint again as a GGUF file, by the rules of llama.cpp's converter.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model/gguf_builder.h"
#include "model/tensor_floats.h"

namespace barg::model::test {

/// A GGUF file of tensors, most of them F32, and metadata under the architecture's name.
class TwinFile {
 public:
  TwinFile(std::string architecture, std::string_view name) : architecture_(std::move(architecture)) {
    builder.str("general.architecture", architecture_).str("general.name", name);
  }

  bool is(std::string_view architecture) const { return architecture_ == architecture; }
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }
  void u32(std::string_view name, std::int64_t v) { builder.u32(key(name), static_cast<std::uint32_t>(v)); }
  void f32(std::string_view name, double v) { builder.f32(key(name), static_cast<float>(v)); }
  void boolean(std::string_view name, bool v) { builder.set<std::uint8_t>(key(name), kMetaBool, v ? 1 : 0); }
  void u32s(std::string_view name, const std::vector<std::uint32_t>& values) {
    Bytes b;
    b.put(kMetaArray).put(kMetaU32).put<std::uint64_t>(values.size());
    for (const std::uint32_t v : values) b.put(v);
    builder.raw(key(name), b.data);
  }
  void put(const std::string& name, const Floats& t) {
    builder.tensor(name, {t.shape.rbegin(), t.shape.rend()});
    values_.emplace_back(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
  }
  /// Of another type.
  void put(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type,
           std::string bytes) {
    builder.tensor(name, {shape.rbegin(), shape.rend()}, type, bytes.size());
    values_.push_back(std::move(bytes));
  }

  std::string bytes() const {
    std::string out = builder.build();
    const std::size_t data =
        (builder.header_bytes + builder.alignment - 1) / builder.alignment * builder.alignment;
    for (std::size_t i = 0; i < values_.size(); ++i)
      std::memcpy(out.data() + data + builder.tensors[i].offset, values_[i].data(), values_[i].size());
    return out;
  }

  GgufBuilder builder;

 private:
  std::string architecture_;
  std::vector<std::string> values_;  ///< bytes of the tensors
};

/// Row 2i + j of each head of the result is row j * dim / 2 + i of the source.
inline void interleave(Floats& t, std::int64_t dim) {
  const std::vector<float> from = t.values;
  const std::int64_t width = t.width();
  for (std::int64_t row = 0; row < t.shape[0]; ++row) {
    const std::int64_t head = row / dim * dim, in_head = row - head;
    const std::int64_t source = head + in_head % 2 * (dim / 2) + in_head / 2;
    std::copy_n(from.begin() + source * width, width, t.values.begin() + row * width);
  }
}

}  // namespace barg::model::test
