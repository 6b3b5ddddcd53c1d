// ServerTest: a real Server on a free loopback port over a FakeEngine, and what it logged.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "fake_engine.h"
#include "fake_tokenizer.h"
#include "raw_client.h"
#include "server/server.h"
#include "text/dialect.h"

namespace barg::test {

/// Access records as they are logged.
class AccessBook {
 public:
  void add(const server::AccessRecord& r) {
    {
      const std::lock_guard lock(mutex_);
      records_.push_back(r);
    }
    changed_.notify_all();
  }
  /// Waits until `n` lines are there; returns all of them.
  std::vector<server::AccessRecord> wait(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return records_.size() >= n; });
    return records_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<server::AccessRecord> records_;
};

inline int open_fds() {
  int n = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr) ++n;
  ::closedir(dir);
  return n;
}

class ServerTest : public ::testing::Test {
 protected:
  ServerOptions options_;
  std::shared_ptr<FakeEngine> engine_ = std::make_shared<FakeEngine>();
  std::shared_ptr<FakeTokenizer> tokenizer_ = std::make_shared<FakeTokenizer>();
  std::shared_ptr<const text::BoundDialect> dialect_;
  std::shared_ptr<AccessBook> book_ = std::make_shared<AccessBook>();
  std::unique_ptr<server::Server> server_;

  void start() {
    options_.port = 0;
    server::ServedModel model;
    model.names = {"fake", "org/fake-alias"};
    model.engine = engine_;
    model.tokenizer = tokenizer_;
    model.chat_template = std::make_shared<FakeTemplate>();
    model.dialect = dialect_;
    model.created = 1234;
    auto server = server::Server::start(
        options_, {model}, {"9.9.9", "abcdef"},
        {.access = [book = book_](const server::AccessRecord& r) { book->add(r); }, .progress = {}});
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override {
    if (engine_) engine_->hold(false);
    if (!server_) return;
    server_->cut();
    server_->wait();
  }
  std::uint16_t port() const { return server_->port(); }
  RawResponse ask(std::string_view bytes) { return RawClient(port()).ask(bytes); }
  static std::string chat(std::string_view more = "") {
    return R"({"model":"fake","messages":[{"role":"user","content":"hi"}])" + std::string(more) + "}";
  }
};

}  // namespace barg::test
