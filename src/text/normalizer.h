// Normalizers: what becomes of the text between literals before it is cut into pre-tokens (`normalizer` of
// tokenizer.json). Names and rules are those of Hugging Face tokenizers.
//
//   "Ça va" --NFD--> "C,a va" --StripAccents--> "Ca va" --Lowercase--> "ca va" --Prepend, Replace--> "_ca_va"
//
// Immutable and safe from any thread. Text is valid UTF-8 before and after. Time is linear in the text (a regular
// expression costs what split.h says), and a file cannot make the text grow without bound: see Normalizing::limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "text/split.h"
#include "text/unicode.h"

namespace barg::text {

/// What goes along with one text.
struct Normalizing {
  /// What stands first now did not begin the text (Metaspace's "first" asks for it).
  bool cut = false;
  /// A replacement that would make the text longer than so many bytes is not made. No published file comes near.
  std::size_t limit = 0;
  /// The pattern of a replacement that left some of the text as it was; empty: none did.
  std::string_view gave_up{};
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// True where run() would surely change nothing; may say false for such text.
  virtual bool leaves(std::string_view text) const = 0;
  virtual void run(std::string& text, Normalizing& state) const = 0;
  /// So many bytes of a text become one at least (never 0); nullopt: any number, it drops some.
  virtual std::optional<std::size_t> shrinks() const = 0;
};
using NormalizerPtr = std::unique_ptr<const Normalizer>;

struct BertRules {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

NormalizerPtr form_normalizer(NormalForm form);
NormalizerPtr lowercase_normalizer();
NormalizerPtr strip_accents_normalizer();
NormalizerPtr strip_normalizer(bool left, bool right);
NormalizerPtr nmt_normalizer();
NormalizerPtr bert_normalizer(BertRules rules);
/// The printable characters of the text's bytes.
NormalizerPtr byte_level_normalizer();
/// Nothing is put before empty text.
NormalizerPtr prepend_normalizer(std::string prefix);
NormalizerPtr replace_normalizer(std::unique_ptr<Matcher> pattern, std::string content);
/// SentencePiece's compiled map, as it lies in the file. Failure: kBadFile.
Result<NormalizerPtr> charsmap_normalizer(std::string_view blob);
NormalizerPtr sequence_normalizer(std::vector<NormalizerPtr> parts);

/// Where the normalisation of one text starts.
Normalizing normalizing(std::string_view text);
/// One text through `normalizer`, which may be null.
std::string normalized(const Normalizer* normalizer, std::string_view text);

}  // namespace barg::text
