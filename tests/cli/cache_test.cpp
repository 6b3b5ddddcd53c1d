// `barg cache` on directories made by the disk tier.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <sstream>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "store/disk_tier.h"
#include "store/segment_format.h"
#include "support/temp_dir.h"

namespace barg::cli::cache_test {
namespace {

struct Done {
  int code = 0;
  std::string out, err;
};

Done barg(const std::vector<std::string>& args) {
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  const int code = run(args, {}, io);
  return {code, out.str(), err.str()};
}

std::unique_ptr<store::Tier> open(const std::string& directory, std::uint8_t root, std::uint64_t now = 0) {
  store::DiskOptions o;
  o.directory = directory;
  o.capacity_bytes = 8 << 20;
  o.segment_bytes = 256 << 10;
  if (now > 0) o.unix_time = [now] { return now; };
  store::Domain d;
  d.root.fill(root);
  d.part_bytes = {10000};
  d.label = "model " + std::to_string(root);
  auto tier = store::open_disk_tier(o, d);
  EXPECT_TRUE(tier.has_value());
  return std::move(*tier);
}

void fill(store::Tier& tier, int first, int last) {
  std::vector<std::byte> bytes(10000, std::byte{42});
  std::vector<store::PutItem> items;
  for (int n = first; n < last; ++n) {
    items.push_back(
        {{sha256(&n, sizeof n), 0}, {}, {store::MemoryKind::kHost, bytes.data(), bytes.size()}, 0});
  }
  std::latch done(last - first);
  tier.put(store::Ticket{1}, items, [&](const store::Report& r) {
    EXPECT_EQ(r.status, store::Status::kOk);
    done.count_down();
  });
  done.wait();
}

std::vector<std::filesystem::path> segments(const std::string& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& e : std::filesystem::directory_iterator(directory)) {
    if (e.path().extension() == ".kv") found.push_back(e.path());
  }
  return found;
}

TEST(Cache, LsShowsDomainsAndSegments) {
  test::TempDir dir;
  fill(*open(dir.path(), 1), 0, 40);
  fill(*open(dir.path(), 2), 0, 5);
  const Done text = barg({"cache", "ls", dir.path()});
  EXPECT_EQ(text.code, kExitOk) << text.err;
  EXPECT_NE(text.out.find("model 1"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("40 live parts"), std::string::npos) << text.out;
  const Done done = barg({"cache", "ls", "--json", dir.path()});
  const auto json = parse_json(done.out);
  ASSERT_TRUE(json.has_value()) << done.out;
  ASSERT_EQ(json->find("domains")->as_array().size(), 2U);
  EXPECT_EQ(json->find("domains")->as_array()[1].find("live_parts")->as_int(), 5);
  EXPECT_EQ(json->find("segments")->as_array().size(), segments(dir.path()).size());
}

TEST(Cache, RefusesADirectoryInUseAndOneWithoutCache) {
  test::TempDir dir;
  for (const char* what : {"ls", "verify", "gc"}) {
    EXPECT_EQ(barg({"cache", what, dir.path()}).code, kExitFailure);
    EXPECT_EQ(barg({"cache", what}).code, kExitUsage);
    EXPECT_EQ(barg({"cache", what, dir.path() + "/none"}).code, kExitFailure);
  }
  {
    const auto tier = open(dir.path(), 1);
    fill(*tier, 0, 5);
    for (const char* what : {"ls", "verify", "gc"}) {
      const Done done = barg({"cache", what, dir.path()});
      EXPECT_EQ(done.code, kExitUnavailable);
      EXPECT_EQ(done.out, "");
      EXPECT_NE(done.err.find("a running process uses"), std::string::npos) << done.err;
    }
  }
  EXPECT_EQ(barg({"cache", "ls", dir.path()}).code, kExitOk);
}

TEST(Cache, VerifyFindsDamage) {
  test::TempDir dir;
  fill(*open(dir.path(), 1), 0, 40);
  const Done whole = barg({"cache", "verify", dir.path()});
  EXPECT_EQ(whole.code, kExitOk) << whole.out;
  EXPECT_NE(whole.out.find("40 parts"), std::string::npos) << whole.out;
  std::fstream f(segments(dir.path())[0], std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(store::kSegmentHeaderBytes + store::kIoAlign + 77);
  f.put('x');
  f.close();
  const Done damaged = barg({"cache", "verify", dir.path()});
  EXPECT_EQ(damaged.code, kExitFailure);
  EXPECT_NE(damaged.out.find("1 damaged"), std::string::npos) << damaged.out;
}

TEST(Cache, GcDropsWhatItIsTold) {
  test::TempDir dir;
  fill(*open(dir.path(), 1, 1'000'000'000), 0, 40);  // long ago
  fill(*open(dir.path(), 2), 0, 40);
  std::ofstream(dir.path() + "/" + store::segment_stem({}, 1) + ".kv") << "garbage";
  const std::size_t all = segments(dir.path()).size();
  EXPECT_EQ(barg({"cache", "gc", dir.path(), "--max-size", "x"}).code, kExitUsage);
  EXPECT_EQ(barg({"cache", "gc", dir.path(), "--domain", "XYZ"}).code, kExitUsage);
  const Done dry = barg({"cache", "gc", dir.path(), "--dry-run", "--max-size", "0"});
  EXPECT_EQ(dry.code, kExitOk);
  EXPECT_EQ(segments(dir.path()).size(), all);
  EXPECT_NE(barg({"cache", "gc", dir.path()}).out.find("cannot be read"), std::string::npos);
  EXPECT_EQ(segments(dir.path()).size(), all - 1);
  const Done old = barg({"cache", "gc", dir.path(), "--older-than", "1000h"});
  EXPECT_NE(old.out.find("is too old"), std::string::npos) << old.out;
  EXPECT_EQ(barg({"cache", "ls", dir.path()}).out.find("model 1"), std::string::npos);
  EXPECT_EQ(barg({"cache", "gc", dir.path(), "--foreign", "0202"}).out.find("another domain"),
            std::string::npos);
  const Done size = barg({"cache", "gc", dir.path(), "--max-size", "300KiB"});
  std::uint64_t left = 0;
  for (const auto& s : segments(dir.path())) left += std::filesystem::file_size(s);
  EXPECT_LE(left, 300U << 10) << size.out;
  EXPECT_GT(left, 0U);
  EXPECT_NE(barg({"cache", "gc", dir.path(), "--domain", "0202"}).out.find("that domain"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "nothing is left, not even lock files";
}

}  // namespace
}  // namespace barg::cli::cache_test
