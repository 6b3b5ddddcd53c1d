// The log-probabilities of a message are those of the tokens that make its text, whatever else the model wrote and
// however it is cut.
#include <gtest/gtest.h>

#include <map>

#include "base/env.h"
#include "base/utf8.h"
#include "fake_engine.h"
#include "server/response_stream.h"
#include "server/responses_extras.h"
#include "text/dialect.h"

namespace barg::server::responses_logprobs_test {
namespace {

using test::bytes_of;
using test::kCall;
using test::kCallEnd;
using test::kEnd;
using test::kThink;
using test::kThinkEnd;

using Ids = std::vector<TokenId>;
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const test::FakeTokenizer kTokenizer;
const Ids kCallOfF = Ids{kCall} + bytes_of(R"({"name": "f", "arguments": {"a": "b c"}})") + Ids{kCallEnd};

std::shared_ptr<const text::BoundDialect> hermes() {
  static const auto dialect = text::bind_dialect(
      {.dialect = text::find_dialect("hermes"), .reasoning = {.open = "<think>", .close = "</think>"}, .evidence = ""},
      kTokenizer);
  return dialect;
}

/// An answer's bytes; seed 0: token by token.
std::string play(const Ids& ids, bool stream, std::uint64_t seed, bool show_reasoning) {
  OutputSpec spec;
  spec.api = Api::kResponses;
  spec.stream = stream;
  spec.logprobs = 1;
  spec.reasoning.show = show_reasoning;
  spec.tools.tools = {{.name = "f", .description = "", .parameters = nullptr}};
  const auto extras = std::make_shared<ResponsesExtras>();
  extras->object.set("tools", Json::array());
  spec.extras = extras;
  ResponseStream answer({.id = "resp_0123456789abcdef01234567", .model = "m", .fingerprint = "f", .created = 1}, spec, 1,
                        {PromptInfo{.ids = bytes_of("hey"), .text = {}}}, kTokenizer, hermes());
  std::string out = answer.begin();
  Rng rng(seed);
  for (std::size_t at = 0; at < ids.size();) {
    TokenEvent e;
    for (std::uint64_t n = seed == 0 ? 1 : 1 + rng.below(seed % 3 == 0 ? 200 : 4); n > 0 && at < ids.size(); --n, ++at)
      e.tokens.push_back({.id = ids[at], .logprobs = test::FakeEngine::logprobs_of(ids[at], 1)});
    if (at == ids.size()) {
      e.finish = ids.back() == kEnd ? FinishReason::kStop : FinishReason::kLength;
      if (ids.back() == kEnd) e.stop_token = kEnd;
    }
    answer.push(0, std::move(e), out);
  }
  return stream ? out : answer.body();
}

std::string joined(const Json& entries) {
  std::string out;
  for (const Json& entry : entries.as_array()) {
    for (const Json& byte : entry.find("bytes")->as_array()) out += static_cast<char>(byte.as_int());
  }
  return repair_utf8(out);
}

/// The messages of a response, "text=bytes of its entries".
std::vector<std::string> messages(const Json& response) {
  std::vector<std::string> out;
  for (const Json& item : response.find("output")->as_array()) {
    if (item.find("type")->as_string() != "message") continue;
    const Json& part = item.find("content")->as_array()[0];
    out.push_back(part.find("text")->as_string() + "=" + joined(*part.find("logprobs")));
  }
  return out;
}

/// Checks that deltas have what their message has at the end, and returns the last response.
Json read_stream(const std::string& bytes) {
  std::map<std::int64_t, Json> deltas;
  Json last;
  for (std::size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("\ndata: ", at)) {
    at = bytes.find('{', at);
    const Json event = *parse_json(std::string_view(bytes).substr(at, bytes.find('\n', at) - at));
    const std::string& type = event.find("type")->as_string();
    const Json* index = event.find("output_index");
    if (type == "response.output_text.delta") {
      Json& all = deltas.try_emplace(index->as_int(), Json::array()).first->second;
      for (const Json& entry : event.find("logprobs")->as_array()) all.push(entry);
    } else if (type == "response.output_text.done") {
      EXPECT_EQ(dump_json(deltas.try_emplace(index->as_int(), Json::array()).first->second),
                dump_json(*event.find("logprobs")));
    } else if (type == "response.completed" || type == "response.incomplete") {
      last = *event.find("response");
    }
  }
  return last;
}

void expect_own_text(const Ids& ids, const std::vector<std::string>& want, bool show = true) {
  const std::string whole = play(ids, false, 0, show);
  std::vector<std::string> got = messages(*parse_json(whole));
  for (const std::string& message : got)
    EXPECT_EQ(message.substr(0, message.size() / 2), message.substr(message.size() / 2 + 1));
  if (!want.empty()) {
    for (std::string& message : got) message.resize(message.size() / 2);
    EXPECT_EQ(got, want);
  }
  for (std::uint64_t seed = 0; seed <= 20; ++seed) {
    EXPECT_EQ(play(ids, false, seed, show), whole) << seed;
    const Json streamed = read_stream(play(ids, true, seed, show));
    EXPECT_EQ(dump_json(*streamed.find("output")), dump_json(*parse_json(whole)->find("output"))) << seed;
  }
}

TEST(ResponsesLogprobs, ReasoningCallsAndLayoutHaveNone) {
  const Ids thought = Ids{kThink} + bytes_of("\nhm\n") + Ids{kThinkEnd};
  const Ids ids = thought + bytes_of("\n\n Hi there\n") + kCallOfF + bytes_of("\nBye \xC3\xA9") + Ids{kEnd};
  for (const bool show : {true, false}) expect_own_text(ids, {" Hi there", "Bye \xC3\xA9"}, show);
  expect_own_text(thought + bytes_of("\n\nYes") + Ids{kEnd}, {"Yes"});
  expect_own_text(kCallOfF + Ids{kEnd}, {});
  expect_own_text(thought + bytes_of("\n \n") + kCallOfF + bytes_of("x") + Ids{kEnd}, {"x"});
}

TEST(ResponsesLogprobs, ACallThatIsNoneIsTextWithItsMarkers) {
  const Ids broken = Ids{kCall} + bytes_of("{\"name\": 5") + Ids{kCallEnd};
  expect_own_text(bytes_of("so ") + broken + bytes_of(" on") + Ids{kEnd},
                  {"so <tool_call>{\"name\": 5 on"});
}

TEST(ResponsesLogprobs, TokensOfSeveralBytes) {
  const Ids ids = bytes_of("a <b ") + Ids{test::kEmojiHead, test::kEmojiTail, test::kHello, test::kWorld, test::kHalf,
                                          0x9F, 0x98, 0x80};
  expect_own_text(ids + Ids{kEnd}, {"a <b \xF0\x9F\x98\x80Hello worldD\xF0\x9F\x98\x80"});
}

TEST(ResponsesLogprobs, Random) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    Ids ids;
    for (std::uint64_t parts = 1 + rng.below(6); parts > 0; --parts) {
      const std::uint64_t what = rng.below(8);
      if (what == 0) ids = ids + Ids{kThink} + bytes_of("\nhm <b> \xC3\xA9\n") + Ids{kThinkEnd};
      if (what == 1) ids = ids + kCallOfF;
      if (what == 2) ids = ids + Ids{kCall} + bytes_of("{\"nam") + Ids{kCallEnd};
      if (what == 3) ids = ids + bytes_of("text with \xF0\x9F\x98\x80 and <tool_call> typed");
      if (what == 4) ids = ids + Ids{test::kEmojiHead, test::kEmojiTail, test::kHello};
      if (what == 5) ids = ids + bytes_of("\n\n ");
      if (what == 6) ids = ids + Ids{kThinkEnd, kCallEnd};
      if (what == 7) ids = ids + Ids{kCall} + bytes_of(R"({"name": "f", "arguments": {"a": tru)");
    }
    ids.push_back(kEnd);
    if (rng.below(3) == 0) ids.resize(1 + rng.below(ids.size()));
    expect_own_text(ids, {}, rng.below(2) == 0);
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

}  // namespace
}  // namespace barg::server::responses_logprobs_test
