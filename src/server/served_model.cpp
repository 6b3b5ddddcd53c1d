#include "server/served_model.h"

#include <algorithm>

namespace barg::server {

std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

}  // namespace barg::server
