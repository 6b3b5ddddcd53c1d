#include "bench/serve_loop.h"

#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>

#include "bench/serve_connection.h"

namespace barg::bench {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTick = kSecond / 10;       // progress, time-outs, the stop flag
constexpr std::int64_t kGraceAfterDone = kSecond;  // [DONE] was said but the message does not end

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class LoadLoop {
 public:
  LoadLoop(const ServeOptions& options, const ServeAddress& address, const ServeLoad& load,
           const Workload& workload, std::uint64_t first, const ServeHooks& hooks)
      : options_(options), address_(address), load_(load), workload_(workload), first_(first), hooks_(hooks),
        epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        buffer_(256 << 10) {
    plan();
    const ServeTarget& target = options.target;
    const bool ipv6 = target.host.find(':') != std::string::npos;
    head_ = "POST " + target.base_path +
            (options.body.api == ServeApi::kChat ? "/v1/chat/completions" : "/v1/completions") +
            " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port +
            "\r\nUser-Agent: barg-bench\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n";
    if (!target.api_key.empty()) head_ += "Authorization: Bearer " + target.api_key + "\r\n";
    head_ += "Content-Length: ";
  }

  Result<RunSamples> run() {
    if (epoll_.get() < 0 || timer_.get() < 0) return fail(ErrorCode::kIo, "no file descriptor is left.");
    watch(EPOLL_CTL_ADD, timer_.get(), EPOLLIN);
    const double cpu_before = thread_cpu_s();
    start_ = steady_ns();
    std::vector<epoll_event> events(256);
    while (true) {
      launch();
      if (in_flight_ == 0 && ready_.empty() && delayed_.empty() && !more_to_start()) break;
      if (stopping()) break;
      set_timer();
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < count; ++i) dispatch(events[static_cast<std::size_t>(i)]);
      graveyard_.clear();
      if (now() - last_tick_ >= kTick) tick();
    }
    samples_.cpu_s = thread_cpu_s() - cpu_before;
    samples_.wall_s = static_cast<double>(now()) * 1e-9;
    samples_.started = start_;
    samples_.cancelled = in_flight_ + static_cast<std::int64_t>(delayed_.size());
    return std::move(samples_);
  }

 private:
  std::int64_t now() const { return steady_ns() - start_; }

  // How many conversations, and when they arrive.
  void plan() {
    const std::int64_t turns = workload_.turns();
    std::optional<std::int64_t> count;
    if (load_.requests) count = (*load_.requests + turns - 1) / turns;
    if (workload_.size()) {
      const auto size = static_cast<std::int64_t>(*workload_.size());
      count = count ? std::min(*count, size) : size;
    }
    if (load_.kind == ServeLoad::Kind::kOpen) {
      arrivals_ = arrivals(load_.rate, load_.burstiness, count, load_.duration_s, options_.workload.seed + first_);
      count = static_cast<std::int64_t>(arrivals_.size());
    } else if (load_.kind == ServeLoad::Kind::kTrace) {
      for (std::int64_t i = 0; i < count.value_or(0); ++i) {
        const double at = workload_.arrival(static_cast<std::uint64_t>(i)).value_or(0);
        if (load_.duration_s && at > *load_.duration_s) break;
        arrivals_.push_back(at);
      }
      count = static_cast<std::int64_t>(arrivals_.size());
    }
    conversations_ = count;
    if (count) samples_.requests.reserve(static_cast<std::size_t>(*count * turns));
  }

  bool closed() const { return load_.kind == ServeLoad::Kind::kClosed; }

  bool time_is_up() const { return load_.duration_s && static_cast<double>(now()) >= *load_.duration_s * 1e9; }

  // Arrivals of an open loop end by themselves.
  bool more_to_start() const {
    if (samples_.interrupted) return false;
    if (conversations_ && started_ >= *conversations_) return false;
    return !closed() || !time_is_up();
  }

  std::int64_t due(std::int64_t conversation) const {
    return static_cast<std::int64_t>(arrivals_[static_cast<std::size_t>(conversation)] * 1e9);
  }

  // Sends everything whose time has come.
  void launch() {
    for (std::unique_ptr<ServeJob>& job : std::exchange(ready_, {})) dispatch_job(std::move(job));
    while (!delayed_.empty() && delayed_.front()->not_before <= now()) {
      std::unique_ptr<ServeJob> job = std::move(delayed_.front());
      delayed_.pop_front();
      dispatch_job(std::move(job));
    }
    while (more_to_start()) {
      if (closed() ? live_ >= load_.concurrency : due(started_) > now()) break;
      const std::int64_t intended = closed() ? -1 : due(started_);
      auto job = std::make_unique<ServeJob>();
      job->sample.conversation = first_ + static_cast<std::uint64_t>(started_);
      ++started_;
      ++live_;
      prepare(*job, 0);
      // A closed loop has no plan: the request is due when it is ready.
      job->sample.intended = intended < 0 ? now() : intended;
      dispatch_job(std::move(job));
    }
  }

  void prepare(ServeJob& job, int turn) {
    ServePrompt prompt = workload_.prompt(job.sample.conversation, turn);
    job.sample.turn = turn;
    job.sample.input_asked = prompt.input_length;
    job.sample.output_asked = prompt.output_length;
    job.messages.push_back({.from_user = true, .text = std::move(prompt.text)});
    const std::string body =
        request_body(options_.body, job.messages, options_.workload.token_ids, prompt.output_length);
    job.bytes = head_ + std::to_string(body.size()) + "\r\n\r\n" + body;
    if (workload_.turns() == 1) job.messages.clear();
  }

  void dispatch_job(std::unique_ptr<ServeJob> job) {
    ++in_flight_;
    const std::int64_t at = now();
    if (job->sample.retries == 0 && !job->resent) job->sample.sent = at;
    const bool reuse = !idle_.empty() && !job->resent;  // what is idle may be closed as well
    ServeConnection* connection = reuse ? idle_.back() : open_connection();
    if (reuse) idle_.pop_back();
    connection->give(std::move(job), workload_.turns() > 1, at);
    connection->flush();
    if (connection->state() == ServeConnection::State::kClosed) return ended(*connection, now());
    arm(*connection);
  }

  ServeConnection* open_connection() {
    auto owned = std::make_unique<ServeConnection>(address_);
    ServeConnection* connection = owned.get();
    ++samples_.connections;
    if (connection->fd() >= 0) watch(EPOLL_CTL_ADD, connection->fd(), EPOLLIN | EPOLLOUT, connection);
    connections_.emplace(connection, std::move(owned));
    return connection;
  }

  void watch(int operation, int fd, std::uint32_t events, void* pointer = nullptr) const {
    epoll_event event{};
    event.events = events;
    event.data.ptr = pointer;
    epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void arm(ServeConnection& connection) const {
    if (connection.armed_write == connection.wants_write()) return;
    connection.armed_write = connection.wants_write();
    const std::uint32_t events = connection.armed_write ? EPOLLIN | EPOLLOUT : EPOLLIN;
    watch(EPOLL_CTL_MOD, connection.fd(), events, &connection);
  }

  void dispatch(const epoll_event& event) {
    if (event.data.ptr == nullptr) {
      std::uint64_t expirations = 0;
      [[maybe_unused]] const ssize_t n = read(timer_.get(), &expirations, sizeof expirations);
      return;
    }
    auto& connection = *static_cast<ServeConnection*>(event.data.ptr);
    if (!connections_.contains(&connection)) return;  // closed earlier in this batch
    switch (connection.on_event(event.events, [this] { return now(); }, buffer_)) {
      case ServeConnection::Event::kNothing:
        return arm(connection);
      case ServeConnection::Event::kComplete:
      case ServeConnection::Event::kClosed:
        return ended(connection, now());
    }
  }

  // The exchange on this connection is over, well or not.
  void ended(ServeConnection& connection, std::int64_t at) {
    const bool was_idle = connection.job() == nullptr;
    std::unique_ptr<ServeJob> job = connection.take();
    if (!was_idle) {
      --in_flight_;
      settle(connection, std::move(job), at);
    }
    if (connection.state() == ServeConnection::State::kClosed) {
      bury(connection);
    } else {
      idle_.push_back(&connection);
      arm(connection);
    }
  }

  void bury(ServeConnection& connection) {
    std::erase(idle_, &connection);
    const auto it = connections_.find(&connection);
    graveyard_.push_back(std::move(it->second));  // events of this batch may still point to it
    connections_.erase(it);
  }

  void settle(ServeConnection& connection, std::unique_ptr<ServeJob> job, std::int64_t at) {
    AnswerFacts& facts = connection.answer().facts();
    const bool complete = connection.answer().state() == ServeAnswer::State::kDone;
    RequestSample& sample = job->sample;
    if (!complete && !facts.got_bytes && connection.used_before() && !job->resent) {
      job->resent = true;
      ++samples_.reconnects;
      ready_.push_back(std::move(job));
      return;
    }
    samples_.pieces += facts.stamps.size();
    sample.status = facts.status;
    sample.done = facts.done > 0 ? facts.done : at;
    if (facts.status == 429 || facts.status == 503) {
      ++samples_.rate_limited;
      if (complete && sample.retries < options_.retries) return retry(std::move(job), facts.retry_after_s, at);
    }
    explain(sample, connection, complete);
    sample.stamps = std::move(facts.stamps);
    sample.counted = std::move(facts.counted);
    sample.prompt_tokens = facts.prompt_tokens;
    sample.completion_tokens = facts.completion_tokens;
    sample.cached_tokens = facts.cached_tokens;
    finish(std::move(job), std::move(facts.text));
  }

  void retry(std::unique_ptr<ServeJob> job, double after_s, std::int64_t at) {
    ++job->sample.retries;
    job->not_before = at + static_cast<std::int64_t>(std::clamp(after_s, 0.1, 3600.0) * 1e9);
    const auto place = std::find_if(delayed_.begin(), delayed_.end(),
                                    [&](const auto& other) { return other->not_before > job->not_before; });
    delayed_.insert(place, std::move(job));
  }

  // Sets the error of a request that was not answered.
  static void explain(RequestSample& sample, ServeConnection& connection, bool complete) {
    const AnswerFacts& facts = connection.answer().facts();
    sample.detail = facts.detail;
    if (connection.connect_error() != 0) {
      sample.error = connection.connect_error() == ECONNREFUSED ? "connect_refused" : "connect_failed";
      sample.detail = std::strerror(connection.connect_error());
    } else if (!facts.error.empty()) {
      sample.error = facts.error;
    } else if (!complete) {
      sample.error = "connection_lost";
      if (sample.detail.empty()) sample.detail = "the server closed the connection without an answer.";
    } else if (facts.status != 200) {
      sample.error = "http_" + std::to_string(facts.status);
    } else if (facts.stamps.empty()) {
      sample.error = "no_tokens";
      sample.detail = "the stream ended without any text.";
    } else if (!facts.saw_done && !facts.saw_finish) {
      sample.error = "cut_short";
      sample.detail = "the stream ended without a finish reason or [DONE].";
    }
  }

  void finish(std::unique_ptr<ServeJob> job, std::string text) {
    const bool ok = job->sample.ok();
    const std::string error = job->sample.error;
    const std::uint64_t conversation = job->sample.conversation;
    const int turn = job->sample.turn + 1;
    ++(ok ? answered_ : failed_);
    samples_.requests.push_back(std::move(job->sample));
    if (ok && turn < workload_.turns() && !samples_.interrupted && !time_is_up()) {
      auto next = std::make_unique<ServeJob>();
      next->sample.conversation = conversation;
      next->messages = std::move(job->messages);
      next->messages.push_back({.from_user = false, .text = std::move(text)});
      prepare(*next, turn);
      next->sample.intended = now();
      ready_.push_back(std::move(next));
    } else {
      --live_;
    }
    unreachable_ = error.starts_with("connect_") ? unreachable_ + 1 : 0;
    if (unreachable_ >= std::max(20, 2 * (closed() ? load_.concurrency : 0))) {
      samples_.server_gone = samples_.interrupted = true;
    }
  }

  bool stopping() {
    if (hooks_.stop != nullptr && hooks_.stop->load(std::memory_order_relaxed)) samples_.interrupted = true;
    return samples_.interrupted;
  }

  void tick() {
    last_tick_ = now();
    std::vector<ServeConnection*> late;
    for (const auto& [connection, owned] : connections_) {
      if (connection->job() == nullptr) continue;
      const AnswerFacts& facts = connection->answer().facts();
      const bool said_all = facts.saw_done && last_tick_ - facts.done > kGraceAfterDone;
      if (said_all || static_cast<double>(last_tick_ - connection->last_activity()) > options_.timeout_s * 1e9)
        late.push_back(connection);
    }
    for (ServeConnection* connection : late) give_up(*connection);
    graveyard_.clear();
    if (hooks_.progress) report();
  }

  void give_up(ServeConnection& connection) {
    connection.abandon(last_tick_);
    ended(connection, last_tick_);
  }

  void report() const {
    ServeProgress progress{.elapsed_s = static_cast<double>(now()) * 1e-9,
                           .answered = answered_,
                           .failed = failed_,
                           .in_flight = in_flight_,
                           .pieces = samples_.pieces,
                           .total = conversations_,
                           .duration_s = load_.duration_s};
    if (progress.total) *progress.total *= workload_.turns();
    for (const auto& [connection, owned] : connections_)
      progress.pieces += connection->job() != nullptr ? connection->answer().facts().stamps.size() : 0;
    hooks_.progress(progress);
  }

  void set_timer() {
    std::int64_t next = last_tick_ + kTick;
    if (!closed() && more_to_start()) next = std::min(next, due(started_));
    if (!delayed_.empty()) next = std::min(next, delayed_.front()->not_before);
    if (next == armed_timer_) return;
    armed_timer_ = next;
    const std::int64_t at = start_ + std::max<std::int64_t>(next, 1);
    itimerspec spec{};
    spec.it_value.tv_sec = at / kSecond;
    spec.it_value.tv_nsec = at % kSecond;
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
  }

  const ServeOptions& options_;
  const ServeAddress& address_;
  const ServeLoad& load_;
  const Workload& workload_;
  const std::uint64_t first_;
  const ServeHooks& hooks_;
  Descriptor epoll_;
  Descriptor timer_;
  std::vector<char> buffer_;
  std::string head_;
  std::vector<double> arrivals_;                // of an open loop or a trace
  std::optional<std::int64_t> conversations_;   // how many to start; nothing: until the time is up
  std::unordered_map<ServeConnection*, std::unique_ptr<ServeConnection>> connections_;
  std::vector<ServeConnection*> idle_;          // the most recently used last
  std::vector<std::unique_ptr<ServeConnection>> graveyard_;
  std::vector<std::unique_ptr<ServeJob>> ready_;   // to send as soon as the events at hand are done
  std::deque<std::unique_ptr<ServeJob>> delayed_;  // retries by time
  RunSamples samples_;
  std::int64_t start_ = 0;
  std::int64_t last_tick_ = 0;
  std::int64_t armed_timer_ = -1;
  std::int64_t started_ = 0;    // conversations
  std::int64_t live_ = 0;       // conversations that are not over
  std::int64_t in_flight_ = 0;  // requests
  std::int64_t answered_ = 0;
  std::int64_t failed_ = 0;
  int unreachable_ = 0;         // connects refused in a row
};

bool accepts(const addrinfo& info) {
  const Descriptor fd(socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return false;
  if (connect(fd.get(), info.ai_addr, info.ai_addrlen) == 0) return true;
  pollfd entry{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  int error = errno;
  socklen_t size = sizeof error;
  return error == EINPROGRESS && poll(&entry, 1, 5000) == 1 &&
         getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool is_loopback(const addrinfo& info) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(info.ai_addr);
  if (info.ai_family == AF_INET) return bytes[4] == 127;  // sin_addr
  static constexpr unsigned char kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return info.ai_family == AF_INET6 && std::memcmp(bytes + 8, kLoopback, 16) == 0;  // sin6_addr
}

}  // namespace

double thread_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

Result<ServeAddress> find_server(const ServeTarget& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); code != 0)
    return fail(ErrorCode::kUnavailable, "cannot find " + target.host + ": " + gai_strerror(code) + ".");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (!accepts(*a)) continue;
    const auto* bytes = reinterpret_cast<const unsigned char*>(a->ai_addr);
    return ServeAddress{.bytes = {bytes, bytes + a->ai_addrlen}, .family = a->ai_family, .local = is_loopback(*a)};
  }
  return fail(ErrorCode::kUnavailable, "nobody answers at " + target.host + ":" + target.port + ".");
}

Result<RunSamples> run_load(const ServeOptions& options, const ServeAddress& address, const ServeLoad& load,
                            const Workload& workload, std::uint64_t first_conversation, const ServeHooks& hooks) {
  return LoadLoop(options, address, load, workload, first_conversation, hooks).run();
}

}  // namespace barg::bench
