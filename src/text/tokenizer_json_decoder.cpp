// `decoder` of tokenizer.json, as a function of each token (token_decoder.h). What runs over the joined text in
// tokenizers (behind Fuse) can only take something off its front here.
#include <algorithm>
#include <iterator>
#include <utility>

#include "text/tokenizer_json.h"

namespace barg::text {
namespace {

using std::string;
using std::string_view;
using Kind = TokenDecoder::Kind;

constexpr std::size_t kMaxSteps = 16;
constexpr std::size_t kMaxContentBytes = 64;

class DecoderReader {
 public:
  explicit DecoderReader(TokenDecoder& out) : out_(out) {}

  Result<void> read(const Json& j, const string& field) {
    const Json* list = member(j, "decoders");
    if (text_of(j, "type") != "Sequence") {
      if (++count_ > kMaxSteps) return bad_json(field, "is one decoder too many");
      return one(j, field);
    }
    if (!list || !list->is_array()) return bad_json(field + ".decoders", "is missing");
    for (const Json& part : list->as_array()) {
      if (auto r = read(part, field + ".decoders"); !r) return r;
    }
    return {};
  }

 private:
  Result<void> one(const Json& j, const string& field) {
    struct Row {
      string_view type;
      Result<void> (DecoderReader::*read)(const Json&, const string&);
    };
    static constexpr Row kRows[] = {
        {"ByteLevel", &DecoderReader::byte_level}, {"Replace", &DecoderReader::replace},
        {"Metaspace", &DecoderReader::metaspace},  {"WordPiece", &DecoderReader::word_piece},
        {"Strip", &DecoderReader::strip},          {"ByteFallback", &DecoderReader::fallback},
        {"Fuse", &DecoderReader::fuse}};
    const string_view type = text_of(j, "type");
    const auto* row = std::ranges::find(kRows, type, &Row::type);
    if (row == std::end(kRows)) return unsupported_json(field + ".type", type);
    // A run of bytes is one token to what stands behind; what changes tokens must come before.
    const bool changes = type != "Fuse" && type != "Strip";
    if ((bytes_ || fused_) && changes) {
      return unsupported_json(field + ".type", string(type) + (fused_ ? " behind Fuse" : " behind bytes"));
    }
    return (this->*row->read)(j, field);
  }

  Result<void> byte_level(const Json&, const string&) {
    out_.add({.kind = Kind::kByteLevel});
    bytes_ = true;
    return {};
  }

  Result<void> fallback(const Json&, const string&) {
    out_.add({.kind = Kind::kByteFallback});
    bytes_ = true;
    return {};
  }

  Result<void> fuse(const Json&, const string&) {
    fused_ = true;
    return {};
  }

  Result<void> replace(const Json& j, const string& field) {
    const Json* pattern = member(j, "pattern");
    if (!pattern) return bad_json(field + ".pattern", "is missing");
    auto matcher = read_pattern(*pattern, field + ".pattern");
    if (!matcher) return std::unexpected(matcher.error());
    const string_view content = text_of(j, "content");
    if (content.size() > kMaxContentBytes) return bad_json(field + ".content", "is above 64 bytes");
    out_.add({.kind = Kind::kReplace, .content = string(content), .pattern = std::move(*matcher)});
    return {};
  }

  Result<void> metaspace(const Json& j, const string& field) {
    const string_view mark = text_of(j, "replacement");
    if (mark.empty() || decode_utf8(mark, 0).bytes != mark.size()) {
      return bad_json(field + ".replacement", "is not one character");
    }
    const bool never = text_of(j, "prepend_scheme") == "never" || !flag_of(j, "add_prefix_space", true);
    out_.add({.kind = Kind::kMetaspace, .content = string(mark), .flag = !never});
    return {};
  }

  Result<void> word_piece(const Json& j, const string& field) {
    const Json* prefix = member(j, "prefix");
    const string_view text = prefix ? text_of(j, "prefix") : "##";
    if (text.size() > kMaxContentBytes) return bad_json(field + ".prefix", "is above 64 bytes");
    out_.add({.kind = Kind::kWordPiece, .content = string(text), .flag = flag_of(j, "cleanup", true)});
    return {};
  }

  Result<void> strip(const Json& j, const string& field) {
    const string_view content = text_of(j, "content");
    if (content.empty() || decode_utf8(content, 0).bytes != content.size()) {
      return bad_json(field + ".content", "is not one character");
    }
    const auto start = count_of(j, "start", 0), stop = count_of(j, "stop", 0);
    if (!start || !stop) return bad_json(field, "has a start or stop that is no number of characters");
    if (!fused_) {
      if (bytes_) return unsupported_json(field + ".type", "Strip behind bytes");
      out_.add({.kind = Kind::kStrip, .content = string(content), .start = *start, .stop = *stop});
      return {};
    }
    // The end of a text is not known while it is written, and of several characters each might be a token.
    if (*stop > 0) return unsupported_json(field + ".stop", "above 0 behind Fuse");
    if (*start > 1 || (*start == 1 && std::exchange(stripped_, true))) {
      return unsupported_json(field + ".start", "above 1 behind Fuse");
    }
    if (*start == 1) out_.add({.kind = Kind::kStripText, .content = string(content)});
    return {};
  }

  TokenDecoder& out_;
  std::size_t count_ = 0;
  bool bytes_ = false, fused_ = false, stripped_ = false;
};

}  // namespace

Result<void> read_decoder(const Json* j, TokenizerSpec& spec) {
  if (j) {
    if (auto r = DecoderReader(spec.decoder).read(*j, "decoder"); !r) return r;
  }
  if (spec.vocab->printable() && !spec.decoder.is_byte_level()) {
    return unsupported_json("decoder.type", j ? text_of(*j, "type") : "null");
  }
  // Without one, tokens are joined by spaces. (One that only joins leaves them as they are.)
  if (!j) spec.decoder.add({.kind = Kind::kSpaces});
  return {};
}

}  // namespace barg::text
