// A Hugging Face directory as ModelFiles: config.json, generation_config.json, tokenizer files, safetensors.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "base/utf8.h"
#include "model/class_defaults.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "model/hf_quants.h"
#include "model/model_containers.h"
#include "model/pooling.h"
#include "model/printable.h"
#include "model/quants.h"
#include "model/safetensors.h"

namespace barg::model {
namespace {

constexpr std::size_t kMaxConfigBytes = 4 << 20;
constexpr std::size_t kMaxTokenizerBytes = 256 << 20;
constexpr std::size_t kMaxTemplateBytes = 4 << 20;
constexpr std::size_t kMaxTemplates = 64;

constexpr TensorName kTopNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"model.final_layernorm", "output_norm"},
    {"model.embedding_norm", "output_norm"},
    {"model.embeddings", "token_embd"},
    {"model.norm_f", "output_norm"},
    {"lm_head", "output"},
    {"model.embed_tokens_per_layer", "per_layer_token_embd"},
    {"model.per_layer_model_projection", "per_layer_model_proj"},
    {"model.per_layer_projection_norm", "per_layer_proj_norm"},
    {"model.altup_projections.*", "altup_proj.*"},
    {"model.altup_unembed_projections.*", "altup_unembd_proj.*"},
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
};

/// What families call alike, and what a family calls otherwise in its own table (TensorName in family.h).
constexpr TensorName kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},  {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},           {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

/// The text model of a file for text and images lies under a name of its own.
std::string without_wrapper(std::string_view name) {
  static constexpr TensorName kWrappers[] = {{"model.language_model.", "model."},
                                             {"language_model.model.", "model."},
                                             {"language_model.lm_head.", "lm_head."},
                                             {"backbone.", "model."},
                                             // A model that was saved without its output matrix.
                                             {"layers.", "model.layers."},
                                             {"encoder.layer.", "model.layers."},
                                             {"embed_tokens.", "model.embed_tokens."},
                                             {"norm.", "model.norm."}};
  for (const TensorName& w : kWrappers) {
    if (name.starts_with(w.file)) return std::string(w.canonical) + std::string(name.substr(w.file.size()));
  }
  return std::string(name);
}

/// The first of config.json's `architectures`.
std::string architecture_of(const Json& config) {
  const Json* list = config.find("architectures");
  if (list == nullptr || !list->is_array() || list->size() == 0 || !list->as_array()[0].is_string()) return "unknown";
  return list->as_array()[0].as_string();
}

/// What config.json says of the text model: text_config, with the defaults of its class, over what stands beside it.
Json text_config(Json config) {
  const Family* family = find_hf_family(architecture_of(config));
  const std::string_view usual = family == nullptr ? "" : family->hf_class;
  const Json* own = config.find("text_config");
  if (own == nullptr || !own->is_object()) return with_class_defaults(std::move(config), usual);
  Json text = *own;
  for (const char* key : {"architectures", "tie_word_embeddings"}) {  // what the whole says, before a class
    const Json* outer = config.find(key);
    const bool wins = std::string_view(key) == "architectures" || own->find(key) == nullptr;
    if (outer != nullptr && wins) text.set(key, *outer);
  }
  Json merged = with_class_defaults(std::move(text), usual);
  for (const auto& [key, value] : config.as_object()) {
    if (key != "text_config" && merged.find(key) == nullptr) merged.set(key, value);
  }
  return merged;
}

bool exists(const std::string& path) {
  std::error_code ec;
  return std::filesystem::exists(path, ec);
}

/// Contents of an optional file; empty if it is not there.
Result<std::string> optional_file(const std::string& path, std::size_t max) {
  if (!exists(path)) return std::string();
  return read_file(path, max);
}

/// What Python writes and JSON has not: bare infinities and NaN become the objects that transformers 5 writes of them.
/// Integers beyond 64 bits, as 10^30 for "no limit", become numbers that may be rounded.
std::string plain_json(const std::string& text) {
  static constexpr std::string_view kWords[] = {"Infinity", "-Infinity", "NaN"};
  static constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kLongest = 20;  // of 64 bits
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (!quoted && kDigits.find(rest[0]) != kDigits.npos) {
      const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789.eE+-"));
      out += number;
      if (number.size() > kLongest && number.find_first_not_of(kDigits) == number.npos) out += ".0";
      i += number.size() - 1;
      continue;
    }
    const auto starts = [&](std::string_view word) { return !quoted && rest.starts_with(word); };
    const auto* const word = std::find_if(std::begin(kWords), std::end(kWords), starts);
    if (word != std::end(kWords)) {
      out += "{\"__float__\":\"" + std::string(*word) + "\"}";
      i += word->size() - 1;
      continue;
    }
    out += text[i];
    if (quoted && text[i] == '\\' && i + 1 < text.size())
      out += text[++i];
    else if (text[i] == '"')
      quoted = !quoted;
  }
  return out;
}

Result<Json> optional_json(const std::string& path, std::size_t max) {
  auto text = optional_file(path, max);
  if (!text) return std::unexpected(text.error());
  if (text->empty()) return Json();
  *text = plain_json(*text);
  // added_tokens_decoder has thousands of entries. A key that is there twice is a mistake with two readings.
  auto json = parse_json(*text, {.max_depth = 64, .max_members = 0, .reject_duplicate_keys = true});
  if (!json) return fail(ErrorCode::kBadFile, path + ": " + json.error().message);
  if (!json->is_object()) return fail(ErrorCode::kBadFile, path + " is not a JSON object");
  return json;
}

class HfModel final : public ModelFiles {
 public:
  static Result<std::shared_ptr<const ModelFiles>> open(const std::string& directory) {
    std::shared_ptr<HfModel> model(new HfModel);
    model->path_ = directory;
    if (!exists(directory + "/config.json")) {
      return fail(ErrorCode::kNotFound, directory + " has no config.json (a GGUF model is given by its file)",
                  "model");
    }
    auto config = optional_json(directory + "/config.json", kMaxConfigBytes);
    if (!config) return std::unexpected(config.error());
    if (!config->is_object()) return fail(ErrorCode::kBadFile, directory + "/config.json is empty");
    auto generation = optional_json(directory + "/generation_config.json", kMaxConfigBytes);
    if (!generation) return std::unexpected(generation.error());
    auto weights = open_safetensors(directory);
    if (!weights) return std::unexpected(weights.error());
    model->config_ = text_config(std::move(*config));
    model->generation_ = std::move(*generation);
    model->files_ = std::move(weights->files);
    model->tensors_ = std::move(weights->tensors);
    if (auto ok = join_quantised(model->config_, model->tensors_); !ok) model->not_joined_ = ok.error();
    std::vector<std::string> names;
    const Family* family = find_hf_family(model->architecture());
    const TensorNames own =
        family != nullptr && family->hf_names != nullptr ? *family->hf_names : TensorNames{};
    for (const Tensor& t : model->tensors_) names.push_back(canonical_tensor_name(t.name, own));
    if (auto ok = model->index_tensors(std::move(names)); !ok) return std::unexpected(ok.error());
    return model;
  }

  std::string_view container() const override { return "safetensors"; }

  std::string architecture() const override {
    return printable(architecture_of(config_));
  }

  std::string display_name() const override {
    std::error_code ec;
    const auto full = std::filesystem::absolute(path_, ec).lexically_normal();
    return full.filename().empty() ? full.parent_path().filename().string() : full.filename().string();
  }

  Result<DecoderSpec> spec() const override {
    const std::string arch = architecture();
    const Family* family = find_hf_family(arch);
    if (family == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  path_ + "/config.json: architectures: \"" + arch +
                      "\" is not supported yet (known: " + known_hf_architectures() + ")",
                  "architectures");
    }
    if (not_joined_) return located(*not_joined_);
    JsonFieldReader fields(config_, "");
    auto s = family->from_hf({fields, *this, &config_, nullptr});
    if (!s) return located(s.error());
    s->family = family->name;
    s->architecture = arch;
    const auto pooling = pooling_from_hf(path_, config_, family->pooling);
    if (!pooling) return std::unexpected(pooling.error());
    if (auto ok = set_pooling(*s, *pooling); !ok) return located(ok.error());
    s->reordered_inputs = std::any_of(tensors_.begin(), tensors_.end(), [](const Tensor& t) {
      return t.source != nullptr && !t.source->order.empty();
    });
    if (auto ok = check_tensors(*s, *this); !ok) return located(ok.error());
    return s;
  }

  Result<VocabData> vocab() const override;
  Result<GenerationDefaults> generation_defaults() const override;
  void drop(const Tensor& tensor, std::span<const std::byte> part) const override {
    files_[tensor.file].drop(part);
  }

 private:
  std::unexpected<Error> located(Error e) const {
    e.message = path_ + "/config.json: " + e.message;
    return std::unexpected(std::move(e));
  }

  /// Of config.json, where it is one id: writers put lists and -1 there for none.
  std::optional<TokenId> id_of(std::string_view key) const;
  Result<void> add_eos(const Json& config, const char* file, std::vector<TokenId>& out) const;
  Result<void> read_templates(VocabData& v) const;

  Json config_, generation_;
  std::optional<Error> not_joined_;  ///< why quantised tensors are not matrices
  std::vector<MappedFile> files_;
};

std::optional<TokenId> HfModel::id_of(std::string_view key) const {
  const Json* id = config_.find(key);
  if (id == nullptr || id->type() != Json::Type::kInt) return std::nullopt;
  if (id->as_int() < 0 || id->as_int() > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(id->as_int());
}

/// eos_token_id is an id or a list of ids.
Result<void> HfModel::add_eos(const Json& config, const char* file, std::vector<TokenId>& out) const {
  const Json* eos = config.find("eos_token_id");
  if (eos == nullptr || eos->is_null()) return {};
  const Json::Array ids = eos->is_array() ? eos->as_array() : Json::Array{*eos};
  for (const Json& id : ids) {
    if (id.type() != Json::Type::kInt || id.as_int() < 0 ||
        id.as_int() > std::numeric_limits<TokenId>::max()) {
      return fail(ErrorCode::kBadFile, path_ + "/" + file + ": eos_token_id is not an id or a list of ids",
                  "eos_token_id");
    }
    out.push_back(static_cast<TokenId>(id.as_int()));
  }
  return {};
}

Result<GenerationDefaults> HfModel::generation_defaults() const {
  GenerationDefaults out;
  if (auto ok = add_eos(generation_, "generation_config.json", out.eos_ids); !ok)
    return std::unexpected(ok.error());
  if (auto ok = add_eos(config_, "config.json", out.eos_ids); !ok) return std::unexpected(ok.error());
  std::sort(out.eos_ids.begin(), out.eos_ids.end());
  out.eos_ids.erase(std::unique(out.eos_ids.begin(), out.eos_ids.end()), out.eos_ids.end());
  if (!generation_.is_object()) return out;
  JsonFieldReader f(generation_, "");
  const bool sample = f.boolean("do_sample", true);
  const auto number = [&](const char* key, double low, double high, std::optional<double>& to) {
    if (f.has(key)) to = f.real(key, low, high);
  };
  if (sample) {
    number("temperature", 0, 100, out.temperature);
    number("top_p", 0, 1, out.top_p);
    number("min_p", 0, 1, out.min_p);
    number("repetition_penalty", 1e-3, 100, out.repetition_penalty);
    if (f.has("top_k"))
      out.top_k = static_cast<std::int32_t>(
          std::max<std::int64_t>(f.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()), 0));
  }
  if (f.error()) {
    return fail(f.error()->code, path_ + "/generation_config.json: " + f.error()->message, f.error()->param);
  }
  return out;
}

/// The `chat_template` of a JSON file: a source, or a list of {name, template}. Replaces those that are there.
Result<void> templates_of_json(const std::string& path, std::size_t max, VocabData& v) {
  auto config = optional_json(path, max);
  if (!config) return std::unexpected(config.error());
  const Json* own = config->find("chat_template");
  if (own == nullptr || own->is_null()) return {};
  v.chat_template.clear();
  v.named_chat_templates.clear();
  if (own->is_string()) v.chat_template = own->as_string();
  if (own->is_array()) {
    for (const Json& entry : own->as_array()) {
      const Json* name = entry.find("name");
      const Json* source = entry.find("template");
      if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
        return fail(ErrorCode::kBadFile,
                    path + ": chat_template has an entry without name and template",
                    "chat_template");
      }
      if (name->as_string() == "default")
        v.chat_template = source->as_string();
      else
        v.named_chat_templates.emplace_back(name->as_string(), source->as_string());
    }
  }
  return {};
}

/// In the order of transformers: additional_chat_templates/NAME.jinja and chat_template.jinja, which a tokenizer reads
/// today; chat_template.json, which older processors wrote; the chat_template of tokenizer_config.json. Files beside
/// the first two replace the named ones of the others. Where additional ones come without a default, the others' stays.
Result<void> HfModel::read_templates(VocabData& v) const {
  for (const auto& [name, max] : {std::pair("/tokenizer_config.json", kMaxTokenizerBytes), {"/chat_template.json", 2 * kMaxTemplateBytes}}) {
    if (auto ok = templates_of_json(path_ + name, max, v); !ok) return ok;
  }
  const std::string file = path_ + "/chat_template.jinja";
  if (exists(file)) {
    auto source = read_file(file, kMaxTemplateBytes);
    if (!source) return std::unexpected(source.error());
    v.chat_template = std::move(*source);
    v.named_chat_templates.clear();
  }
  std::error_code ec;
  std::vector<std::filesystem::path> more;
  for (std::filesystem::directory_iterator it(path_ + "/additional_chat_templates", ec), end;
       !ec && it != end && more.size() < kMaxTemplates; it.increment(ec)) {
    if (it->path().extension() == ".jinja") more.push_back(it->path());
  }
  std::sort(more.begin(), more.end());
  if (!more.empty()) v.named_chat_templates.clear();
  for (const auto& p : more) {
    auto text = read_file(p.string(), kMaxTemplateBytes);
    if (!text) return std::unexpected(text.error());
    v.named_chat_templates.emplace_back(p.stem().string(), std::move(*text));
  }
  return {};
}

Result<VocabData> HfModel::vocab() const {
  VocabData v;
  auto tokenizer = optional_file(path_ + "/tokenizer.json", kMaxTokenizerBytes);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  if (tokenizer->empty())
    return fail(ErrorCode::kUnsupported,
                path_ + " has no tokenizer.json (other tokenizer files are not supported yet)",
                "tokenizer.json");
  auto config = optional_file(path_ + "/tokenizer_config.json", kMaxTokenizerBytes);
  if (!config) return std::unexpected(config.error());
  v.tokenizer_json = std::move(*tokenizer);
  v.tokenizer_config_json = plain_json(*config);
  auto defaults = generation_defaults();
  if (!defaults) return std::unexpected(defaults.error());
  v.eos_ids = defaults->eos_ids;
  v.bos = id_of("bos_token_id");
  v.pad = id_of("pad_token_id");
  std::vector<TokenId> own;
  if (auto ok = add_eos(config_, "config.json", own); !ok) return std::unexpected(ok.error());
  if (!own.empty())
    v.eos = own.front();
  else if (!v.eos_ids.empty())
    v.eos = v.eos_ids.front();
  if (auto ok = read_templates(v); !ok) return std::unexpected(ok.error());
  for (const auto& [name, source] : v.named_chat_templates) {
    if (!is_valid_utf8(source))
      return fail(ErrorCode::kBadFile, path_ + ": chat template " + printable(name) + " is not valid UTF-8",
                  "chat_template");
  }
  if (!is_valid_utf8(v.chat_template))
    return fail(ErrorCode::kBadFile, path_ + ": the chat template is not valid UTF-8", "chat_template");
  return v;
}

}  // namespace

std::string canonical_tensor_name(std::string_view hf_name, TensorNames own) {
  const std::string name = without_wrapper(hf_name);
  const std::size_t kind = name.rfind('.');  // before "weight" or "bias"
  if (kind == name.npos) return std::string(hf_name);
  std::string head = name.substr(0, kind);
  std::string known = translate_name(kTopNames, head);
  static constexpr std::string_view kPrefix = "model.layers.";
  if (known.empty() && name.starts_with(kPrefix)) {
    const std::size_t dot = name.find('.', kPrefix.size());
    const std::string layer = name.substr(kPrefix.size(), dot == name.npos ? dot : dot - kPrefix.size());
    if (dot == name.npos || layer.find_first_not_of("0123456789") != layer.npos) return std::string(hf_name);
    const std::string rest = name.substr(dot + 1);
    if (const auto expert = expert_tensor_name(rest)) return "blk." + layer + "." + *expert;
    if (const auto whole = translate_name(own, rest); !whole.empty()) return "blk." + layer + "." + whole;
    if (kind <= dot) return std::string(hf_name);
    known = translate_name(own, head.substr(dot + 1));
    if (known.empty()) known = translate_name(kLayerNames, head.substr(dot + 1));
    if (!known.empty()) known = "blk." + layer + "." + known;
  }
  return known.empty() ? std::string(hf_name) : known + name.substr(kind);
}

Result<std::shared_ptr<const ModelFiles>> open_hf_model(const std::string& directory) {
  return HfModel::open(directory);
}

}  // namespace barg::model
