#include "store/redis_tier.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <utility>

#include "base/check.h"
#include "store/redis_hub.h"
#include "store/redis_link.h"
#include "store/redis_ops.h"

namespace barg::store {
namespace {

constexpr std::size_t kProbeKeys = 512;  // of one operation

using IoContext = boost::asio::io_context;

class RedisTier final : public Tier {
 public:
  RedisTier(const RedisOptions& options, RedisUrl url, const Domain& domain, TlsContext tls)
      : name_(url.name()), hub_(options, std::move(url), domain, std::move(tls)) {
    for (std::int32_t i = 0; i < std::min(options.threads, options.connections); ++i) {
      // Without the hint that one thread runs it: with it, what a handler posts to its own context may be
      // overtaken by what others post later, and the connections rely on the order of what the hub tells
      // them.
      contexts_.push_back(std::make_shared<IoContext>());
      guards_.emplace_back(contexts_.back()->get_executor());
    }
    std::vector<std::shared_ptr<RedisLink>> links;
    for (std::size_t i = 0; i < static_cast<std::size_t>(options.connections); ++i) {
      links.push_back(std::make_shared<RedisLink>(hub_, i, contexts_[i % contexts_.size()]));
    }
    hub_.attach(std::move(links), contexts_[0]);
    for (const auto& io : contexts_) {
      threads_.emplace_back([io] {
        pthread_setname_np(pthread_self(), "barg-redis");
        io->run();
      });
    }
  }

  ~RedisTier() override {
    hub_.close();
    guards_.clear();  // each run() returns when what close() posted is done: nothing in it waits
    threads_.clear();
  }

  TierKind kind() const override { return TierKind::kRemote; }
  const std::string& name() const override { return name_; }
  bool up() const override { return hub_.up(); }

  void find(std::span<const Key> keys, std::span<Presence> out) override {
    CHECK(keys.size() == out.size());
    for (std::size_t i = 0; i < keys.size(); ++i) out[i] = hub_.presence(keys[i]);
  }

  void probe(std::vector<Key> keys, double deadline,
             std::function<void(std::vector<Presence>)> done) override {
    std::vector<Presence> known(keys.size());
    find(keys, known);
    std::vector<std::vector<RedisProbe::Question>> parts(1);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (known[i] != Presence::kUnknown) continue;
      if (parts.back().size() == kProbeKeys) parts.emplace_back();
      parts.back().push_back({keys[i], i});
    }
    if (parts.back().empty()) {
      boost::asio::post(*contexts_[0], [known = std::move(known), done = std::move(done)] { done(known); });
      return;
    }
    const auto batch = std::make_shared<ProbeBatch>(std::move(known), parts.size(), std::move(done));
    std::vector<RedisOpPtr> ops;
    for (auto& part : parts)
      ops.push_back(std::make_shared<RedisProbe>(hub_, batch, std::move(part), deadline));
    hub_.submit(std::move(ops));
  }

  void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) override {
    const auto batch = std::make_shared<const RedisBatch>(std::move(report), hub_.now());
    std::vector<RedisOpPtr> ops;
    hub_.began_gets(items.size());
    for (const GetItem& item : items) {
      check(item.key, item.to);
      ops.push_back(std::make_shared<RedisGet>(hub_, batch, ticket, item, deadline));
      if (item.to.kind != MemoryKind::kHost) refuse_device(ops);
    }
    hub_.submit(std::move(ops));
  }

  void put(Ticket ticket, std::vector<PutItem> items, ReportFn report) override {
    const auto batch = std::make_shared<const RedisBatch>(std::move(report), hub_.now());
    std::vector<RedisOpPtr> ops;
    for (const PutItem& item : items) {
      check(item.key, item.from);
      Status why = Status::kOk;
      const bool admitted = hub_.admit_write(item.from.length, &why);
      ops.push_back(std::make_shared<RedisPut>(hub_, batch, ticket, item, admitted));
      if (!admitted) {
        end_soon(ops, why);
      } else if (item.from.kind != MemoryKind::kHost) {
        refuse_device(ops);
      }
    }
    hub_.submit(std::move(ops));
  }

  void cancel(Ticket ticket) override { hub_.cancel(ticket); }

  void erase(std::span<const Key> keys) override {
    hint(keys, [this](const Key& k) {
      return hub_.forget_own(k) ? removal(hub_.domain().root, k, part_bytes(k)) : std::vector<std::string>{};
    });
  }

  void touch(std::span<const Key> keys) override {
    hint(keys, [this](const Key& k) {
      return hub_.refresh_due(k) ? renewal(hub_.domain().root, k, part_bytes(k), hub_.ttl_s())
                                 : std::vector<std::string>{};
    });
  }

  bool flush(double deadline) override { return hub_.flush(deadline); }
  TierStats stats() const override { return hub_.stats(); }

 private:
  std::uint64_t part_bytes(const Key& key) const {
    CHECK(key.part < hub_.domain().part_bytes.size());
    return hub_.domain().part_bytes[key.part];
  }
  void check(const Key& key, const Memory& memory) const { CHECK(memory.length == part_bytes(key)); }

  /// The operation just added is not queued but ends on an io thread.
  void end_soon(std::vector<RedisOpPtr>& ops, Status status) {
    boost::asio::post(*contexts_[0], [op = std::move(ops.back()), status] { op->end(status); });
    ops.pop_back();
  }
  void refuse_device(std::vector<RedisOpPtr>& ops) {
    hub_.remember_error("the memory of a device cannot be sent from here");
    end_soon(ops, Status::kIoError);
  }

  template <class F>
  void hint(std::span<const Key> keys, F commands_of) {
    std::vector<std::string> commands;
    for (const Key& k : keys) {
      for (std::string& c : commands_of(k)) commands.push_back(std::move(c));
    }
    if (commands.empty()) return;
    std::vector<RedisOpPtr> ops;
    ops.push_back(std::make_shared<RedisHint>(std::move(commands)));
    hub_.submit(std::move(ops));
  }

  const std::string name_;
  RedisHub hub_;
  std::vector<std::shared_ptr<IoContext>> contexts_;
  std::vector<boost::asio::executor_work_guard<IoContext::executor_type>> guards_;
  std::vector<std::jthread> threads_;
};

std::unexpected<Error> bad_option(const std::string& what) {
  return fail(ErrorCode::kInvalidValue, "redis tier: " + what);
}

}  // namespace

Result<std::unique_ptr<Tier>> make_redis_tier(const RedisOptions& o, const Domain& domain) {
  CHECK(o.clock != nullptr);
  auto url = parse_redis_url(o.url);
  if (!url) return std::unexpected(url.error());
  if (o.connections < 1 || o.connections > 64) return bad_option("connections must be 1 to 64");
  if (o.threads < 1 || o.threads > 16) return bad_option("threads must be 1 to 16");
  if (!(o.op_timeout_s > 0) || !(o.connect_timeout_s >= 0)) return bad_option("timeouts must be positive");
  if (!(o.ttl_s == 0 || (o.ttl_s >= 1 && o.ttl_s <= 1e9)))
    return bad_option("ttl must be 0 or 1 second to 1e9");
  if (o.max_inflight_bytes == 0 || o.max_failures < 1) return bad_option("limits must be positive");
  if (!(o.min_pause_s > 0) || !(o.max_pause_s >= o.min_pause_s)) return bad_option("pauses must be positive");
  for (const std::uint64_t bytes : domain.part_bytes) {
    if (bytes == 0 || bytes > kMaxPartBytes) return bad_option("a part must have 1 byte to 2 GiB");
  }
  TlsContext tls;
  if (url->tls) {
    auto made = make_tls_context({o.ca_file, o.cert_file, o.key_file, o.tls_verify});
    if (!made) return std::unexpected(made.error());
    tls = std::move(*made);
  } else if (!o.ca_file.empty() || !o.cert_file.empty()) {
    return bad_option("certificates are given, but the URL does not begin with rediss://");
  }
  return std::make_unique<RedisTier>(o, std::move(*url), domain, std::move(tls));
}

}  // namespace barg::store
