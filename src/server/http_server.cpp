#include "server/http_server.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/http_session.h"

namespace barg::server {
namespace {

constexpr auto kAcceptRetry =
    std::chrono::milliseconds(50);  // out of file descriptors: wait for some to close

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const ServerOptions& options, HttpHandler& handler)
      : shared_(std::make_shared<HttpShared>(options, handler)) {
    for (int i = 0; i < std::max(1, options.io_threads); ++i) io_.push_back(std::make_shared<IoThread>());
    acceptor_ = std::make_unique<tcp::acceptor>(io_[0]->context);
    retry_ = std::make_unique<asio::steady_timer>(io_[0]->context);
  }
  ~HttpServerImpl() override { stop(); }

  Result<void> listen();
  void run();

  std::uint16_t port() const override { return port_; }
  HttpGauges gauges() const override;
  void drain() override;
  void interrupt() override;
  bool wait_idle(double seconds) override;
  void stop() override;

 private:
  void accept();
  void on_accept(error_code ec, tcp::socket socket, const std::shared_ptr<IoThread>& io);
  template <class F>
  void each_session(F function);

  std::shared_ptr<HttpShared> shared_;
  std::vector<std::shared_ptr<IoThread>> io_;
  std::unique_ptr<tcp::acceptor> acceptor_;
  std::unique_ptr<asio::steady_timer> retry_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::jthread> threads_;
  std::size_t next_ = 0;  ///< io thread of the next connection
  std::uint16_t port_ = 0;
};

Result<void> HttpServerImpl::listen() {
  const ServerOptions& options = shared_->options;
  const std::string where = options.host + ":" + std::to_string(options.port);
  error_code ec;
  tcp::endpoint endpoint;
  if (const auto address = asio::ip::make_address(options.host, ec); !ec) {
    endpoint = {address, options.port};
  } else {
    tcp::resolver resolver(io_[0]->context);
    const auto found =
        resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, ec);
    if (ec || found.empty())
      return fail(ErrorCode::kInvalidValue, "cannot resolve the address " + options.host, "server.host");
    endpoint = *found.begin();
  }
  acceptor_->open(endpoint.protocol(), ec);
  if (!ec) acceptor_->set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_->bind(endpoint, ec);
  if (!ec) acceptor_->listen(1024, ec);
  if (ec) return fail(ErrorCode::kIo, "cannot listen on " + where + ": " + ec.message(), "server.port");
  port_ = acceptor_->local_endpoint(ec).port();
  return {};
}

void HttpServerImpl::run() {
  accept();
  for (const auto& io : io_) {
    work_.emplace_back(io->context.get_executor());
    threads_.emplace_back([io] {
      pthread_setname_np(pthread_self(), "barg-io");
      io->context.run();
    });
  }
}

void HttpServerImpl::accept() {
  const auto io = io_[next_++ % io_.size()];
  acceptor_->async_accept(
      io->context, [this, io](error_code ec, tcp::socket socket) { on_accept(ec, std::move(socket), io); });
}

void HttpServerImpl::on_accept(error_code ec, tcp::socket socket, const std::shared_ptr<IoThread>& io) {
  if (ec == asio::error::operation_aborted || !acceptor_->is_open()) return;
  if (ec) {
    log::warn("accept_failed", {{"error", ec.message()}});
    retry_->expires_after(kAcceptRetry);
    retry_->async_wait([this](error_code e) {
      if (!e) accept();
    });
    return;
  }
  ++shared_->accepted;
  const auto open = shared_->open.load();
  if (open < 2 * static_cast<std::int64_t>(shared_->options.max_connections)) {
    auto session = std::make_shared<Session>(shared_, io, std::move(socket));
    const bool fits = open < shared_->options.max_connections;
    asio::post(io->context, [session, fits] { fits ? session->start() : session->start_refused(); });
  }
  accept();
}

HttpGauges HttpServerImpl::gauges() const {
  return {.open_connections = shared_->open,
          .active_requests = shared_->active,
          .accepted = shared_->accepted,
          .refused_connections = shared_->refused,
          .write_stalls = shared_->stalls,
          .disconnects = shared_->disconnects};
}

template <class F>
void HttpServerImpl::each_session(F function) {
  for (const auto& io : io_) {
    asio::post(io->context, [io, function] {
      std::vector<std::shared_ptr<Session>> sessions;  // functions may close them
      for (Session* s : io->sessions) sessions.push_back(s->shared_from_this());
      for (const auto& s : sessions) function(*s);
    });
  }
}

void HttpServerImpl::drain() {
  shared_->draining = true;
  each_session([](Session& s) { s.drain(); });
}

void HttpServerImpl::interrupt() {
  shared_->draining = true;
  each_session([](Session& s) { s.interrupt_for_shutdown(); });
}

bool HttpServerImpl::wait_idle(double seconds) {
  std::unique_lock lock(shared_->mutex);
  return shared_->idle.wait_for(lock, std::chrono::duration<double>(seconds),
                                [&] { return shared_->active == 0; });
}

void HttpServerImpl::stop() {
  if (threads_.empty()) return;
  shared_->stopping = true;
  asio::post(io_[0]->context, [this] {
    error_code ec;
    acceptor_->close(ec);
    retry_->cancel();
  });
  each_session([](Session& s) { s.close("server_shutdown"); });
  work_.clear();     // the threads return when the last callback has run
  threads_.clear();  // joins
  for (const auto& io : io_) {
    io->stop();
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const ServerOptions& options, HttpHandler& handler) {
  auto server = std::make_unique<HttpServerImpl>(options, handler);
  if (auto ok = server->listen(); !ok) return std::unexpected(ok.error());
  server->run();
  return server;
}

}  // namespace barg::server
