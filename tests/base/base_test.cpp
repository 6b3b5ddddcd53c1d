#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/env.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/queue.h"

namespace barg::base_test {
namespace {

TEST(Hash, KnownDigests) {
  EXPECT_EQ(hex(sha256("", 0)), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc", 3)), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().update("a", 1).update("bc", 2).finish(), sha256("abc", 3));
}

TEST(Queue, IsBoundedOrderedAndCloses) {
  Queue<int> q(2);
  EXPECT_TRUE(q.try_push(1));
  EXPECT_TRUE(q.try_push(2));
  EXPECT_FALSE(q.try_push(3));
  EXPECT_TRUE(q.push_always(4));
  EXPECT_EQ(q.drain(), (std::vector<int>{1, 2, 4}));
  std::jthread producer([&] { q.push_always(5); });
  EXPECT_EQ(q.wait_drain(), (std::vector<int>{5}));
  q.close();
  EXPECT_FALSE(q.push_always(6));
  EXPECT_TRUE(q.wait_drain().empty());
}

TEST(Rng, IsTheSameEverywhere) {
  Rng rng(0);
  EXPECT_EQ(rng.next(), 0xE220A8397B1DCDAFULL);  // splitmix64's published first value for seed 0
}

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("barg_base_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string file(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
    return (dir_ / name).string();
  }
  std::filesystem::path dir_;
};

TEST_F(FileTest, MapsRegularFilesOnly) {
  const auto ok = MappedFile::open(file("a", "hello"));
  ASSERT_TRUE(ok);
  EXPECT_EQ(ok->bytes().size(), 5U);
  EXPECT_EQ(MappedFile::open(file("empty", "")).error().code, ErrorCode::kBadFile);
  EXPECT_EQ(MappedFile::open((dir_ / "none").string()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open(dir_.string()).error().code, ErrorCode::kBadFile);
  EXPECT_EQ(MappedFile::open("/dev/zero").error().code, ErrorCode::kBadFile);
  const auto fifo = (dir_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(fifo).error().code, ErrorCode::kBadFile);  // and does not hang
}

TEST_F(FileTest, DroppedPagesReadBack) {
  const std::string content(1 << 20, 'x');
  const auto f = MappedFile::open(file("big", content));
  ASSERT_TRUE(f);
  f->drop(f->bytes());
  EXPECT_EQ(static_cast<char>(f->bytes()[12345]), 'x');
}

TEST_F(FileTest, ReadFileKeepsItsLimit) {
  EXPECT_EQ(*read_file(file("b", "data"), 4), "data");
  EXPECT_EQ(read_file(file("c", "12345"), 4).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace barg::base_test
