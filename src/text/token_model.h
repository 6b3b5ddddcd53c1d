// TokenModel: from one pre-token to ids. BPE (bpe.h), Unigram (unigram.h), WordPiece and WordLevel (wordpiece.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "barg/types.h"

namespace barg::text {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of one pre-token; `piece` is valid UTF-8 (any bytes for byte-level BPE). Immutable, any thread.
  virtual void encode(std::string_view piece, std::vector<TokenId>& out) const = 0;
  /// So many bytes of a piece one id stands for at most; nullopt: any number (what it does not know is one id, or none).
  virtual std::optional<std::size_t> max_bytes() const = 0;
  virtual std::string_view kind() const = 0;  ///< for people
};

/// Tokens of the form <0x0A>: the byte, or -1.
int byte_of_token(std::string_view spelling);
/// "<0x0A>"
std::string_view token_of_byte(unsigned char byte);

}  // namespace barg::text
