// Configs of every checkpoint of ../shared/data with each field left out or replaced, one at a time: a model
// is refused in one sentence or is one that can be planned, whatever the field says. One in eight of them, all under
// BARG_TEST_LONG.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cpu/cpu.h"
#include "model/decoder.h"
#include "model/hf_builder.h"
#include "model/model_files.h"
#include "support/data.h"

namespace barg::model::test::mutated_config_test {
namespace {

namespace fs = std::filesystem;

/// What a field is replaced with; the first stands for leaving it out.
const char* const kValues[] = {"",      "null",
                               "true",  "false",
                               "-1",    "0",
                               "1",     "3",
                               "0.5",   "7e4",
                               "2e9",   "1e308",
                               "\"x\"", "9223372036854775807",
                               "[]",    "[1,2]",
                               "{}",    "{\"full_attention\":{\"rope_type\":\"yarn\"}}"};

/// f(config with one member of `object` changed, what was done), for members of objects inside of it too.
template <class F>
void mutate(const Json& root, Json& object, const std::string& path, F&& f) {
  for (std::size_t i = 0; i < object.as_object().size(); ++i) {
    const Json::Object saved = object.as_object();
    const std::string name = path + saved[i].first;
    for (const std::string value : kValues) {
      if (value.empty())
        object.as_object().erase(object.as_object().begin() + static_cast<std::ptrdiff_t>(i));
      else
        object.as_object()[i].second = parse_json(value).value();
      f(root, name + " = " + (value.empty() ? "(left out)" : value));
      object.as_object() = saved;
    }
    Json& inner = object.as_object()[i].second;
    if (inner.is_object()) mutate(root, inner, name + ".", f);
  }
}

TEST(MutatedConfigs, AreRefusedInOneSentenceOrCanBePlanned) {
  const std::string root = barg::test::shared_data("models");
  if (root.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const ops::CpuDevice device({.threads = 1});
  const std::size_t every = std::getenv("BARG_TEST_LONG") != nullptr ? 1 : 8;
  std::size_t refused = 0, planned = 0, turn = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "model.safetensors")) continue;
    auto config = parse_json(read_file((entry.path() / "config.json").string(), 1 << 20).value()).value();
    TempDir dir;
    fs::create_symlink(fs::absolute(entry.path() / "model.safetensors"), dir.path() + "/model.safetensors");
    mutate(config, config, "", [&](const Json& changed, const std::string& what) {
      if (++turn % every != 0) return;
      dir.write("config.json", dump_json(changed));
      const auto model = ModelFiles::open(dir.path());
      ASSERT_TRUE(model) << what;
      const auto spec = (*model)->spec();
      if (!spec) {
        ++refused;
        EXPECT_FALSE(spec.error().message.empty());
        EXPECT_EQ(spec.error().message.find('\n'), std::string::npos) << what;
        return;
      }
      ++planned;
      EXPECT_FALSE(layer_groups(*spec).empty()) << what;
      EXPECT_GT(parameter_count(*spec), 0u) << what;
      const bool attends = std::any_of(spec->layers.begin(), spec->layers.end(),
                                       [](const LayerSpec& l) { return has_attention(l.mixer); });
      EXPECT_GE(spec->ropes.size(), attends && spec->tables.positions == 0 ? 1u : 0u) << what;
      EXPECT_LE(spec->ropes.size(), kMaxRopes) << what;
      EXPECT_EQ(spec->layers.size(), static_cast<std::size_t>(spec->num_layers)) << what;
      const auto bytes = Decoder::weight_bytes(**model, device.ops(), Recipe::kF32);
      const std::string error = bytes ? "" : bytes.error().message;
      EXPECT_EQ(error.find('\n'), std::string::npos) << what;
      (void)Decoder::workspace_bytes(*spec, device.ops(), Recipe::kF32, 4);
    });
  }
  EXPECT_GT(refused, 1000u / every);
  EXPECT_GT(planned, 1000u / every);
}

}  // namespace
}  // namespace barg::model::test::mutated_config_test
