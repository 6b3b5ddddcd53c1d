// TokenDecoder and TokenTexts: what each id contributes to a decoded text (`decoder` of tokenizer.json).
//
// A decoder of Hugging Face tokenizers is a function of the whole list of tokens. Those of published models are a
// function of each token and of whether it is the first; so the bytes of every id are computed once, in two forms:
//
//   id of        in the middle   first                           decoder
//   "Ġhello"     " hello"        " hello"                        ByteLevel
//   "_hello"     " hello"        "hello"                         Replace, ByteFallback, Fuse, Strip; or Metaspace
//   "<0xE4>"     byte E4         byte E4                         ... ByteFallback ...
//   "hello"      " hello"        "hello"                         WordPiece
//   "##ing"      "ing"           "##ing"                         WordPiece
//
// What is not such a function is refused when the file is read. One thing differs from tokenizers: bytes that are not
// UTF-8 become U+FFFD by maximal subparts, while ByteFallback gives one for every byte of the run around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "barg/types.h"
#include "text/split.h"

namespace barg::text {

class TokenDecoder {
 public:
  enum class Kind : std::uint8_t {
    kByteLevel,     ///< the bytes that a printable spelling stands for; other spellings stay
    kReplace,       ///< matches of `pattern` become `content`
    kMetaspace,     ///< `content` becomes a space; in the first token, with `flag`, nothing
    kWordPiece,     ///< a space before it, unless it begins with `content`, which goes; `flag`: cleanup
    kStrip,         ///< up to `start` characters `content` go in front, up to `stop` behind
    kStripText,     ///< one `content` goes in front of the first token
    kByteFallback,  ///< <0x0A> is that byte, for all steps behind
    kSpaces,        ///< a space before each but the first: no decoder
  };
  struct Step {
    Kind kind;
    std::string content = {};
    bool flag = false;
    std::size_t start = 0, stop = 0;
    std::unique_ptr<Matcher> pattern = {};
  };

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// Is the first token of a text like any other?
  bool first_is_like_others() const;
  bool is_byte_level() const { return steps_.size() == 1 && steps_[0].kind == Kind::kByteLevel; }

  /// The bytes of a token spelled `token`.
  std::string decode(std::string_view token, bool first) const;

 private:
  std::vector<Step> steps_;
};

/// The bytes of ids, both forms. Immutable once filled, any thread.
class TokenTexts {
 public:
  /// Later calls for one id replace what was there.
  void set(TokenId id, std::string_view middle, std::string_view first);
  /// Empty for ids without text.
  std::string_view middle(TokenId id) const { return view(id, &Entry::middle); }
  std::string_view first(TokenId id) const { return view(id, &Entry::first); }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint32_t size = 0;
  };
  struct Entry {
    Place middle, first;
  };
  Place place(std::string_view text);
  std::string_view view(TokenId id, Place Entry::*form) const;

  std::string arena_;
  std::vector<Entry> entries_;
};

}  // namespace barg::text
