#include "model/inspect.h"

#include <algorithm>

#include "model/printable.h"

namespace barg::model {
namespace {

std::string group_text(const LayerGroup& g) {
  if (g.kind == StateKind::kLatent)
    return std::to_string(g.layers.size()) + " layers, latent attention, one vector of " + std::to_string(g.head_dim);
  if (g.kind == StateKind::kRecurrent) {
    return std::to_string(g.layers.size()) + " layers, recurrent, " + std::to_string(g.state_bytes) +
           " bytes of state each";
  }
  std::string out =
      std::to_string(g.layers.size()) +
      (g.window > 0 ? " layers, sliding window " + std::to_string(g.window) : " layers, full attention");
  return out + ", " + std::to_string(g.num_kv_heads) + " kv heads of " + std::to_string(g.head_dim);
}

std::string experts_text(const DecoderSpec& s) {
  const ExpertSpec& e = s.experts;
  const auto layers = std::count_if(s.layers.begin(), s.layers.end(),
                                    [](const LayerSpec& l) { return l.feed == FeedKind::kExperts; });
  std::string out = std::to_string(e.chosen) + " of " + std::to_string(e.count) + " in " + std::to_string(layers) +
                    " layers, feed-forward size " + std::to_string(e.ffn);
  if (e.groups > 1)
    out += ", " + std::to_string(e.kept_groups) + " of " + std::to_string(e.groups) + " groups kept";
  if (e.shared_ffn > 0) out += ", shared " + std::to_string(e.shared_ffn);
  return out;
}

std::string rope_text(const RopeSpec& r) {
  static constexpr const char* kKinds[] = {"default", "linear",   "dynamic",     "llama3",
                                           "yarn",    "longrope", "proportional"};
  std::string out = std::string(kKinds[static_cast<int>(r.kind)]) + ", theta " +
                    std::to_string(static_cast<long long>(r.theta));
  if (r.kind == RopeSpec::Kind::kDynamic) out += ", fixed for the context that is served";
  if (r.kind == RopeSpec::Kind::kLongRope) {
    out += ", short factors where the context that is served has up to " +
           std::to_string(static_cast<long long>(r.original_max_positions)) + " tokens, else long ones";
  }
  if (!r.divisors.empty()) out += ", per-frequency divisors from the file";
  return out;
}

}  // namespace

Result<Inspection> inspect(const ModelFiles& files) {
  Inspection out;
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  auto vocab = files.vocab();
  if (!vocab) return std::unexpected(vocab.error());
  out.path = files.path();
  out.name = files.display_name();
  out.container = files.container();
  out.architecture = files.architecture();
  out.tensor_count = files.tensors().size();
  out.weight_bytes = files.total_bytes();
  out.quantisation = files.quantisation_summary();
  out.types = files.quantisation();
  out.parameters = parameter_count(*spec);
  out.has_chat_template = !vocab->chat_template.empty();
  for (const auto& [name, source] : vocab->named_chat_templates) out.template_names.push_back(name);
  out.vocab_tokens = vocab->tokens.size();
  out.spec = std::move(*spec);
  out.groups = layer_groups(out.spec);
  return out;
}

std::string to_text(const Inspection& i, const ModelFiles& files, DType kv_dtype, bool tensors) {
  const DecoderSpec& s = i.spec;
  std::string out;
  const auto line = [&](const char* key, const std::string& value) {
    out += std::string(key) + ": " + value + "\n";
  };
  line("name", i.name);
  line("path", i.path);
  line("container", i.container);
  line("architecture", i.architecture + " (family " + s.family + ")");
  line("parameters", std::to_string(i.parameters));
  line("weights",
       std::to_string(i.weight_bytes) + " bytes in " + std::to_string(i.tensor_count) + " tensors");
  line("quantisation", i.quantisation);
  line("layers", std::to_string(s.num_layers));
  line("hidden size", std::to_string(s.hidden));
  line("feed-forward size", std::to_string(s.ffn));
  if (s.experts.count > 0) line("experts", experts_text(s));
  line("attention heads", std::to_string(s.num_q_heads) + " of " + std::to_string(s.head_dim) +
                              ", kv heads " + std::to_string(s.num_kv_heads));
  for (const LayerGroup& g : i.groups) line("kv group", group_text(g));
  line("vocabulary rows", std::to_string(s.vocab_rows) + (s.tied ? " (output tied to the embedding)" : ""));
  line("context length", std::to_string(s.max_positions));
  for (const RopeSpec& r : s.ropes) line("rope", rope_text(r));
  line("kv bytes per token",
       std::to_string(kv_bytes_per_token(s, kv_dtype)) + " (" + dtype_name(kv_dtype) + ")");
  std::string templates = i.has_chat_template ? "yes" : "none";
  for (const std::string& name : i.template_names) templates += ", " + printable(name);
  line("chat template", templates);
  if (!tensors) return out;
  for (const Tensor& t : files.tensors()) {
    std::string shape;
    for (const std::int64_t d : t.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(d);
    line("tensor", printable(t.name) + "  " + t.type.name + "  " + shape + "  " +
                       std::to_string(t.bytes.size()) + " bytes");
  }
  return out;
}

}  // namespace barg::model
