// A run as a whole: which rules, which model, what is reported.
#include "conform/run.h"

#include <gtest/gtest.h>

#include "conform/fake_server.h"
#include "conform/look.h"

namespace barg::conform::run_test {
namespace {

using testing::Asked;
using testing::FakeServer;
using testing::Knobs;
using testing::Reply;

Options options_for(const std::string& url) { return {.target = *parse_target(url), .model = "", .metrics = {}}; }

TEST(ConformRun, RulesAreChosenByNameOrGroup) {
  EXPECT_EQ(choose_rules({"chat.finish_once"})->size(), 1U);
  EXPECT_GT(choose_rules({"sse", "chat.finish_once"})->size(), 5U);
  EXPECT_GT(choose_rules({})->size(), 100U);
  const auto bad = choose_rules({"chat", "chat.no_such"});
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("chat.no_such"), std::string::npos);
}

TEST(ConformRun, TheModelIsFoundOrDemanded) {
  const FakeServer server;
  EXPECT_EQ(run_conform(options_for(server.url()), *choose_rules({"http.health"}))->model, "fake");
  Knobs knobs;
  knobs.edit = [](const Asked& q, Reply& r) {
    if (q.path == "/v1/models") r.pieces = {R"({"object":"list","data":[]})"};
  };
  const FakeServer empty(std::move(knobs));
  const auto none = run_conform(options_for(empty.url()), *choose_rules({"http.health"}));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kBadFile);
  Options named = options_for(empty.url());
  named.model = "fake";
  EXPECT_TRUE(run_conform(named, *choose_rules({"chat.answer"}))->holds());
}

TEST(ConformRun, NobodyThere) {
  std::string url;
  {
    const FakeServer gone;
    url = gone.url();
  }
  const auto report = run_conform(options_for(url), *choose_rules({}));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUnavailable);
}

TEST(ConformRun, ExchangesAreShared) {
  const FakeServer server;
  ASSERT_TRUE(run_conform(options_for(server.url()), *choose_rules({"chat", "usage", "sse"})));
  EXPECT_LT(server.requests(), 20);
}

TEST(ConformRun, ReportsNameEveryRule) {
  Knobs knobs;
  knobs.absent = {"/v1/responses"};
  knobs.edit = [](const Asked& q, Reply& r) {
    if (q.path == "/health") r.status = 500;
  };
  const FakeServer server(std::move(knobs));
  const auto report =
      run_conform(options_for(server.url()), *choose_rules({"http.health", "http.models", "responses.keys"}));
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->holds());
  const std::string table = report_table(*report);
  EXPECT_NE(table.find("FAIL http.health"), std::string::npos) << table;
  EXPECT_NE(table.find("pass http.models"), std::string::npos) << table;
  EXPECT_NE(table.find("n/a  responses.keys"), std::string::npos) << table;
  EXPECT_NE(table.find("1 hold, 1 fail, 1 do not apply"), std::string::npos) << table;
  const Json json = *parse_json(report_json(*report, server.url()));
  EXPECT_EQ(int_at(json, "version"), 1);
  EXPECT_EQ(text_at(json, "server"), "fake/1");
  ASSERT_EQ(list_at(json, "rules").size(), 3U);
  EXPECT_EQ(text_at(json, "rules.0.verdict"), "fail");
  EXPECT_EQ(text_at(json, "rules.2.verdict"), "not_applicable");
  EXPECT_FALSE(text_at(json, "rules.0.reason").empty());
}

TEST(ConformRun, TheListSaysWhy) {
  const std::string list = rule_list();
  for (const RuleGroup* group : rule_groups()) {
    for (const Rule& rule : group->rules) {
      EXPECT_NE(list.find(std::string(rule.name) + " "), std::string::npos) << rule.name;
      EXPECT_NE(list.find(rule.reason), std::string::npos) << rule.name;
    }
  }
}

// A server that answers everything with the same nonsense ends the run, in time, with findings and no crash.
TEST(ConformRun, NonsenseIsSurvived) {
  for (const char* nonsense :
       {"", "null", "[]", "{}", "{\"choices\":[null,5,{}],\"data\":[1]}", "\xff\xfe", "data: {}\n\n",
        "data: [DONE]\n\n", "data: {\"choices\":[{\"delta\":5,\"index\":-3}]}\n\n"}) {
    for (const bool stream : {false, true}) {
      Knobs knobs;
      knobs.gauges = false;
      knobs.edit = [nonsense, stream](const Asked& q, Reply& r) {
        if (q.path == "/v1/models") return;
        r.status = 200;
        r.stream = stream;
        r.pieces = {nonsense};
        if (stream && r.pieces[0].empty()) r.pieces.clear();
      };
      const FakeServer server(std::move(knobs));
      Options options = options_for(server.url());
      options.disconnect_s = 0.1;
      options.timeout_s = 5;
      const auto report = run_conform(options, *choose_rules({}));
      ASSERT_TRUE(report) << nonsense;
      EXPECT_FALSE(report->holds()) << nonsense;
    }
  }
}

}  // namespace
}  // namespace barg::conform::run_test
