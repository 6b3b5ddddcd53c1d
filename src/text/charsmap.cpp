// Precompiled: SentencePiece's map from short strings to their normal forms. The blob is
//
//   uint32 bytes of the trie | the trie (a Darts double array of uint32) | the forms, each ended by a zero byte
//
// and a value in the trie is where a form begins. A cluster of characters of less than six bytes is looked up as a
// whole, then each character; a look-up takes the *shortest* prefix that is in the map and drops the rest of the
// cluster. That is what tokenizers does, and what models were trained with.
#include <utf8proc.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/normalizer.h"

namespace barg::text {
namespace {

constexpr std::size_t kWholeCluster = 6;  ///< bytes; a shorter cluster is looked up as a whole

// One unit of the double array.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFU; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

class Charsmap final : public Normalizer {
 public:
  Charsmap(std::vector<std::uint32_t> trie, std::string forms) : trie_(std::move(trie)), forms_(std::move(forms)) {}

  bool leaves(std::string_view text) const override { return text.empty(); }

  void run(std::string& text, Normalizing& state) const override {
    std::string out;
    out.reserve(text.size());
    bool changed = false;
    const auto replace = [&](std::string_view part, std::size_t rest) {
      const auto form = find(part);
      if (!form || out.size() + form->size() + rest > state.limit) return false;
      out += *form;
      return changed = true;
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = cluster_end(text, at);
      const std::string_view cluster = std::string_view(text).substr(at, end - at);
      if (cluster.size() >= kWholeCluster || !replace(cluster, text.size() - end)) {
        for (std::size_t i = at; i < end;) {
          const std::string_view part = std::string_view(text).substr(i, decode_utf8(text, i).bytes);
          i += part.size();
          if (!replace(part, text.size() - i)) out += part;
        }
      }
      at = end;
    }
    if (changed) text = std::move(out);
  }
  std::optional<std::size_t> shrinks() const override { return std::nullopt; }

 private:
  static std::size_t cluster_end(std::string_view text, std::size_t at) {
    utf8proc_int32_t state = 0;
    CodePoint c = decode_utf8(text, at);
    at += c.bytes;
    while (at < text.size()) {
      const CodePoint next = decode_utf8(text, at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state)) {
        break;
      }
      c = next;
      at += c.bytes;
    }
    return at;
  }

  std::optional<std::string_view> find(std::string_view key) const {
    std::size_t node = offset_of(trie_[0]);
    for (const char k : key) {
      const auto byte = static_cast<unsigned char>(k);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= trie_.size() || label_of(trie_[node]) != byte) return std::nullopt;
      const std::uint32_t unit = trie_[node];
      node ^= offset_of(unit);
      if (!has_leaf(unit)) continue;
      return node < trie_.size() ? form_at(value_of(trie_[node])) : std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<std::string_view> form_at(std::size_t begin) const {
    if (begin > forms_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(forms_).substr(begin);
    const std::string_view form = rest.substr(0, rest.find('\0'));
    if (!is_valid_utf8(form)) return std::nullopt;
    return form;
  }

  std::vector<std::uint32_t> trie_;  ///< not empty
  std::string forms_;
};

}  // namespace

Result<NormalizerPtr> charsmap_normalizer(std::string_view blob) {
  const auto bad = [](const char* what) {
    return fail(ErrorCode::kBadFile, std::string("precompiled_charsmap ") + what, "precompiled_charsmap");
  };
  std::uint32_t bytes = 0;
  if (blob.size() < sizeof bytes) return bad("is too short");
  std::memcpy(&bytes, blob.data(), sizeof bytes);
  blob.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % sizeof(std::uint32_t) != 0 || bytes > blob.size()) return bad("has a trie of a wrong size");
  std::vector<std::uint32_t> trie(bytes / sizeof(std::uint32_t));
  std::memcpy(trie.data(), blob.data(), bytes);
  return std::make_unique<Charsmap>(std::move(trie), std::string(blob.substr(bytes)));
}

}  // namespace barg::text
