#include "model/pooling.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/mapped_file.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxSizes = 64;
constexpr std::int64_t kMaxSize = 1 << 20;

/// nullopt: there is no such file.
Result<std::optional<Json>> read_json(const std::string& path) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return std::nullopt;
  const auto text = read_file(path, kMaxFileBytes);
  if (!text) return std::unexpected(text.error());
  auto json = parse_json(*text, {.max_depth = 16, .max_members = 0, .reject_duplicate_keys = true});
  if (!json) return fail(ErrorCode::kBadFile, path + ": " + json.error().message);
  return std::optional(std::move(*json));
}

struct Modules {
  std::optional<std::string> pooling;  ///< folder of its configuration
  bool normalise = false;
};

/// The last part of "sentence_transformers.models.Pooling".
std::string_view class_name(std::string_view type) { return type.substr(type.rfind('.') + 1); }

Result<Modules> read_modules(const std::string& path, const Json& list) {
  const auto bad = [&](const char* what) { return fail(ErrorCode::kBadFile, path + ": " + what, "modules.json"); };
  if (!list.is_array()) return bad("it is not a list of modules");
  Modules out;
  for (const Json& module : list.as_array()) {
    const Json* type = module.find("type");
    const Json* folder = module.find("path");
    if (type == nullptr || !type->is_string() || folder == nullptr || !folder->is_string())
      return bad("a module has no type and path");
    const std::string_view name = class_name(type->as_string());
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      out.normalise = true;
      continue;
    }
    if (name != "Pooling") {
      return fail(ErrorCode::kUnsupported,
                  path + ": a module of type \"" + printable(type->as_string()) +
                      "\" is not supported yet (known: Transformer, Pooling, Normalize)",
                  "modules.json");
    }
    const std::string& at = folder->as_string();
    if (out.pooling || out.normalise) return bad("Pooling is not behind Transformer alone");
    if (at.empty() || at.front() == '/' || at.find("..") != at.npos || at.find('\0') != at.npos)
      return bad("the path of Pooling is not a folder beside it");
    out.pooling = at;
  }
  if (!out.pooling) return bad("it has no Pooling module");
  return out;
}

struct Mode {
  std::string_view key, value;  ///< a flag of its own, or a value of pooling_mode
  Pooling kind;                 ///< kNone: not supported
};
constexpr Mode kModes[] = {
    {"pooling_mode_cls_token", "cls", Pooling::kFirst},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast},
    {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"pooling_mode_max_tokens", "max", Pooling::kNone},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kNone},
    {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::kNone},
};

Result<Pooling> read_mode(const std::string& path, const Json& config) {
  const Mode* chosen = nullptr;
  int count = 0;
  const Json* named = config.find("pooling_mode");
  for (const Mode& mode : kModes) {
    const Json* flag = config.find(mode.key);
    const bool set = flag != nullptr && flag->is_bool() && flag->as_bool();
    if (!set && !(named != nullptr && named->is_string() && named->as_string() == mode.value)) continue;
    chosen = &mode;
    ++count;
  }
  if (count == 1 && chosen->kind != Pooling::kNone) return chosen->kind;
  const std::string what = count == 1   ? std::string(chosen->key)
                           : count == 0 ? std::string("none of the known modes")
                                        : std::string("more than one mode");
  return fail(ErrorCode::kUnsupported,
              path + ": " + what + " is not supported yet (known: cls_token, lasttoken, mean_tokens, one of them)",
              "pooling_mode");
}

/// sentence_bert_config.json: how long an input may be, and what is done to its text.
Result<void> read_limits(const std::string& directory, FilePooling& out) {
  const std::string path = directory + "/sentence_bert_config.json";
  const auto json = read_json(path);
  if (!json) return std::unexpected(json.error());
  if (!*json) return {};
  if (!(*json)->is_object()) return fail(ErrorCode::kBadFile, path + " is not a JSON object");
  JsonFieldReader f(**json, "");
  if (f.has("max_seq_length")) out.max_tokens = static_cast<std::int32_t>(f.integer("max_seq_length", 1, 1 << 30));
  if (f.boolean("do_lower_case", false))
    f.refuse(ErrorCode::kUnsupported, "do_lower_case: true is not supported yet (known: false)", "do_lower_case");
  if (f.error()) return fail(f.error()->code, path + ": " + f.error()->message, f.error()->param);
  return {};
}

/// is_matryoshka, matryoshka_dimensions of config.json.
Result<void> read_matryoshka(const std::string& directory, const Json& config, PoolingSpec& out) {
  const Json* flag = config.find("is_matryoshka");
  out.matryoshka = flag != nullptr && flag->is_bool() && flag->as_bool();
  const Json* sizes = config.find("matryoshka_dimensions");
  if (sizes == nullptr || sizes->is_null()) return {};
  const auto bad = [&] {
    return fail(ErrorCode::kBadFile, directory + "/config.json: matryoshka_dimensions is not a list of sizes",
                "matryoshka_dimensions");
  };
  if (!sizes->is_array() || sizes->size() == 0 || sizes->size() > kMaxSizes) return bad();
  for (const Json& size : sizes->as_array()) {
    if (size.type() != Json::Type::kInt || size.as_int() < 1 || size.as_int() > kMaxSize) return bad();
    out.sizes.push_back(static_cast<std::int32_t>(size.as_int()));
  }
  std::sort(out.sizes.begin(), out.sizes.end());
  out.matryoshka = true;
  return {};
}

}  // namespace

Result<FilePooling> pooling_from_hf(const std::string& directory, const Json& config, Pooling usual) {
  FilePooling out;
  out.spec.kind = usual;
  const std::string path = directory + "/modules.json";
  const auto list = read_json(path);
  if (!list) return std::unexpected(list.error());
  if (*list) {
    const auto modules = read_modules(path, **list);
    if (!modules) return std::unexpected(modules.error());
    const std::string at = directory + "/" + *modules->pooling + "/config.json";
    const auto pooling = read_json(at);
    if (!pooling) return std::unexpected(pooling.error());
    if (!*pooling || !(*pooling)->is_object())
      return fail(ErrorCode::kBadFile, at + " is not there, or not a JSON object", "modules.json");
    const auto mode = read_mode(at, **pooling);
    if (!mode) return std::unexpected(mode.error());
    out.spec.kind = *mode;
    out.spec.normalise = modules->normalise;
    if (auto ok = read_limits(directory, out); !ok) return std::unexpected(ok.error());
  }
  if (out.spec.kind == Pooling::kNone) return out;
  if (auto ok = read_matryoshka(directory, config, out.spec); !ok) return std::unexpected(ok.error());
  return out;
}

FilePooling pooling_from_gguf(FieldReader& fields, Pooling usual) {
  static constexpr Pooling kKinds[] = {Pooling::kNone, Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  constexpr std::int64_t kRank = 4;  // of llama.cpp's enumeration
  FilePooling out;
  out.spec.kind = usual;
  if (!fields.has("pooling_type")) return out;
  const std::int64_t type = fields.integer("pooling_type", 0, kRank);
  if (type == kRank) {
    fields.refuse(ErrorCode::kUnsupported,
                  "metadata key " + fields.full_name("pooling_type") + ": a reranker is not supported yet",
                  "pooling_type");
    return out;
  }
  out.spec.kind = kKinds[type];
  return out;
}

Result<void> set_pooling(DecoderSpec& spec, const FilePooling& pooling) {
  spec.pooling = pooling.spec;
  if (spec.generates() && spec.bidirectional) {
    return fail(ErrorCode::kUnsupported,
                "a " + spec.family + " model generates nothing, and its file names no pooling of its tokens", "pooling_type");
  }
  if (spec.generates()) return {};
  if (!spec.bidirectional && spec.pooling.kind != Pooling::kLast) {
    return fail(ErrorCode::kUnsupported,
                std::string("pooling by ") + pooling_name(spec.pooling.kind) + " is not supported yet for " +
                    spec.family + " models, whose tokens see only what is before them (known: last token)",
                "pooling_mode");
  }
  const auto& sizes = spec.pooling.sizes;
  if (!sizes.empty() && sizes.back() > spec.hidden) {
    return fail(ErrorCode::kBadFile,
                "matryoshka_dimensions has " + std::to_string(sizes.back()) + ", but vectors have " +
                    std::to_string(spec.hidden) + " numbers",
                "matryoshka_dimensions");
  }
  spec.tied = false;
  if (pooling.max_tokens > 0) spec.max_positions = std::min(spec.max_positions, pooling.max_tokens);
  return {};
}

}  // namespace barg::model
