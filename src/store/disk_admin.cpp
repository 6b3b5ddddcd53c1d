#include "store/disk_admin.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <unordered_set>

namespace barg::store {

Result<StoppedStore> StoppedStore::open(const std::string& directory) {
  StoppedStore store;
  store.directory_ = directory;
  store.io_ = system_io(false);
  std::vector<WriterId> locks;
  const auto segments = list_segments(*store.io_, directory, &locks);
  if (!segments) return std::unexpected(segments.error());
  std::set<WriterId> writers(locks.begin(), locks.end());
  for (const SegmentName& s : *segments) writers.insert(s.writer);
  if (writers.empty()) return fail(ErrorCode::kNotFound, "there is no KV cache in " + directory);
  for (const WriterId& writer : writers) {
    auto lock = WriterLock::take(directory, writer);
    if (!lock) return std::unexpected(lock.error());
    if (!*lock) {
      return fail(ErrorCode::kUnavailable,
                  "a running process uses the KV cache in " + directory + "; stop it first");
    }
    store.locks_.push_back(std::move(**lock));
  }
  for (const SegmentName& s : *segments) store.load(segment_file_name(s.stem, s.sealed), s.sealed);
  store.count_live();
  return store;
}

/// A writer of which nothing is left needs no lock file.
StoppedStore::~StoppedStore() {
  for (WriterLock& lock : locks_) {
    const bool used = std::any_of(segments_.begin(), segments_.end(), [&](const StoredSegment& s) {
      SegmentName name;
      return parse_segment_name(s.file, name) && name.writer == lock.writer();
    });
    if (!used) lock.remove();
  }
}

void StoppedStore::load(const std::string& file, bool sealed) {
  StoredSegment s;
  s.file = file;
  s.sealed = sealed;
  const std::string path = directory_ + "/" + file;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) s.bytes = static_cast<std::uint64_t>(status.st_size);
  const auto opened = io_->open(path, OpenMode::kRead, false);
  if (!opened) {
    s.problem = std::strerror(opened.error());
  } else if (auto scan = scan_segment(**opened, nullptr); !scan) {
    s.problem = scan.error().message;
    s.foreign_version = scan.error().code == ErrorCode::kUnsupported;
  } else {
    s.domain = std::move(scan->header.domain);
    s.created = s.used = scan->header.created;
    s.records = std::move(scan->records);
    for (const Record& r : s.records) s.used = std::max(s.used, r.written);
  }
  segments_.push_back(std::move(s));
}

void StoppedStore::count_live() {
  std::map<Digest, std::unordered_set<Key, KeyHash>> seen;  // by domain
  for (StoredSegment& s : segments_) {
    for (const Record& r : s.records) {
      if (!seen[s.domain.root].insert(r.key).second) continue;
      ++s.live_parts;
      s.live_bytes += r.length;
    }
  }
}

VerifiedSegment StoppedStore::verify(const StoredSegment& segment) const {
  VerifiedSegment out;
  const auto file = io_->open(directory_ + "/" + segment.file, OpenMode::kRead, true);
  if (!file) {
    out.io_error = std::strerror(file.error());
    return out;
  }
  AlignedBuffer buffer;
  for (const Record& r : segment.records) {
    const std::size_t padded = io_padded(r.length);
    if (buffer.size() < padded) buffer = AlignedBuffer(padded);
    const int error = buffer.data() == nullptr ? -ENOMEM : read_fully(**file, r.offset, buffer.first(padded));
    ++out.parts;
    out.bytes += r.length;
    if (error < 0) out.io_error = std::strerror(-error);
    if (error == 0 && payload_hash(buffer.first(r.length)) == r.hash) continue;
    ++(segment.sealed ? out.bad : out.torn);
  }
  return out;
}

int StoppedStore::remove(const StoredSegment& segment) {
  const std::string file = segment.file;  // `segment` may be an element
  const int error = io_->remove(directory_ + "/" + file);
  if (error != 0) return error;
  std::erase_if(segments_, [&](const StoredSegment& s) { return s.file == file; });
  return 0;
}

}  // namespace barg::store
