#include "model/unread_tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "model/family.h"
#include "model/printable.h"

namespace barg::model {
namespace {

enum class Kind : std::uint8_t { kSilent, kMedia, kPrediction, kOutput, kShared, kPooler, kOther };
constexpr std::size_t kKinds = 7;
constexpr const char* kWhat[kKinds] = {"",
                                       " of images and sound",
                                       " of layers for the prediction of further tokens",
                                       " of an output matrix, which the config says is the embedding",
                                       " of layers that read the keys and values of others",
                                       " of BERT's pooler and heads",
                                       " that no part of the model names"};
constexpr std::size_t kNamed = 3;

constexpr std::string_view kSilentEnds[] = {"rotary_emb.inv_freq", "position_ids"};
constexpr std::string_view kSilentNames[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                             "rope_factors_long.weight"};
/// Parts of names that stand between dots, or at the start.
constexpr std::string_view kMedia[] = {"visual.",       "vision_tower.", "vision_model.",          "vision_embed_tokens.",
                                       "embed_vision.", "audio_tower.",  "multi_modal_projector.", "embed_audio.",
                                       "vision_embedder."};
constexpr std::string_view kPoolers[] = {"pooler.", "cls."};

bool has_part(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != name.npos; at = name.find(part, at + 1)) {
    if (at == 0 || name[at - 1] == '.') return true;
  }
  return false;
}

/// N of "blk.N." and "model.layers.N."; -1 of others.
std::int32_t layer_of(std::string_view name) {
  for (const std::string_view prefix : {"blk.", "model.layers.", "model.language_model.layers."}) {
    if (!name.starts_with(prefix)) continue;
    std::int32_t layer = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

bool reads_others(const DecoderSpec& s, std::string_view canonical) {
  const std::int32_t layer = layer_of(canonical);
  if (layer < 0 || layer >= s.num_layers || s.layers[static_cast<std::size_t>(layer)].kv_of < 0) return false;
  return has_part(canonical, "attn_k.") || has_part(canonical, "attn_v.") || has_part(canonical, "attn_k_norm.");
}

Kind kind_of(const DecoderSpec& s, std::string_view canonical, std::string_view name) {
  const auto any = [](const auto& list, auto&& holds) { return std::any_of(std::begin(list), std::end(list), holds); };
  if (any(kSilentEnds, [&](std::string_view end) { return name.ends_with(end); })) return Kind::kSilent;
  if (any(kSilentNames, [&](std::string_view whole) { return name == whole; })) return Kind::kSilent;
  if (any(kMedia, [&](std::string_view part) { return has_part(name, part); })) return Kind::kMedia;
  if (has_part(name, "mtp.") || layer_of(canonical) >= s.num_layers) return Kind::kPrediction;
  if (canonical == "output.weight") return Kind::kOutput;
  if (reads_others(s, canonical)) return Kind::kShared;
  if (s.bidirectional && any(kPoolers, [&](std::string_view part) { return has_part(name, part); }))
    return Kind::kPooler;
  return Kind::kOther;
}

}  // namespace

std::vector<std::string> unread_notes(const DecoderSpec& spec, const ModelFiles& files) {
  std::set<std::string> read;
  for (RequiredTensor& need : required_tensors(spec)) read.insert(std::move(need.name));
  std::array<std::size_t, kKinds> counts{};
  std::string names;
  for (const auto& [canonical, index] : files.by_canonical_name()) {
    if (read.contains(canonical)) continue;
    const std::string& name = files.tensors()[index].name;
    const Kind kind = kind_of(spec, canonical, name);
    const std::size_t before = counts[static_cast<std::size_t>(kind)]++;
    if (kind == Kind::kOther && before < kNamed) names += (before == 0 ? ": " : ", ") + printable(name);
  }
  std::vector<std::string> out;
  for (std::size_t k = 1; k < kKinds; ++k) {
    if (counts[k] == 0) continue;
    const bool other = k == static_cast<std::size_t>(Kind::kOther);
    out.push_back(std::to_string(counts[k]) + (counts[k] == 1 ? " tensor" : " tensors") + kWhat[k] +
                  (other ? names + (counts[k] > kNamed ? ", ..." : "") : ""));
  }
  return out;
}

}  // namespace barg::model
