// Loads a tiny golden model into a Runner, and says what its goldens are.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "barg/config.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "model/model_files.h"
#include "runtime/factory.h"
#include "support/cpu.h"
#include "support/data.h"

namespace barg::test {

struct Golden {
  std::string name;
  std::vector<TokenId> prompt, greedy;
};

/// Prompts of goldens.json in `directory`, in file order.
inline std::vector<Golden> read_goldens(const std::string& directory) {
  const auto text = read_file(directory + "/goldens.json", 1 << 24);
  if (!text) return {};
  const auto json = parse_json(*text);
  if (!json || json->find("prompts") == nullptr) return {};
  const auto ids = [](const Json* list) {
    std::vector<TokenId> out;
    for (const auto& id : list->as_array()) out.push_back(static_cast<TokenId>(id.as_int()));
    return out;
  };
  std::vector<Golden> out;
  for (const auto& [name, prompt] : json->find("prompts")->as_object()) {
    if (prompt.find("greedy") == nullptr) continue;
    out.push_back({name, ids(prompt.find("input_ids")), ids(prompt.find("greedy"))});
  }
  return out;
}

/// Small sizes that tests start from: 2 threads (or what test_cpu() says), recipe f32, a pool of 4 MiB.
inline Config tiny_config(const std::string& path) {
  Config c;
  c.model.path = path;
  c.model.numerics = "f32";
  c.kv.memory_bytes = 4 << 20;
  c.runtime.threads = test_cpu(2).threads;
  c.runtime.isa = ops::isa_name(test_cpu(2).isa);
  c.scheduler.max_num_batched_tokens = 256;
  return c;
}

/// REQUIRES a readable model: a failure ends the test with the reason.
inline runtime::LoadedRunner load_tiny(const Config& config) {
  auto files = model::ModelFiles::open(config.model.path);
  if (!files) {
    ADD_FAILURE() << files.error().message;
    std::abort();
  }
  auto loaded = runtime::load_runner(config, *files);
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    std::abort();
  }
  return std::move(*loaded);
}

/// A copy of a bf16 safetensors model in which every embedding value of `token` is NaN: exactly the sequences
/// that contain it are corrupt. Lives until the object goes.
class PoisonedModel {
 public:
  PoisonedModel(const std::string& directory, TokenId token, std::size_t hidden) {
    path_ = std::filesystem::temp_directory_path() /
            ("barg_poison_" + std::to_string(getpid()) + "_" + std::to_string(token));
    std::filesystem::create_directories(path_);
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      const auto from = std::filesystem::path(directory) / name;
      if (std::filesystem::exists(from)) std::filesystem::copy_file(from, path_ / name);
    }
    std::string bytes = read_file(directory + "/model.safetensors", 1 << 28).value_or("");
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto json = parse_json(std::string_view(bytes).substr(8, header));
    const auto& offsets = json->find("model.embed_tokens.weight")->find("data_offsets")->as_array();
    const auto row = 8 + header + static_cast<std::size_t>(offsets[0].as_int()) +
                     static_cast<std::size_t>(token) * hidden * 2;
    for (std::size_t i = 0; i < hidden; ++i) bytes.replace(row + 2 * i, 2, "\xC0\x7F");
    std::ofstream(path_ / "model.safetensors", std::ios::binary) << bytes;
  }
  ~PoisonedModel() { std::filesystem::remove_all(path_); }
  PoisonedModel(const PoisonedModel&) = delete;
  PoisonedModel& operator=(const PoisonedModel&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace barg::test
