// The disk format: what is written is read back, and every flipped bit of a header, table or trailer is
// refused.
#include <fstream>

#include "store/crc32c.h"
#include "store/disk_index.h"
#include "store/disk_support.h"
#include "store/segment_file.h"

namespace barg::store::disk_test::segment_test {
namespace {

SegmentHeader header_of(Domain domain) {
  SegmentHeader h;
  h.domain = std::move(domain);
  h.writer.fill(7);
  h.id = 123456789;
  h.created = 1700000000;
  h.stamp = stamp_of(h.writer, h.id);
  return h;
}

Record record_of(std::uint64_t n, std::uint64_t offset, std::uint64_t length) {
  return {key_of(n), info_of(n), offset, length, {n * 3, n * 5}, 1700000000 + n};
}

bool same(const Record& a, const Record& b) {
  return a.key == b.key && a.info.parent == b.info.parent && a.info.depth == b.info.depth &&
         a.info.fingerprint == b.info.fingerprint && a.offset == b.offset && a.length == b.length &&
         a.hash == b.hash && a.written == b.written;
}

TEST(Segment, Crc32cIsTheStandardsAndBothWaysAgree) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  std::vector<std::byte> bytes(1000);
  fill_part(1, 0, bytes);
  for (std::size_t n = 0; n < 200; ++n) {
    EXPECT_EQ(crc32c(bytes.data() + n % 7, n), crc32c_portable(bytes.data() + n % 7, n)) << n;
    EXPECT_EQ(crc32c(bytes.data() + n, 500, crc32c(bytes.data(), n)), crc32c(bytes.data(), n + 500)) << n;
  }
}

TEST(Segment, HeaderComesBackAndNoBitMayFlip) {
  std::vector<std::byte> page(kSegmentHeaderBytes);
  const std::span<std::byte, kSegmentHeaderBytes> out(page.data(), kSegmentHeaderBytes);
  const SegmentHeader h = header_of(domain_of({16384, 5, 777}));
  encode_segment_header(h, out);
  const auto back = parse_segment_header(page);
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(same_domain(back->domain, h.domain));
  EXPECT_EQ(back->domain.label, h.domain.label);
  EXPECT_EQ(back->stamp, h.stamp);
  EXPECT_EQ(back->created, h.created);
  for (std::size_t bit = 0; bit < page.size() * 8; bit += bit < 4096 ? 1 : 37) {
    page[bit / 8] ^= std::byte(1 << (bit % 8));
    const auto bad = parse_segment_header(page);
    ASSERT_FALSE(bad.has_value()) << bit;
    EXPECT_EQ(bad.error().code, ErrorCode::kBadFile) << "a flipped bit is not another version: " << bit;
    page[bit / 8] ^= std::byte(1 << (bit % 8));
  }
}

TEST(Segment, AnotherVersionIsUnsupported) {
  std::vector<std::byte> page(kSegmentHeaderBytes);
  encode_segment_header(header_of(domain_of()),
                        std::span<std::byte, kSegmentHeaderBytes>(page.data(), page.size()));
  page[8] = std::byte{2};
  const std::uint32_t crc = crc32c(page.data(), page.size() - 4);
  std::memcpy(page.data() + page.size() - 4, &crc, 4);
  EXPECT_EQ(parse_segment_header(page).error().code, ErrorCode::kUnsupported);
}

TEST(Segment, RecordComesBackAndNoBitMayFlip) {
  const SegmentHeader h = header_of(domain_of());
  std::vector<std::byte> page(kIoAlign);
  const Record r = record_of(9, 8192 + kIoAlign, 16384);
  encode_record_header(r, h.stamp, std::span<std::byte, kIoAlign>(page.data(), page.size()));
  const auto back = parse_record_header(page, h, 8192, 1 << 20);
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(same(*back, r));
  for (std::size_t bit = 0; bit < kRecordHeaderBytes * 8; ++bit) {
    page[bit / 8] ^= std::byte(1 << (bit % 8));
    EXPECT_FALSE(parse_record_header(page, h, 8192, 1 << 20).has_value()) << bit;
    page[bit / 8] ^= std::byte(1 << (bit % 8));
  }
  EXPECT_FALSE(parse_record_header(page, h, 8192, 8192 + kIoAlign + 16383).has_value()) << "cut short";
  SegmentHeader other = h;
  other.stamp ^= 1;
  EXPECT_FALSE(parse_record_header(page, other, 8192, 1 << 20).has_value()) << "of another file";
  other = h;
  other.domain.part_bytes = {16385};
  EXPECT_FALSE(parse_record_header(page, other, 8192, 1 << 20).has_value()) << "of another length";
}

TEST(Segment, TableComesBackAndNoBitMayFlip) {
  const SegmentHeader h = header_of(domain_of());
  std::vector<Record> records;
  for (std::uint64_t n = 0; n < 40; ++n)
    records.push_back(record_of(n, 8192 + n * record_bytes(16384), 16384));
  const std::uint64_t end = kSegmentHeaderBytes + 40 * record_bytes(16384);
  const std::uint64_t file = end + footer_bytes(40);
  std::vector<std::byte> footer(footer_bytes(40));
  encode_footer(records, h, end, footer);
  const auto parse = [&]() -> Result<std::vector<Record>> {
    const auto at = std::span(footer).subspan(trailer_offset(footer.size()), kTrailerBytes);
    const auto trailer = parse_trailer(at, h, file);
    if (!trailer) return std::unexpected(trailer.error());
    return parse_table(std::span(footer).first(trailer->count * kTableEntryBytes), h, *trailer);
  };
  const auto back = parse();
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_TRUE(same((*back)[i], records[i]));
  for (std::size_t bit = 0; bit < footer.size() * 8; bit += 13) {
    const std::size_t byte = bit / 8;
    const bool used = byte < 40 * kTableEntryBytes || (byte >= trailer_offset(footer.size()) &&
                                                       byte < trailer_offset(footer.size()) + kTrailerBytes);
    footer[byte] ^= std::byte(1 << (bit % 8));
    EXPECT_EQ(parse().has_value(), !used) << bit;
    footer[byte] ^= std::byte(1 << (bit % 8));
  }
}

TEST(Segment, NamesComeBackAndOthersAreNotOurs) {
  WriterId writer;
  for (std::size_t i = 0; i < writer.size(); ++i) writer[i] = static_cast<std::uint8_t>(i * 16 + 1);
  SegmentName name;
  ASSERT_TRUE(parse_segment_name(segment_stem(writer, 0x0102030405060708) + ".kv", name));
  EXPECT_EQ(name.writer, writer);
  EXPECT_EQ(name.id, 0x0102030405060708U);
  EXPECT_TRUE(name.sealed);
  ASSERT_TRUE(parse_segment_name(segment_stem(writer, 3) + ".tail", name));
  EXPECT_FALSE(name.sealed);
  for (const std::string& bad :
       {std::string(), std::string("seg-.kv"), segment_stem(writer, 1), segment_stem(writer, 1) + ".kv2",
        "x" + segment_stem(writer, 1) + ".kv",
        std::string("seg-") + std::string(32, 'G') + "-" + std::string(16, '0') + ".kv"}) {
    EXPECT_FALSE(parse_segment_name(bad, name)) << bad;
  }
  WriterId back;
  EXPECT_TRUE(parse_lock_name(lock_name(writer), back));
  EXPECT_EQ(back, writer);
}

TEST(SegmentIndex, ParentsAreNeverOlderThanTheirLeavesAndRingsEnd) {
  DiskIndex index;
  Segment s;
  s.stem = "a";
  s.own = s.sealed = true;
  const std::uint64_t serial = index.add_segment(s);
  for (std::uint64_t n = 0; n < 50; ++n) index.insert(serial, record_of(n, 8192, 100), 10);
  index.use(key_of(49), 99);
  for (std::uint64_t n = 0; n < 50; ++n) EXPECT_GE(index.find(key_of(n))->last_use, 98) << n;
  Record a = record_of(100, 8192, 100), b = record_of(101, 8192, 100);
  a.info = {b.key.block, 6, 0};  // hostile: each the other's parent
  b.info = {a.key.block, 5, 0};
  index.insert(serial, a, 0);
  index.insert(serial, b, 0);
  index.use(a.key, 50);
  EXPECT_EQ(index.find(b.key)->last_use, 50);
}

TEST(SegmentIndex, TheVictimIsWorthLeastAndUselessOnesGoFirst) {
  DiskIndex index;
  const auto add = [&](const char* stem, std::uint64_t first, double use) {
    Segment s;
    s.stem = stem;
    s.own = s.sealed = true;
    s.file_bytes = 2000;
    const std::uint64_t serial = index.add_segment(s);
    for (std::uint64_t n = first; n < first + 10; ++n) index.insert(serial, record_of(n, 8192, 100), use);
    return serial;
  };
  const auto victim = [&] {
    const auto all = index.candidates();
    return all.empty() ? 0 : *std::min_element(all.begin(), all.end(), [&](std::uint64_t a, std::uint64_t b) {
      return index.worth(a, 100) < index.worth(b, 100);
    });
  };
  const std::uint64_t old = add("old", 0, 10), fresh = add("fresh", 10, 90), sparse = add("sparse", 20, 90);
  EXPECT_EQ(victim(), old);
  for (std::uint64_t n = 20; n < 29; ++n) index.remove(key_of(n));
  EXPECT_EQ(victim(), sparse) << "hardly anything lives there";
  index.segment(fresh)->opaque = true;
  EXPECT_EQ(victim(), fresh);
  index.segment(fresh)->own = false;
  EXPECT_EQ(victim(), sparse) << "never another's";
  index.find(key_of(3))->reads = 2;
  index.find(key_of(4))->reads = 2;
  index.use(key_of(4), 99);  // and so its parent: of equals the nearer to the root
  EXPECT_EQ(index.hot(old, 1 << 20), (std::vector<Key>{key_of(3), key_of(4)}));
  EXPECT_EQ(index.hot(old, record_bytes(100)), std::vector<Key>{key_of(3)});
}

}  // namespace
}  // namespace barg::store::disk_test::segment_test
