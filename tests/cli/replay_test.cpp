// `barg replay` from the outside: a captured answer of a real (tiny) model computed again, exit codes, what is said of
// files that are no capsules and of servers that are not there.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>

#include "base/json.h"
#include "cli/build_info.h"
#include "cli/bundle.h"
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "server/raw_client.h"
#include "server/server.h"
#include "support/data.h"
#include "support/temp_dir.h"

namespace barg::cli::replay_test {
namespace {

struct Done {
  int code = 0;
  std::string out, err;
};

Done replay(std::vector<std::string> args) {
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  args.insert(args.begin(), "replay");
  const int code = run(args, {}, io);
  return {code, out.str(), err.str()};
}

void expect_one_sentence(const Done& done, int code, const std::string& word) {
  EXPECT_EQ(done.code, code) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(done.err.starts_with("error: ")) << done.err;
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  EXPECT_NE(done.err.find(word), std::string::npos) << done.err;
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}])";

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = test::shared_data("models/smollm2");
    Config config;
    config.model.path = model_;
    config.model.tool_dialect = "hermes";
    config.kv.memory_bytes = 4 << 20;
    config.runtime.threads = 1;
    auto bundle = open_bundle(config);
    ASSERT_TRUE(bundle) << bundle.error().message;
    bundle_ = std::move(*bundle);
    ServerOptions options;
    options.port = 0;
    options.api_key = {"key"};
    options.capture_memory_bytes = 8 << 20;
    const BuildFacts build = build_facts();
    auto server = server::Server::start(options, {served_model(bundle_)}, {build.version, build.git}, {});
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override {
    if (!server_) return;
    server_->cut();
    server_->wait();
  }
  /// The capsule's address.
  std::string capture(const std::string& path, const std::string& body) {
    const auto answer = test::RawClient(server_->port()).ask(test::post(path, body, "X-Capture: 1\r\nX-API-Key: key\r\n"));
    EXPECT_TRUE(answer.headers.contains("x-barg-capture")) << answer.body;
    if (!answer.headers.contains("x-barg-capture")) return {};
    return "/v1/captures/" + answer.headers.at("x-barg-capture");
  }
  Json fetch(const std::string& path) {
    return test::RawClient(server_->port()).ask(test::get(path, "X-API-Key: key\r\n")).json();
  }
  std::string url(const std::string& path) { return "http://127.0.0.1:" + std::to_string(server_->port()) + path; }
  std::string file(const Json& capsule) { return dir_.write("capsule.json", dump_json(capsule)); }
  std::vector<std::string> with_model(std::vector<std::string> args) {
    for (const char* more : {"--model", model_.c_str(), "--kv-cache-memory-bytes", "4MiB", "--threads", "1", "--tool-dialect", "hermes"})
      args.emplace_back(more);
    return args;
  }

  std::string model_;
  test::TempDir dir_;
  Bundle bundle_;  // its clock serves the engine
  std::unique_ptr<server::Server> server_;
};

TEST_F(Replay, ComputesTheSameBytesAgain) {
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/completions", R"({"prompt":"Hello","max_tokens":12,"temperature":0.9,"n":2,"logprobs":1})"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":12,"stream":true,)" + kTools + "}"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":12})"},
  };
  for (const auto& [path, body] : requests) {
    const std::string at = capture(path, body);
    const Json capsule = fetch(at);
    const Done done = replay(with_model({file(capsule), "--print"}));
    EXPECT_EQ(done.code, kExitOk) << path << ": " << done.err;
    EXPECT_EQ(done.out, capsule.find("answer")->as_string() + "\n");
    EXPECT_NE(done.err.find("tokens computed again: the same answer, byte for byte\n"), std::string::npos) << done.err;
    EXPECT_EQ(done.err.find("note:"), std::string::npos) << done.err;
  }
  const Done fetched = replay(with_model({url(capture(requests[0].first, requests[0].second)), "--api-key", "key"}));
  EXPECT_EQ(fetched.code, kExitOk) << fetched.err;
  EXPECT_EQ(fetched.out, "") << "the answer is printed when asked for";
}

TEST_F(Replay, ADifferenceIsAFailureWithItsPlaceAndItsReasons) {
  Json capsule = fetch(capture("/v1/completions", R"({"prompt":"Hello","max_tokens":8,"seed":1})"));
  Json* ids = capsule.find("outputs")->as_array()[0].find("ids");
  const std::int64_t was = ids->as_array()[2].as_int();
  ids->as_array()[2] = (was + 1) % 500;
  std::string answer = capsule.find("answer")->as_string();
  capsule.set("answer", answer + " ");
  const Done done = replay(with_model({file(capsule)}));
  EXPECT_EQ(done.code, kExitFailure);
  EXPECT_NE(done.err.find("choice 0 of prompt 0: token 2 was " + std::to_string((was + 1) % 500) + " and is " + std::to_string(was)),
            std::string::npos)
      << done.err;
  EXPECT_NE(done.err.find("note: build, model and settings are those of the capsule"), std::string::npos) << done.err;
  std::vector<std::string> args = with_model({file(capsule), "--numerics", "f32", "--max-model-len", "512"});
  args.back() = "generic";
  const Done other = replay(args);
  EXPECT_EQ(other.code, kExitFailure);
  EXPECT_NE(other.err.find("tool_dialect \"hermes\" then, "), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("max_model_len 1024 then, 512 now"), std::string::npos) << other.err;
}

TEST_F(Replay, BadFilesAreRefusedBeforeAModelIsOpened) {
  const Json capsule = fetch(capture("/v1/completions", R"({"prompt":"Hello","max_tokens":4})"));
  const std::string whole = dump_json(capsule);
  expect_one_sentence(replay({}), kExitUsage, "which capsule?");
  expect_one_sentence(replay({"/no/such/capsule.json"}), kExitFailure, "/no/such/capsule.json");
  expect_one_sentence(replay({dir_.write("c.json", "")}), kExitFailure, "c.json");
  expect_one_sentence(replay({dir_.write("c.json", "\x7f" "ELF")}), kExitFailure, "c.json");
  for (std::size_t part = 1; part < 16; ++part)
    expect_one_sentence(replay({dir_.write("c.json", whole.substr(0, whole.size() * part / 16))}), kExitFailure, "c.json");
  Json other = capsule;
  other.set("version", 3);
  expect_one_sentence(replay({file(other)}), kExitFailure, "version 3, and this version of barg reads version 2");
  other = capsule;
  other.set("mode", "fast");
  expect_one_sentence(replay({file(other)}), kExitFailure, "\"mode\" is unknown");
  other = capsule;
  other.find("outputs")->as_array()[0].set("seed", "7");
  expect_one_sentence(replay({file(other)}), kExitFailure, "\"outputs[0].seed\" is no seed");
  other = capsule;
  other.set("truncated", Json(Json::Array{"answer"}));
  expect_one_sentence(replay({file(other)}), kExitFailure, "truncated");
  expect_one_sentence(replay({file(capsule)}), kExitUsage, "which model?");
  expect_one_sentence(replay({file(capsule), "--model", "/no/such/model"}), kExitFailure, "/no/such/model");
}

TEST_F(Replay, TheServerMayBeGoneOrRefuse) {
  const std::string at = capture("/v1/completions", R"({"prompt":"Hello","max_tokens":4})");
  expect_one_sentence(replay({url(at)}), kExitFailure, "--api-key");
  expect_one_sentence(replay({url(at), "--api-key", "other"}), kExitFailure, "--api-key");
  expect_one_sentence(replay({url(at), "--api-key", "a\nb"}), kExitFailure, "one line");
  expect_one_sentence(replay({url(at + "x"), "--api-key", "key"}), kExitFailure, "no such capture");
  expect_one_sentence(replay({url("/health"), "--api-key", "key"}), kExitFailure, "\"object\" is missing");
  expect_one_sentence(replay({"https://127.0.0.1/v1/captures/x"}), kExitFailure, "http://");
  const std::string gone = url(at);
  server_->cut();
  server_->wait();
  expect_one_sentence(replay({gone, "--api-key", "key"}), kExitUnavailable, "127.0.0.1");
}

}  // namespace
}  // namespace barg::cli::replay_test
