#include "store/segment_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace barg::store {
namespace {

std::unexpected<Error> io_error(int code) {
  return fail(ErrorCode::kIo,
              code > 0 ? std::string("the file is shorter than it was") : std::string(std::strerror(-code)));
}

/// Reads any range, through a page-wise buffer where the file wants alignment.
int read_range(File& file, std::uint64_t offset, std::span<std::byte> to, std::uint64_t file_bytes) {
  if (to.empty() || !file.direct()) return read_fully(file, offset, to);
  const std::uint64_t first = offset / kIoAlign * kIoAlign;
  const std::uint64_t last = io_padded(offset + to.size());
  AlignedBuffer buffer(last - first);
  if (buffer.data() == nullptr) return -ENOMEM;
  // The last page may be cut short by the end of the file.
  const std::uint64_t want = std::min(last, file_bytes) - first;
  std::uint64_t got = 0;
  while (got < want) {
    const std::int64_t n = file.read(first + got, buffer.first(last - first).subspan(got));
    if (n < 0) return static_cast<int>(n);
    if (n == 0) return 1;
    got += static_cast<std::uint64_t>(n);
    if (got % kIoAlign != 0) break;
  }
  if (got < offset - first + to.size()) return 1;
  std::memcpy(to.data(), buffer.data() + (offset - first), to.size());
  return 0;
}

Result<std::uint64_t> size_of(File& file) {
  const std::int64_t size = file.size();
  if (size < 0) return io_error(static_cast<int>(size));
  if (static_cast<std::uint64_t>(size) > kMaxSegmentBytes) {
    return fail(ErrorCode::kBadFile, "the file is larger than a segment may be");
  }
  return static_cast<std::uint64_t>(size);
}

Result<std::vector<Record>> read_table(File& file, const SegmentHeader& header, std::uint64_t file_bytes,
                                       std::uint64_t* end) {
  if (file_bytes < kSegmentHeaderBytes + footer_bytes(0))
    return fail(ErrorCode::kBadFile, "the segment has no trailer");
  std::byte tail[kTrailerBytes];
  if (const int e = read_range(file, trailer_offset(file_bytes), tail, file_bytes); e != 0)
    return io_error(e);
  const Result<Trailer> trailer = parse_trailer(tail, header, file_bytes);
  if (!trailer) return std::unexpected(trailer.error());
  std::vector<std::byte> table(trailer->count * kTableEntryBytes);
  if (const int e = read_range(file, trailer->table_offset, table, file_bytes); e != 0) return io_error(e);
  *end = trailer->table_offset;
  return parse_table(table, header, *trailer);
}

/// The header, or its copy at the end of a sealed segment if it is damaged.
Result<SegmentHeader> read_header(File& file, std::uint64_t file_bytes) {
  if (file_bytes < kSegmentHeaderBytes)
    return fail(ErrorCode::kBadFile, "the file is shorter than a segment's header");
  AlignedBuffer page(kSegmentHeaderBytes);
  if (page.data() == nullptr) return io_error(-ENOMEM);
  const std::span<std::byte> bytes = page.first(kSegmentHeaderBytes);
  if (const int e = read_fully(file, 0, bytes); e != 0) return io_error(e);
  const Result<SegmentHeader> first = parse_segment_header(bytes);
  if (first || first.error().code != ErrorCode::kBadFile) return first;
  if (file_bytes % kIoAlign != 0 || file_bytes < kSegmentHeaderBytes + footer_bytes(0)) return first;
  if (const int e = read_fully(file, file_bytes - kSegmentHeaderBytes, bytes); e != 0) return io_error(e);
  const Result<SegmentHeader> second = parse_segment_header(bytes);
  return second ? second : first;
}

}  // namespace

Result<std::vector<SegmentName>> list_segments(Io& io, const std::string& directory,
                                               std::vector<WriterId>* locks) {
  std::vector<std::string> names;
  if (const int error = io.list(directory, names); error != 0) {
    return fail(ErrorCode::kIo, "cannot list " + directory + ": " + std::strerror(-error));
  }
  std::vector<SegmentName> segments;
  for (const std::string& name : names) {
    SegmentName segment;
    WriterId writer;
    if (parse_segment_name(name, segment))
      segments.push_back(std::move(segment));
    else if (locks != nullptr && parse_lock_name(name, writer))
      locks->push_back(writer);
  }
  std::sort(segments.begin(), segments.end(), [](const SegmentName& a, const SegmentName& b) {
    return a.id != b.id ? a.id > b.id : a.stem < b.stem;
  });
  return segments;
}

Result<SegmentScan> scan_segment(File& file, const Domain* domain) {
  const Result<std::uint64_t> size = size_of(file);
  if (!size) return std::unexpected(size.error());
  Result<SegmentHeader> header = read_header(file, *size);
  if (!header) return std::unexpected(header.error());
  SegmentScan scan;
  scan.header = std::move(*header);
  scan.file_bytes = *size;
  if (domain != nullptr && !same_domain(scan.header.domain, *domain)) return scan;
  Result<std::vector<Record>> table = read_table(file, scan.header, *size, &scan.end);
  if (table) {
    scan.records = std::move(*table);
    scan.sealed = true;
    return scan;
  }
  if (table.error().code == ErrorCode::kIo) return std::unexpected(table.error());
  scan.end = kSegmentHeaderBytes;
  if (const auto more = scan_tail(file, scan); !more) return std::unexpected(more.error());
  return scan;
}

Result<std::size_t> scan_tail(File& file, SegmentScan& scan) {
  const Result<std::uint64_t> size = size_of(file);
  if (!size) return std::unexpected(size.error());
  scan.file_bytes = *size;
  std::size_t found = 0;
  std::byte bytes[kRecordHeaderBytes];
  while (scan.end <= *size && *size - scan.end >= kIoAlign) {
    const int e = read_range(file, scan.end, bytes, *size);
    if (e < 0) return io_error(e);
    if (e > 0) break;
    const Result<Record> record = parse_record_header(bytes, scan.header, scan.end, *size);
    if (!record) break;
    scan.end += record_bytes(record->length);
    scan.records.push_back(*record);
    ++found;
  }
  return found;
}

int write_footer(File& file, const std::vector<Record>& records, const SegmentHeader& header,
                 std::uint64_t offset) {
  AlignedBuffer buffer(footer_bytes(records.size()));
  if (buffer.data() == nullptr) return -ENOMEM;
  encode_footer(records, header, offset, buffer.first(buffer.size()));
  if (const int e = write_fully(file, offset, buffer.first(buffer.size())); e != 0) return e;
  if (const int e = file.truncate(offset + buffer.size()); e != 0) return e;
  return file.sync();
}

}  // namespace barg::store
