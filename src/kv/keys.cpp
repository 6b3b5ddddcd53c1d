#include "kv/keys.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace barg::kv {

void KeyEncoder::raw(const void* data, std::size_t size) {
  if (size > buffer_.size() - filled_) {
    hash_.update(buffer_.data(), filled_);
    filled_ = 0;
  }
  if (size > buffer_.size()) {
    hash_.update(data, size);
    return;
  }
  if (size > 0) std::memcpy(buffer_.data() + filled_, data, size);
  filled_ += size;
}

void KeyEncoder::number(std::uint64_t v, int bytes) {
  unsigned char little[8];
  for (int i = 0; i < bytes; ++i) little[i] = static_cast<unsigned char>(v >> (8 * i));
  raw(little, static_cast<std::size_t>(bytes));
}

void KeyEncoder::head(Field type, std::uint64_t size) {
  number(static_cast<std::uint64_t>(type), 1);
  number(size, 8);
}

Digest KeyEncoder::finish() {
  hash_.update(buffer_.data(), filled_);
  return hash_.finish();
}

KeyEncoder& KeyEncoder::bytes(Field type, std::string_view value) {
  head(type, value.size());
  raw(value.data(), value.size());
  return *this;
}

KeyEncoder& KeyEncoder::tokens(std::span<const TokenId> first, std::span<const TokenId> second) {
  head(Field::kTokens, 4 * (first.size() + second.size()));
  for (auto part : {first, second}) {
    for (TokenId t : part) number(static_cast<std::uint32_t>(t), 4);
  }
  return *this;
}

KeyEncoder& KeyEncoder::numbers(Field type, std::span<const std::int64_t> values) {
  head(type, 8 * values.size());
  for (std::int64_t v : values) number(static_cast<std::uint64_t>(v), 8);
  return *this;
}

Digest root_key(std::string_view runner_root, std::string_view salt) {
  return KeyEncoder()
      .bytes(KeyEncoder::Field::kRunnerRoot, runner_root)
      .bytes(KeyEncoder::Field::kSalt, salt)
      .finish();
}

Digest block_key(const Digest& parent, const TokenView& log, std::int32_t index, std::int32_t block_tokens) {
  const std::int32_t begin = index * block_tokens;
  const std::int32_t end = begin + block_tokens;
  CHECK(begin >= 0 && end <= log.size());
  const auto prompt = static_cast<std::int32_t>(log.prompt.size());
  const auto slice = [](std::span<const TokenId> s, std::int32_t from, std::int32_t to) {
    const auto n = static_cast<std::int32_t>(s.size());
    from = std::clamp(from, 0, n);
    to = std::clamp(to, from, n);
    return s.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
  };
  KeyEncoder key;
  key.bytes(KeyEncoder::Field::kParent, {reinterpret_cast<const char*>(parent.data()), parent.size()})
      .tokens(slice(log.prompt, begin, end), slice(log.outputs, begin - prompt, end - prompt));
  for (const PromptSpan& s : log.spans) {
    const std::int64_t from = s.offset, to = from + s.length;
    if (to <= begin || from >= end) continue;
    key.numbers(KeyEncoder::Field::kSpanPlace, std::array<std::int64_t, 2>{from - begin, s.length})
        .bytes(KeyEncoder::Field::kSpanDigest, s.digest);
  }
  return key.finish();
}

std::uint64_t block_fingerprint(const TokenView& log, std::int32_t index, std::int32_t block_tokens) {
  const std::int32_t begin = index * block_tokens;
  CHECK(begin >= 0 && begin + block_tokens <= log.size());
  std::uint64_t h = 0x9E3779B97F4A7C15ULL;
  for (std::int32_t i = begin; i < begin + block_tokens; ++i) {
    h = (h ^ static_cast<std::uint32_t>(log[i])) * 0xD6E8FEB86659FD93ULL;  // odd: a bijection for every token
    h ^= h >> 32;
  }
  return h;
}

}  // namespace barg::kv
