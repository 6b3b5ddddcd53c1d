// A GGUF file as ModelFiles: metadata keys to spec and vocabulary.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/mapped_file.h"
#include "base/utf8.h"
#include "model/family.h"
#include "model/gguf.h"
#include "model/model_containers.h"
#include "model/pooling.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::size_t kMaxModelName = 256;  // bytes of general.name that are shown

class GgufModel final : public ModelFiles {
 public:
  static Result<std::shared_ptr<const ModelFiles>> open(const std::string& path) {
    auto mapped = MappedFile::open(path);
    if (!mapped) return std::unexpected(mapped.error());
    auto gguf = GgufFile::parse(mapped->bytes());
    if (!gguf) return fail(gguf.error().code, path + ": " + gguf.error().message, gguf.error().param);
    std::shared_ptr<GgufModel> model(new GgufModel);
    model->path_ = path;
    model->mapped_ = std::move(*mapped);
    model->gguf_ = std::move(*gguf);
    model->tensors_ = model->gguf_.tensors();
    std::vector<std::string> names;
    const auto architecture = model->gguf_.string("general.architecture");
    const Family* family = architecture && *architecture ? find_gguf_family(**architecture) : nullptr;
    for (const Tensor& t : model->tensors_) {
      const bool renames = family != nullptr && family->gguf_names != nullptr;
      std::string renamed = renames ? translate_name(*family->gguf_names, t.name) : std::string();
      names.push_back(renamed.empty() ? t.name : std::move(renamed));
    }
    if (auto ok = model->index_tensors(std::move(names)); !ok) return std::unexpected(ok.error());
    if (auto ok = model->check_whole(); !ok) return std::unexpected(ok.error());
    return model;
  }

  std::string_view container() const override { return "gguf"; }

  std::string architecture() const override {
    const auto a = gguf_.string("general.architecture");
    return a && *a ? printable(**a) : "unknown";
  }

  std::string display_name() const override {
    const auto name = gguf_.string("general.name");
    if (name && *name && !(*name)->empty() && is_valid_utf8(**name)) {
      const std::string_view head = (*name)->substr(0, kMaxModelName);
      std::string out(head.substr(0, complete_utf8_prefix(head)));
      std::replace_if(
          out.begin(), out.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, '?');
      return out;
    }
    return std::filesystem::path(path_).stem().string();
  }

  Result<DecoderSpec> spec() const override {
    const auto arch = gguf_.string("general.architecture");
    if (!arch) return located(arch.error());
    if (!*arch)
      return located(
          {ErrorCode::kBadFile, "metadata key general.architecture is missing", "general.architecture", 0});
    const Family* family = find_gguf_family(**arch);
    if (family == nullptr) {
      return located({ErrorCode::kUnsupported,
                      "general.architecture: \"" + printable(**arch) +
                          "\" is not supported yet (known: " + known_gguf_architectures() + ")",
                      "general.architecture", 0});
    }
    GgufFieldReader fields(gguf_, std::string(**arch));
    auto s = family->from_gguf({fields, *this, nullptr, &gguf_});
    if (!s) return located(s.error());
    s->family = family->name;
    s->architecture = std::string(**arch);
    const FilePooling pooling = pooling_from_gguf(fields, family->pooling);
    if (fields.error()) return located(*fields.error());
    if (auto ok = set_pooling(*s, pooling); !ok) return located(ok.error());
    if (auto ok = check_tensors(*s, *this); !ok) return located(ok.error());
    if (auto ok = check_no_more_tensors(*s, *this); !ok) return located(ok.error());
    return s;
  }

  Result<VocabData> vocab() const override;

  /// GGUF files carry no sampling defaults, only the ids that end a generation.
  Result<GenerationDefaults> generation_defaults() const override {
    GenerationDefaults out;
    auto eos = token_id("tokenizer.ggml.eos_token_id");
    if (!eos) return located(eos.error());
    if (*eos) out.eos_ids.push_back(**eos);
    return out;
  }

  void drop(const Tensor&, std::span<const std::byte> part) const override { mapped_.drop(part); }

 private:
  std::unexpected<Error> located(Error e) const {
    e.message = path_ + ": " + e.message;
    return std::unexpected(std::move(e));
  }

  /// Refuses one part of a split model: its tensors alone are not the model.
  Result<void> check_whole() const {
    auto count = gguf_.integer("split.count");
    if (!count) return located(count.error());
    if (*count && **count > 1) {
      return located(
          {ErrorCode::kUnsupported,
           "split.count: a model split over " + std::to_string(**count) + " GGUF files is not supported yet",
           "split.count", 0});
    }
    return {};
  }

  /// An id that is a valid index into the token list (when there is one).
  Result<std::optional<TokenId>> token_id(const char* key) const {
    auto v = gguf_.integer(key);
    if (!v) return std::unexpected(v.error());
    if (!*v) return std::nullopt;
    const GgufValue* tokens = gguf_.find("tokenizer.ggml.tokens");
    const std::int64_t count =
        tokens != nullptr ? static_cast<std::int64_t>(tokens->count) : std::numeric_limits<TokenId>::max();
    if (**v == 0xffffffff || **v == -1) return std::nullopt;  // writers use it for "none"
    if (**v < 0 || **v >= count) {
      return fail(ErrorCode::kBadFile,
                  "metadata key " + std::string(key) + " is " + std::to_string(**v) +
                      ", outside the vocabulary of " + std::to_string(count) + " tokens",
                  key);
    }
    return std::optional(static_cast<TokenId>(**v));
  }

  Result<void> read_token_lists(VocabData& v) const;
  Result<void> read_special_ids(VocabData& v) const;
  Result<void> read_templates(VocabData& v) const;

  MappedFile mapped_;
  GgufFile gguf_;
};

Result<void> GgufModel::read_token_lists(VocabData& v) const {
  auto model = gguf_.string("tokenizer.ggml.model");
  auto pre = gguf_.string("tokenizer.ggml.pre");
  auto tokens = gguf_.strings("tokenizer.ggml.tokens");
  auto merges = gguf_.strings("tokenizer.ggml.merges");
  auto scores = gguf_.reals("tokenizer.ggml.scores");
  auto types = gguf_.integers("tokenizer.ggml.token_type");
  auto map = gguf_.integers("tokenizer.ggml.precompiled_charsmap");
  for (const auto* e : {model ? nullptr : &model.error(), pre ? nullptr : &pre.error(),
                        tokens ? nullptr : &tokens.error(), merges ? nullptr : &merges.error(),
                        scores ? nullptr : &scores.error(), types ? nullptr : &types.error(),
                        map ? nullptr : &map.error()}) {
    if (e != nullptr) return std::unexpected(*e);
  }
  if (!*model)
    return fail(ErrorCode::kBadFile, "metadata key tokenizer.ggml.model is missing", "tokenizer.ggml.model");
  if (!*tokens || (*tokens)->empty())
    return fail(ErrorCode::kBadFile, "metadata key tokenizer.ggml.tokens is missing or empty",
                "tokenizer.ggml.tokens");
  v.ggml_model = std::string(**model);
  v.ggml_pre = std::string(pre->value_or(""));
  v.tokens = std::move(**tokens);
  v.merges = std::move(*merges).value_or(std::vector<std::string>{});
  v.scores = std::move(*scores).value_or(std::vector<float>{});
  for (const std::int64_t byte : map->value_or(std::vector<std::int64_t>{})) v.ggml_charsmap += static_cast<char>(byte);
  for (const std::int64_t t : types->value_or(std::vector<std::int64_t>{})) {
    if (t < 0 || t > 6)
      return fail(ErrorCode::kBadFile,
                  "metadata key tokenizer.ggml.token_type has the unknown type " + std::to_string(t),
                  "tokenizer.ggml.token_type");
    v.token_types.push_back(static_cast<std::int32_t>(t));
  }
  if (!v.token_types.empty() && v.token_types.size() != v.tokens.size()) {
    return fail(ErrorCode::kBadFile,
                "metadata keys tokenizer.ggml.tokens and token_type have different lengths",
                "tokenizer.ggml.token_type");
  }
  if (!v.scores.empty() && v.scores.size() != v.tokens.size()) {
    return fail(ErrorCode::kBadFile, "metadata keys tokenizer.ggml.tokens and scores have different lengths",
                "tokenizer.ggml.scores");
  }
  return {};
}

Result<void> GgufModel::read_special_ids(VocabData& v) const {
  struct Row {
    const char* key;
    std::optional<TokenId>* to;
  };
  for (const Row& row :
       {Row{"tokenizer.ggml.bos_token_id", &v.bos}, Row{"tokenizer.ggml.eos_token_id", &v.eos},
        Row{"tokenizer.ggml.unknown_token_id", &v.unk}, Row{"tokenizer.ggml.padding_token_id", &v.pad},
        Row{"tokenizer.ggml.eot_token_id", &v.eot}, Row{"tokenizer.ggml.eom_token_id", &v.eom},
        Row{"tokenizer.ggml.seperator_token_id", &v.sep}, Row{"tokenizer.ggml.cls_token_id", &v.cls},
        Row{"tokenizer.ggml.mask_token_id", &v.mask}}) {
    auto id = token_id(row.key);
    if (!id) return std::unexpected(id.error());
    *row.to = *id;
  }
  if (v.eos) v.eos_ids.push_back(*v.eos);
  auto add_bos = gguf_.boolean("tokenizer.ggml.add_bos_token");
  auto add_eos = gguf_.boolean("tokenizer.ggml.add_eos_token");
  auto add_space = gguf_.boolean("tokenizer.ggml.add_space_prefix");
  auto remove_extra = gguf_.boolean("tokenizer.ggml.remove_extra_whitespaces");
  auto architecture = gguf_.string("general.architecture");
  if (!add_bos) return std::unexpected(add_bos.error());
  if (!add_eos) return std::unexpected(add_eos.error());
  if (!add_space) return std::unexpected(add_space.error());
  if (!remove_extra) return std::unexpected(remove_extra.error());
  if (!architecture) return std::unexpected(architecture.error());
  v.add_bos = *add_bos;
  v.add_eos = *add_eos;
  v.add_space_prefix = *add_space;
  v.remove_extra_whitespaces = *remove_extra;
  v.ggml_architecture = std::string(architecture->value_or(""));
  return {};
}

Result<void> GgufModel::read_templates(VocabData& v) const {
  static constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const std::string_view key : gguf_.keys_with_prefix(kKey)) {
    if (key != kKey && !key.starts_with("tokenizer.chat_template.")) continue;
    auto source = gguf_.string(key);
    if (!source) return std::unexpected(source.error());
    if (!is_valid_utf8(**source))
      return fail(ErrorCode::kBadFile, "metadata key " + printable(key) + " is not valid UTF-8",
                  printable(key));
    if (key == kKey) {
      v.chat_template = std::string(**source);
    } else {
      v.named_chat_templates.emplace_back(std::string(key.substr(kKey.size() + 1)), std::string(**source));
    }
  }
  return {};
}

Result<VocabData> GgufModel::vocab() const {
  VocabData v;
  if (auto ok = read_token_lists(v); !ok) return located(ok.error());
  if (auto ok = read_special_ids(v); !ok) return located(ok.error());
  if (auto ok = read_templates(v); !ok) return located(ok.error());
  return v;
}

}  // namespace

Result<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::string& path) {
  return GgufModel::open(path);
}

}  // namespace barg::model
