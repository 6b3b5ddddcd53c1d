#include "model/inspect.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "model/printable.h"
#include "model/unread_tensors.h"

namespace barg::model {
namespace {

std::string count(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// " (1.04 G)" of 1040000000 and {" K", " M", " G"}: three digits; nothing below the first unit.
std::string about(std::uint64_t number, double step, std::span<const char* const> units) {
  auto value = static_cast<double>(number);
  if (value < step) return {};
  std::size_t i = 0;
  for (value /= step; value >= step && i + 1 < units.size(); ++i) value /= step;
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? " (%.2f" : value < 100 ? " (%.1f" : " (%.0f", value);
  return text + std::string(units[i]) + ")";
}

std::string with_size(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {" KiB", " MiB", " GiB", " TiB"};
  return std::to_string(bytes) + " bytes" + about(bytes, 1024, kUnits);
}

std::string with_scale(std::uint64_t number) {
  static constexpr const char* kUnits[] = {" thousand", " million", " billion", " trillion"};
  return std::to_string(number) + about(number, 1000, kUnits);
}

std::string group_text(const DecoderSpec& s, const LayerGroup& g, DType kv_dtype) {
  const std::string layers = count(g.layers.size(), "layer");
  if (g.kind == StateKind::kRecurrent)
    return layers + ", recurrent, " + std::to_string(g.state_bytes) + " bytes of state each, however many tokens";
  const std::string bytes = ", " + std::to_string(kv_bytes_per_token(g, kv_dtype)) + " bytes a token";
  if (g.kind == StateKind::kLatent)
    return layers + ", latent attention, one vector of " + std::to_string(g.head_dim) + bytes;
  const std::int32_t more = group_readers(s, g) - static_cast<std::int32_t>(g.layers.size());
  return layers + (g.window > 0 ? ", sliding window " + std::to_string(g.window) : ", full attention") + ", " +
         count(static_cast<std::size_t>(g.num_kv_heads), "kv head") + " of " + std::to_string(g.head_dim) + bytes +
         (more > 0 ? ", read by " + std::to_string(more) + " more" : "");
}

std::string experts_text(const DecoderSpec& s) {
  const ExpertSpec& e = s.experts;
  const auto layers =
      std::count_if(s.layers.begin(), s.layers.end(), [](const LayerSpec& l) { return has_experts(l.feed); });
  std::string out = std::to_string(e.chosen) + " of " + std::to_string(e.count) + " in " + std::to_string(layers) +
                    " layers, feed-forward size " + std::to_string(e.ffn);
  if (e.groups > 1)
    out += ", " + std::to_string(e.kept_groups) + " of " + std::to_string(e.groups) + " groups kept";
  if (e.shared_ffn > 0) out += ", shared " + std::to_string(e.shared_ffn);
  if (e.shared_gate != SharedGate::kNone) out += " behind a gate";
  return out;
}

std::string embeddings_text(const DecoderSpec& s) {
  const PoolingSpec& p = s.pooling;
  std::string out = std::to_string(s.hidden) + " numbers, " + pooling_name(p.kind) + (p.normalise ? ", normalised" : "");
  if (!p.matryoshka) return out;
  out += ", may be cut to ";
  if (p.sizes.empty()) return out + "fewer";
  for (std::size_t i = 0; i < p.sizes.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(p.sizes[i]);
  return out;
}

/// Each of what the layers have, in the order of the first that has it.
template <class Text>
std::string each_kind(const DecoderSpec& s, Text&& text) {
  std::vector<std::string> seen;
  for (const LayerSpec& l : s.layers) {
    std::string t = text(l);
    if (std::find(seen.begin(), seen.end(), t) == seen.end()) seen.push_back(std::move(t));
  }
  std::string out;
  for (const std::string& t : seen) out += (out.empty() ? "" : "; ") + t;
  return out;
}

std::string heads_text(const DecoderSpec& s) {
  return each_kind(s, [&](const LayerSpec& l) {
    const LayerShape shape = shape_of(s, l);
    return std::to_string(s.num_q_heads) + " of " + std::to_string(shape.head_dim) + ", kv heads " +
           std::to_string(shape.num_kv_heads);
  });
}

std::string ffn_text(const DecoderSpec& s) {
  return each_kind(s, [&](const LayerSpec& l) { return std::to_string(shape_of(s, l).ffn); });
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

class Lines {
 public:
  void add(const char* key, const std::string& value) { text_ += std::string(key) + ": " + value + "\n"; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

bool attends(const LayerSpec& l) { return has_attention(l.mixer) || l.mixer == MixerKind::kLatent; }

/// One line a rope; in which layers, where not all have the same.
void add_ropes(const DecoderSpec& s, Lines& out) {
  const auto layers = std::count_if(s.layers.begin(), s.layers.end(), attends);
  for (std::int32_t r = -1; r < std::ssize(s.ropes); ++r) {
    const auto have = std::count_if(s.layers.begin(), s.layers.end(),
                                    [r](const LayerSpec& l) { return attends(l) && l.rope == r; });
    if (have == 0) continue;
    const std::string kind = r < 0 ? "none" : rope_text(s.ropes[static_cast<std::size_t>(r)]);
    out.add("rope", kind + (have == layers ? "" : ", in " + count(static_cast<std::size_t>(have), "layer")));
  }
}

void add_header(const ModelFiles& files, const std::string& family, Lines& out) {
  out.add("name", files.display_name());
  out.add("path", files.path());
  out.add("container", std::string(files.container()));
  out.add("architecture", files.architecture() + (family.empty() ? "" : " (family " + family + ")"));
  out.add("weights", with_size(files.total_bytes()) + " in " + count(files.tensors().size(), "tensor"));
  out.add("quantisation", files.quantisation_summary());
}

}  // namespace

Result<Inspection> inspect(const ModelFiles& files) {
  Inspection out;
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  out.parameters = parameter_count(*spec);
  if (const auto vocab = files.vocab()) {  // what it lacks, the tokenizer will say
    for (const auto& [name, source] : vocab->named_chat_templates) out.template_names.push_back(name);
  }
  out.spec = std::move(*spec);
  out.groups = layer_groups(out.spec);
  return out;
}

std::string header_text(const ModelFiles& files) {
  Lines out;
  add_header(files, "", out);
  return out.take();
}

std::string to_text(const Inspection& i, const ModelFiles& files, DType kv_dtype, bool tensors) {
  const DecoderSpec& s = i.spec;
  Lines out;
  add_header(files, s.family, out);
  out.add("parameters", with_scale(i.parameters));
  out.add("layers", std::to_string(s.num_layers));
  out.add("hidden size", std::to_string(s.hidden));
  if (s.ffn > 0) out.add("feed-forward size", ffn_text(s));
  if (s.experts.count > 0) out.add("experts", experts_text(s));
  if (s.streams.count > 1) out.add("residual streams", std::to_string(s.streams.count));
  if (s.per_layer.width > 0) out.add("per-layer inputs", std::to_string(s.per_layer.width));
  if (s.num_q_heads > 0) out.add("attention heads", heads_text(s));
  out.add("vocabulary rows", std::to_string(s.vocab_rows) + (s.tied ? " (output tied to the embedding)" : ""));
  if (!s.generates()) out.add("embeddings", embeddings_text(s));
  out.add("context length", std::to_string(s.max_positions));
  add_ropes(s, out);
  out.add("kv bytes per token",
          std::to_string(kv_bytes_per_token(s, kv_dtype)) + " (" + dtype_name(kv_dtype) + ")");
  for (const LayerGroup& g : i.groups) out.add("kv group", group_text(s, g, kv_dtype));
  for (const std::string& note : unread_notes(s, files)) out.add("not read", note);
  if (!tensors) return out.take();
  for (const Tensor& t : files.tensors()) {
    std::string shape;
    for (const std::int64_t d : t.shape) shape += (shape.empty() ? "" : " x ") + std::to_string(d);
    out.add("tensor", printable(t.name) + "  " + t.type.name + "  " + shape + "  " + std::to_string(t.bytes.size()) +
                          " bytes");
  }
  return out.take();
}

}  // namespace barg::model
