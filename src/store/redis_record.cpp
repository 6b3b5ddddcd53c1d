#include "store/redis_record.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "store/crc32c.h"

namespace barg::store {
namespace {

constexpr char kMagic[] = "BARGKVR1";
constexpr std::size_t kSumAt = 160, kCrcAt = 188;

template <class T>
void put_int(RecordHeader& h, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) h[at + i] = static_cast<std::byte>(value >> (8 * i));
}

/// All but the payload's length and checksum, and the CRC over everything.
RecordHeader facts_header(const RecordFacts& f) {
  RecordHeader h{};
  std::memcpy(h.data(), kMagic, 8);
  put_int<std::uint32_t>(h, 8, kRecordVersion);
  put_int<std::uint32_t>(h, 12, kValueHeaderBytes);
  std::memcpy(h.data() + 16, f.root.data(), 32);
  std::memcpy(h.data() + 48, f.key.block.data(), 32);
  put_int<std::uint32_t>(h, 80, f.key.part);
  put_int<std::uint32_t>(h, 84, f.info.depth);
  std::memcpy(h.data() + 88, f.info.parent.data(), 32);
  put_int<std::uint64_t>(h, 120, f.info.fingerprint);
  put_int<std::uint64_t>(h, 128, f.length);
  put_int<std::uint32_t>(h, 136, static_cast<std::uint32_t>(f.kind));
  put_int<std::uint32_t>(h, 140, f.piece);
  put_int<std::uint32_t>(h, 144, f.pieces);
  return h;
}

}  // namespace

Sum128 sum_of(const Hash128& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, {hash.low, hash.high});
  Sum128 out;
  static_assert(sizeof canonical == sizeof out);
  std::memcpy(out.data(), &canonical, sizeof out);
  return out;
}

Hash128 hash_of(const Sum128& sum) {
  XXH128_canonical_t canonical;
  std::memcpy(&canonical, sum.data(), sizeof canonical);
  const XXH128_hash_t h = XXH128_hashFromCanonical(&canonical);
  return {h.low64, h.high64};
}

Cut cut_part(std::uint64_t length) {
  CHECK(length > 0 && length <= kMaxPartBytes);
  if (length <= kMaxPayload) return {length, 1, length};
  const std::uint64_t pieces = (length + kMaxPayload - 1) / kMaxPayload;
  const std::uint64_t even = (length + pieces - 1) / pieces;
  const std::uint64_t bytes = std::min(kMaxPayload, (even + 63) / 64 * 64);
  return {length, static_cast<std::uint32_t>((length + bytes - 1) / bytes), bytes};
}

RecordHeader make_header(const RecordFacts& facts, std::uint64_t payload_bytes, const Hash128& payload) {
  RecordHeader h = facts_header(facts);
  put_int<std::uint64_t>(h, 152, payload_bytes);
  const Sum128 sum = sum_of(payload);
  std::memcpy(h.data() + kSumAt, sum.data(), sum.size());
  put_int<std::uint32_t>(h, kCrcAt, crc32c(h.data(), kCrcAt));
  return h;
}

bool fits(const RecordHeader& header, const RecordFacts& facts, std::span<const std::byte> payload) {
  return header == make_header(facts, payload);
}

Sum128 header_sum(const RecordHeader& header) {
  Sum128 sum;
  std::memcpy(sum.data(), header.data() + kSumAt, sum.size());
  return sum;
}

std::string record_name(const Digest& root, const Key& key) {
  return "barg:1:" + hex(root.data(), 6) + ":" + hex(key.block) + "." + std::to_string(key.part);
}

std::string piece_name(const std::string& name, std::uint32_t piece) {
  return name + "/" + std::to_string(piece);
}

}  // namespace barg::store
