// What the tests of the stack share: blocks whose bytes follow from their number, and a stack on tiers in
// memory.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "store/stack.h"
#include "support/eventually.h"
#include "support/memory_tier.h"

namespace barg::store {

inline Key key_of(std::uint64_t id, std::uint32_t part = 0) {
  Rng rng(id * 2 + 1);
  Key key{.block = {}, .part = part};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t v = rng.next();
    std::memcpy(key.block.data() + 8 * i, &v, sizeof v);
  }
  return key;
}

/// Chains of a hundred blocks: 100, 101, ... is one.
inline BlockInfo info_of(std::uint64_t id) {
  BlockInfo info;
  info.depth = static_cast<std::uint32_t>(id % 100);
  if (info.depth != 0) info.parent = key_of(id - 1).block;
  info.fingerprint = id;
  return info;
}

inline std::vector<std::byte> bytes_of(const Key& key, std::size_t length) {
  std::vector<std::byte> out(length);
  std::uint64_t seed;
  std::memcpy(&seed, key.block.data(), sizeof seed);
  Rng rng(seed + key.part);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>(rng.next());
  return out;
}

using barg::test::eventually;

/// Collects what a load reports.
class Loads {
 public:
  TierStack::ReadyFn collector() {
    return [this](const TierStack::Loaded& l) {
      std::lock_guard lock(mutex_);
      ++calls_[l.tag];
      ends_[l.tag] = {l.status, l.from,
                      l.status == Status::kOk
                          ? std::vector<std::byte>(l.bytes.address, l.bytes.address + l.bytes.length)
                          : std::vector<std::byte>{}};
    };
  }
  struct End {
    Status status = Status::kMissing;
    TierKind from = TierKind::kDram;
    std::vector<std::byte> bytes;
  };
  bool wait(std::size_t count) {
    return eventually([&] {
      std::lock_guard lock(mutex_);
      return ends_.size() >= count;
    });
  }
  End end(std::uint64_t tag) {
    std::lock_guard lock(mutex_);
    return ends_[tag];
  }
  int calls(std::uint64_t tag) {
    std::lock_guard lock(mutex_);
    return calls_[tag];
  }
  std::size_t ended() {
    std::lock_guard lock(mutex_);
    return ends_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, End> ends_;
  std::map<std::uint64_t, int> calls_;
};

class StackTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kPart = 4096;

  test::MemoryTier* add(test::MemoryTier::Options options) {
    auto tier = std::make_unique<test::MemoryTier>(std::move(options), clock_);
    test::MemoryTier* raw = tier.get();
    tiers_.push_back(std::move(tier));
    return raw;
  }
  test::MemoryTier* add_disk(bool manual = false) {
    return add({.kind = TierKind::kDisk, .name = "disk", .manual = manual});
  }
  test::MemoryTier* add_remote(bool manual = false, bool must_probe = false) {
    return add({.kind = TierKind::kRemote, .name = "remote", .manual = manual, .must_probe = must_probe});
  }
  void open(StackOptions options) {
    stack_ = std::make_unique<TierStack>(Domain{.root = {}, .part_bytes = {kPart, kPart}, .label = "test"},
                                         std::move(tiers_), std::move(options), clock_);
  }
  static StackOptions dram(std::uint64_t parts) { return {.dram_bytes = parts * kPart}; }

  /// True if bytes were taken.
  bool save(std::uint64_t id, SaveWhy why = SaveWhy::kEvicted, int uses = 0) {
    const SaveItem item{.key = key_of(id), .info = info_of(id), .why = why, .uses = uses};
    if (!stack_->wants(item)) return false;
    return stack_->save(item, [&](Memory to) {
      const auto bytes = bytes_of(item.key, to.length);
      std::copy(bytes.begin(), bytes.end(), to.address);
      return true;
    });
  }
  std::vector<int> find(const std::vector<std::uint64_t>& ids, bool* unknown = nullptr) {
    std::vector<Key> keys;
    for (const auto id : ids) keys.push_back(key_of(id));
    std::vector<std::uint8_t> out(keys.size());
    bool u = false;
    stack_->find(keys, out, unknown != nullptr ? unknown : &u);
    return {out.begin(), out.end()};
  }
  Ticket load(Loads& loads, const std::vector<std::uint64_t>& ids, double deadline = 0) {
    std::vector<TierStack::Want> wants;
    for (const auto id : ids) wants.push_back({key_of(id), info_of(id), id});
    return stack_->load(std::move(wants), deadline, loads.collector());
  }
  void expect_bytes(Loads& loads, std::uint64_t id, TierKind from) {
    const auto end = loads.end(id);
    EXPECT_EQ(end.status, Status::kOk) << id << " " << status_name(end.status);
    EXPECT_EQ(static_cast<int>(end.from), static_cast<int>(from)) << id;
    EXPECT_TRUE(end.bytes == bytes_of(key_of(id), kPart)) << id;
    EXPECT_EQ(loads.calls(id), 1) << id;
  }
  void expect_idle() {
    EXPECT_TRUE(eventually([&] {
      const StackStats s = stack_->stats();
      return s.loads == 0 && s.reads_in_flight == 0 && s.writes_in_flight == 0 &&
             s.arena_bytes == s.kinds[0].used_bytes;
    }));
    const StackStats s = stack_->stats();
    EXPECT_EQ(s.loads, 0U);
    EXPECT_EQ(s.reads_in_flight, 0U);
    EXPECT_EQ(s.writes_in_flight, 0U);
    EXPECT_EQ(s.arena_bytes, s.kinds[0].used_bytes);
    for (const auto& k : s.kinds) EXPECT_EQ(k.speed.queued_bytes, 0);
  }
  std::uint64_t dropped(DropReason r) { return stack_->stats().dropped[static_cast<std::size_t>(r)]; }

  test::SharedClock clock_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::unique_ptr<TierStack> stack_;
};

}  // namespace barg::store
