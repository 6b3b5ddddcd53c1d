// The life of a segment in the writer: begun, sealed, given up, cleaned.
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "store/disk_writer.h"

namespace barg::store {
namespace {

constexpr std::uint64_t kMovedShare = 4;  ///< cleaning moves at most this part of a segment

}  // namespace

/// A new file with header and reserved space. Makes room for it first, and afterwards so much that the next
/// one fits.
Status DiskWriter::begin_segment() {
  CHECK(pending_.empty() && gathered_ == 0);
  const auto own = [this] {
    const std::lock_guard lock(state_.mutex);
    return state_.index.own_bytes();
  };
  const std::uint64_t capacity = state_.options.capacity_bytes;
  const std::uint64_t size = state_.segment_bytes;
  while (own() + size > capacity) {
    if (state_.evict_one()) continue;
    state_.no_space();
    return Status::kNoSpace;
  }
  SegmentHeader header;
  header.domain = state_.domain;
  header.writer = state_.writer;
  std::string stem;
  const auto file = create_file(header, stem);
  if (!file) return file.error();
  Open open{.serial = 0, .stem = stem, .file = *file, .header = header};
  open.committed = open.end = kSegmentHeaderBytes;
  {
    const std::lock_guard lock(state_.mutex);
    Segment s{.stem = stem,
              .writer = state_.writer,
              .id = header.id,
              .own = true,
              .open = true,
              .file_bytes = size};
    open.serial = state_.index.add_segment(std::move(s));
    state_.stats.bytes_moved += kSegmentHeaderBytes;
  }
  open_ = std::move(open);
  // One segment's worth stays free: then the hot records of the next victims have a place before it goes.
  while (open_ && own() > capacity - size && clean_one()) {
  }
  return open_ ? Status::kOk : Status::kIoError;
}

std::expected<FileRef, Status> DiskWriter::create_file(SegmentHeader& header, std::string& stem) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    header.created = state_.unix_now();
    // Later ones are larger, and two writers hardly ever choose the same: adoption joins their names.
    header.id = last_id_ = std::max(last_id_ + 1, (header.created << 20) + (random_seed() & 0xFFFFF));
    header.stamp = stamp_of(header.writer, header.id);
    stem = segment_stem(header.writer, header.id);
    {
      const std::lock_guard lock(state_.mutex);
      if (state_.index.find_segment(stem) != 0) continue;
    }
    const std::string path = state_.path(stem, false);
    auto file = state_.io.open(path, OpenMode::kCreate, state_.direct);
    if (!file && file.error() == EEXIST) continue;
    int error = file ? start_file(**file, header) : -file.error();
    if (error == 0) return *file;
    file = nullptr;
    state_.io.remove(path);
    if (error == -EINVAL && state_.direct) {
      state_.direct = false;  // O_DIRECT is taken at open and refused later
      continue;
    }
    if (error == -ENOSPC || error == -EDQUOT) {
      if (state_.evict_one()) continue;
      state_.no_space();
      return std::unexpected(Status::kNoSpace);
    }
    state_.io_failed("cannot begin a segment in " + state_.options.directory, error);
    return std::unexpected(Status::kIoError);
  }
  return std::unexpected(Status::kIoError);
}

int DiskWriter::start_file(File& file, const SegmentHeader& header) {
  if (const int error = file.allocate(state_.segment_bytes); error != 0) return error;
  const std::span<std::byte, kSegmentHeaderBytes> page(buffer_.data(), kSegmentHeaderBytes);
  encode_segment_header(header, page);
  if (const int error = write_fully(file, 0, page); error != 0) return error;
  if (const int error = file.sync(); error != 0) return error;
  return state_.io.sync_directory(state_.options.directory);
}

/// REQUIRES nothing pending. If the disk refuses, the segment stays without a table: it can be read, and is
/// found again by its record headers.
void DiskWriter::seal() {
  Open open = std::move(*open_);
  open_.reset();
  const std::uint64_t bytes = open.committed + footer_bytes(open.records.size());
  int error = 0;
  if (!open.records.empty()) {
    error = write_footer(*open.file, open.records, open.header, open.committed);
    // If the rename is lost in a crash, the table is found under the old name.
    if (error == 0) error = state_.io.rename(state_.path(open.stem, false), state_.path(open.stem, true));
    if (error == 0) error = state_.io.sync_directory(state_.options.directory);
    if (error != 0) state_.io_failed("cannot seal a segment in " + state_.options.directory, error);
  }
  {
    const std::lock_guard lock(state_.mutex);
    Segment* s = state_.index.segment(open.serial);
    s->open = false;
    s->sealed = error == 0 && !open.records.empty();
    if (s->sealed) {
      s->file_bytes = bytes;
      state_.stats.bytes_moved += footer_bytes(open.records.size());
    }
  }
  if (open.records.empty()) state_.drop(open.serial);
}

/// Moves the hot records of the least valuable segment into the open one and drops it. False: nothing to
/// clean.
bool DiskWriter::clean_one() {
  const std::uint64_t victim = state_.victim();
  if (victim == 0) return false;
  std::vector<Record> moving;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.index.segment(victim) == nullptr) return true;  // it went by itself
    for (const Key& key : state_.index.hot(victim, state_.segment_bytes / kMovedShare)) {
      const Entry* e = state_.index.find(key);
      if (state_.expired(*e, state_.clock.now())) continue;
      moving.push_back({key, e->info, e->offset, e->length, e->hash, 0});
    }
  }
  const auto file = moving.empty() ? std::expected<FileRef, Status>(nullptr) : state_.reading(victim);
  if (!file) moving.clear();
  AlignedBuffer payload;
  for (Record& record : moving) {
    const std::size_t padded = io_padded(record.length);
    if (payload.size() < padded) payload = AlignedBuffer(padded);
    if (payload.data() == nullptr || !open_ || !room_for(record.length)) break;
    const int error = read_fully(**file, record.offset, payload.first(padded));
    if (error < 0) {
      state_.io_failed("cannot read from " + state_.options.directory, error);
      break;
    }
    const std::span<const std::byte> bytes = payload.first(record.length);
    if (error > 0 || payload_hash(bytes) != record.hash) {
      state_.corrupt(record.key, victim, record.offset);
      continue;
    }
    record.written = state_.unix_now();
    if (append(record, bytes, false) != Status::kOk) break;
  }
  if (open_) commit();
  if (!open_) return false;  // the disk failed; the victim may stay
  state_.drop(victim);
  return true;
}

}  // namespace barg::store
