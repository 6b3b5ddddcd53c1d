#include "store/segment_format.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "store/crc32c.h"

namespace barg::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the disk format is little-endian");

constexpr std::uint64_t kSegmentMagic = 0x314745534B475242ULL;  // "BRGKSEG1"
constexpr std::uint64_t kTrailerMagic = 0x31444E454B475242ULL;  // "BRGKEND1"
constexpr std::uint32_t kRecordMagic = 0x524B4742U;             // "BGKR"

// As they lie in the file: no padding, every field naturally aligned.
struct HeaderImage {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  WriterId writer;
  std::uint64_t id, stamp, created;
  Digest root;
  std::uint32_t parts;
  std::uint32_t label_bytes;
  std::uint64_t part_bytes[kMaxParts];
  char label[kMaxLabelBytes];
  std::uint8_t zero[kSegmentHeaderBytes - 4 - 96 - 8 * kMaxParts - kMaxLabelBytes];
  std::uint32_t crc;
};
static_assert(sizeof(HeaderImage) == kSegmentHeaderBytes);

struct RecordImage {
  std::uint32_t magic;
  std::uint32_t header_bytes;
  std::uint32_t flags, codec;  // zero in version 1
  std::uint64_t stamp;
  Digest block, parent;
  std::uint32_t part, depth;
  std::uint64_t fingerprint, length, hash_low, hash_high, written;
  std::uint8_t zero[256 - 4 - 136];
  std::uint32_t crc;
};
static_assert(sizeof(RecordImage) == kRecordHeaderBytes);

struct EntryImage {
  Digest block, parent;
  std::uint32_t part, depth;
  std::uint64_t fingerprint, offset, length, hash_low, hash_high, written, zero;
};
static_assert(sizeof(EntryImage) == kTableEntryBytes);

struct TrailerImage {
  std::uint64_t magic, stamp, count, table_offset;
  std::uint32_t table_crc, version;
  std::uint8_t zero[20];
  std::uint32_t crc;
};
static_assert(sizeof(TrailerImage) == kTrailerBytes);

/// Every image ends with the checksum of what is before it.
template <class Image>
void seal_image(Image& image) {
  image.crc = crc32c(&image, sizeof image - sizeof image.crc);
}
template <class Image>
bool intact(const Image& image) {
  return image.crc == crc32c(&image, sizeof image - sizeof image.crc);
}

/// What a record's header and its entry in the table say alike.
template <class Image>
void describe(const Record& r, Image& image) {
  image.block = r.key.block;
  image.parent = r.info.parent;
  image.part = r.key.part;
  image.depth = r.info.depth;
  image.fingerprint = r.info.fingerprint;
  image.length = r.length;
  image.hash_low = r.hash.low;
  image.hash_high = r.hash.high;
  image.written = r.written;
}
template <class Image>
Record described(const Image& image, std::uint64_t offset) {
  return {.key = {image.block, image.part},
          .info = {image.parent, image.depth, image.fingerprint},
          .offset = offset,
          .length = image.length,
          .hash = {image.hash_low, image.hash_high},
          .written = image.written};
}

/// "" if the record may lie there.
std::string record_problem(const Record& r, const SegmentHeader& header, std::uint64_t end) {
  const auto& sizes = header.domain.part_bytes;
  if (r.key.part >= sizes.size() || r.length != sizes[r.key.part])
    return "a record's length is not its part's";
  if (r.offset % kIoAlign != 0 || r.offset < kSegmentHeaderBytes + kIoAlign || r.offset > end ||
      io_padded(r.length) > end - r.offset) {
    return "a record lies outside of its file";
  }
  return {};
}

}  // namespace

std::uint64_t stamp_of(const WriterId& writer, std::uint64_t id) {
  return XXH3_64bits_withSeed(writer.data(), writer.size(), id);
}

std::string domain_problem(const Domain& domain) {
  if (domain.part_bytes.empty()) return "the model has no KV to store";
  if (domain.part_bytes.size() > kMaxParts) {
    return "the model has " + std::to_string(domain.part_bytes.size()) +
           " groups of layers, a segment names at most " + std::to_string(kMaxParts);
  }
  for (const std::uint64_t bytes : domain.part_bytes) {
    if (bytes == 0 || bytes > kMaxSegmentBytes / 4)
      return "a KV block of " + std::to_string(bytes) + " bytes";
  }
  return {};
}

bool same_domain(const Domain& a, const Domain& b) {
  return a.root == b.root && a.part_bytes == b.part_bytes;
}

void encode_segment_header(const SegmentHeader& header, std::span<std::byte, kSegmentHeaderBytes> out) {
  CHECK(domain_problem(header.domain).empty());
  HeaderImage image{};
  image.magic = kSegmentMagic;
  image.version = kSegmentVersion;
  image.header_bytes = kSegmentHeaderBytes;
  image.writer = header.writer;
  image.id = header.id;
  image.stamp = header.stamp;
  image.created = header.created;
  image.root = header.domain.root;
  image.parts = static_cast<std::uint32_t>(header.domain.part_bytes.size());
  std::copy(header.domain.part_bytes.begin(), header.domain.part_bytes.end(), image.part_bytes);
  const std::size_t label = std::min(header.domain.label.size(), kMaxLabelBytes);
  image.label_bytes = static_cast<std::uint32_t>(label);
  std::memcpy(image.label, header.domain.label.data(), label);
  seal_image(image);
  std::memcpy(out.data(), &image, sizeof image);
}

Result<SegmentHeader> parse_segment_header(std::span<const std::byte> bytes) {
  HeaderImage image;
  if (bytes.size() < sizeof image)
    return fail(ErrorCode::kBadFile, "the file is shorter than a segment's header");
  std::memcpy(&image, bytes.data(), sizeof image);
  if (image.magic != kSegmentMagic) return fail(ErrorCode::kBadFile, "the file is not a segment");
  // Every version ends its header's page with the checksum: a flipped bit is not another version.
  if (!intact(image)) return fail(ErrorCode::kBadFile, "the segment's header is damaged");
  if (image.version != kSegmentVersion) {
    return fail(ErrorCode::kUnsupported, "the segment has format version " + std::to_string(image.version) +
                                             ", this program reads " + std::to_string(kSegmentVersion));
  }
  if (image.header_bytes != kSegmentHeaderBytes || image.parts > kMaxParts ||
      image.label_bytes > kMaxLabelBytes || image.stamp != stamp_of(image.writer, image.id)) {
    return fail(ErrorCode::kBadFile, "the segment's header contradicts itself");
  }
  SegmentHeader h;
  h.domain.root = image.root;
  h.domain.part_bytes.assign(image.part_bytes, image.part_bytes + image.parts);
  h.domain.label.assign(image.label, image.label_bytes);
  for (char& c : h.domain.label) {
    if (c < ' ' || c > '~') c = '?';  // it is shown to people
  }
  h.writer = image.writer;
  h.id = image.id;
  h.stamp = image.stamp;
  h.created = image.created;
  if (const std::string problem = domain_problem(h.domain); !problem.empty()) {
    return fail(ErrorCode::kBadFile, "the segment's header is not possible: " + problem);
  }
  return h;
}

void encode_record_header(const Record& record, std::uint64_t stamp, std::span<std::byte, kIoAlign> out) {
  RecordImage image{};
  image.magic = kRecordMagic;
  image.header_bytes = kRecordHeaderBytes;
  image.stamp = stamp;
  describe(record, image);
  seal_image(image);
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), &image, sizeof image);
}

Result<Record> parse_record_header(std::span<const std::byte> bytes, const SegmentHeader& header,
                                   std::uint64_t offset, std::uint64_t file_bytes) {
  RecordImage image;
  if (bytes.size() < sizeof image) return fail(ErrorCode::kBadFile, "the file ends in a record's header");
  std::memcpy(&image, bytes.data(), sizeof image);
  if (image.magic != kRecordMagic || !intact(image))
    return fail(ErrorCode::kBadFile, "a record's header is damaged");
  if (image.header_bytes != kRecordHeaderBytes || image.flags != 0 || image.codec != 0 ||
      image.stamp != header.stamp) {
    return fail(ErrorCode::kBadFile, "a record belongs to another file");
  }
  const Record r = described(image, offset + kIoAlign);
  if (std::string problem = record_problem(r, header, file_bytes); !problem.empty()) {
    return fail(ErrorCode::kBadFile, std::move(problem));
  }
  return r;
}

void encode_footer(std::span<const Record> records, const SegmentHeader& header, std::uint64_t offset,
                   std::span<std::byte> out) {
  CHECK(out.size() == footer_bytes(records.size()));
  std::memset(out.data(), 0, out.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    EntryImage entry{};
    describe(records[i], entry);
    entry.offset = records[i].offset;
    std::memcpy(out.data() + i * sizeof entry, &entry, sizeof entry);
  }
  TrailerImage image{};
  image.magic = kTrailerMagic;
  image.version = kSegmentVersion;
  image.stamp = header.stamp;
  image.count = records.size();
  image.table_offset = offset;
  image.table_crc = crc32c(out.data(), records.size() * kTableEntryBytes);
  seal_image(image);
  std::memcpy(out.data() + trailer_offset(out.size()), &image, sizeof image);
  encode_segment_header(header, out.last<kSegmentHeaderBytes>());
}

Result<Trailer> parse_trailer(std::span<const std::byte> bytes, const SegmentHeader& header,
                              std::uint64_t file_bytes) {
  TrailerImage image;
  if (bytes.size() < sizeof image) return fail(ErrorCode::kBadFile, "the file is shorter than a trailer");
  std::memcpy(&image, bytes.data(), sizeof image);
  if (image.magic != kTrailerMagic || !intact(image) || image.version != kSegmentVersion ||
      image.stamp != header.stamp) {
    return fail(ErrorCode::kBadFile, "the segment has no intact trailer");
  }
  // A record takes at least two pages, so the count bounds the table before it is allocated.
  if (file_bytes > kMaxSegmentBytes || image.count > file_bytes / (2 * kIoAlign) ||
      image.table_offset % kIoAlign != 0 || image.table_offset < kSegmentHeaderBytes ||
      image.table_offset > file_bytes || footer_bytes(image.count) != file_bytes - image.table_offset) {
    return fail(ErrorCode::kBadFile, "the segment's trailer does not fit its file");
  }
  return Trailer{image.count, image.table_offset, image.table_crc};
}

Result<std::vector<Record>> parse_table(std::span<const std::byte> bytes, const SegmentHeader& header,
                                        const Trailer& trailer) {
  if (bytes.size() / kTableEntryBytes != trailer.count || bytes.size() % kTableEntryBytes != 0 ||
      crc32c(bytes.data(), bytes.size()) != trailer.table_crc) {
    return fail(ErrorCode::kBadFile, "the segment's table is damaged");
  }
  std::vector<Record> records(trailer.count);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EntryImage entry;
    std::memcpy(&entry, bytes.data() + i * sizeof entry, sizeof entry);
    records[i] = described(entry, entry.offset);
    if (std::string problem = record_problem(records[i], header, trailer.table_offset); !problem.empty()) {
      return fail(ErrorCode::kBadFile, std::move(problem));
    }
  }
  return records;
}

namespace {

/// Lower-case hex of exactly `count` bytes.
bool from_hex(std::string_view text, std::uint8_t* out, std::size_t count) {
  if (text.size() != 2 * count) return false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

std::string segment_stem(const WriterId& writer, std::uint64_t id) {
  const std::uint64_t big = __builtin_bswap64(id);
  return "seg-" + hex(writer.data(), writer.size()) + "-" + hex(&big, sizeof big);
}

std::string segment_file_name(const std::string& stem, bool sealed) {
  return stem + (sealed ? ".kv" : ".tail");
}

bool parse_segment_name(const std::string& name, SegmentName& out) {
  const std::size_t stem = 4 + 32 + 1 + 16;
  if (name.size() <= stem || !name.starts_with("seg-") || name[36] != '-') return false;
  const std::string end = name.substr(stem);
  if (end != ".kv" && end != ".tail") return false;
  std::uint64_t big = 0;
  std::uint8_t raw[8];
  if (!from_hex(std::string_view(name).substr(4, 32), out.writer.data(), 16) ||
      !from_hex(std::string_view(name).substr(37, 16), raw, 8)) {
    return false;
  }
  std::memcpy(&big, raw, 8);
  out.id = __builtin_bswap64(big);
  out.stem = name.substr(0, stem);
  out.sealed = end == ".kv";
  return true;
}

std::string lock_name(const WriterId& writer) {
  return "writer-" + hex(writer.data(), writer.size()) + ".lock";
}

bool parse_lock_name(const std::string& name, WriterId& out) {
  return name.size() == 7 + 32 + 5 && name.starts_with("writer-") && name.ends_with(".lock") &&
         from_hex(std::string_view(name).substr(7, 32), out.data(), 16);
}

}  // namespace barg::store
