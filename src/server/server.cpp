#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/hash.h"
#include "base/log.h"
#include "server/access_log.h"
#include "server/routes.h"
#include "server/server_state.h"

namespace barg::server {
namespace {

constexpr std::size_t kPoolThreads = 2, kPoolQueue = 1024, kTextPoolQueue = 256, kCompileQueue = 64;
constexpr std::size_t kFingerprintDigits = 10;
constexpr double kCutSeconds = 2;     ///< for error events to reach the sockets after a cut
constexpr double kEngineSeconds = 5;  ///< for the engines to give the final events of cancelled requests

std::string fingerprint(const BuildInfo& build, const EngineInfo& info) {
  const std::string all = build.version + "\n" + info.numerics_id + "\n" + info.model_digest;
  return "fp_" + hex(sha256(all.data(), all.size())).substr(0, kFingerprintDigits);
}

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerOptions& options, std::vector<ServedModel> models, BuildInfo build,
             ServerExtras extras)
      : state_(std::make_shared<ServerState>()), extras_(std::move(extras)) {
    state_->options = options;
    state_->build = std::move(build);
    state_->models = std::move(models);
  }
  ~ServerImpl() override {
    cut();
    wait();
  }

  Result<void> start();
  std::uint16_t port() const override { return http_->port(); }
  void shutdown() override { request(Want::kDrain); }
  void cut() override { request(Want::kCut); }
  void wait() override;

 private:
  enum class Want : std::uint8_t { kServe, kDrain, kCut };

  void request(Want want);
  bool cut_wanted();
  void wait_idle_or_cut(double seconds);
  void report(const char* phase) {
    if (extras_.progress) extras_.progress(phase);
  }

  std::shared_ptr<ServerState> state_;
  ServerExtras extras_;
  std::unique_ptr<HttpHandler> routes_;
  std::unique_ptr<HttpServer> http_;
  std::mutex mutex_;
  std::condition_variable wanted_;
  Want want_ = Want::kServe;  // guarded by mutex_; only grows
  bool stopped_ = false;      // wait()'s thread
};

Result<void> ServerImpl::start() {
  for (ServedModel& model : state_->models) {
    if (model.names.empty() || !model.engine || !model.tokenizer) {
      return fail(ErrorCode::kInvalidValue, "a served model needs a name, an engine and a tokenizer");
    }
    if (model.fingerprint.empty()) model.fingerprint = fingerprint(state_->build, model.engine->info());
    for (const std::string& name : model.names) {
      if (!state_->by_name.emplace(name, &model).second) {
        return fail(ErrorCode::kInvalidValue, "two models are served as " + json_quote(name),
                    "model.served_model_name");
      }
    }
  }
  if (state_->models.empty()) return fail(ErrorCode::kInvalidValue, "there is no model to serve");
  const std::string& host = state_->options.host;
  state_->loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  state_->started_unix_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  state_->pool = std::make_unique<CpuPool>(kPoolThreads, kPoolQueue);
  state_->text_pool = std::make_unique<CpuPool>(1, kTextPoolQueue);
  state_->compile_pool = std::make_unique<CpuPool>(1, kCompileQueue);
  state_->responses =
      std::make_unique<ResponseStore>(ResponseStoreLimits{.bytes = state_->options.responses_store_bytes,
                                                          .ttl_s = state_->options.responses_store_ttl_s},
                                      state_->clock);
  state_->captures = std::make_unique<CaptureRing>(state_->options.capture_memory_bytes);
  state_->retries = std::make_unique<Idempotency>(
      Idempotency::Options{.memory_bytes = state_->options.idempotency_memory_bytes,
                           .ttl_s = state_->options.idempotency_ttl_s});
  routes_ = make_routes(state_, extras_.access ? extras_.access : log_access);
  auto http = HttpServer::start(state_->options, *routes_);
  if (!http) return std::unexpected(http.error());
  http_ = std::move(*http);
  state_->listener = http_.get();
  return {};
}

void ServerImpl::request(Want want) {
  {
    const std::lock_guard lock(mutex_);
    want_ = std::max(want_, want);
  }
  if (want != Want::kServe) state_->draining = true;
  wanted_.notify_all();
}

bool ServerImpl::cut_wanted() {
  const std::lock_guard lock(mutex_);
  return want_ == Want::kCut;
}

void ServerImpl::wait_idle_or_cut(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!cut_wanted() && std::chrono::steady_clock::now() < deadline) {
    if (http_->wait_idle(0.05)) return;
  }
}

void ServerImpl::wait() {
  if (stopped_ || !http_) return;
  {
    std::unique_lock lock(mutex_);
    wanted_.wait(lock, [&] { return want_ != Want::kServe; });
  }
  report("draining");
  for (const ServedModel& model : state_->models) model.engine->drain();
  http_->drain();
  wait_idle_or_cut(state_->options.shutdown_timeout_s);
  if (!http_->wait_idle(0)) {
    report("cut");
    http_->interrupt();
    http_->wait_idle(kCutSeconds);
  }
  state_->responses->cancel_all();  // what runs in the background: nobody can read it any more
  state_->retries->stop();
  state_->pool->stop();
  state_->text_pool->stop();
  state_->compile_pool->stop();
  state_->generations.wait_none(kEngineSeconds);
  http_->stop();
  state_->listener = nullptr;
  stopped_ = true;
  report("stopped");
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, std::vector<ServedModel> models,
                                              BuildInfo build, ServerExtras extras) {
  auto server = std::make_unique<ServerImpl>(options, std::move(models), std::move(build), std::move(extras));
  if (auto ok = server->start(); !ok) return std::unexpected(ok.error());
  return server;
}

}  // namespace barg::server
