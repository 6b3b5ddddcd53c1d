#include "cli/salt_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "support/temp_dir.h"

namespace barg::cli::salt_file_test {
namespace {

namespace fs = std::filesystem;

TEST(SaltFile, IsMadeOnceForItsOwnerAlone) {
  const test::TempDir dir;
  const auto first = open_salt_file("", dir.path() + "/state");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->made);
  EXPECT_FALSE(first->exposed);
  EXPECT_EQ(first->secret.size(), 32U);
  EXPECT_EQ(first->path, dir.path() + "/state/barg/kv-salt");
  struct stat facts {};
  ASSERT_EQ(::stat(first->path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  const auto second = open_salt_file("", dir.path() + "/state");
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->made);
  EXPECT_EQ(second->secret, first->secret);
  const test::TempDir other;
  EXPECT_NE(open_salt_file("", other.path())->secret, first->secret);
}

TEST(SaltFile, ProcessesThatStartTogetherAgree) {
  for (int round = 0; round < 20; ++round) {
    const test::TempDir dir;
    constexpr int kThreads = 4;
    std::vector<std::string> secrets(kThreads);
    std::barrier start(kThreads);
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          start.arrive_and_wait();
          secrets[static_cast<std::size_t>(t)] = open_salt_file("", dir.path()).value_or(SaltFile{}).secret;
        });
      }
    }
    for (const std::string& s : secrets) EXPECT_EQ(s, secrets[0]);
    EXPECT_EQ(secrets[0].size(), 32U);
    int files = 0;
    for (const auto& entry : fs::directory_iterator(dir.path() + "/barg")) files += entry.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, 1) << "a temporary file was left";
  }
}

TEST(SaltFile, ANamedFileMustExistAndHoldEnough) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/secret";
  auto missing = open_salt_file(path, dir.path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().param, "kv.salt_file");
  EXPECT_FALSE(fs::exists(path)) << "a wrong name must not become a new pool";
  std::ofstream(path) << std::string(15, 'x');
  EXPECT_EQ(open_salt_file(path, "").error().code, ErrorCode::kBadFile);
  std::ofstream(path) << std::string(4097, 'x');
  EXPECT_EQ(open_salt_file(path, "").error().code, ErrorCode::kBadFile);
  std::ofstream(path) << std::string(16, 'x');
  fs::permissions(path, fs::perms::owner_read | fs::perms::others_read);
  const auto good = open_salt_file(path, "");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->secret, std::string(16, 'x'));
  EXPECT_TRUE(good->exposed);
}

TEST(SaltFile, RefusalsNameTheFile) {
  EXPECT_EQ(open_salt_file("", "").error().code, ErrorCode::kNotFound);
  const auto nowhere = open_salt_file("", "/proc/nowhere");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  EXPECT_NE(nowhere.error().message.find("/proc/nowhere/barg/kv-salt"), std::string::npos);
}

}  // namespace
}  // namespace barg::cli::salt_file_test
