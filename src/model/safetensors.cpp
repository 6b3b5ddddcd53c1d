#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "base/json.h"
#include "model/printable.h"

namespace barg::model {
namespace {

// The format allows 100,000,000; real headers stay below a few MB, and a parsed number costs far more memory
// than its digits.
constexpr std::uint64_t kMaxHeaderBytes = 16 << 20;
constexpr std::size_t kMaxShards = 4096;

constexpr StoredType kTypes[] = {
    {"F32", 1, 4, DType::kF32}, {"F16", 1, 2, DType::kF16}, {"BF16", 1, 2, DType::kBF16},
    {"BOOL", 1, 1, {}},         {"U8", 1, 1, {}},           {"I8", 1, 1, {}},
    {"F8_E4M3", 1, 1, {}},      {"F8_E5M2", 1, 1, {}},      {"F8_E8M0", 1, 1, {}},
    {"F8_E4M3FNUZ", 1, 1, {}},  {"F8_E5M2FNUZ", 1, 1, {}},  {"I16", 1, 2, {}},
    {"U16", 1, 2, {}},          {"I32", 1, 4, {}},          {"U32", 1, 4, {}},
    {"C64", 1, 8, {}},          {"F64", 1, 8, {}},          {"I64", 1, 8, {}},
    {"U64", 1, 8, {}},          {"F4", 2, 1, {}},           {"F6_E2M3", 4, 3, {}},
    {"F6_E3M2", 4, 3, {}},
};

std::unexpected<Error> bad(std::string message) { return fail(ErrorCode::kBadFile, std::move(message)); }

const StoredType* type_by_name(std::string_view name) {
  for (const StoredType& t : kTypes) {
    if (name == t.name) return &t;
  }
  return nullptr;
}

/// A non-negative integer that fits int64.
bool size_value(const Json& v, std::uint64_t& out) {
  if (v.type() != Json::Type::kInt || v.as_int() < 0) return false;
  out = static_cast<std::uint64_t>(v.as_int());
  return true;
}

struct Extent {
  std::uint64_t begin, end;
  std::size_t index;
};

Result<Tensor> parse_tensor(const std::string& name, const Json& entry, Extent& extent) {
  const std::string who = "tensor " + printable(name);
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return bad(who + ": dtype is missing or not a string");
  if (shape == nullptr || !shape->is_array()) return bad(who + ": shape is missing or not an array");
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !size_value(offsets->as_array()[0], extent.begin) || !size_value(offsets->as_array()[1], extent.end)) {
    return bad(who + ": data_offsets is not a pair of sizes");
  }
  const StoredType* type = type_by_name(dtype->as_string());
  if (type == nullptr) return bad(who + ": unknown dtype " + printable(dtype->as_string()));
  Tensor t;
  t.name = name;
  t.type = *type;
  std::uint64_t elements = 1;
  for (const Json& d : shape->as_array()) {
    std::uint64_t size = 0;
    if (!size_value(d, size)) return bad(who + ": shape has an entry that is not a size");
    if (__builtin_mul_overflow(elements, size, &elements)) return bad("the shape of " + who + " overflows");
    t.shape.push_back(static_cast<std::int64_t>(size));
  }
  std::uint64_t bytes = 0;
  if (elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
      elements % type->block_elements != 0 ||
      __builtin_mul_overflow(elements / type->block_elements, type->block_bytes, &bytes)) {
    return bad("the size of " + who + " overflows or is not whole bytes");
  }
  if (extent.end < extent.begin || extent.end - extent.begin != bytes) {
    return bad(who + ": data_offsets span " + std::to_string(extent.end - extent.begin) +
               " bytes but its shape and dtype need " + std::to_string(bytes));
  }
  return t;
}

/// Sorted by begin, the tensors must tile the buffer exactly.
Result<void> check_tiling(std::vector<Extent> extents, std::uint64_t buffer,
                          const std::vector<Tensor>& tensors) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t at = 0;
  for (const Extent& e : extents) {
    if (e.begin != at) {
      return bad("tensor " + printable(tensors[e.index].name) +
                 (e.begin < at ? " overlaps another one" : " leaves a hole before it"));
    }
    at = e.end;
  }
  if (at > buffer) return bad("the tensors reach beyond the end of the file (truncated?)");
  if (at < buffer) return bad("the file has " + std::to_string(buffer - at) + " bytes after its last tensor");
  return {};
}

Result<Json> read_header(std::span<const std::byte> file) {
  std::uint64_t n = 0;
  if (file.size() < 8) return bad("the file is too short for a safetensors header");
  std::memcpy(&n, file.data(), 8);
  if (n > file.size() - 8)
    return bad("the safetensors header of " + std::to_string(n) + " bytes does not fit the file");
  if (n > kMaxHeaderBytes)
    return fail(ErrorCode::kTooLarge,
                "the safetensors header of " + std::to_string(n) + " bytes is over the limit of 16 MiB");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, n);
  if (!text.starts_with('{')) return bad("the safetensors header does not start with \"{\"");
  auto json = parse_json(text, {.max_depth = 8, .max_members = 0, .reject_duplicate_keys = true});
  if (!json) return bad("the safetensors header is not valid JSON: " + json.error().message);
  return json;
}

Result<std::vector<Tensor>> parse_shard(const MappedFile& file, std::uint32_t index) {
  auto tensors = parse_safetensors(file.bytes());
  if (!tensors) return fail(tensors.error().code, file.path() + ": " + tensors.error().message);
  for (Tensor& t : *tensors) t.file = index;
  return tensors;
}

bool plain_file_name(std::string_view s) {
  return !s.empty() && s.find('/') == s.npos && s.find('\\') == s.npos && s.find('\0') == s.npos &&
         s != "." && s != "..";
}

/// weight_map as file -> names.
Result<std::map<std::string, std::vector<std::string>>> read_index(const std::string& path) {
  auto text = read_file(path, kMaxHeaderBytes);
  if (!text) return std::unexpected(text.error());
  auto json = parse_json(*text, {.max_depth = 8, .max_members = 0, .reject_duplicate_keys = true});
  if (!json) return bad(path + ": " + json.error().message);
  const Json* map = json->find("weight_map");
  if (map == nullptr || !map->is_object() || map->size() == 0)
    return bad(path + ": weight_map is missing or empty");
  std::map<std::string, std::vector<std::string>> by_file;
  for (const auto& [name, file] : map->as_object()) {
    if (!file.is_string() || !plain_file_name(file.as_string())) {
      return bad(path + ": weight_map." + printable(name) + " is not a plain file name");
    }
    by_file[file.as_string()].push_back(name);
    if (by_file.size() > kMaxShards) return bad(path + ": more than 4096 shards");
  }
  return by_file;
}

Result<SafetensorsModel> open_sharded(const std::string& directory, const std::string& index_path) {
  auto by_file = read_index(index_path);
  if (!by_file) return std::unexpected(by_file.error());
  SafetensorsModel model;
  for (auto& [file, names] : *by_file) {
    auto mapped = MappedFile::open(directory + "/" + file);
    if (!mapped) return std::unexpected(mapped.error());
    auto tensors = parse_shard(*mapped, static_cast<std::uint32_t>(model.files.size()));
    if (!tensors) return std::unexpected(tensors.error());
    std::map<std::string_view, Tensor*> in_shard;
    for (Tensor& t : *tensors) in_shard.emplace(t.name, &t);
    for (const std::string& name : names) {
      const auto it = in_shard.find(name);
      if (it == in_shard.end()) return bad(index_path + ": " + printable(name) + " is not in " + file);
      model.tensors.push_back(*it->second);
    }
    model.files.push_back(std::move(*mapped));
  }
  return model;
}

}  // namespace

Result<std::vector<Tensor>> parse_safetensors(std::span<const std::byte> file) {
  auto header = read_header(file);
  if (!header) return std::unexpected(header.error());
  std::uint64_t n = 0;
  std::memcpy(&n, file.data(), 8);
  const auto data = file.subspan(8 + n);
  std::vector<Tensor> tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header->as_object()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return bad("__metadata__ of the safetensors header is not an object");
      continue;
    }
    if (name.empty()) return bad("a tensor has an empty name");
    Extent extent{0, 0, tensors.size()};
    auto t = parse_tensor(name, entry, extent);
    if (!t) return std::unexpected(t.error());
    tensors.push_back(std::move(*t));
    extents.push_back(extent);
  }
  if (auto ok = check_tiling(extents, data.size(), tensors); !ok) return std::unexpected(ok.error());
  for (const Extent& e : extents) tensors[e.index].bytes = data.subspan(e.begin, e.end - e.begin);
  return tensors;
}

Result<SafetensorsModel> open_safetensors(const std::string& directory) {
  const std::string single = directory + "/model.safetensors";
  const std::string index = single + ".index.json";
  std::error_code ec;
  if (!std::filesystem::exists(single, ec) && std::filesystem::exists(index, ec))
    return open_sharded(directory, index);
  auto mapped = MappedFile::open(single);
  if (!mapped) return std::unexpected(mapped.error());
  auto tensors = parse_shard(*mapped, 0);
  if (!tensors) return std::unexpected(tensors.error());
  SafetensorsModel model;
  model.tensors = std::move(*tensors);
  model.files.push_back(std::move(*mapped));
  return model;
}

}  // namespace barg::model
