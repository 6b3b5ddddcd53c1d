// How a part lies in Redis: the names of its values, their header, and how a long part is cut.
//
// Every value is a header of 192 bytes and a payload. Up to kMaxPayload bytes a part is one value under its
// name. A longer one is cut: "<name>/0", "<name>/1", ... hold the pieces, and the value under the name itself
// is a head whose payload is the list of the pieces' checksums; so pieces of another part, or damaged ones,
// do not fit their head. Integers are little endian. Plain functions; any thread.
//
//    0 magic "BARGKVR1"   8 version u32   12 header bytes u32   16 domain root   48 block digest
//   80 part u32   84 depth u32   88 parent digest   120 fingerprint u64   128 length of the part u64
//  136 kind u32   140 piece u32   144 pieces u32   148 zero u32   152 length of the payload u64
//  160 XXH3-128 of the payload   176 zero (12)   188 CRC32C of bytes 0..187
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "store/block.h"
#include "store/payload_hash.h"

namespace barg::store {

inline constexpr std::size_t kValueHeaderBytes = 192;
inline constexpr std::uint32_t kRecordVersion = 1;
/// So that a value with its header stays under 1 MiB: Redis gets slower with longer ones.
inline constexpr std::uint64_t kMaxPayload = (1ULL << 20) - 4096;
inline constexpr std::uint64_t kMaxPieces = 4096;

enum class RecordKind : std::uint32_t { kWhole, kHead, kPiece };

using RecordHeader = std::array<std::byte, kValueHeaderBytes>;
using Sum128 = std::array<std::byte, 16>;

/// As it lies in a value: the canonical form of XXH3-128.
Sum128 sum_of(const Hash128& hash);
Hash128 hash_of(const Sum128& sum);

/// How a part of `length` bytes is cut: the same for everybody, as it belongs to the version.
struct Cut {
  std::uint64_t length = 0;
  std::uint32_t pieces = 1;  ///< 1: one whole value
  std::uint64_t piece_bytes = 0;

  std::uint64_t begin(std::uint32_t piece) const { return piece * piece_bytes; }
  std::uint64_t size(std::uint32_t piece) const {
    return piece + 1 < pieces ? piece_bytes : length - begin(piece);
  }
};
/// REQUIRES length in [1, kMaxPartBytes].
Cut cut_part(std::uint64_t length);
inline constexpr std::uint64_t kMaxPartBytes = kMaxPayload * (kMaxPieces / 2);

/// What the header of a value must say.
struct RecordFacts {
  Digest root{};
  Key key;
  BlockInfo info;
  std::uint64_t length = 0;  ///< of the whole part
  RecordKind kind = RecordKind::kWhole;
  std::uint32_t piece = 0, pieces = 1;
};

RecordHeader make_header(const RecordFacts& facts, std::uint64_t payload_bytes, const Hash128& payload);
inline RecordHeader make_header(const RecordFacts& facts, std::span<const std::byte> payload) {
  return make_header(facts, payload.size(), payload_hash(payload));
}
/// Is this header, and this payload, the value of those facts?
bool fits(const RecordHeader& header, const RecordFacts& facts, std::span<const std::byte> payload);
/// The checksum of the payload that the header names.
Sum128 header_sum(const RecordHeader& header);

/// "barg:1:<12 hex digits of the domain>:<64 of the block>.<part>".
std::string record_name(const Digest& root, const Key& key);
std::string piece_name(const std::string& name, std::uint32_t piece);

}  // namespace barg::store
