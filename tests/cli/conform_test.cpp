// `barg conform` from the outside: flags, exit codes, the file. What the rules say is tested in tests/conform.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "conform/fake_server.h"
#include "support/temp_dir.h"

namespace barg::cli::conform_test {
namespace {

using conform::testing::Asked;
using conform::testing::FakeServer;
using conform::testing::Knobs;
using conform::testing::Reply;

struct Done {
  int code = 0;
  std::string out, err;
};

Done barg(std::vector<std::string> args) {
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  args.insert(args.begin(), "conform");
  const int code = run(args, {}, io);
  return {code, out.str(), err.str()};
}

TEST(Conform, ExitCodesSayWhatCameOfIt) {
  const FakeServer good;
  EXPECT_EQ(barg({good.url(), "--only", "http.models,chat.answer"}).code, kExitOk);
  Knobs knobs;
  knobs.edit = [](const Asked& q, Reply& r) {
    if (q.path == "/health") r.status = 500;
  };
  const FakeServer ill(std::move(knobs));
  const Done done = barg({ill.url(), "--only=http.health"});
  EXPECT_EQ(done.code, kExitFailure) << done.err;
  EXPECT_NE(done.out.find("FAIL"), std::string::npos);
  std::string gone;
  {
    const FakeServer server;
    gone = server.url();
  }
  EXPECT_EQ(barg({gone}).code, kExitUnavailable);
}

TEST(Conform, WrongFlagsAreRefused) {
  const std::vector<std::string> table[] = {
      {},
      {"https://h"},
      {"http://h", "--only", "nothing"},
      {"http://h", "--timeout", "soon"},
      {"http://h", "--disconnect-within", "0"},
      {"http://h", "--metrics-url", "h"},
      {"http://h", "--api-key", "a\nb"},
  };
  for (const auto& args : table) {
    const Done done = barg(args);
    EXPECT_EQ(done.code, kExitUsage) << done.err;
    EXPECT_TRUE(done.err.starts_with("error: ")) << done.err;
  }
  EXPECT_EQ(barg({"http://h", "--json", "/no/such/folder/x.json"}).code, kExitCannotCreate);
}

TEST(Conform, ListAsksNobody) {
  const Done done = barg({"--list"});
  EXPECT_EQ(done.code, kExitOk);
  EXPECT_NE(done.out.find("sse.done"), std::string::npos);
}

TEST(Conform, TheReportIsAFile) {
  const FakeServer server;
  const std::string path = test::scratch().write("conform.json", "");
  ASSERT_EQ(barg({server.url(), "--only", "http.health", "--json", path}).code, kExitOk);
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const auto json = parse_json(text.str());
  ASSERT_TRUE(json) << text.str();
  EXPECT_EQ(json->find("pass")->as_int(), 1);
}

}  // namespace
}  // namespace barg::cli::conform_test
