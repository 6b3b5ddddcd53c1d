// What the tests of the disk tier share: a directory that goes away, parts whose bytes follow from their key,
// calls that wait, and an Io that refuses, tears, flips and stalls.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "store/disk_tier.h"
#include "store/segment_format.h"
#include "support/eventually.h"
#include "support/shared_clock.h"
#include "support/temp_dir.h"

namespace barg::store::disk_test {

using barg::test::eventually;
using barg::test::SharedClock;

class TempDir : public barg::test::TempDir {
 public:
  using barg::test::TempDir::TempDir;
  /// In memory where the machine has such a place: for tests of crashes that need no real disk, only many of
  /// them.
  static TempDir in_memory() {
    const std::filesystem::path shm = "/dev/shm";
    return TempDir(::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path());
  }
  /// Files whose name ends so.
  std::vector<std::filesystem::path> files(const std::string& end) const {
    std::vector<std::filesystem::path> found;
    for (const auto& e : std::filesystem::directory_iterator(path())) {
      if (e.path().string().ends_with(end)) found.push_back(e.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

/// What the faulty Io does; all may be changed while it is in use.
struct Faults {
  std::atomic<std::uint64_t> bytes_read{0}, reads{0}, bytes_written{0}, syncs{0};
  std::atomic<int> read_error{0}, write_error{0}, sync_error{0}, open_error{0};  ///< errno, 0: none
  std::atomic<int> read_error_every{1};  ///< of so many reads one fails
  std::atomic<std::int64_t> space{-1};   ///< bytes that segments may still reserve; -1: any
  std::atomic<std::size_t> longest_write{SIZE_MAX};
  std::atomic<int> flip_every{0};  ///< one bit of one in so many payload reads
  std::mutex gate_mutex;
  std::condition_variable gate;
  bool stalled = false;  ///< reads wait
  int waiting = 0;

  void stall(bool on) {
    {
      const std::lock_guard lock(gate_mutex);
      stalled = on;
    }
    gate.notify_all();
  }
  void pass_gate() {
    std::unique_lock lock(gate_mutex);
    ++waiting;
    gate.notify_all();
    gate.wait(lock, [&] { return !stalled; });
    --waiting;
  }
  int failing_read() {
    const std::uint64_t n = ++reads;
    return read_error != 0 && n % static_cast<std::uint64_t>(read_error_every) == 0 ? -read_error : 0;
  }
};

class FaultyFile final : public File {
 public:
  FaultyFile(FileRef inner, Faults& faults) : inner_(std::move(inner)), f_(faults) {}
  std::int64_t read(std::uint64_t offset, std::span<std::byte> to) override {
    if (const int e = f_.failing_read(); e != 0) return e;
    const std::int64_t n = inner_->read(offset, to);
    if (n > 0) f_.bytes_read += static_cast<std::uint64_t>(n);
    return n;
  }
  std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    if (f_.write_error != 0) return -f_.write_error;
    from = from.first(std::min<std::size_t>(from.size(), f_.longest_write));
    const std::int64_t n = inner_->write(offset, from);
    if (n > 0) f_.bytes_written += static_cast<std::uint64_t>(n);
    return n;
  }
  int sync() override {
    ++f_.syncs;
    return f_.sync_error != 0 ? -f_.sync_error : inner_->sync();
  }
  int allocate(std::uint64_t bytes) override {
    if (f_.space < 0) return inner_->allocate(bytes);
    if (static_cast<std::int64_t>(bytes) > f_.space) return -ENOSPC;
    f_.space -= static_cast<std::int64_t>(bytes);
    return inner_->allocate(bytes);
  }
  int truncate(std::uint64_t bytes) override {
    if (f_.space >= 0) f_.space += inner_->size() - static_cast<std::int64_t>(bytes);
    return inner_->truncate(bytes);
  }
  std::int64_t size() override { return inner_->size(); }
  bool direct() const override { return inner_->direct(); }
  int descriptor() const override { return inner_->descriptor(); }

 private:
  FileRef inner_;
  Faults& f_;
};

class FaultyQueue final : public ReadQueue {
 public:
  FaultyQueue(std::unique_ptr<ReadQueue> inner, Faults& faults) : inner_(std::move(inner)), f_(faults) {}
  void push(ReadOp* op) override { inner_->push(op); }
  void wait(std::vector<ReadOp*>& done) override {
    f_.pass_gate();
    const std::size_t before = done.size();
    inner_->wait(done);
    for (std::size_t i = before; i < done.size(); ++i) {
      ReadOp& op = *done[i];
      if (const int e = f_.failing_read(); e != 0) op.result = e;
      if (op.result > 0) f_.bytes_read += static_cast<std::uint64_t>(op.result);
      if (f_.flip_every > 0 && f_.reads % static_cast<std::uint64_t>(f_.flip_every) == 0) {
        static_cast<std::byte*>(op.pieces[0].iov_base)[0] ^= std::byte{4};
      }
    }
  }

 private:
  std::unique_ptr<ReadQueue> inner_;
  Faults& f_;
};

class FaultyIo final : public Io {
 public:
  explicit FaultyIo(bool use_io_uring = true) : inner_(system_io(use_io_uring)) {}
  Faults f;

  std::expected<FileRef, int> open(const std::string& path, OpenMode mode, bool direct) override {
    if (f.open_error != 0) return std::unexpected(f.open_error.load());
    auto file = inner_->open(path, mode, direct);
    if (!file) return file;
    return std::make_shared<FaultyFile>(*file, f);
  }
  int remove(const std::string& path) override {
    std::error_code gone;
    const auto bytes = std::filesystem::file_size(path, gone);
    if (f.space >= 0 && !gone) f.space += static_cast<std::int64_t>(bytes);
    return inner_->remove(path);
  }
  int rename(const std::string& from, const std::string& to) override { return inner_->rename(from, to); }
  int list(const std::string& d, std::vector<std::string>& names) override { return inner_->list(d, names); }
  int sync_directory(const std::string& d) override { return inner_->sync_directory(d); }
  std::int64_t change_stamp(const std::string& d) override { return inner_->change_stamp(d); }
  std::unique_ptr<ReadQueue> read_queue(unsigned depth) override {
    return std::make_unique<FaultyQueue>(inner_->read_queue(depth), f);
  }
  bool deep_queues() const override { return inner_->deep_queues(); }

 private:
  std::unique_ptr<Io> inner_;
};

/// Part n of a chain: its parent is part n-1, its bytes follow from n.
inline Key key_of(std::uint64_t n, std::uint32_t part = 0) { return {sha256(&n, sizeof n), part}; }
inline BlockInfo info_of(std::uint64_t n) {
  return {n == 0 ? Digest{} : key_of(n - 1).block, static_cast<std::uint32_t>(n), n * 7919 + 1};
}
inline void fill_part(std::uint64_t n, std::uint32_t part, std::span<std::byte> out) {
  Rng rng(n * 1000003 + part);
  std::size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const std::uint64_t word = rng.next();
    std::memcpy(out.data() + i, &word, 8);
  }
  for (; i < out.size(); ++i) out[i] = static_cast<std::byte>(rng.next());
}
inline bool is_part(std::uint64_t n, std::uint32_t part, std::span<const std::byte> bytes) {
  std::vector<std::byte> want(bytes.size());
  fill_part(n, part, want);
  return std::memcmp(want.data(), bytes.data(), bytes.size()) == 0;
}

inline Domain domain_of(std::vector<std::uint64_t> sizes = {16384}, std::uint8_t root = 1) {
  Domain d;
  d.root.fill(root);
  d.part_bytes = std::move(sizes);
  d.label = "test model " + std::to_string(root);
  return d;
}

/// Waits for all reports of one call.
class Reports {
 public:
  ReportFn sink() {
    return [this](const Report& r) {
      const std::lock_guard lock(mutex_);
      all_.push_back(r);
      changed_.notify_all();
    };
  }
  std::map<std::uint64_t, Status> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return all_.size() >= count; }));
    std::map<std::uint64_t, Status> by_tag;
    for (const Report& r : all_)
      EXPECT_TRUE(by_tag.emplace(r.tag, r.status).second) << "reported twice: " << r.tag;
    return by_tag;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Report> all_;
};

/// From memory that is aligned as DRAM's slots are (odd numbers) or not, with a checksum (multiples of 3) or
/// not.
inline std::vector<Status> put_parts(Tier& tier, const Domain& d, const std::vector<std::uint64_t>& numbers,
                                     std::uint32_t part = 0) {
  const std::size_t size = d.part_bytes[part], stride = io_padded(size + 16);
  AlignedBuffer memory(stride * std::max<std::size_t>(numbers.size(), 1));
  std::fill_n(memory.data(), memory.size(), std::byte{0xEE});
  std::vector<PutItem> items;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::span<std::byte> bytes(memory.data() + i * stride + (numbers[i] % 2 == 0 ? 16 : 0), size);
    fill_part(numbers[i], part, bytes);
    items.push_back(
        {key_of(numbers[i], part), info_of(numbers[i]), {MemoryKind::kHost, bytes.data(), size}, i});
    if (numbers[i] % 3 == 0) items.back().hash = payload_hash(bytes);
  }
  Reports reports;
  tier.put(Ticket{1}, items, reports.sink());
  std::vector<Status> out;
  for (const auto& [tag, status] : reports.wait(numbers.size())) out.push_back(status);
  return out;
}

/// Reads them; fails the test if one is reported kOk and its bytes are wrong.
inline std::vector<Status> get_parts(Tier& tier, const Domain& d, const std::vector<std::uint64_t>& numbers,
                                     std::uint32_t part = 0, std::size_t shift = 0) {
  const std::size_t size = d.part_bytes[part];
  AlignedBuffer memory(io_padded(size + shift) * std::max<std::size_t>(numbers.size(), 1));
  std::vector<GetItem> items;
  std::vector<std::byte*> at;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    at.push_back(memory.data() + i * io_padded(size + shift) + shift);
    items.push_back({key_of(numbers[i], part), info_of(numbers[i]), {MemoryKind::kHost, at[i], size}, i});
  }
  Reports reports;
  tier.get(Ticket{2}, items, 0, reports.sink());
  std::vector<Status> out;
  for (const auto& [tag, status] : reports.wait(numbers.size())) {
    out.push_back(status);
    if (status == Status::kOk) {
      EXPECT_TRUE(is_part(numbers[tag], part, {at[tag], size})) << "wrong bytes for part " << numbers[tag];
    }
  }
  return out;
}

inline std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t n = first; n < last; ++n) out.push_back(n);
  return out;
}
inline std::size_t count(const std::vector<Status>& all, Status one) {
  return static_cast<std::size_t>(std::count(all.begin(), all.end(), one));
}

/// A small store: 64 MiB-capacity segments of 1 MiB unless told otherwise.
inline DiskOptions options_for(const std::string& directory) {
  DiskOptions o;
  o.directory = directory;
  o.capacity_bytes = 64 << 20;
  o.segment_bytes = 1 << 20;
  o.commit_delay_s = 0;
  o.rescan_s = 0.01;
  return o;
}
inline std::unique_ptr<Tier> must_open(const DiskOptions& o, const Domain& d) {
  auto tier = open_disk_tier(o, d);
  EXPECT_TRUE(tier.has_value()) << (tier ? "" : tier.error().message);
  return tier ? std::move(*tier) : nullptr;
}

}  // namespace barg::store::disk_test
