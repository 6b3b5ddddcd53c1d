// config.json: the families' builders on any JSON object, against the tensors of a model that has none.
#include <cstdint>
#include <string_view>

#include "model/family.h"
#include "model/hf_quants.h"

namespace {

using namespace barg;
using namespace barg::model;

class NoTensors final : public ModelFiles {
 public:
  std::string_view container() const override { return "safetensors"; }
  std::string architecture() const override { return "fuzz"; }
  std::string display_name() const override { return "fuzz"; }
  Result<DecoderSpec> spec() const override { return fail(ErrorCode::kUnsupported, "none"); }
  Result<VocabData> vocab() const override { return VocabData{}; }
  Result<GenerationDefaults> generation_defaults() const override { return GenerationDefaults{}; }
  void drop(const Tensor&, std::span<const std::byte>) const override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config =
      parse_json({reinterpret_cast<const char*>(data), size}, {.max_depth = 64, .max_members = 0});
  if (!config || !config->is_object()) return 0;
  const NoTensors files;
  std::vector<Tensor> none;
  (void)join_quantised(*config, none);
  for (const Family& family : families()) {
    if (family.from_hf == nullptr) continue;
    JsonFieldReader fields(*config, "");
    const auto spec = family.from_hf({fields, files, &*config, nullptr});
    if (!spec) continue;
    (void)layer_groups(*spec);
    (void)parameter_count(*spec);
    (void)check_tensors(*spec, files);
  }
  return 0;
}
