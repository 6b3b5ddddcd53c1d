#include "store/disk_catalog.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace barg::store {

Result<void> DiskCatalog::open() {
  std::vector<WriterId> locks;
  const auto names = list_segments(state_.io, state_.options.directory, &locks);
  if (!names) return std::unexpected(names.error());
  std::set<WriterId> writers(locks.begin(), locks.end());
  for (const SegmentName& name : *names) writers.insert(name.writer);
  writers.erase(state_.writer);
  for (const WriterId& writer : writers) {
    auto dead = WriterLock::take(state_.options.directory, writer);
    if (!dead || !*dead) continue;  // alive, or not ours to take (permissions): read only
    adopt(*names, **dead);
  }
  rescan();
  return {};
}

/// Its segments get our name, one atomic rename each, so that from now on our lock protects them.
void DiskCatalog::adopt(const std::vector<SegmentName>& names, WriterLock& dead) {
  bool all = true;
  for (const SegmentName& old : names) {
    if (old.writer != dead.writer()) continue;
    SegmentName name = old;
    name.writer = state_.writer;
    {
      const std::lock_guard lock(state_.mutex);
      do {  // the name need not repeat the header's id
        name.stem = segment_stem(state_.writer, name.id++);
      } while (state_.index.find_segment(name.stem) != 0);
    }
    const int error =
        state_.io.rename(state_.path(old.stem, old.sealed), state_.path(name.stem, name.sealed));
    if (error != 0) {
      all = all && error == -ENOENT;
      continue;
    }
    load(name, true);
  }
  state_.io.sync_directory(state_.options.directory);
  if (all) dead.remove();
}

Result<SegmentScan> DiskCatalog::scan(const SegmentName& name, bool own) {
  const std::string path = state_.path(name.stem, name.sealed);
  // Headers are small: through the page cache where only we write, past it where another machine may.
  const auto file = state_.io.open(path, OpenMode::kRead, !own && !name.sealed && state_.direct);
  if (!file && file.error() == ENOENT) return fail(ErrorCode::kNotFound, "it has gone");
  if (!file) {
    // A link, a pipe, a directory, somebody's private file: odd, but no fault of the disk.
    const bool odd = file.error() == EINVAL || file.error() == ELOOP || file.error() == EISDIR ||
                     file.error() == ENXIO || file.error() == EACCES || file.error() == EPERM;
    return fail(odd ? ErrorCode::kBadFile : ErrorCode::kIo, std::strerror(file.error()));
  }
  return scan_segment(**file, &state_.domain);
}

/// Gives an adopted segment the table that its writer did not come to write. 0 or -errno.
int DiskCatalog::reseal(SegmentName& name, SegmentScan& scan) {
  const std::string path = state_.path(name.stem, name.sealed);
  if (!scan.sealed) {
    auto file = state_.io.open(path, OpenMode::kWrite, state_.direct);
    if (!file) return -file.error();
    if (const int error = write_footer(**file, scan.records, scan.header, scan.end); error != 0) return error;
    scan.file_bytes = scan.end + footer_bytes(scan.records.size());
    scan.sealed = true;
  }
  if (name.sealed) return 0;
  const int error = state_.io.rename(path, state_.path(name.stem, true));
  if (error == 0) name.sealed = true;
  return error;
}

void DiskCatalog::load(const SegmentName& old, bool own) {
  SegmentName name = old;
  Result<SegmentScan> scanned = scan(name, own);
  if (!scanned && scanned.error().code == ErrorCode::kNotFound) return;
  // A header that is not there yet: its writer is about to write it.
  if (!scanned && !own && !name.sealed && scanned.error().code == ErrorCode::kBadFile) return;
  if (!scanned && own && !name.sealed && scanned.error().code == ErrorCode::kBadFile) {
    state_.io.remove(
        state_.path(name.stem, name.sealed));  // died before the header: there is nothing to be read
    return;
  }
  Segment s{.stem = name.stem, .writer = name.writer, .id = name.id, .own = own, .sealed = name.sealed};
  if (!scanned && scanned.error().code == ErrorCode::kIo) {
    state_.io_failed("cannot read " + name.stem, EIO);
    s.quarantined_until = state_.clock.now() + 1;
  } else if (!scanned) {
    s.opaque = true;
  } else {
    s.file_bytes = scanned->file_bytes;
    s.opaque = !same_domain(scanned->header.domain, state_.domain);
  }
  if (own && scanned && !s.opaque) {
    if (scanned->records.empty() && scanned->end <= kSegmentHeaderBytes && !name.sealed) {
      state_.io.remove(state_.path(name.stem, name.sealed));
      return;
    }
    if (const int error = reseal(name, *scanned); error != 0)
      state_.io_failed("cannot seal " + name.stem, error);
    s.sealed = name.sealed;
    s.file_bytes = scanned->file_bytes;
  }
  std::vector<Record> records;
  if (scanned) {
    records = std::move(scanned->records);
    scanned->records.clear();
    if (!own && !name.sealed) s.scan = std::move(*scanned);
  }
  if (own && s.file_bytes == 0) {  // unreadable, but it takes room: as much as it says
    const auto file = state_.io.open(state_.path(name.stem, name.sealed), OpenMode::kRead, false);
    if (file) s.file_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>((*file)->size(), 0));
  }
  std::uint64_t serial = 0;
  {
    const std::lock_guard lock(state_.mutex);
    serial = state_.index.add_segment(std::move(s));
  }
  insert(serial, records);
}

void DiskCatalog::insert(std::uint64_t serial, const std::vector<Record>& records) {
  const std::lock_guard lock(state_.mutex);
  const double now = state_.clock.now();
  for (const Record& record : records) {
    const double use = state_.use_of(record.written);
    if (state_.options.ttl_s > 0 && now - use > state_.options.ttl_s) continue;
    state_.index.insert(serial, record, use);
  }
}

/// More records of a segment that somebody else writes, or wrote until now.
void DiskCatalog::follow(std::uint64_t serial, bool now_sealed) {
  SegmentName name;
  SegmentScan scan;
  {
    const std::lock_guard lock(state_.mutex);
    Segment* s = state_.index.segment(serial);
    if (s == nullptr) return;
    if (now_sealed) s->sealed = true;
    if (s->opaque || s->quarantined_until != 0) return;
    name.stem = s->stem;
    name.sealed = s->sealed;
    scan = s->scan;
  }
  const auto file = state_.io.open(state_.path(name.stem, name.sealed), OpenMode::kRead, state_.direct);
  if (!file) return;  // it has just been renamed or removed: next time
  if (const auto more = scan_tail(**file, scan); !more) return;
  const std::vector<Record> records = std::move(scan.records);
  scan.records.clear();
  insert(serial, records);
  const std::lock_guard lock(state_.mutex);
  if (Segment* s = state_.index.segment(serial)) {
    s->scan = std::move(scan);
    s->file_bytes = s->scan.file_bytes;
  }
}

void DiskCatalog::rescan() {
  const std::int64_t stamp = state_.io.change_stamp(state_.options.directory);
  if (stamp == stamp_ && !following_) return;
  const auto names = list_segments(state_.io, state_.options.directory, nullptr);
  if (!names) {
    state_.io_failed("cannot list " + state_.options.directory, static_cast<int>(-EIO));
    return;
  }
  stamp_ = stamp;
  following_ = false;
  std::set<std::string> there;
  for (const SegmentName& name : *names) {
    there.insert(name.stem);
    if (name.writer == state_.writer) continue;
    std::uint64_t serial = 0;
    bool known_sealed = false;
    {
      const std::lock_guard lock(state_.mutex);
      serial = state_.index.find_segment(name.stem);
      if (serial != 0) known_sealed = state_.index.segment(serial)->sealed;
    }
    if (serial == 0)
      load(name, false);
    else if (!known_sealed)
      follow(serial, name.sealed);
    following_ = following_ || !name.sealed;
  }
  std::vector<std::uint64_t> gone;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& [serial, s] : state_.index.segments()) {
      if (!s.own && !there.contains(s.stem)) gone.push_back(serial);
    }
  }
  for (const std::uint64_t serial : gone) state_.drop(serial);
}

void DiskCatalog::retry_quarantined() {
  std::vector<std::pair<std::uint64_t, SegmentName>> due;
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.up) return;
    const double now = state_.clock.now();
    for (const auto& [serial, s] : state_.index.segments()) {
      if (s.quarantined_until == 0 || s.opaque || now < s.quarantined_until) continue;
      due.push_back({serial, {.stem = s.stem, .writer = s.writer, .id = s.id, .sealed = s.sealed}});
    }
  }
  for (const auto& [serial, name] : due) {
    const Result<SegmentScan> scanned = scan(name, true);
    {
      const std::lock_guard lock(state_.mutex);
      Segment* s = state_.index.segment(serial);
      if (s == nullptr) continue;
      if (!scanned && scanned.error().code == ErrorCode::kIo) {
        s->quarantined_until = state_.clock.now() + 8 * ++s->quarantines;
        continue;
      }
      s->quarantined_until = 0;
      s->opaque = !scanned || !same_domain(scanned->header.domain, state_.domain);
      if (s->opaque) continue;
      s->scan = *scanned;
      s->scan.records.clear();
    }
    insert(serial, scanned->records);
  }
}

}  // namespace barg::store
