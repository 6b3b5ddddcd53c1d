// Tokenizer: text <-> token ids. The oracle is Hugging Face `tokenizers`, to the id.
//
// Immutable after construction and safe to use from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "barg/types.h"

namespace barg {

/// What a model's files say about its vocabulary and chat format, container-neutral. model::ModelFiles fills
/// it, text:: reads it; neither includes the other.
struct VocabData {
  // -- Hugging Face directory: file contents, empty if absent
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  // -- GGUF tokenizer.ggml.*
  std::string ggml_model;                 ///< "gpt2", "llama", ...; empty for a HF directory
  std::string ggml_pre;                   ///< "smollm", "llama-bpe", ...
  std::vector<std::string> tokens;
  std::vector<std::int32_t> token_types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<float> scores;
  std::vector<std::string> merges;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::string ggml_charsmap;              ///< SentencePiece's compiled map, bytes
  std::optional<TokenId> sep, cls, mask;
  std::string ggml_architecture;          ///< general.architecture
  // -- both
  std::optional<TokenId> bos, eos, unk, pad, eot, eom;
  std::vector<TokenId> eos_ids;           ///< union of the ids that config files call EOS
  std::string chat_template;              ///< Jinja source, empty if the model has none
  std::vector<std::pair<std::string, std::string>> named_chat_templates;  ///< e.g. {"tool_use", source}
};

struct EncodeOptions {
  bool add_special_tokens = true;   ///< what the post-processor adds (BOS, EOS)
  bool parse_special_tokens = true; ///< false: literals of special tokens are plain text
};

/// A piece of text with its origin: `trusted` pieces (the template's own text) may contain special tokens,
/// the others (what a client wrote) never do.
struct MarkedText {
  std::string_view text;
  bool trusted = true;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// REQUIRES valid UTF-8 (check first); never fails on it, see try_encode.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;
  /// Encodes the concatenation of `pieces` with no added BOS/EOS; special tokens are recognised only where the
  /// whole literal is trusted. Equal to encode() of the joined text when no untrusted special literal occurs.
  virtual std::vector<TokenId> encode_marked(const std::vector<MarkedText>& pieces) const = 0;
  /// The same two for text from outside: kInvalidValue where a pattern of the model's file gives up on it (a regular
  /// expression that takes too many steps), and the ids would not be the model's.
  virtual Result<std::vector<TokenId>> try_encode(std::string_view text, const EncodeOptions& options) const {
    return encode(text, options);
  }
  virtual Result<std::vector<TokenId>> try_encode_marked(const std::vector<MarkedText>& pieces) const {
    return encode_marked(pieces);
  }

  /// Bytes that `id` contributes (byte-level tokens may be partial UTF-8). Empty for ids without text.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  /// The same for the first token of a text, where SentencePiece and WordPiece have no space before a word. Text that
  /// goes on (what a model adds to its prompt) is made of token_bytes() alone.
  virtual std::string_view first_token_bytes(TokenId id) const { return token_bytes(id); }
  /// Special (control) tokens are skipped by skip_special_tokens.
  virtual bool is_special(TokenId id) const = 0;
  /// Cut out of the text before everything else, as one token ("<tool_call>"); special or not.
  virtual bool is_added(TokenId id) const { return is_special(id); }
  /// The ids whose sampling ends a generation (EOS, EOT, EOM, ...), ascending.
  virtual const std::vector<TokenId>& end_ids() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  /// Text of an added or special token by role ("bos_token", "eos_token", ...), empty if none: template variables.
  virtual std::string_view special_text(std::string_view role) const = 0;
  /// Id of an exact token text ("<|im_end|>"), or nullopt.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  /// So many bytes of a text one token stands for at most; nullopt: any number (unknown words, spaces that are cut
  /// away), or nobody knows. A text of n bytes has at least n / max_text_bytes() tokens.
  virtual std::optional<std::size_t> max_text_bytes() const { return std::nullopt; }
  /// How text becomes ids, in a few words for people ("byte-level BPE"); may be empty.
  virtual std::string_view kind() const { return {}; }
  /// Number of ids that have a token; rows of the embedding beyond it are padding and never sampled.
  virtual std::int32_t size() const = 0;

  /// Whole decode, invalid UTF-8 replaced by U+FFFD. Streaming uses text::Detokenizer.
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const;
};

/// Builds the tokenizer a model's files describe. Unknown kinds are errors that name the field
/// (`tokenizer.ggml.pre`, `model.type`, ...). Files are hostile: sizes are checked before use.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const VocabData& vocab);

}  // namespace barg
