// `barg serve`: opens a model and answers HTTP until it is told to stop.
#include <sys/resource.h>

#include <mutex>
#include <optional>
#include <ostream>

#include "base/json.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/listen_probe.h"
#include "cli/signals.h"
#include "cli/startup_log.h"
#include "server/server.h"

namespace barg::cli {
namespace {

log::Level level_of(const std::string& name) {
  for (const auto& [text, level] : {std::pair{"trace", log::Level::kTrace},
                                    {"debug", log::Level::kDebug},
                                    {"warn", log::Level::kWarn},
                                    {"error", log::Level::kError}}) {
    if (name == text) return level;
  }
  return log::Level::kInfo;
}

std::string base_url(const ServerOptions& options, std::uint16_t port) {
  std::string host = options.host == "0.0.0.0" ? "127.0.0.1" : options.host == "::" ? "::1" : options.host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return "http://" + host + ":" + std::to_string(port);
}

// In single quotes for a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A line that answers when it is pasted into a shell beside the server.
std::string curl_line(const Bundle& bundle, const Config& config, std::uint16_t port) {
  Json body = Json::object({{"model", bundle.names[0]}});
  const bool embeds = bundle.engine->info().embedding.size > 0;
  const bool chat = !embeds && bundle.chat_template->has_template();
  if (embeds) {
    body.set("input", "Leaves are green");
  } else if (chat) {
    body.set("messages",
             Json(Json::Array{Json::object({{"role", "user"}, {"content", "Why are leaves green?"}})}));
  } else {
    body.set("prompt", "Leaves are green because");
  }
  if (!embeds) {
    body.set("max_tokens", 64);
    body.set("temperature", 0);  // a small model at its default of 1 tells stories
  }
  std::string line = "curl " + base_url(config.server, port) +
                     (embeds ? "/v1/embeddings" : chat ? "/v1/chat/completions" : "/v1/completions");
  if (!config.server.api_key.empty()) line += " -H \"Authorization: Bearer $BARG_API_KEY\"";
  return line + " -H 'Content-Type: application/json' -d " + shell_quoted(dump_json(body));
}

void announce_settings(StartupLog& startup, const Settings& settings) {
  const std::vector<std::string> changes = describe_changes(settings);
  startup.phase("config", changes.empty() ? "all defaults"
                          : changes.size() == 1
                              ? "one value is not the default:"
                              : std::to_string(changes.size()) + " values are not defaults:");
  for (const std::string& change : changes) startup.note("setting", change);
  for (const std::string& warning : settings.warnings) startup.note("warning", warning);
}

int failed(Io& io, const Error& error, int code) {
  io.err << "error: " << error.message << std::endl;
  return code;
}

/// Every connection is a descriptor, and the usual soft limit of 1,024 is for programs that call select().
void raise_descriptor_limit(StartupLog& startup, const ServerOptions& options) {
  constexpr rlim_t kOwnFiles = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur >= static_cast<rlim_t>(options.max_connections) + kOwnFiles) return;
  startup.note("warning", "the limit of open files (" + std::to_string(limit.rlim_cur) + ") is below what " +
                              std::to_string(options.max_connections) + " connections need; see ulimit -n");
}

/// Shuts the server down when the device is lost, whichever is there first.
class DeviceWatch {
 public:
  /// Any thread.
  void lost(const Error& why) {
    std::lock_guard lock(mutex_);
    lost_ = why;
    if (server_ != nullptr) server_->shutdown();
  }
  void watch(server::Server* server) {
    std::lock_guard lock(mutex_);
    server_ = server;
    if (lost_ && server_ != nullptr) server_->shutdown();
  }
  std::optional<Error> why() const {
    std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> lost_;         // guarded by mutex_
  server::Server* server_ = nullptr;  // guarded by mutex_
};

int run_serve(Invocation& invocation) {
  Io& io = invocation.io;
  const Config& config = invocation.settings.config;
  const BuildFacts facts = build_facts();
  log::configure(level_of(config.log.level), config.log.format == "json");
  StartupLog startup(io, config.log.format == "json");
  SignalWatch signals;
  startup.note("barg", facts.version + " (" + facts.git + ", " + facts.compiler + ", " + facts.build + ")");
  announce_settings(startup, invocation.settings);
  raise_descriptor_limit(startup, config.server);

  if (const Result<void> free = probe_listen(config.server.host, config.server.port); !free) {
    return failed(io, free.error(), kExitCannotCreate);
  }
  DeviceWatch device;
  LoadWatch watch;
  watch.lost = [&device](const Error& why) { device.lost(why); };
  watch.done = [&](std::string_view phase, const std::string& detail) {
    startup.release();
    phase == "note" || phase == "warning" ? startup.note(phase, detail) : startup.phase(phase, detail);
  };
  watch.progress = [&](double share) { startup.progress(share); };
  Result<Bundle> bundle = open_bundle(config, watch, invocation.settings.state_directory, invocation.open_device);
  if (!bundle)
    return failed(io, bundle.error(),
                  bundle.error().param == "model.path" ? kExitUsage : exit_code_of(bundle.error()));

  server::ServerExtras extras;
  extras.progress = [&](const std::string& phase) { log::info("shutdown", {{"phase", phase}}); };
  const auto server = server::Server::start(config.server, {served_model(*bundle)},
                                            {.version = facts.version, .git = facts.git}, extras);
  if (!server)
    return failed(io, server.error(),
                  server.error().code == ErrorCode::kIo ? kExitCannotCreate : kExitBadConfig);
  signals.arm([&] { (*server)->shutdown(); }, [&] { (*server)->cut(); });
  const std::uint16_t port = (*server)->port();
  startup.phase("listen",
                base_url(config.server, port) +
                    (config.server.api_key.empty() ? ", no API key asked for" : ", an API key is asked for"));
  startup.ready(curl_line(*bundle, config, port));
  device.watch(server->get());
  (*server)->wait();
  device.watch(nullptr);
  signals.arm([] {}, [] {});  // the server is about to go; what is left takes milliseconds
  const std::optional<Error> why = device.why();
  if (!why) return kExitOk;
  // A device that hangs holds whoever gives its memory back: nobody does. The process is about to end.
  static_cast<void>(new Bundle(std::move(*bundle)));
  return failed(io, *why, kExitDeviceLost);
}

}  // namespace

const Command kServeCommand{
    .name = "serve",
    .summary = "serve a model over the OpenAI API",
    .arguments = "[MODEL]",
    .max_arguments = 1,
    .model_argument = true,
    .sections = "model kv scheduler runtime server log",
    .run = run_serve,
    .details =
        "SIGTERM or Ctrl-C lets running requests finish (--shutdown-timeout); a second one cuts them."};

}  // namespace barg::cli
