// The disk format, version 1, as pure functions over bytes: what a segment file holds and how it is refused.
//
//   0      4 KiB header: magic, version, domain (root, part sizes, label), writer, id, stamp, CRC32C
//   4096   records: 4 KiB with a 256-byte header {key, parent, depth, fingerprint, length, XXH3-128, CRC32C},
//   then the
//          payload, padded to 4 KiB; so every payload can be read by O_DIRECT in one piece
//   ...    sealed only: table of all records (128 bytes each), padded, the last 64 bytes of it the trailer;
//   then the header
//          once more, so that no single damaged page takes the whole segment
//
// `stamp` is made from writer and id and stands in every record and trailer, so bytes of another file never
// pass. There is no superblock: names tell the writer and whether a segment is sealed (rename is atomic),
// headers tell the domain, and a lock file tells who is alive; a second place for these facts could only
// disagree. Files are hostile: lengths are checked against the file's size and kMaxSegmentBytes before
// anything is allocated. Little-endian. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "store/block.h"
#include "store/io_file.h"
#include "store/payload_hash.h"

namespace barg::store {

inline constexpr std::uint32_t kSegmentVersion = 1;
inline constexpr std::uint64_t kMaxSegmentBytes = 4ULL << 30;
inline constexpr std::size_t kSegmentHeaderBytes = kIoAlign;
inline constexpr std::size_t kRecordHeaderBytes = 256;  ///< at the start of kIoAlign bytes
inline constexpr std::size_t kTableEntryBytes = 128;
inline constexpr std::size_t kTrailerBytes = 64;
inline constexpr std::size_t kMaxParts = 400;
inline constexpr std::size_t kMaxLabelBytes = 200;

using WriterId = std::array<std::uint8_t, 16>;

struct SegmentHeader {
  Domain domain;
  WriterId writer{};
  std::uint64_t id = 0;  ///< when it was begun, in seconds since 1970 times 2^20, and something random below
  std::uint64_t stamp = 0;
  std::uint64_t created = 0;  ///< seconds since 1970
};

/// One stored part: where it is and what it must be.
struct Record {
  Key key;
  BlockInfo info;
  std::uint64_t offset = 0;  ///< of the payload
  std::uint64_t length = 0;
  Hash128 hash;
  std::uint64_t written = 0;  ///< seconds since 1970
};

struct Trailer {
  std::uint64_t count = 0;
  std::uint64_t table_offset = 0;
  std::uint32_t table_crc = 0;
};

/// Bytes a record takes in the file.
constexpr std::uint64_t record_bytes(std::uint64_t payload) { return kIoAlign + io_padded(payload); }
/// Bytes of table, trailer and the second header for so many records.
constexpr std::uint64_t footer_bytes(std::uint64_t records) {
  return io_padded(records * kTableEntryBytes + kTrailerBytes) + kSegmentHeaderBytes;
}
/// Where in the file the trailer of a sealed segment is.
constexpr std::uint64_t trailer_offset(std::uint64_t file_bytes) {
  return file_bytes - kSegmentHeaderBytes - kTrailerBytes;
}

/// "" if a domain can be written down, else the sentence why not.
std::string domain_problem(const Domain& domain);
bool same_domain(const Domain& a, const Domain& b);  ///< labels are for people

/// What `stamp` must be.
std::uint64_t stamp_of(const WriterId& writer, std::uint64_t id);
void encode_segment_header(const SegmentHeader& header, std::span<std::byte, kSegmentHeaderBytes> out);
/// kBadFile: not a segment or damaged; kUnsupported: a segment of another version.
Result<SegmentHeader> parse_segment_header(std::span<const std::byte> bytes);

/// `record.offset` is not written: the payload begins kIoAlign after the header.
void encode_record_header(const Record& record, std::uint64_t stamp, std::span<std::byte, kIoAlign> out);
/// `bytes` (at least kRecordHeaderBytes) begin at `offset` in a file of `file_bytes`.
Result<Record> parse_record_header(std::span<const std::byte> bytes, const SegmentHeader& header,
                                   std::uint64_t offset, std::uint64_t file_bytes);

/// Table, trailer and second header, footer_bytes(records.size()) of them, to stand at `offset`.
void encode_footer(std::span<const Record> records, const SegmentHeader& header, std::uint64_t offset,
                   std::span<std::byte> out);
/// `bytes` are kTrailerBytes at trailer_offset(file_bytes) of a file of `file_bytes`.
Result<Trailer> parse_trailer(std::span<const std::byte> bytes, const SegmentHeader& header,
                              std::uint64_t file_bytes);
/// `bytes` are trailer.count * kTableEntryBytes.
Result<std::vector<Record>> parse_table(std::span<const std::byte> bytes, const SegmentHeader& header,
                                        const Trailer& trailer);

/// "seg-<writer>-<id>": the name of a segment's file without its end: ".kv" sealed, ".tail" being written.
std::string segment_stem(const WriterId& writer, std::uint64_t id);
std::string segment_file_name(const std::string& stem, bool sealed);
struct SegmentName {
  std::string stem;
  WriterId writer{};
  std::uint64_t id = 0;
  bool sealed = false;
};
/// False for any other file.
bool parse_segment_name(const std::string& name, SegmentName& out);
std::string lock_name(const WriterId& writer);
bool parse_lock_name(const std::string& name, WriterId& out);

}  // namespace barg::store
