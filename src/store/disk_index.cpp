#include "store/disk_index.h"

#include <algorithm>

#include "base/check.h"

namespace barg::store {
namespace {

/// Uses of a chain's parts within this time count as one, so that marking stops where it has just been.
constexpr double kSameUse = 1.0;

}  // namespace

std::uint64_t DiskIndex::add_segment(Segment segment) {
  const std::uint64_t serial = next_++;
  by_stem_[segment.stem] = serial;
  segments_.emplace(serial, std::move(segment));
  return serial;
}

Segment* DiskIndex::segment(std::uint64_t serial) {
  const auto it = segments_.find(serial);
  return it == segments_.end() ? nullptr : &it->second;
}

std::uint64_t DiskIndex::find_segment(const std::string& stem) const {
  const auto it = by_stem_.find(stem);
  return it == by_stem_.end() ? 0 : it->second;
}

bool DiskIndex::insert(std::uint64_t serial, const Record& record, double last_use) {
  Segment& s = segments_.at(serial);
  const auto [it, fresh] = entries_.try_emplace(record.key);
  if (!fresh) return false;
  it->second = {.segment = serial,
                .offset = record.offset,
                .hash = record.hash,
                .info = record.info,
                .length = static_cast<std::uint32_t>(record.length)};
  set_use(it->second, last_use);
  s.keys.push_back(record.key);
  ++s.live_count;
  return true;
}

Entry* DiskIndex::find(const Key& key) {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

void DiskIndex::use(const Key& key, double now) {
  Key at = key;
  for (auto it = entries_.find(at); it != entries_.end(); it = entries_.find(at)) {
    Entry& e = it->second;
    const bool marked = e.last_use >= now - kSameUse;
    set_use(e, std::max(e.last_use, now));
    // Depth bounds the walk even where hostile parents form a ring.
    if ((marked && at != key) || e.info.depth == 0 || e.info.parent == at.block) return;
    const auto parent = entries_.find({e.info.parent, at.part});
    if (parent == entries_.end() || parent->second.info.depth >= e.info.depth) return;
    at = parent->first;
  }
}

void DiskIndex::relocate(const Key& key, std::uint64_t serial, std::uint64_t offset) {
  Entry& e = entries_.at(key);
  if (Segment* old = segment(e.segment)) --old->live_count;
  Segment& s = segments_.at(serial);
  s.keys.push_back(key);
  ++s.live_count;
  e.segment = serial;
  e.offset = offset;
}

bool DiskIndex::remove(const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  --segments_.at(it->second.segment).live_count;
  set_use(it->second, 0);
  entries_.erase(it);
  return true;
}

std::size_t DiskIndex::clear_segment(std::uint64_t serial) {
  Segment& s = segments_.at(serial);
  std::size_t removed = 0;
  for (const Key& key : s.keys) {
    const auto it = entries_.find(key);
    if (it == entries_.end() || it->second.segment != serial) continue;
    set_use(it->second, 0);
    entries_.erase(it);
    ++removed;
  }
  s.keys.clear();
  s.live_count = 0;
  return removed;
}

std::size_t DiskIndex::drop_segment(std::uint64_t serial) {
  const std::size_t removed = clear_segment(serial);
  by_stem_.erase(segments_.at(serial).stem);
  segments_.erase(serial);
  return removed;
}

std::uint64_t DiskIndex::own_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [serial, s] : segments_) sum += s.own ? s.file_bytes : 0;
  return sum;
}

double DiskIndex::mean_use() const {
  return entries_.empty() ? 0 : sum_of_uses_ / static_cast<double>(entries_.size());
}

void DiskIndex::set_use(Entry& e, double use) {
  sum_of_uses_ += use - e.last_use;
  e.last_use = use;
}

std::vector<std::uint64_t> DiskIndex::candidates() const {
  std::vector<std::uint64_t> out;
  for (const auto& [serial, s] : segments_) {
    if (!s.own || s.open) continue;
    out.push_back(serial);
  }
  return out;
}

double DiskIndex::worth(std::uint64_t serial, double now) const {
  const auto found = segments_.find(serial);
  if (found == segments_.end()) return -1;
  const Segment& s = found->second;
  if (s.opaque || s.quarantined_until != 0) return -1;    // another domain, damaged, refused by the disk
  const double scale = std::max(now - mean_use(), 1e-3);  // an average part has this age: it counts half
  double value = 0;
  for (const Key& key : s.keys) {
    const auto it = entries_.find(key);
    if (it == entries_.end() || it->second.segment != serial) continue;
    const Entry& e = it->second;
    const double weight = 1 / (1 + std::max(now - e.last_use, 0.0) / scale);
    value += static_cast<double>(e.length) * weight * (e.reads > 0 ? 1 : 0.5);
  }
  return value / static_cast<double>(std::max<std::uint64_t>(s.file_bytes, 1));
}

std::vector<Key> DiskIndex::hot(std::uint64_t serial, std::uint64_t max_bytes) const {
  const Segment& s = segments_.at(serial);
  if (s.opaque || s.quarantined_until != 0) return {};
  const double average = mean_use();
  std::vector<std::pair<const Key*, const Entry*>> found;
  for (const Key& key : s.keys) {
    const auto it = entries_.find(key);
    if (it == entries_.end() || it->second.segment != serial) continue;
    if (it->second.reads > 0 && it->second.last_use > average) found.emplace_back(&it->first, &it->second);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    if (a.second->last_use != b.second->last_use) return a.second->last_use > b.second->last_use;
    if (a.second->info.depth != b.second->info.depth) return a.second->info.depth < b.second->info.depth;
    return *a.first < *b.first;
  });
  found.erase(std::unique(found.begin(), found.end()), found.end());  // written, removed, written again
  std::vector<Key> keys;
  for (const auto& [key, e] : found) {
    const std::uint64_t bytes = record_bytes(e->length);
    if (bytes > max_bytes) break;
    max_bytes -= bytes;
    keys.push_back(*key);
  }
  return keys;
}

}  // namespace barg::store
