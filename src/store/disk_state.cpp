#include "store/disk_state.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace barg::store {
namespace {

constexpr int kStrikes = 3;
constexpr double kLongestPause = 60;
constexpr int kCorruptLimit = 3;    ///< records of one segment
constexpr int kMaxOpenFiles = 256;  ///< well below the usual limit of 1024 descriptors

}  // namespace

double DiskState::use_of(std::uint64_t written) const {
  const std::uint64_t now = unix_now();
  return clock.now() - static_cast<double>(now > written ? now - written : 0);
}

void DiskState::io_failed(const std::string& what, int code) {
  const std::lock_guard lock(mutex);
  ++stats.io_errors;
  stats.last_error = what + ": " + std::strerror(code < 0 ? -code : code);
  if (++strikes < kStrikes || !up) return;
  up = false;
  probe_at = clock.now() + probe_pause;
}

void DiskState::no_space() {
  const std::lock_guard lock(mutex);
  ++stats.no_space;
  stats.last_error = "no space left for " + options.directory;
  const double now = clock.now();
  if (now < read_only_until) return;
  read_only_until = now + read_only_pause;
  read_only_pause = std::min(2 * read_only_pause, kLongestPause);
}

bool DiskState::read_only() {
  const std::lock_guard lock(mutex);
  return clock.now() < read_only_until;
}

std::expected<FileRef, Status> DiskState::reading(std::uint64_t serial) {
  std::string stem;
  bool sealed = false;
  {
    const std::lock_guard lock(mutex);
    Segment* s = index.segment(serial);
    if (s == nullptr) return std::unexpected(Status::kMissing);
    s->file_used = ++next_use_;
    if (s->file) return s->file;
    stem = s->stem;
    sealed = s->sealed;
  }
  auto file = io.open(path(stem, sealed), OpenMode::kRead, direct);
  if (!file && file.error() == ENOENT) file = io.open(path(stem, !sealed), OpenMode::kRead, direct);
  if (!file && (file.error() == ENOENT || file.error() == ESTALE)) {
    drop(serial);
    return std::unexpected(Status::kMissing);
  }
  if (!file) {
    io_failed("cannot open " + stem, file.error());
    return std::unexpected(Status::kIoError);
  }
  const std::lock_guard lock(mutex);
  if (Segment* s = index.segment(serial); s != nullptr && !s->file) {
    s->file = *file;
    close_oldest_file();
  }
  return *file;
}

void DiskState::close_oldest_file() {
  Segment* oldest = nullptr;
  int count = 0;
  for (const auto& [serial, segment] : index.segments()) {
    if (!segment.file) continue;
    ++count;
    if (oldest == nullptr || segment.file_used < oldest->file_used) oldest = index.segment(serial);
  }
  if (count > kMaxOpenFiles) oldest->file.reset();  // reads in flight hold it themselves
}

void DiskState::forget_file(std::uint64_t serial) {
  const std::lock_guard lock(mutex);
  if (Segment* s = index.segment(serial)) s->file.reset();
}

Status DiskState::corrupt(const Key& key, std::uint64_t serial, std::uint64_t offset) {
  const std::lock_guard lock(mutex);
  Segment* s = index.segment(serial);
  const Entry* e = index.find(key);
  if (e != nullptr && e->segment == serial && e->offset == offset) index.remove(key);
  // Somebody else is writing it: a header may be there before all of its payload, and nothing is wrong.
  if (s != nullptr && !s->own && !s->sealed) return Status::kMissing;
  ++stats.verify_failed;
  if (s == nullptr) return Status::kCorrupt;
  stats.last_error = "a record of " + s->stem + " failed verification";
  if (++s->corrupt < kCorruptLimit || s->open) return Status::kCorrupt;
  index.clear_segment(serial);
  s->opaque = true;  // the first to go when room is needed
  return Status::kCorrupt;
}

void DiskState::quarantine(std::uint64_t serial) {
  const std::lock_guard lock(mutex);
  Segment* s = index.segment(serial);
  if (s == nullptr || s->open) return;
  index.clear_segment(serial);
  s->file.reset();
  s->quarantined_until =
      clock.now() + std::min(std::ldexp(1.0, std::min(s->quarantines++, 10)), 16 * kLongestPause);
}

void DiskState::drop(std::uint64_t serial) {
  std::string file;
  {
    const std::lock_guard lock(mutex);
    Segment* s = index.segment(serial);
    if (s == nullptr || s->open) return;
    if (s->own) file = path(s->stem, s->sealed);
    const std::size_t parts = index.drop_segment(serial);
    if (!file.empty()) stats.evicted += parts;
  }
  if (file.empty()) return;
  const int error = io.remove(file);
  if (error == -EIO || error == -EROFS) io_failed("cannot remove " + file, error);
}

std::uint64_t DiskState::victim() {
  std::vector<std::uint64_t> candidates;
  {
    const std::lock_guard lock(mutex);
    candidates = index.candidates();
  }
  const double now = clock.now();
  std::uint64_t best = 0;
  double lowest = 0;
  for (const std::uint64_t serial : candidates) {
    const std::lock_guard lock(mutex);  // one by one, so that nobody waits for a look at every part
    const double worth = index.worth(serial, now);
    if (best != 0 && worth >= lowest) continue;
    best = serial;
    lowest = worth;
  }
  return best;
}

bool DiskState::evict_one() {
  const std::uint64_t serial = victim();
  if (serial == 0) return false;
  drop(serial);
  return true;
}

}  // namespace barg::store
