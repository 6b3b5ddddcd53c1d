// Answers with reasoning and calls: whatever the cut of the tokens, streamed or not, one message. Each line of what
// users of other servers reported is named where it is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/env.h"
#include "base/utf8.h"
#include "fake_engine.h"
#include "fake_tokenizer.h"
#include "server/chat_writer.h"
#include "server/response_stream.h"
#include "text/dialect.h"

namespace barg::server::chat_stream_test {
namespace {

using test::bytes_of;
using test::FakeEngine;
using test::kCall;
using test::kCallEnd;
using test::kEnd;
using test::kThink;
using test::kThinkEnd;

const test::FakeTokenizer kTokenizer;

std::shared_ptr<const text::BoundDialect> hermes() {
  static const auto dialect = text::bind_dialect(
      {.dialect = text::find_dialect("hermes"), .reasoning = {.open = "<think>", .close = "</think>"}, .evidence = ""},
      kTokenizer);
  return dialect;
}

using Ids = std::vector<TokenId>;
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Ids call(const std::string& name, const std::string& arguments) {
  return Ids{kCall} + bytes_of("{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}") + Ids{kCallEnd};
}

/// What a client has after reading an answer.
struct Answer {
  Json message = Json::object();
  Json logprobs = Json::array(), ids = Json::array(), extra = Json::object();
  std::string finish;
  Json usage;
  int finishes = 0, chunks = 0;
};

/// openai-python's accumulate_delta, with what it forces checked on the way.
void accumulate(Json& into, const Json& delta) {
  for (const auto& [key, value] : delta.as_object()) {
    EXPECT_FALSE(value.is_number() && key != "index") << key << ": numbers in a delta are added up";
    Json* have = into.find(key);
    if (!have) {
      if (!value.is_array()) {
        into.set(key, value);
        continue;
      }
      have = &into.set(key, Json::array());
    }
    if (key == "index" || key == "type") continue;
    if (value.is_string()) {
      EXPECT_TRUE(key != "role" && key != "id" && key != "name") << key << " came twice";
      *have = (have->is_null() ? std::string() : have->as_string()) + value.as_string();
    } else if (value.is_object()) {
      accumulate(*have, value);
    } else if (value.is_array()) {
      for (const Json& entry : value.as_array()) {
        const auto index = static_cast<std::size_t>(entry.find("index")->as_int());
        ASSERT_LE(index, have->size()) << "indexes are dense and ascend";
        if (index == have->size()) {
          have->push(entry);
        } else {
          accumulate(have->as_array()[index], entry);
        }
      }
    }
  }
}

void take_choice(const Json& choice, Answer& out) {
  ASSERT_NE(choice.find("finish_reason"), nullptr) << "the key is there, null or not";
  if (const Json* lp = choice.find("logprobs"); lp && !lp->is_null()) {
    for (const Json& e : lp->find("content")->as_array()) out.logprobs.push(e);
  }
  if (const Json* ids = choice.find("token_ids")) {
    for (const Json& id : ids->as_array()) out.ids.push(id);
  }
  if (choice.find("finish_reason")->is_null()) return;
  out.finish = choice.find("finish_reason")->as_string();
  ++out.finishes;
  for (const char* key : {"stop_reason", "tool_parse_error", "undeclared_tools", "incomplete_tool_calls"}) {
    if (const Json* v = choice.find(key)) out.extra.set(key, *v);
  }
}

std::vector<Answer> read_stream(const std::string& bytes, std::size_t n) {
  std::vector<Answer> out(n);
  bool first = true, done = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find("\n\n", at);
    const std::string data = bytes.substr(at + 6, end - at - 6);
    at = end + 2;
    EXPECT_FALSE(done);
    done = data == "[DONE]";
    if (done) continue;
    const Json json = *parse_json(data);
    for (const Json& choice : json.find("choices")->as_array()) {
      const auto index = static_cast<std::size_t>(choice.find("index")->as_int());
      EXPECT_TRUE(!first || index == 0) << "the first chunk is of choice 0";
      first = false;
      Answer& answer = out[index];
      EXPECT_EQ(answer.finishes, 0) << "nothing follows the finish";
      ++answer.chunks;
      accumulate(answer.message, *choice.find("delta"));
      take_choice(choice, answer);
      const bool last = answer.finishes > 0;
      EXPECT_TRUE(!last || choice.find("delta")->size() == 0) << "the finish has a chunk of its own";
    }
    if (const Json* usage = json.find("usage"); usage && !usage->is_null()) {
      for (Answer& a : out) a.usage = *usage;
    }
  }
  EXPECT_TRUE(done);
  return out;
}

std::vector<Answer> read_body(const std::string& bytes) {
  std::vector<Answer> out;
  const Json json = *parse_json(bytes);
  for (const Json& choice : json.find("choices")->as_array()) {
    Answer a;
    a.message = *choice.find("message");
    take_choice(choice, a);
    a.usage = *json.find("usage");
    out.push_back(std::move(a));
  }
  return out;
}

struct Scenario {
  OutputSpec spec;
  std::vector<Ids> choices;
  bool natural = true;  ///< false: cut by length
  bool inside_reasoning = false;
};

Scenario with_tools(std::vector<Ids> choices) {
  Scenario s;
  s.choices = std::move(choices);
  s.spec.tools.tools = {{.name = "f", .description = "", .parameters = nullptr},
                        {.name = "g", .description = "", .parameters = nullptr}};
  return s;
}

std::vector<Answer> play(Scenario run, bool stream, std::uint64_t seed) {
  run.spec.stream = run.spec.include_usage = stream;
  const auto n = static_cast<std::int32_t>(run.choices.size());
  ResponseStream rs({.id = "chatcmpl-1", .model = "m", .fingerprint = "f", .created = 1}, run.spec, n,
                    {PromptInfo{.ids = bytes_of("hey"), .text = {}, .inside_reasoning = run.inside_reasoning}},
                    kTokenizer, hermes());
  std::string bytes = rs.begin();
  Rng rng(seed);
  std::vector<std::size_t> at(run.choices.size(), 0);
  std::size_t left = run.choices.size();
  bool complete = false;
  while (left > 0) {
    const std::size_t k = rng.below(run.choices.size());
    const Ids& ids = run.choices[k];
    if (at[k] > ids.size()) continue;
    TokenEvent e;
    e.choice = static_cast<std::int32_t>(k);
    const std::uint64_t most = seed == 0 ? 1 : 1 + rng.below(seed % 3 == 0 ? 200 : 4);
    for (std::uint64_t count = most; count > 0 && at[k] < ids.size(); --count) {
      e.tokens.push_back({.id = ids[at[k]++], .logprobs = std::nullopt});
      if (run.spec.logprobs)
        e.tokens.back().logprobs = FakeEngine::logprobs_of(e.tokens.back().id, *run.spec.logprobs);
    }
    if (at[k] == ids.size()) {
      ++at[k];
      --left;
      e.finish = run.natural ? FinishReason::kStop : FinishReason::kLength;
      if (run.natural) e.stop_token = ids.back();
    }
    complete = rs.push(0, std::move(e), bytes).complete;
  }
  EXPECT_TRUE(complete);
  return stream ? read_stream(bytes, run.choices.size()) : read_body(rs.body());
}

/// Index members are a stream's own.
Json comparable(Json message, bool streamed) {
  if (Json* calls = message.find("tool_calls"); calls && streamed) {
    for (Json& c : calls->as_array())
      std::erase_if(c.as_object(), [](const Json::Member& m) { return m.first == "index"; });
  }
  Json out = Json::object();
  for (const char* key : {"role", "content", "reasoning_content", "reasoning", "tool_calls", "function_call"}) {
    if (const Json* v = message.find(key)) out.set(key, *v);
  }
  return out;
}

/// Of all entries, as a client shows them.
std::string joined_bytes(const Json& entries) {
  std::string out;
  for (const Json& entry : entries.as_array()) {
    for (const Json& byte : entry.find("bytes")->as_array()) out += static_cast<char>(byte.as_int());
  }
  return repair_utf8(out);
}

void expect_same_everywhere(const Scenario& run) {
  const auto want = play(run, false, 0);
  for (const Answer& a : want) {
    const Json& content = *a.message.find("content");
    if (!run.spec.logprobs) continue;
    EXPECT_EQ(joined_bytes(a.logprobs), content.is_null() ? "" : content.as_string()) << "entries are those of the text";
  }
  for (std::uint64_t seed = 0; seed <= 30; ++seed) {
    for (const bool stream : {false, true}) {
      const auto got = play(run, stream, seed);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        const std::string where = "seed " + std::to_string(seed) + (stream ? " streamed" : "");
        EXPECT_EQ(dump_json(comparable(got[i].message, stream)), dump_json(comparable(want[i].message, false))) << where;
        EXPECT_EQ(dump_json(got[i].logprobs), dump_json(want[i].logprobs)) << where;
        EXPECT_EQ(dump_json(got[i].ids), dump_json(want[i].ids)) << where;
        EXPECT_EQ(dump_json(got[i].extra), dump_json(want[i].extra)) << where;
        EXPECT_EQ(dump_json(got[i].usage), dump_json(want[i].usage)) << where;
        EXPECT_EQ(got[i].finish, want[i].finish) << where;
        EXPECT_EQ(got[i].finishes, 1) << where;
      }
    }
  }
}

std::string text_of(const Answer& a, const char* key) {
  const Json* v = a.message.find(key);
  return v && v->is_string() ? v->as_string() : "(none)";
}

TEST(ChatStream, ReasoningTextAndCallsInOneAnswer) {
  const Scenario run = with_tools({Ids{kThink} + bytes_of("let me see") + Ids{kThinkEnd} + bytes_of("I will look. ") +
                                   call("f", R"({"city": "K\u00f6ln", "n": [1, {"a": "}"}]})") + call("g", "{}") + Ids{kEnd}});
  expect_same_everywhere(run);
  const Answer a = play(run, false, 0)[0];
  EXPECT_EQ(text_of(a, "reasoning_content"), "let me see");
  EXPECT_EQ(text_of(a, "reasoning"), "let me see") << "both names: renaming it lost reasoning in clients";
  ASSERT_EQ(a.message.find("tool_calls")->size(), 2U);
  const Json& f = a.message.find("tool_calls")->as_array()[0];
  EXPECT_EQ(f.find("type")->as_string(), "function");
  EXPECT_EQ(f.find("function")->find("name")->as_string(), "f");
  const auto arguments = parse_json(f.find("function")->find("arguments")->as_string());
  ASSERT_TRUE(arguments) << "a JSON string";
  EXPECT_EQ(arguments->find("city")->as_string(), "K\xC3\xB6ln");
  const std::string id = f.find("id")->as_string();
  EXPECT_TRUE(id.starts_with("call_") && id.size() == 29) << id;
  EXPECT_NE(id, a.message.find("tool_calls")->as_array()[1].find("id")->as_string());
  EXPECT_EQ(a.finish, "tool_calls");
  // kThink came outside; ten bytes and the marker that closes came inside.
  EXPECT_EQ(a.usage.find("completion_tokens_details")->find("reasoning_tokens")->as_int(), 11);
}

TEST(ChatStream, OnlyCallsHaveNullContent) {
  for (const bool stream : {false, true}) {
    const auto content = [&](const Ids& ids, bool tools = true) {
      Scenario run = with_tools({ids + Ids{kEnd}});
      if (!tools) run.spec.tools.tools.clear();
      run.spec.return_token_ids = true;  // they come without text, too
      return dump_json(*play(run, stream, 1)[0].message.find("content"));
    };
    EXPECT_EQ(content(call("g", "{}")), "null") << stream;
    EXPECT_EQ(content(Ids{kThink} + bytes_of("hm") + Ids{kThinkEnd} + call("g", "{}")), "null") << stream;
    EXPECT_EQ(content(bytes_of("a") + call("g", "{}")), "\"a\"") << stream;
    EXPECT_EQ(content({}), "\"\"") << "neither text nor call, " << stream;
    EXPECT_EQ(content({}, false), "\"\"") << stream;
    EXPECT_EQ(content(bytes_of("a"), false), "\"a\"") << stream;
  }
}

TEST(ChatStream, RandomAnswers) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    Scenario run = with_tools({});
    const std::size_t n = 1 + rng.below(3);
    for (std::size_t k = 0; k < n; ++k) {
      Ids ids;
      for (std::uint64_t parts = 1 + rng.below(4); parts > 0; --parts) {
        const std::uint64_t what = rng.below(6);
        if (what == 0 && ids.empty()) ids = Ids{kThink} + bytes_of("hm <b> \xC3\xA9") + Ids{kThinkEnd};
        if (what == 1) ids = ids + call(rng.below(3) == 0 ? "unknown" : "f", R"({"a":"x\ny","b":1.50})");
        if (what == 2) ids = ids + Ids{kCall} + bytes_of("{\"name\": 5") + Ids{kCallEnd};
        if (what == 3) ids = ids + bytes_of("text with \xF0\x9F\x98\x80 and <tool_call> typed");
        if (what == 4) ids = ids + Ids{test::kEmojiHead, test::kEmojiTail, test::kHello};
        if (what == 5) ids = ids + call("g", "{}");
      }
      if (ids.empty()) ids = bytes_of("x");
      run.choices.push_back(ids + Ids{kEnd});
    }
    run.natural = rng.below(3) != 0;
    if (!run.natural) {
      for (Ids& ids : run.choices) ids.resize(1 + rng.below(ids.size()));
    }
    if (rng.below(3) != 0) run.spec.logprobs = 2;
    run.spec.return_token_ids = rng.below(2) == 0;
    run.spec.skip_special_tokens = rng.below(4) != 0;
    if (rng.below(3) == 0) run.spec.stop = {"with e", "\"b\""};
    expect_same_everywhere(run);
    if (HasFailure()) {
      ADD_FAILURE() << "scenario " << seed;
      return;
    }
  }
}

// "streamed tool call cut by max_tokens reports tool_calls, the unstreamed one length": both say length.
TEST(ChatStream, CutCallsEndWithLength) {
  Ids ids = call("f", R"({"city":"Berlin"})");
  ids.resize(ids.size() - 6);
  Scenario run = with_tools({ids});
  run.natural = false;
  expect_same_everywhere(run);
  const Answer a = play(run, true, 3)[0];
  EXPECT_EQ(a.finish, "length");
  EXPECT_EQ(a.message.find("tool_calls")->size(), 1U) << "what was there of it is not lost";
  // One complete call before does not make the cut natural.
  Scenario two = with_tools({call("g", "{}") + ids});
  two.natural = false;
  expect_same_everywhere(two);
  EXPECT_EQ(play(two, true, 1)[0].finish, "length");
}

// "stream with tools ends with a null finish_reason", "natural stop never emits stop", "unstreamed always stop even at
// the token limit": one reason for each choice, computed in one place.
TEST(ChatStream, FinishReasons) {
  const auto finish = [](Scenario run) {
    expect_same_everywhere(run);
    return play(run, true, 1)[0].finish;
  };
  EXPECT_EQ(finish(with_tools({bytes_of("no call") + Ids{kEnd}})), "stop");
  EXPECT_EQ(finish(with_tools({call("g", "{}") + Ids{kEnd}})), "tool_calls");
  EXPECT_EQ(finish(with_tools({bytes_of("x") + call("g", "{}") + bytes_of(" and text") + Ids{kEnd}})), "tool_calls");
  Scenario cut = with_tools({bytes_of("text")});
  cut.natural = false;
  EXPECT_EQ(finish(cut), "length");
  Scenario stopped = with_tools({call("g", "{}") + bytes_of("\nEND more") + Ids{kEnd}});
  stopped.spec.stop = {"END"};
  EXPECT_EQ(finish(stopped), "stop") << "the client stopped it";
  OutputSpec spec;
  spec.tools.mode = ToolMode::kNamed;
  EXPECT_EQ(chat_finish_reason(spec, {.finish = FinishReason::kStop, .complete_calls = 1, .note = {}}), "stop");
}

// "a named tool that does not exist discards its valid neighbours": passed on, marked, in both modes.
TEST(ChatStream, UndeclaredCallsPassMarked) {
  const Scenario run = with_tools({call("f", "{}") + call("nope", R"({"x":1})") + call("g", "{}") + Ids{kEnd}});
  expect_same_everywhere(run);
  const Answer a = play(run, true, 2)[0];
  EXPECT_EQ(a.message.find("tool_calls")->size(), 3U);
  EXPECT_EQ(dump_json(*a.extra.find("undeclared_tools")), R"(["nope"])");
}

// "parallel calls all index 0, ids repeated"; "arguments lost when two calls arrive in one increment, or one character
// at a time": accumulate() checks indexes and ids, seed 0 goes token by token, seeds divisible by 3 in one piece.
TEST(ChatStream, ParallelCallsToOneTool) {
  const Scenario run = with_tools({call("f", R"({"a":"1"})") + call("f", R"({"a":"2"})") + call("g", "{}") +
                                   call("f", R"({"a":"</tool_call>"})") + Ids{kEnd}});
  expect_same_everywhere(run);
  EXPECT_EQ(play(run, true, 0)[0].message.find("tool_calls")->size(), 4U);
}

TEST(ChatStream, ParallelCallsMayBeRefused) {
  Scenario run = with_tools({call("f", "{}") + call("g", "{}") + Ids{kEnd}});
  run.spec.tools.parallel = false;
  expect_same_everywhere(run);
  EXPECT_EQ(play(run, true, 1)[0].message.find("tool_calls")->size(), 1U);
}

// "one parser shared by n choices": each has its own.
TEST(ChatStream, ChoicesShareNothing) {
  Scenario run = with_tools({call("f", R"({"a":1})") + Ids{kEnd}, bytes_of("only text") + Ids{kEnd},
                             Ids{kThink} + bytes_of("hm") + Ids{kThinkEnd} + call("g", R"({"b":2})") + Ids{kEnd}});
  run.spec.logprobs = 1;
  expect_same_everywhere(run);
  const auto got = play(run, true, 5);
  EXPECT_EQ(got[0].finish, "tool_calls");
  EXPECT_EQ(got[1].finish, "stop");
  EXPECT_EQ(text_of(got[1], "content"), "only text");
  EXPECT_EQ(text_of(got[2], "reasoning"), "hm");
}

// "a malformed call vanishes": it is text, as the model wrote it, with a note.
TEST(ChatStream, MalformedCallsAreTextWithANote) {
  const Scenario run = with_tools({bytes_of("so ") + Ids{kCall} + bytes_of("{\"nam") + Ids{kCallEnd} + Ids{kEnd}});
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_NE(text_of(a, "content").find("{\"nam"), std::string::npos);
  EXPECT_EQ(a.finish, "stop");
  ASSERT_NE(a.extra.find("tool_parse_error"), nullptr);
  EXPECT_FALSE(a.extra.find("tool_parse_error")->as_string().empty());
}

// What a stream has sent of a call cannot be taken back, so unstreamed answers have it too: half a call, named as one.
TEST(ChatStream, CallsThatBreakOffAreNamed) {
  const auto broken = bytes_of("so ") + Ids{kCall} + bytes_of(R"({"name":"f","arguments":{"a":1,"city":Oslo}})") + Ids{kCallEnd};
  const Scenario alone = with_tools({broken + Ids{kEnd}});
  expect_same_everywhere(alone);
  const Answer a = play(alone, true, 1)[0];
  const Json& half = a.message.find("tool_calls")->as_array()[0];
  EXPECT_EQ(half.find("function")->find("arguments")->as_string().rfind(R"({"a":1)", 0), 0U);
  EXPECT_EQ(a.finish, "stop") << "there is nothing to call";
  ASSERT_NE(a.extra.find("incomplete_tool_calls"), nullptr);
  EXPECT_EQ(*a.extra.find("incomplete_tool_calls"), Json(Json::Array{*half.find("id")}));
  EXPECT_NE(a.extra.find("tool_parse_error")->as_string().find(": f"), std::string::npos);
  EXPECT_NE(text_of(a, "content").find("Oslo}}"), std::string::npos) << "the rest is text";

  const Scenario beside = with_tools({call("g", "{}") + broken + Ids{kEnd}});
  expect_same_everywhere(beside);
  const Answer b = play(beside, false, 0)[0];
  EXPECT_EQ(b.finish, "tool_calls") << "one call is whole";
  EXPECT_EQ(*b.extra.find("incomplete_tool_calls"), Json(Json::Array{*b.message.find("tool_calls")->as_array()[1].find("id")}));

  Scenario cut = with_tools({call("g", "{}") + Ids{kCall} + bytes_of(R"({"name":"f","arguments":{"a":)")});
  cut.natural = false;
  expect_same_everywhere(cut);
  EXPECT_EQ(play(cut, true, 2)[0].finish, "length");
  EXPECT_EQ(play(cut, true, 2)[0].extra.find("incomplete_tool_calls")->size(), 1U);
  EXPECT_EQ(play(with_tools({call("g", "{}") + Ids{kEnd}}), true, 1)[0].extra.find("incomplete_tool_calls"), nullptr);

  Scenario function = with_tools({broken + Ids{kEnd}});
  auto extras = std::make_shared<ChatExtras>();
  extras->functions = true;
  function.spec.extras = extras;
  function.spec.tools.parallel = false;
  expect_same_everywhere(function);
  EXPECT_EQ(dump_json(*play(function, true, 1)[0].extra.find("incomplete_tool_calls")), R"(["f"])") << "it has no id";
}

TEST(ChatStream, MarkersThatAreSpelledTriggerNothing) {
  const Scenario run = with_tools({bytes_of("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><think>") + Ids{kEnd}});
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(a.message.find("tool_calls"), nullptr);
  EXPECT_EQ(text_of(a, "content"), "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><think>");
}

TEST(ChatStream, WithoutToolsCallsAreText) {
  Scenario run;
  run.choices = {call("f", "{}") + Ids{kEnd}};
  run.spec.skip_special_tokens = false;
  expect_same_everywhere(run);
  EXPECT_EQ(text_of(play(run, true, 1)[0], "content").find("<tool_call>"), 0U);
}

TEST(ChatStream, FunctionsAnswerInTheirOwnTerms) {
  Scenario run = with_tools({call("f", R"({"a":1})") + Ids{kEnd}});
  auto extras = std::make_shared<ChatExtras>();
  extras->functions = true;
  run.spec.extras = extras;
  run.spec.tools.parallel = false;
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(a.finish, "function_call");
  EXPECT_EQ(dump_json(*a.message.find("function_call")), R"({"name":"f","arguments":"{\"a\":1}"})");
}

TEST(ChatStream, CustomToolsHaveInput) {
  Scenario run = with_tools({call("sh", R"({"input":"ls -l"})") + Ids{kEnd}});
  run.spec.tools.tools = {{.name = "sh", .description = "", .parameters = nullptr, .custom = true}};
  expect_same_everywhere(run);
  EXPECT_EQ(play(run, false, 0)[0].message.find("tool_calls")->as_array()[0].find("custom")->find("input")->as_string(),
            "ls -l");
}

// ---- reasoning

TEST(ChatStream, ReasoningThatThePromptOpened) {
  Scenario run = with_tools({bytes_of("thought") + Ids{kThinkEnd} + bytes_of("said") + Ids{kEnd}});
  run.inside_reasoning = true;
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(text_of(a, "reasoning_content"), "thought");
  EXPECT_EQ(text_of(a, "content"), "said");
  EXPECT_EQ(a.usage.find("completion_tokens_details")->find("reasoning_tokens")->as_int(), 8);
}

TEST(ChatStream, ReasoningWithoutAnEndIsReasoning) {
  Scenario run = with_tools({Ids{kThink} + bytes_of("and so on") + call("f", "{}")});
  run.natural = false;
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(a.message.find("tool_calls"), nullptr) << "calls are looked for outside reasoning";
  EXPECT_EQ(text_of(a, "content"), "");
  EXPECT_TRUE(text_of(a, "reasoning").starts_with("and so on"));
  EXPECT_EQ(a.finish, "length");
}

TEST(ChatStream, ReasoningMayBeHiddenOrLeftInTheText) {
  Scenario run = with_tools({Ids{kThink} + bytes_of("secret") + Ids{kThinkEnd} + bytes_of("open") + Ids{kEnd}});
  run.spec.logprobs = 0;
  run.spec.reasoning.show = false;
  expect_same_everywhere(run);
  const Answer hidden = play(run, true, 1)[0];
  EXPECT_EQ(hidden.message.find("reasoning"), nullptr);
  EXPECT_EQ(text_of(hidden, "content"), "open");
  EXPECT_EQ(hidden.usage.find("completion_tokens_details")->find("reasoning_tokens")->as_int(), 7) << "counted";
  EXPECT_EQ(joined_bytes(hidden.logprobs), "open") << "what is not shown is not told by its tokens either";
  run.spec.reasoning = {.enabled = {}, .effort = {}, .budget = {}, .separate = false};
  expect_same_everywhere(run);
  EXPECT_EQ(text_of(play(run, true, 1)[0], "content"), "<think>secret</think>open");
}

// ---- log-probabilities, usage, stop strings

// "entries are lost with tool parsing or stop strings": as many as the text has tokens, whatever else the model wrote.
TEST(ChatStream, EveryTokenOfTheTextHasItsLogprob) {
  Scenario run = with_tools({Ids{kThink} + bytes_of("hm") + Ids{kThinkEnd} + bytes_of("EN ") + call("f", R"({"a":"E"})") +
                             bytes_of(" ENDE") + Ids{kEnd}});
  run.spec.logprobs = 2;
  run.spec.return_token_ids = true;
  expect_same_everywhere(run);
  EXPECT_EQ(joined_bytes(play(run, true, 0)[0].logprobs), "ENENDE");
  EXPECT_EQ(play(run, true, 0)[0].ids.size(), run.choices[0].size()) << "ids are those of all tokens";
  run.spec.stop = {"END"};
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(joined_bytes(a.logprobs), "EN");
  EXPECT_EQ(a.ids.size(), run.choices[0].size() - 2) << "the token that ended the stop string is the last";
  EXPECT_EQ(a.usage.find("completion_tokens")->as_int(), static_cast<std::int64_t>(a.ids.size()));
}

TEST(ChatStream, StopStringsMayBeMarkers) {
  Scenario run = with_tools({Ids{kThink} + bytes_of("hm") + Ids{kThinkEnd} + bytes_of("not read") + Ids{kEnd}});
  run.spec.stop = {"m</think>"};
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(text_of(a, "reasoning"), "h");
  EXPECT_EQ(text_of(a, "content"), "");
  EXPECT_EQ(a.finish, "stop");
  // One that a stop string begins like is held with it, and is a marker all the same.
  run.spec.stop = {"</think>!"};
  expect_same_everywhere(run);
  EXPECT_EQ(text_of(play(run, true, 1)[0], "content"), "not read");
}

// A marker that nobody sees stays where it stood among text that the matcher held.
TEST(ChatStream, HiddenMarkersKeepTheirPlace) {
  Scenario run = with_tools({bytes_of("a EN") + call("f", R"({"q":"EN"})") + bytes_of("EX") + Ids{kEnd}});
  run.spec.stop = {"END"};
  expect_same_everywhere(run);
  const Answer a = play(run, true, 1)[0];
  EXPECT_EQ(text_of(a, "content"), "a ENEX");
  EXPECT_EQ(dump_json(*a.message.find("tool_calls")->as_array()[0].find("function")->find("arguments")),
            R"("{\"q\":\"EN\"}")");
}

TEST(ChatStream, NativeIdsAreKeptAndNeverTwice) {
  const auto answer = [](std::vector<std::string> ids) {
    OutputSpec spec;
    const std::vector<PromptInfo> prompts(1);
    const auto writer =
        make_chat_writer({.meta = {.id = "x", .model = "m", .fingerprint = "f"}, .spec = &spec, .n = 1, .prompts = prompts,
                          .tokenizer = &kTokenizer});
    std::string out;
    writer->begin(out);
    Piece piece;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      text::OutputEvent e;
      e.kind = text::OutputEvent::Kind::kToolStart;
      e.text = "f";
      e.call = static_cast<std::int32_t>(i);
      e.native_id = ids[i];
      piece.events.push_back(e);
    }
    writer->push(0, piece, {}, out);
    writer->finish_choice(0, {.finish = FinishReason::kStop, .complete_calls = 3, .note = {}}, {}, out);
    writer->end({}, out);
    std::vector<std::string> got;
    const Json body = *parse_json(writer->body());
    for (const Json& c : body.find("choices")->as_array()[0].find("message")->find("tool_calls")->as_array())
      got.push_back(c.find("id")->as_string());
    return got;
  };
  const auto got = answer({"functions.f:0", "functions.f:0", ""});
  EXPECT_EQ(got[0], "functions.f:0");
  EXPECT_TRUE(got[1].starts_with("call_"));
  EXPECT_NE(got[1], got[2]);
}

}  // namespace
}  // namespace barg::server::chat_stream_test
