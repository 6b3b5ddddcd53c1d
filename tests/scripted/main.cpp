// barg_scripted_server: the real server, engine, tokenizer, template and dialect over a model that says what
// scripts say (script.h). Only for tests, never installed. `--help` lists its flags; options of `barg serve`
// that concern the server, the scheduler and the template mean the same here. Prints "listening on PORT" when
// it does; SIGTERM ends it as it does `barg serve`, and it dies with its parent.
#include <signal.h>
#include <sys/prctl.h>

#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/args.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/settings.h"
#include "engine/engine_impl.h"
#include "engine/metrics.h"
#include "scripted/scripted_runner.h"
#include "server/server.h"
#include "text/chat_template.h"
#include "text/dialect.h"

namespace barg::test {
namespace {

constexpr std::size_t kMaxFile = 64 << 20;
constexpr std::int32_t kMaxModelLen = 32768, kMaxRows = 8192;

constexpr cli::CommandFlag kFlags[] = {
    {"--tokenizer", "DIR",
     "A folder with tokenizer.json; tokenizer_config.json and generation_config.json are read if there."},
    {"--scripts", "FILE", "What the model says (tests/scripted/script.h)."},
    {"--dialect", "NAME", "How it writes tool calls; otherwise found from the template."},
    {"--reasoning", "OPEN,CLOSE", "The markers of reasoning, or none; otherwise found from the template."},
};

/// eos_token_id, one or a list; empty where the file does not say.
std::vector<TokenId> end_ids(const std::string& path) {
  std::vector<TokenId> out;
  const auto file = read_file(path, kMaxFile);
  const auto json = file ? parse_json(*file) : Result<Json>(Json());
  const Json* ids = json ? json->find("eos_token_id") : nullptr;
  if (!ids) return out;
  for (const Json& id : ids->is_array() ? ids->as_array() : Json::Array{*ids}) {
    if (id.is_integer()) out.push_back(static_cast<TokenId>(id.as_int()));
  }
  return out;
}

Result<VocabData> read_vocab(const std::string& directory) {
  auto tokenizer = read_file(directory + "/tokenizer.json", kMaxFile);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  VocabData out;
  out.tokenizer_json = std::move(*tokenizer);
  if (auto config = read_file(directory + "/tokenizer_config.json", kMaxFile)) {
    out.tokenizer_config_json = std::move(*config);
    if (const auto json = parse_json(out.tokenizer_config_json, {.max_members = 0})) {
      const Json* own = json->find("chat_template");
      if (own && own->is_string()) out.chat_template = own->as_string();
    }
  }
  out.eos_ids = end_ids(directory + "/generation_config.json");
  return out;
}

Result<std::shared_ptr<const text::BoundDialect>> dialect_of(const cli::Invocation& invocation,
                                                             const text::ChatTemplate& chat,
                                                             const Tokenizer& tokenizer) {
  text::DetectedDialect detected = text::detect_dialect(chat.tools_source());
  if (invocation.has("--dialect")) {
    detected.dialect = text::find_dialect(invocation.get("--dialect"));
    if (!detected.dialect)
      return fail(ErrorCode::kInvalidValue, "no dialect is named " + invocation.get("--dialect"));
  }
  if (const std::string markers = invocation.get("--reasoning"); markers == "none") {
    detected.reasoning = {};
  } else if (const std::size_t comma = markers.find(','); comma != markers.npos) {
    detected.reasoning = {.open = markers.substr(0, comma), .close = markers.substr(comma + 1)};
  }
  return text::bind_dialect(detected, tokenizer);
}

struct Served {
  cli::Bundle bundle;
  std::shared_ptr<const text::BoundDialect> dialect;
};

Result<std::unique_ptr<Served>> open(const cli::Invocation& invocation) {
  const Config& config = invocation.settings.config;
  auto out = std::make_unique<Served>();
  cli::Bundle& bundle = out->bundle;
  bundle.names = config.model.served_model_name;
  if (bundle.names.empty()) bundle.names.push_back("scripted");
  const auto vocab = read_vocab(invocation.get("--tokenizer"));
  if (!vocab) return std::unexpected(vocab.error());
  auto tokenizer = make_tokenizer(*vocab);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  bundle.tokenizer = *tokenizer;
  std::string source;
  if (!config.model.chat_template.empty()) {
    auto file = read_file(config.model.chat_template, kMaxFile);
    if (!file) return std::unexpected(file.error());
    source = std::move(*file);
  }
  auto chat = text::ChatTemplate::create(*vocab, bundle.tokenizer.get(), std::move(source));
  if (!chat) return std::unexpected(chat.error());
  bundle.chat_template = *chat;
  auto dialect = dialect_of(invocation, **chat, *bundle.tokenizer);
  if (!dialect) return std::unexpected(dialect.error());
  out->dialect = *dialect;

  const auto json = read_file(invocation.get("--scripts"), kMaxFile);
  if (!json) return std::unexpected(json.error());
  auto scripts = Scripts::read(*json, bundle.tokenizer);
  if (!scripts) return std::unexpected(scripts.error());
  const std::int32_t longest = config.model.max_model_len > 0 ? config.model.max_model_len : kMaxModelLen;
  auto runner = std::make_unique<ScriptedRunner>(
      scripted_info(*bundle.tokenizer, longest, kMaxRows, config.kv.block_size), *scripts);
  bundle.clock = std::make_shared<SteadyClock>();
  auto engine = engine::make_engine(config, std::move(runner), *bundle.clock);
  if (!engine) return std::unexpected(engine.error());
  bundle.engine = std::move(*engine);
  return out;
}

/// REQUIRES SIGTERM and SIGINT blocked in every thread.
std::jthread stop_on_signals(server::Server& server) {
  return std::jthread([&server](const std::stop_token& stop) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    const timespec poll{.tv_sec = 0, .tv_nsec = 20'000'000};
    for (int seen = 0; !stop.stop_requested();) {
      if (sigtimedwait(&set, nullptr, &poll) < 0) continue;
      seen++ == 0 ? server.shutdown() : server.cut();
    }
  });
}

int failed(cli::Io& io, const Error& error) {
  io.err << "error: " << error.message << std::endl;
  return 1;
}

int serve(cli::Invocation& invocation) {
  for (const char* needed : {"--tokenizer", "--scripts"}) {
    if (!invocation.has(needed))
      return failed(invocation.io,
                    Error{ErrorCode::kMissingParameter, std::string(needed) + " is needed", {}, 0});
  }
  const Config& config = invocation.settings.config;
  log::configure(log::Level::kInfo, false);
  auto served = open(invocation);
  if (!served) return failed(invocation.io, served.error());
  server::ServedModel model = cli::served_model((*served)->bundle);
  model.dialect = (*served)->dialect;
  auto server = server::Server::start(config.server, {std::move(model)}, {.version = "0", .git = "scripted"});
  if (!server) return failed(invocation.io, server.error());
  invocation.io.out << "listening on " << (*server)->port() << std::endl;
  const std::jthread signals = stop_on_signals(**server);
  (*server)->wait();
  return 0;
}

constexpr cli::Command kCommand{
    .name = "barg_scripted_server",
    .summary = "serve a model that says what scripts say",
    .sections =
        "model.served_model_name model.max_model_len model.chat_template kv.block_size "
        "kv.enable_prefix_caching scheduler server",
    .flags = kFlags,
    .run = serve,
};

int run(const std::vector<std::string>& words) {
  cli::Io io{std::cin, std::cout, std::cerr};
  cli::ParsedArgs args = cli::parse_args(kCommand, words);
  if (args.help) {
    io.out << cli::command_help(kCommand);
    return 0;
  }
  auto settings =
      cli::load_settings({.file = args.config_file, .environment = {}, .flags = std::move(args.options)});
  if (!settings) args.problems = settings.error().sentences;
  for (const std::string& problem : args.problems) io.err << "error: " << problem << "\n";
  if (!args.problems.empty()) return 2;
  cli::Invocation invocation{io, std::move(*settings), std::move(args.own), std::move(args.positional)};
  return serve(invocation);
}

}  // namespace
}  // namespace barg::test

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // before any thread starts
  signal(SIGPIPE, SIG_IGN);
  return barg::test::run({argv + 1, argv + argc});
}
