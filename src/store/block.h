// What every tier agrees on: the key of a stored part, the facts kept beside its bytes, and who may read it.
//
// A stored part is the bytes of one KV block in one group of layers, exactly as they lie in the device's pool (layout_id
// is in the key's root). It is immutable: the same key always means the same bytes. The store never looks inside.
// Plain values; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"

namespace barg::store {

struct Key {
  Digest block{};          ///< of the logical block: the chained digest of kv/keys.h
  std::uint32_t part = 0;  ///< group of layers

  auto operator<=>(const Key&) const = default;
};

/// Digests are uniform: their first bytes are the hash.
struct KeyHash {
  std::size_t operator()(const Key& k) const {
    std::uint64_t h;
    std::memcpy(&h, k.block.data(), sizeof h);
    return static_cast<std::size_t>(h ^ (std::uint64_t{k.part} * 0x9E3779B97F4A7C15ULL));
  }
};

/// Kept with the bytes; equal for equal keys.
struct BlockInfo {
  Digest parent{};                ///< of the block before; the namespace's root for the first
  std::uint32_t depth = 0;        ///< blocks before this one
  std::uint64_t fingerprint = 0;  ///< of the block's tokens: a second opinion beside the key
};

/// Whose blocks these are. A record of another domain is never interpreted. Two processes share blocks iff their
/// domains are equal (salts are inside the keys).
struct Domain {
  Digest root{};                          ///< RunnerInfo::key_root
  std::vector<std::uint64_t> part_bytes;  ///< length of every value, by Key::part
  std::string label;                      ///< for people: model, numerics id; at most 200 bytes, printable
};

/// Where bytes lie. A tier that cannot read or write a kind directly goes through a host buffer of its own.
enum class MemoryKind : std::uint8_t { kHost, kDevice };
struct Memory {
  MemoryKind kind = MemoryKind::kHost;
  std::byte* address = nullptr;
  std::size_t length = 0;
};

}  // namespace barg::store
