// What the tests of the Redis tier share: collected reports, a server that follows a script, and a real
// redis-server on a socket in a temporary directory.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "store/redis_record.h"
#include "store/redis_tier.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

extern char** environ;

namespace barg::test {

using namespace barg::store;

inline const SteadyClock& steady() {
  static const SteadyClock clock;
  return clock;
}

inline Domain test_domain(std::vector<std::uint64_t> part_bytes, std::uint8_t root = 7) {
  Domain d;
  d.root.fill(root);
  d.part_bytes = std::move(part_bytes);
  d.label = "test";
  return d;
}

/// A part whose bytes are a function of its number.
struct TestPart {
  Key key;
  BlockInfo info;
  std::vector<std::byte> bytes;

  TestPart(std::uint64_t number, std::uint32_t part, std::uint64_t length) {
    key.block = sha256(&number, sizeof number);
    key.part = part;
    info.parent.fill(static_cast<std::uint8_t>(number));
    info.depth = static_cast<std::uint32_t>(number);
    info.fingerprint = number * 77;
    bytes.resize(length);
    Rng rng(number + 1);
    for (auto& b : bytes) b = static_cast<std::byte>(rng.next());
  }
};

/// Counts what is reported, by tag.
class Reports {
 public:
  ReportFn fn() {
    return [this](const Report& r) {
      const std::lock_guard lock(mutex_);
      ++times_[r.tag];
      status_[r.tag] = r.status;
      changed_.notify_all();
    };
  }
  /// All tags below n have been reported.
  bool wait(std::size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return times_.size() >= n; });
  }
  Status operator[](std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    return status_.at(tag);
  }
  /// Every tag reported once, so far.
  bool once() {
    const std::lock_guard lock(mutex_);
    for (const auto& [tag, n] : times_) {
      if (n != 1) return false;
    }
    return true;
  }
  std::size_t count(Status s) {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const auto& [tag, status] : status_) n += status == s;
    return n;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, int> times_;
  std::map<std::uint64_t, Status> status_;
};

/// put() of all; what each came to.
inline std::vector<Status> put_all(Tier& tier, const std::vector<TestPart>& parts) {
  Reports reports;
  std::vector<PutItem> items;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto* p = const_cast<std::byte*>(parts[i].bytes.data());
    items.push_back({parts[i].key, parts[i].info, {MemoryKind::kHost, p, parts[i].bytes.size()}, i});
  }
  tier.put(Ticket{1}, items, reports.fn());
  EXPECT_TRUE(reports.wait(parts.size()));
  EXPECT_TRUE(reports.once());
  std::vector<Status> out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.push_back(reports[i]);
  return out;
}

/// get() of all; kOk only with the right bytes.
inline std::vector<Status> get_all(Tier& tier, const std::vector<TestPart>& parts, double deadline = 0) {
  Reports reports;
  std::vector<std::vector<std::byte>> to(parts.size());
  std::vector<GetItem> items;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    to[i].assign(parts[i].bytes.size(), std::byte{0xEE});
    items.push_back({parts[i].key, parts[i].info, {MemoryKind::kHost, to[i].data(), to[i].size()}, i});
  }
  tier.get(Ticket{2}, items, deadline, reports.fn());
  EXPECT_TRUE(reports.wait(parts.size()));
  EXPECT_TRUE(reports.once());
  std::vector<Status> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    out.push_back(reports[i]);
    if (out.back() == Status::kOk) {
      EXPECT_EQ(to[i], parts[i].bytes) << "wrong bytes of part " << i;
    }
  }
  return out;
}

inline std::vector<Presence> probe_all(Tier& tier, const std::vector<TestPart>& parts, double deadline = 0) {
  std::vector<Key> keys;
  for (const TestPart& p : parts) keys.push_back(p.key);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Presence> out;
  int times = 0;
  tier.probe(keys, deadline, [&](std::vector<Presence> answer) {
    const std::lock_guard lock(mutex);
    out = std::move(answer);
    ++times;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return times > 0; }));
  EXPECT_EQ(times, 1);
  return out;
}

inline RedisOptions test_options(std::string url) {
  RedisOptions o;
  o.url = std::move(url);
  o.connect_timeout_s = 10;  // a loaded machine, or one with sanitizers
  o.op_timeout_s = 20;
  o.min_pause_s = 0.01;
  o.max_pause_s = 0.1;
  o.clock = &steady();
  return o;
}

inline std::unique_ptr<Tier> make_tier(const RedisOptions& o, const Domain& d) {
  auto tier = make_redis_tier(o, d);
  if (!tier) {
    ADD_FAILURE() << tier.error().message;
    return nullptr;
  }
  return std::move(*tier);
}

inline bool up(Tier& tier) {
  return eventually([&] { return tier.stats().up; });
}

/// A server of one's own: `talk` is run for each connection, on a thread of its own.
class ScriptedServer {
 public:
  class Peer {
   public:
    explicit Peer(int fd) : fd_(fd) {}
    /// One command, as its words; empty when the client has gone.
    std::vector<std::string> command() {
      const std::string line = until_newline();
      if (line.size() < 2 || line[0] != '*') return {};
      std::vector<std::string> words;
      for (int n = std::stoi(line.substr(1)); n > 0; --n) {
        const std::string size = until_newline();
        if (size.size() < 2) return {};
        words.push_back(exactly(static_cast<std::size_t>(std::stoul(size.substr(1)))));
        exactly(2);
      }
      return words;
    }
    bool send(std::string_view bytes) {
      while (!bytes.empty()) {
        const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(n));
      }
      return true;
    }
    /// PING and whatever else comes before it.
    bool login() {
      while (true) {
        const auto words = command();
        if (words.empty() || !send(words[0] == "PING" ? "+PONG\r\n" : "+OK\r\n")) return false;
        if (words[0] == "PING") return true;
      }
    }
    /// Until the client has gone; whatever it says is dropped.
    void drain() {
      char buffer[4096];
      while (::recv(fd_, buffer, sizeof buffer, 0) > 0) {
      }
    }
    bool wait_input() {
      char c;
      return !in_.empty() || ::recv(fd_, &c, 1, MSG_PEEK) == 1;
    }

   private:
    bool fill() {
      char buffer[65536];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      in_.append(buffer, static_cast<std::size_t>(n));
      return true;
    }
    std::string until_newline() {
      std::size_t at;
      while ((at = in_.find("\r\n")) == std::string::npos) {
        if (!fill()) return {};
      }
      std::string line = in_.substr(0, at);
      in_.erase(0, at + 2);
      return line;
    }
    std::string exactly(std::size_t n) {
      while (in_.size() < n) {
        if (!fill()) return {};
      }
      std::string out = in_.substr(0, n);
      in_.erase(0, n);
      return out;
    }
    int fd_;
    std::string in_;
  };

  explicit ScriptedServer(std::function<void(Peer&)> talk) : talk_(std::move(talk)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::jthread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    }
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    peers_.clear();
    for (const int fd : fds_) ::close(fd);
    ::close(listener_);
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

 private:
  void accept_all() {
    while (true) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      const int one = 1;  // pieces leave when they are sent
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      if (closing_) return;
      peers_.emplace_back([this, fd] {
        Peer peer(fd);
        talk_(peer);
        ::shutdown(fd, SHUT_RDWR);
      });
    }
  }

  std::function<void(Peer&)> talk_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  bool closing_ = false;
  std::vector<int> fds_;
  std::vector<std::jthread> peers_;
  std::jthread acceptor_;
};

/// Runs a program to its end; false unless it returned 0.
inline bool run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int rc = ::posix_spawnp(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 1;
  return rc == 0 && ::waitpid(pid, &status, 0) == pid && status == 0;
}

inline bool have(const char* program) {
  return run_program({program, std::string(program) == "openssl" ? "version" : "--version"});
}

/// Debian's redis-server on a unix socket in a directory of its own (TCP only where a test asks for a port).
class RealRedis {
 public:
  explicit RealRedis(std::vector<std::string> options = {}) : options_(std::move(options)) { start(); }
  ~RealRedis() { stop(); }

  std::string socket_path() const { return dir_.path() + "/s"; }
  std::string url() const { return "unix://" + socket_path(); }
  const std::string& dir() const { return dir_.path(); }

  void start() {
    std::vector<std::string> words = {"redis-server",
                                      "--port",
                                      "0",
                                      "--unixsocket",
                                      socket_path(),
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--dir",
                                      dir_.path(),
                                      "--logfile",
                                      dir_.path() + "/log"};
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    ASSERT_EQ(::posix_spawnp(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    ASSERT_TRUE(eventually([&] {
      const int fd = connect_socket();
      if (fd >= 0) ::close(fd);
      return fd >= 0;
    })) << "redis-server does not answer";
  }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void pause() { ::kill(pid_, SIGSTOP); }
  void resume() { ::kill(pid_, SIGCONT); }

  /// One command by hand; the first 64 KiB of the raw answer.
  std::string command(const std::string& inline_command) {
    const int fd = connect_socket();
    if (fd < 0) return {};
    const std::string line = inline_command + "\r\nPING\r\n";
    std::string out;
    if (::send(fd, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size())) {
      char buffer[65536];
      ssize_t n;
      while (!out.ends_with("+PONG\r\n") && (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0) {
        out.append(buffer, static_cast<std::size_t>(n));
      }
    }
    ::close(fd);
    return out.substr(0, out.rfind("+PONG"));
  }

 private:
  int connect_socket() const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path().c_str(), sizeof address.sun_path - 1);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
  }

  TempDir dir_;
  std::vector<std::string> options_;
  pid_t pid_ = 0;
};

}  // namespace barg::test
