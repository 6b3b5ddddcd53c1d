// What the tokenizer tests share: files of ../shared/data (plain or .xz), and VocabData from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/tokenizer.h"
#include "base/json.h"
#include "support/data.h"

namespace barg::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Content of `relative` or of `relative`.xz; nullopt if neither is there (or there is no xz to unpack it).
inline std::optional<std::string> read_data(const std::string& relative) {
  if (const std::string plain = shared_data(relative); !plain.empty()) return read_file(plain);
  const std::string packed = shared_data(relative + ".xz");
  if (packed.empty()) return std::nullopt;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("xz -dc '" + packed + "' 2>/dev/null").c_str(), "r"), pclose);
  if (!pipe) return std::nullopt;
  std::string out;
  char buffer[65536];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) out.append(buffer, n);
  if (out.empty()) return std::nullopt;
  return out;
}

/// Names in the folder `relative` that end with `suffix`, without it, ascending.
inline std::vector<std::string> data_names(const std::string& relative, const std::string& suffix = "") {
  std::vector<std::string> names;
  const std::string folder = shared_data(relative);
  if (folder.empty()) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// One JSON document a line.
inline std::vector<Json> parse_lines(std::string_view text) {
  std::vector<Json> rows;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (auto j = parse_json(text.substr(0, end), {.max_members = 0})) rows.push_back(std::move(*j));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return rows;
}

inline std::vector<TokenId> ids_of(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

/// Tokenizer of tokenizers/NAME.json, nullptr if the file is not here. A refusal is returned in `error`.
inline std::shared_ptr<const Tokenizer> published_tokenizer(const std::string& name, std::string* error = nullptr) {
  auto text = read_data("tokenizers/" + name + ".json");
  if (!text) return nullptr;
  VocabData v;
  v.tokenizer_json = std::move(*text);
  auto t = make_tokenizer(v);
  if (!t) {
    if (error) *error = t.error().message;
    return nullptr;
  }
  return *t;
}

/// The tokenizer.ggml keys of a GGUF file; as much of a reader as these tests need. Throws std::out_of_range or
/// returns what it has on malformed files: the files of the tests are not.
class GgufKeys {
 public:
  static std::optional<VocabData> read(const std::string& bytes) {
    if (bytes.substr(0, 4) != "GGUF") return std::nullopt;
    GgufKeys r(bytes);
    r.at_ = 16;
    const auto keys = r.number<std::uint64_t>();
    for (std::uint64_t k = 0; k < keys; ++k) {
      const std::string key = r.text();
      r.value(key, r.number<std::uint32_t>());
    }
    return std::move(r.out_);
  }

 private:
  explicit GgufKeys(const std::string& bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T v{};
    const std::string raw = bytes_.substr(at_, sizeof v);
    raw.copy(reinterpret_cast<char*>(&v), sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string text() {
    const auto n = number<std::uint64_t>();
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::int64_t scalar(std::uint32_t type) {
    switch (type) {
      case 0: case 1: case 7: return number<std::uint8_t>();
      case 2: case 3: return number<std::uint16_t>();
      case 4: case 5: return number<std::int32_t>();
      case 6: return static_cast<std::int64_t>(real_ = number<float>());
      default: return number<std::int64_t>();
    }
  }
  void value(const std::string& key, std::uint32_t type) {
    const std::string name = key.starts_with("tokenizer.ggml.") ? key.substr(15) : "";
    if (type == 8) {
      const std::string v = text();
      if (name == "model") out_.ggml_model = v;
      if (name == "pre") out_.ggml_pre = v;
      if (key == "general.architecture") out_.ggml_architecture = v;
    } else if (type == 9) {
      const auto element = number<std::uint32_t>();
      const auto n = number<std::uint64_t>();
      for (std::uint64_t i = 0; i < n; ++i) {
        if (element == 8) {
          std::string v = text();
          if (name == "tokens") out_.tokens.push_back(std::move(v));
          if (name == "merges") out_.merges.push_back(std::move(v));
        } else {
          const std::int64_t v = scalar(element);
          if (name == "token_type") out_.token_types.push_back(static_cast<std::int32_t>(v));
          if (name == "scores") out_.scores.push_back(real_);
        }
      }
    } else {
      const std::int64_t v = scalar(type);
      const auto id = static_cast<TokenId>(v);
      if (name == "bos_token_id") out_.bos = id;
      if (name == "eos_token_id") out_.eos = id;
      if (name == "unknown_token_id") out_.unk = id;
      if (name == "padding_token_id") out_.pad = id;
      if (name == "eot_token_id") out_.eot = id;
      if (name == "eom_token_id") out_.eom = id;
      if (name == "add_bos_token") out_.add_bos = v != 0;
      if (name == "add_eos_token") out_.add_eos = v != 0;
      if (name == "add_space_prefix") out_.add_space_prefix = v != 0;
    }
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
  float real_ = 0;
  VocabData out_;
};

}  // namespace barg::test
