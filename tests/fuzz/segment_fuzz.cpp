// Bytes as a segment file: header, table, record headers and tail, first as they are, then with checksums and
// stamps put right, so that what is behind them is reached as well.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "store/crc32c.h"
#include "store/disk_index.h"

namespace {

using namespace barg::store;

class MemoryFile final : public File {
 public:
  MemoryFile(std::vector<std::byte> bytes, bool direct) : bytes_(std::move(bytes)), direct_(direct) {}
  std::int64_t read(std::uint64_t offset, std::span<std::byte> to) override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t n = std::min<std::size_t>(to.size(), bytes_.size() - offset);
    std::memcpy(to.data(), bytes_.data() + offset, n);
    return static_cast<std::int64_t>(n);
  }
  std::int64_t write(std::uint64_t, std::span<const std::byte>) override { return -EROFS; }
  int sync() override { return 0; }
  int allocate(std::uint64_t) override { return 0; }
  int truncate(std::uint64_t) override { return 0; }
  std::int64_t size() override { return static_cast<std::int64_t>(bytes_.size()); }
  bool direct() const override { return direct_; }
  int descriptor() const override { return -1; }

 private:
  std::vector<std::byte> bytes_;
  bool direct_;
};

void seal(std::span<std::byte> image) {
  const std::uint32_t crc = crc32c(image.data(), image.size() - 4);
  std::memcpy(image.data() + image.size() - 4, &crc, 4);
}

/// Checksums and stamps as a writer of these very bytes would have made them.
void put_right(std::vector<std::byte>& bytes) {
  if (bytes.size() < kSegmentHeaderBytes) return;
  const std::span all(bytes);
  WriterId writer;
  std::uint64_t id = 0;
  std::memcpy(writer.data(), bytes.data() + 16, sizeof writer);
  std::memcpy(&id, bytes.data() + 32, sizeof id);
  const std::uint64_t stamp = stamp_of(writer, id);
  std::memcpy(bytes.data() + 40, &stamp, sizeof stamp);
  seal(all.first(kSegmentHeaderBytes));
  for (std::size_t at = kSegmentHeaderBytes; at + kRecordHeaderBytes <= bytes.size(); at += kIoAlign) {
    if (std::memcmp(bytes.data() + at, "BGKR", 4) != 0) continue;
    std::memcpy(bytes.data() + at + 16, &stamp, sizeof stamp);
    seal(all.subspan(at, kRecordHeaderBytes));
  }
  if (bytes.size() < kSegmentHeaderBytes + footer_bytes(0)) return;
  std::byte* trailer = bytes.data() + trailer_offset(bytes.size());
  std::uint64_t count = 0, table = 0;
  std::memcpy(trailer + 8, &stamp, sizeof stamp);
  std::memcpy(&count, trailer + 16, sizeof count);
  std::memcpy(&table, trailer + 24, sizeof table);
  if (table <= bytes.size() && count <= (bytes.size() - table) / kTableEntryBytes) {
    const std::uint32_t crc = crc32c(bytes.data() + table, count * kTableEntryBytes);
    std::memcpy(trailer + 32, &crc, sizeof crc);
  }
  seal({trailer, kTrailerBytes});
}

void scan(const std::vector<std::byte>& bytes, bool direct) {
  MemoryFile file(bytes, direct);
  auto scanned = scan_segment(file, nullptr);
  if (!scanned) return;
  DiskIndex index;
  const std::uint64_t serial = index.add_segment({});
  for (const Record& r : scanned->records) {
    // What a reader relies on: the payload lies within the file.
    if (r.offset % kIoAlign != 0 || r.offset + io_padded(r.length) > bytes.size()) __builtin_trap();
    index.insert(serial, r, 1);
    index.use(r.key, 2);
  }
  (void)index.hot(serial, 1 << 20);
  (void)scan_tail(file, *scanned);
  index.drop_segment(serial);
  if (index.size() != 0) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  scan(bytes, false);
  put_right(bytes);
  scan(bytes, true);
  return 0;
}
