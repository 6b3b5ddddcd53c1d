// Keys of KV blocks: a SHA-256 chain, the only encoder of every tier.
//
//   root  = H(runner root field, salt field)          one namespace per (weights, numerics, layout, tenant)
//   key 0 = H(parent = root,  tokens, spans)
//   key i = H(parent = key i-1, tokens, spans)
//
// Every field is written as type byte, 64-bit little-endian length, bytes: no two different lists of fields
// give the same message, so equal keys mean equal (root, salt, all tokens up to the block's end, span
// contents). A span that touches a block enters with its digest and its place relative to the block.
//
// Threads: pure functions and values, any thread. Not here: secrets (the salt arrives already derived).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/types.h"
#include "base/hash.h"

namespace barg::kv {

/// Hashes one message of typed, length-prefixed fields. finish() may be called once.
class KeyEncoder {
 public:
  enum class Field : std::uint8_t { kRunnerRoot = 1, kSalt, kParent, kTokens, kSpanPlace, kSpanDigest };

  KeyEncoder& bytes(Field type, std::string_view value);
  KeyEncoder& tokens(std::span<const TokenId> first, std::span<const TokenId> second);
  KeyEncoder& numbers(Field type, std::span<const std::int64_t> values);
  Digest finish();

 private:
  void head(Field type, std::uint64_t size);
  void number(std::uint64_t v, int bytes);
  void raw(const void* data, std::size_t size);

  Sha256 hash_;
  std::array<unsigned char, 256> buffer_{};  // many small fields, one update
  std::size_t filled_ = 0;
};

/// The tokens of a sequence without copying the prompt: prompt, then outputs. Borrowed; valid during a call.
struct TokenView {
  std::span<const TokenId> prompt;
  std::span<const TokenId> outputs;
  std::span<const PromptSpan> spans;

  std::int32_t size() const { return static_cast<std::int32_t>(prompt.size() + outputs.size()); }
  TokenId operator[](std::int32_t i) const {
    const auto u = static_cast<std::size_t>(i);
    return u < prompt.size() ? prompt[u] : outputs[u - prompt.size()];
  }
};

/// Namespace of one tenant on one runner. `runner_root` is RunnerInfo::key_root.
Digest root_key(std::string_view runner_root, std::string_view salt);

/// Key of block `index` (tokens [index*B, (index+1)*B)) after `parent`. REQUIRES (index+1)*B <= log.size().
Digest block_key(const Digest& parent, const TokenView& log, std::int32_t index, std::int32_t block_tokens);

/// A second opinion beside the key: 64 bits of the block's tokens alone. REQUIRES as block_key().
std::uint64_t block_fingerprint(const TokenView& log, std::int32_t index, std::int32_t block_tokens);

/// The function the manager calls; tests plant weaker ones to see that wrong reuse is noticed.
using BlockKeyFn = Digest (*)(const Digest&, const TokenView&, std::int32_t, std::int32_t);

}  // namespace barg::kv
