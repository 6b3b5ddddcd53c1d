#include "model/model_files.h"

#include <algorithm>
#include <filesystem>

#include "model/model_containers.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::size_t kHashedAtOnce = std::size_t{1} << 20;  // in memory beside what is being packed

}  // namespace

Result<std::shared_ptr<const ModelFiles>> ModelFiles::open(const std::string& path) {
  std::error_code ec;
  if (path.empty()) return fail(ErrorCode::kInvalidValue, "the model path is empty", "model");
  if (std::filesystem::is_directory(path, ec)) return open_hf_model(path);
  if (path.ends_with(".safetensors")) {
    return fail(ErrorCode::kInvalidValue,
                path + ": give the directory that holds config.json and the safetensors files", "model");
  }
  return open_gguf_model(path);
}

Result<void> ModelFiles::index_tensors(std::vector<std::string> canonical_names) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_canonical_name_.emplace(std::move(canonical_names[i]), i).second) {
      return fail(ErrorCode::kBadFile,
                  path_ + ": tensor " + printable(tensors_[i].name) + " is there twice under two names");
    }
    total_bytes_ += tensors_[i].bytes.size();
  }
  return {};
}

const Tensor* ModelFiles::find(std::string_view canonical_name) const {
  const auto it = by_canonical_name_.find(canonical_name);
  return it == by_canonical_name_.end() ? nullptr : &tensors_[it->second];
}

std::vector<ModelFiles::TypeShare> ModelFiles::quantisation() const {
  std::map<std::string_view, TypeShare> by_type;
  for (const Tensor& t : tensors_) {
    TypeShare& s = by_type[t.type.name];
    s.type = t.type.name;
    s.tensors += 1;
    s.elements += t.elements();
    s.bytes += t.bytes.size();
  }
  std::vector<TypeShare> out;
  for (auto& [name, share] : by_type) out.push_back(std::move(share));
  std::stable_sort(out.begin(), out.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return out;
}

std::string ModelFiles::quantisation_summary() const {
  std::string out;
  for (const TypeShare& s : quantisation()) {
    const std::uint64_t permille = total_bytes_ == 0 ? 0 : s.bytes * 1000 / total_bytes_;
    const std::string percent = std::to_string(permille / 10) + "." + std::to_string(permille % 10);
    out += (out.empty() ? "" : ", ") + s.type + (permille == 0 ? " (below 0.1%)" : " (" + percent + "%)");
  }
  return out;
}

bool ModelFiles::is_quantised() const {
  std::uint64_t small = 0, all = 0;
  for (const auto& [name, i] : by_canonical_name_) {
    const Tensor& t = tensors_[i];
    const bool multiplied = name.starts_with("blk.") || name == "output.weight";
    if (!multiplied || !name.ends_with(".weight") || t.shape.size() < 2) continue;
    all += t.elements();
    if (t.type.block_bytes <= t.type.block_elements || t.type.block_elements > 1) small += t.elements();
  }
  return small > 0 && small * 2 >= all;
}

Digest ModelFiles::weights_digest() const {
  Sha256 sha;
  const auto number = [&](std::uint64_t v) { sha.update(&v, sizeof v); };
  for (const auto& [name, i] : by_canonical_name_) {
    const Tensor& t = tensors_[i];
    number(name.size());
    sha.update(name);
    number(std::string_view(t.type.name).size());
    sha.update(t.type.name);
    number(t.shape.size());
    for (const std::int64_t d : t.shape) number(static_cast<std::uint64_t>(d));
    number(t.bytes.size());
    for (std::size_t at = 0; at < t.bytes.size(); at += kHashedAtOnce) {
      const auto part = t.bytes.subspan(at, std::min(kHashedAtOnce, t.bytes.size() - at));
      sha.update(part.data(), part.size());
      drop(t, part);
    }
  }
  return sha.finish();
}

}  // namespace barg::model
