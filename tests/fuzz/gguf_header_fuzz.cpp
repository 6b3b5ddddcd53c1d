// GGUF bytes: the parser, every typed read and the families' builders, with no file behind them. (The vocabulary
// is read by GgufModel, which wants a file: the bit flips of gguf_test.cpp go there.)
#include <cstdint>
#include <span>
#include <string>

#include "model/family.h"
#include "model/gguf.h"

namespace {

using namespace barg;
using namespace barg::model;

/// Tensors of a parsed file, as a model that is all metadata.
class MemoryModel final : public ModelFiles {
 public:
  MemoryModel(const GgufFile& file, const Family& family) : file_(file), family_(family) {
    tensors_ = file.tensors();
    std::vector<std::string> names;
    for (const Tensor& t : tensors_) names.push_back(t.name);
    (void)index_tensors(std::move(names));
  }
  std::string_view container() const override { return "gguf"; }
  std::string architecture() const override { return "llama"; }
  std::string display_name() const override { return "fuzz"; }
  Result<DecoderSpec> spec() const override {
    GgufFieldReader fields(file_, "llama");
    auto s = family_.from_gguf({fields, *this, nullptr, &file_});
    if (!s) return s;
    if (auto ok = check_tensors(*s, *this); !ok) return std::unexpected(ok.error());
    if (auto ok = check_no_more_tensors(*s, *this); !ok) return std::unexpected(ok.error());
    return s;
  }
  Result<VocabData> vocab() const override { return VocabData{}; }
  Result<GenerationDefaults> generation_defaults() const override { return GenerationDefaults{}; }
  void drop(const Tensor&, std::span<const std::byte>) const override {}

 private:
  const GgufFile& file_;
  const Family& family_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file) return 0;
  for (const std::string_view key : file->keys_with_prefix("")) {
    (void)file->integer(key);
    (void)file->real(key);
    (void)file->boolean(key);
    (void)file->string(key);
    (void)file->integers(key);
    (void)file->reals(key);
    (void)file->strings(key);
  }
  std::uint64_t sum = 0;
  for (const Tensor& t : file->tensors()) {
    if (!t.bytes.empty())
      sum += std::to_integer<unsigned>(t.bytes.front()) + std::to_integer<unsigned>(t.bytes.back()) +
             t.elements();
  }
  for (const Family& family : families()) {
    if (family.from_gguf == nullptr) continue;
    const MemoryModel model(*file, family);
    const auto spec = model.spec();
    if (spec) sum += parameter_count(*spec) + layer_groups(*spec).size();
  }
  return sum == 0x123456789abcdefULL;  // keeps the reads
}
