// Routes, keys, hosts, answers of the small endpoints, and metrics, through a real server.
#include "server/routes.h"

#include <set>

#include "server/metrics_text.h"
#include "test_server.h"

namespace barg::test::routes_test {
namespace {

class RoutesTest : public ServerTest {};

TEST_F(RoutesTest, ModelsAnswerToEveryName) {
  start();
  EXPECT_EQ(ask(get("/v1/models/fake")).json().find("id")->as_string(), "fake");
  for (const char* id : {"org/fake-alias", "org%2Ffake-alias", "org%2ffake%2Dalias"}) {
    const RawResponse r = ask(get("/v1/models/" + std::string(id)));
    EXPECT_EQ(r.status, 200) << id;
    EXPECT_EQ(r.json().find("root")->as_string(), "fake");
    EXPECT_EQ(r.json().find("max_model_len")->as_int(), 1024);
  }
  for (const char* id : {"nope", "%00", "%zz", "fake%", "..%2f..%2fetc", "fake/"}) {
    const RawResponse r = ask(get("/v1/models/" + std::string(id)));
    EXPECT_EQ(r.status, 404) << id;
    EXPECT_EQ(r.error("code"), "model_not_found");
  }
}

TEST_F(RoutesTest, UnknownUrlsAreJson404) {
  start();
  for (const char* path : {"/", "//v1/models", "/v1/../admin", "/V1/models", "/v1/models;x", "/%2e%2e/livez",
                           "/health%00", "/admin", "/v1/models/../../health/"}) {
    const RawResponse r = ask(get(path));
    EXPECT_EQ(r.status, 404) << path;
    EXPECT_TRUE(r.error("code") == "unknown_url" || r.error("code") == "model_not_found") << path;
  }
  EXPECT_EQ(ask(get("/metrics?" + std::string(1 << 20, 'x'))).status, 414);
}

TEST_F(RoutesTest, KeysGuardEverythingButProbes) {
  options_.api_key = {"sk-one", "sk-two"};
  start();
  for (const char* open : {"/health", "/livez", "/readyz"}) EXPECT_EQ(ask(get(open)).status, 200) << open;
  for (const char* path : {"/v1/models", "/version", "/metrics", "/nowhere", "//health", "/health/",
                           "/%68ealth", "/v1/models/fake"}) {
    const RawResponse r = ask(get(path));
    EXPECT_EQ(r.status, 401) << path;
    EXPECT_EQ(r.error("type"), "authentication_error");
    EXPECT_EQ(r.error("code"), "invalid_api_key");
    EXPECT_TRUE(r.headers.contains("www-authenticate"));
  }
  for (const char* bad :
       {"Authorization: Bearer sk-three\r\n", "Authorization: Basic sk-one\r\n", "Authorization: sk-one\r\n",
        "x-api-key: sk\r\n", "Authorization: Bearer sk-one\r\nAuthorization: Bearer sk-one\r\n",
        "Authorization: Bearer sk-one,Bearer sk-two\r\n", "Authorization: Bearer\r\n", "x-api-key:\r\n",
        "Authorization: Bearer sk-one\x01\r\n"}) {
    EXPECT_GE(ask(get("/v1/models", bad)).status, 400) << bad;
  }
  for (const char* good :
       {"Authorization: Bearer sk-one\r\n", "authorization: bearer sk-two\r\n", "x-api-key: sk-two\r\n",
        "Authorization: Bearer sk-one\r\nx-api-key: sk-one\r\n"}) {
    EXPECT_EQ(ask(get("/v1/models", good)).status, 200) << good;
  }
  EXPECT_EQ(ask(post("/v1/chat/completions", chat())).status, 401);
}

TEST_F(RoutesTest, LoopbackAnswersToLocalNamesOnly) {
  start();
  const auto with = [&](const std::string& host, const std::string& more = "") {
    return ask("GET /version HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n").status;
  };
  for (const char* host : {"localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:99", "[::1]:8"})
    EXPECT_EQ(with(host), 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.1"})
    EXPECT_EQ(with(host), 403) << host;
  EXPECT_EQ(with("localhost", "Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(with("localhost", "Origin: null\r\n"), 403);
  EXPECT_EQ(with("localhost", "Origin: http://localhost:3000\r\n"), 200);
}

TEST_F(RoutesTest, ContentIsCheckedBeforeTheBody) {
  start();
  const auto with = [&](const std::string& fields) {
    return ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n" + fields + "\r\n{}")
        .status;
  };
  EXPECT_EQ(with("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(with("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(with("Content-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(with("Content-Type: application/json; charset=utf-8\r\n"), 400);
  EXPECT_EQ(with(""), 400);
  EXPECT_EQ(ask(get("/version", "Upgrade: websocket\r\nConnection: Upgrade\r\n")).status, 400);
  EXPECT_EQ(ask(get("/version", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n")).status, 200);
}

TEST_F(RoutesTest, TokenizeAndBack) {
  start();
  const Json t = ask(post("/tokenize", R"({"prompt":"hi<|end|>"})")).json();
  EXPECT_EQ(*t.find("tokens"), *parse_json("[257,104,105,256]"));
  EXPECT_EQ(*ask(post("/tokenize", R"({"prompt":"hi","add_special_tokens":false})")).json().find("tokens"),
            *parse_json("[104,105]"));
  EXPECT_EQ(ask(post("/detokenize", R"({"tokens":[104,105,256]})")).json().find("prompt")->as_string(),
            "hi<|end|>");
  EXPECT_EQ(ask(post("/detokenize", R"({"tokens":[267]})")).error("param"), "tokens[0]");
  EXPECT_EQ(ask(post("/tokenize", "{}")).error("param"), "prompt");
  EXPECT_EQ(ask(post("/tokenize", "{")).status, 400);
}

TEST_F(RoutesTest, MetricsTextIsWellFormedAndMoves) {
  start();
  ask(post("/v1/chat/completions", chat()));
  ask(get("/nowhere"));
  book_->wait(2);
  const std::string text = ask(get("/metrics")).body;
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"fake\",engine=\"0\"} 0\n",
        "# TYPE vllm:kv_cache_usage_perc gauge\n",
        "vllm:cache_config_info{model_name=\"fake\",engine=\"0\",block_size=\"16\",num_gpu_blocks=\"64\"} "
        "1\n",
        "vllm:request_success_total{model_name=\"fake\",engine=\"0\",finished_reason=\"stop\"} 1\n",
        "# TYPE vllm:iteration_tokens_total histogram\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"fake\",engine=\"0\",le=\"+Inf\"} 0\n",
        "http_requests_total{method=\"POST\",status=\"200\",handler=\"/v1/chat/completions\"} 1\n",
        "http_requests_total{method=\"GET\",status=\"404\",handler=\"-\"} 1\n",
        "barg_kv_waste_ratio{model_name=\"fake\",engine=\"0\",cause=\"tail\"} 0\n",
        "process_start_time_seconds 1", "barg_build_info{"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  std::set<std::string> seen;
  std::string last_family;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# TYPE ")) {
      last_family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(last_family).second) << "family twice: " << last_family;
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(last_family)) << line;
    }
  }
}

TEST_F(RoutesTest, MetricsOfTiersAreThereWhenTiersAre) {
  start();
  EXPECT_EQ(ask(get("/metrics")).body.find("barg_kv_tier_"), std::string::npos);
  TierMetrics t;
  t.on = true;
  auto& disk = t.stack.kinds[static_cast<std::size_t>(store::TierKind::kDisk)];
  disk.queries = 10;
  disk.hits = 4;
  disk.evictions = 8;
  disk.rereads = 2;
  disk.writes = 4;
  disk.useful_writes = 1;
  t.stack.tiers.push_back({.name = "disk:/a\"b", .kind = store::TierKind::kDisk, .stats = {}});
  t.stack.dropped[static_cast<std::size_t>(store::DropReason::kBudget)] = 5;
  t.stack.verify_ok = 7;
  t.stack.late = 1;
  t.restore.late_events = 2;
  t.restore.plans = {1, 2, 3};
  t.restore.regret[2] = 6;
  t.cached_tokens = {11, 12, 13, 14};
  engine_->set_tiers(t);
  const std::string text = ask(get("/metrics")).body;
  const std::string model = "{model_name=\"fake\",engine=\"0\"";
  for (const std::string& line : {
           "barg_kv_tier_queries_total" + model + ",tier=\"disk\"} 10\n",
           "barg_kv_tier_hits_total" + model + ",tier=\"disk\"} 4\n",
           "barg_kv_reread_ratio" + model + ",tier=\"disk\"} 0.25\n",
           "barg_kv_useful_write_ratio" + model + ",tier=\"disk\"} 0.25\n",
           "barg_kv_store_dropped_total" + model + ",reason=\"budget\"} 5\n",
           "barg_kv_verify_total" + model + ",result=\"ok\"} 7\n",
           "barg_kv_late_completions_total" + model + "} 3\n",
           "barg_kv_restore_plans_total" + model + ",choice=\"recompute\"} 1\n",
           "barg_kv_restore_plans_total" + model + ",choice=\"both\"} 3\n",
           "barg_kv_restore_regret_ratio_bucket" + model + ",le=\"1.1\"} 6\n",
           "barg_prompt_tokens_cached_total" + model + ",tier=\"device\"} 11\n",
           "barg_prompt_tokens_cached_total" + model + ",tier=\"remote\"} 14\n",
           "barg_kv_store_up" + model + ",name=\"disk:/a\\\"b\"} 1\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(text.find("barg_kv_tier_up" + model + ",tier=\"dram\"}"), std::string::npos) << "a tier that is not there";
}

TEST(Routes, LabelsAreEscaped) { EXPECT_EQ(server::escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd"); }

TEST(Routes, TableIsClean) {
  std::set<std::string> rows;
  for (const server::Route& r : server::routes()) {
    EXPECT_TRUE(rows.insert(std::string(r.method) + std::string(r.pattern)).second);
    EXPECT_TRUE(!r.open || r.method == "GET");
  }
}

}  // namespace
}  // namespace barg::test::routes_test
