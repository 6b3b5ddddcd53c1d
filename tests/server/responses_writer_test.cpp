// Events of a Responses stream, to the letter; and whatever is said, streamed and unstreamed answers are one.
#include "server/responses_writer.h"

#include <gtest/gtest.h>

#include <map>

#include "base/env.h"
#include "fake_tokenizer.h"
#include "server/responses_ids.h"
#include "server/responses_seal.h"

namespace barg::server::responses_writer_test {
namespace {

using text::OutputEvent;
using text::OutputEvents;
using Kind = OutputEvent::Kind;

constexpr const char* kId = "resp_0123456789abcdef01234567";

OutputEvent reasoning(std::string s) {
  return {.kind = Kind::kReasoning, .text = std::move(s), .native_id = ""};
}
OutputEvent says(std::string s) { return {.kind = Kind::kText, .text = std::move(s), .native_id = ""}; }
OutputEvent tool(std::int32_t call, std::string name, std::string native = "", bool declared = true) {
  return {.kind = Kind::kToolStart,
          .text = std::move(name),
          .call = call,
          .native_id = std::move(native),
          .declared = declared};
}
OutputEvent args(std::int32_t call, std::string s) {
  return {.kind = Kind::kToolArgs, .text = std::move(s), .call = call, .native_id = ""};
}
OutputEvent tool_end(std::int32_t call, bool complete = true) {
  return {.kind = Kind::kToolEnd, .text = "", .call = call, .native_id = "", .complete = complete};
}

struct Answer {
  OutputSpec spec;
  std::shared_ptr<ResponsesExtras> extras = std::make_shared<ResponsesExtras>();
  std::vector<PromptInfo> prompts{{.ids = {1, 2, 3}, .text = ""}};
  test::FakeTokenizer tokenizer;

  Answer() {
    spec.api = Api::kResponses;
    extras->object.set("tools", Json::array());
  }
  std::unique_ptr<AnswerWriter> writer(bool stream) {
    spec.stream = stream;
    spec.extras = extras;
    return make_responses_writer({.meta = {.id = kId, .model = "m", .fingerprint = "f", .created = 1600},
                                  .spec = &spec,
                                  .n = 1,
                                  .prompts = prompts,
                                  .tokenizer = &tokenizer});
  }
};

const UsageCounts kUsage{.prompt = 3, .output = 9, .cached = 2, .by_place = {2, 0, 0, 0}, .reasoning = 4,
                         .seconds = 100.5};

/// Everything a stream carries, or a body, of `pieces`.
std::string run(AnswerWriter& writer, std::vector<OutputEvents> pieces,
                FinishReason finish = FinishReason::kStop) {
  std::string out;
  writer.begin(out);
  for (OutputEvents& events : pieces) {
    Piece piece;
    piece.events = std::move(events);
    writer.push(0, piece, kUsage, out);
  }
  writer.finish_choice(0, {.finish = finish, .note = ""}, kUsage, out);
  writer.end(kUsage, out);
  return out;
}

std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
    EXPECT_EQ(stream.substr(at, 7), "event: ");
    const std::string type = stream.substr(at + 7, line - at - 7);
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    auto json = parse_json(std::string_view(stream).substr(line + 7, end - line - 7));
    EXPECT_TRUE(json) << stream.substr(at, end - at);
    if (!json) break;
    EXPECT_EQ(json->find("type")->as_string(), type);
    EXPECT_EQ(json->find("sequence_number")->as_int(), static_cast<std::int64_t>(out.size()));
    out.push_back(std::move(*json));
    at = end + 2;
  }
  return out;
}

/// "type member=value ...", of the events between in_progress and the last.
std::vector<std::string> middle(const std::vector<Json>& events) {
  std::vector<std::string> out;
  for (std::size_t i = 2; i + 1 < events.size(); ++i) {
    std::string line = events[i].find("type")->as_string().substr(9);
    for (const auto& [key, value] : events[i].as_object()) {
      if (key != "type" && key != "sequence_number") line += " " + key + "=" + dump_json(value);
    }
    out.push_back(line);
  }
  return out;
}

TEST(ResponsesWriter, TextReasoningAndACallToTheLetter) {
  Answer s;
  const auto writer = s.writer(true);
  const auto events = events_of(run(*writer, {{reasoning("I ")},
                                              {reasoning("think"), says("\n\n")},
                                              {says("Hi"), says(" you")},
                                              {tool(0, "f"), args(0, "{\"a\":")},
                                              {args(0, "1}"), tool_end(0)}}));
  const std::vector<std::string> expected = {
      R"(output_item.added output_index=0 item={"id":"rs_0123456789abcdef012345670000","type":"reasoning","status":"in_progress","summary":[],"content":[]})",
      R"(content_part.added item_id="rs_0123456789abcdef012345670000" output_index=0 content_index=0 part={"type":"reasoning_text","text":""})",
      R"(reasoning_text.delta item_id="rs_0123456789abcdef012345670000" output_index=0 content_index=0 delta="I ")",
      R"(reasoning_text.delta item_id="rs_0123456789abcdef012345670000" output_index=0 content_index=0 delta="think")",
      R"(reasoning_text.done item_id="rs_0123456789abcdef012345670000" output_index=0 content_index=0 text="I think")",
      R"(content_part.done item_id="rs_0123456789abcdef012345670000" output_index=0 content_index=0 part={"type":"reasoning_text","text":"I think"})",
      R"(output_item.done output_index=0 item={"id":"rs_0123456789abcdef012345670000","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"I think"}]})",
      R"(output_item.added output_index=1 item={"id":"msg_0123456789abcdef012345670001","type":"message","status":"in_progress","role":"assistant","content":[]})",
      R"(content_part.added item_id="msg_0123456789abcdef012345670001" output_index=1 content_index=0 part={"type":"output_text","text":"","annotations":[],"logprobs":[]})",
      R"(output_text.delta item_id="msg_0123456789abcdef012345670001" output_index=1 content_index=0 delta="\n\nHi" logprobs=[])",
      R"(output_text.delta item_id="msg_0123456789abcdef012345670001" output_index=1 content_index=0 delta=" you" logprobs=[])",
      R"(output_text.done item_id="msg_0123456789abcdef012345670001" output_index=1 content_index=0 text="\n\nHi you" logprobs=[])",
      R"(content_part.done item_id="msg_0123456789abcdef012345670001" output_index=1 content_index=0 part={"type":"output_text","text":"\n\nHi you","annotations":[],"logprobs":[]})",
      R"(output_item.done output_index=1 item={"id":"msg_0123456789abcdef012345670001","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"\n\nHi you","annotations":[],"logprobs":[]}]})",
      R"(output_item.added output_index=2 item={"id":"fc_0123456789abcdef012345670002","type":"function_call","status":"in_progress","call_id":"call_0123456789abcdef012345670002","name":"f","arguments":""})",
      R"(function_call_arguments.delta item_id="fc_0123456789abcdef012345670002" output_index=2 delta="{\"a\":")",
      R"(function_call_arguments.delta item_id="fc_0123456789abcdef012345670002" output_index=2 delta="1}")",
      R"(function_call_arguments.done item_id="fc_0123456789abcdef012345670002" output_index=2 arguments="{\"a\":1}" name="f")",
      R"(output_item.done output_index=2 item={"id":"fc_0123456789abcdef012345670002","type":"function_call","status":"completed","call_id":"call_0123456789abcdef012345670002","name":"f","arguments":"{\"a\":1}"})",
  };
  EXPECT_EQ(middle(events), expected);
  EXPECT_EQ(events.front().find("type")->as_string(), "response.created");
  EXPECT_EQ(events[1].find("type")->as_string(), "response.in_progress");
  EXPECT_EQ(events.back().find("type")->as_string(), "response.completed");
}

TEST(ResponsesWriter, TheObjectSaysHowItEnded) {
  Answer s;
  const auto writer = s.writer(false);
  std::string none = run(*writer, {{says("cut")}}, FinishReason::kLength);
  EXPECT_EQ(none, "");
  const Json body = *parse_json(writer->body());
  EXPECT_EQ(
      dump_json(body),
      R"({"id":"resp_0123456789abcdef01234567","object":"response","created_at":1600,"status":"incomplete",)"
      R"("background":false,"completed_at":null,"error":null,"incomplete_details":{"reason":"max_output_tokens"},)"
      R"("model":"m","store":false,"output":[{"id":"msg_0123456789abcdef012345670000","type":"message",)"
      R"("status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"cut","annotations":[],)"
      R"("logprobs":[]}]}],"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":2,)"
      R"("cache_write_tokens":0,"cached_tokens_by_tier":{"device":2,"dram":0,"disk":0,"remote":0}},)"
      R"("output_tokens":9,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":12},"tools":[]})");
  Answer t;
  const auto whole = t.writer(false);
  run(*whole, {{says("done")}});
  const Json done = *parse_json(whole->body());
  EXPECT_EQ(done.find("status")->as_string(), "completed");
  EXPECT_EQ(done.find("completed_at")->as_int(), 1700);
}

TEST(ResponsesWriter, WhiteSpaceBetweenItemsMakesNone) {
  Answer s;
  const auto writer = s.writer(false);
  run(*writer, {{reasoning("\n\n"), says("\n"), tool(0, "f"), args(0, "{}"), tool_end(0), says("\n"),
                 tool(1, "g"), args(1, "{}"), tool_end(1), says(" \n")}});
  const Json body = *parse_json(writer->body());
  ASSERT_EQ(body.find("output")->size(), 2U);
  Answer t;
  const auto only = t.writer(false);
  run(*only, {{says(" ")}, {says("\n")}});
  const Json alone = *parse_json(only->body());
  ASSERT_EQ(alone.find("output")->size(), 1U) << "all that the model said is not lost";
}

TEST(ResponsesWriter, CallsOfEveryKind) {
  Answer s;
  s.spec.tools.tools = {{.name = "patch", .description = "", .parameters = {}, .custom = true}};
  s.extras->spaces = {{.flat = "mcp__files__read", .space = "mcp__files", .name = "read"}};
  const auto writer = s.writer(true);
  const std::string stream = run(*writer,
                                 {{tool(0, "patch", "x1"), args(0, "*** a"), args(0, "\n"), tool_end(0),
                                   tool(1, "mcp__files__read", "x1"), args(1, "{}"), tool_end(1),
                                   tool(2, "nobody", "", false), args(2, "{\"a\""), tool_end(2, false)}},
                                 FinishReason::kLength);
  const auto events = events_of(stream);
  const Json& output = *events.back().find("response")->find("output");
  EXPECT_EQ(
      dump_json(output),
      R"([{"id":"ctc_0123456789abcdef012345670000","type":"custom_tool_call","status":"completed","call_id":"x1",)"
      R"("name":"patch","input":"*** a\n"},{"id":"fc_0123456789abcdef012345670001","type":"function_call",)"
      R"("status":"completed","call_id":"call_0123456789abcdef012345670001","name":"read","namespace":"mcp__files",)"
      R"("arguments":"{}"},{"id":"fc_0123456789abcdef012345670002","type":"function_call","status":"incomplete",)"
      R"("call_id":"call_0123456789abcdef012345670002","name":"nobody","undeclared":true,"arguments":"{\"a\""}])");
  EXPECT_NE(stream.find("event: response.custom_tool_call_input.delta"), std::string::npos);
  EXPECT_NE(stream.find(R"("input":"*** a\n"})"), std::string::npos);
}

TEST(ResponsesWriter, SealedReasoningComesBackAndHiddenReasoningStaysAway) {
  Answer s;
  s.extras->seal = true;
  s.extras->secret = "secret";
  s.extras->owner = "me";
  s.spec.reasoning.show = false;
  const auto writer = s.writer(true);
  const std::string stream = run(*writer, {{reasoning("private thought"), says("Hi")}});
  EXPECT_EQ(stream.find("private"), std::string::npos);
  const auto events = events_of(stream);
  const Json& item = events.back().find("response")->find("output")->as_array()[0];
  EXPECT_EQ(item.find("content")->size(), 0U);
  EXPECT_EQ(open_reasoning("secret", "me", item.find("encrypted_content")->as_string()), "private thought");
}

TEST(ResponsesWriter, LogprobsGoWithTheText) {
  Answer s;
  s.spec.logprobs = 1;
  const auto writer = s.writer(true);
  std::string out;
  writer->begin(out);
  const auto token = [](TokenId id, std::size_t text_begin, std::size_t text_end) {
    OutToken t{.id = id,
               .logprobs = TokenLogprobs{.id = id, .logprob = -0.5F, .rank = 1, .top = {{id, -0.5F}}}};
    t.text_begin = text_begin;
    t.text_end = text_end;
    return t;
  };
  Piece thought;
  thought.events = {reasoning("x")};
  thought.tokens = {token('x', 0, 0)};
  writer->push(0, thought, kUsage, out);
  Piece piece;
  piece.events = {says("a")};
  piece.tokens = {token('a', 0, 1)};
  writer->push(0, piece, kUsage, out);
  Piece last;
  last.events = {says("b")};
  last.tokens = {token('b', 1, 2), token(test::kEnd, 0, 0)};
  writer->push(0, last, kUsage, out);
  writer->finish_choice(0, {}, kUsage, out);
  writer->end(kUsage, out);
  const auto events = events_of(out);
  std::vector<std::string> deltas;
  for (const Json& e : events) {
    if (e.find("type")->as_string() == "response.output_text.delta")
      deltas.push_back(dump_json(*e.find("logprobs")));
  }
  const std::string a =
      R"({"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]})";
  const std::string b =
      R"({"token":"b","logprob":-0.5,"bytes":[98],"top_logprobs":[{"token":"b","logprob":-0.5,"bytes":[98]}]})";
  EXPECT_EQ(deltas, (std::vector<std::string>{"[" + a + "]", "[" + b + "]"}));
  const Json& message = events.back().find("response")->find("output")->as_array()[1];
  EXPECT_EQ(dump_json(*message.find("content")->as_array()[0].find("logprobs")), "[" + a + "," + b + "]");
}

TEST(ResponsesWriter, WhiteSpaceThatMakesNoItemHasNoLogprobsEither) {
  Answer s;
  s.spec.logprobs = 0;
  const auto writer = s.writer(false);
  std::string out;
  writer->begin(out);
  const auto push = [&](OutputEvent event, TokenId id, std::size_t text_begin, std::size_t text_end) {
    Piece piece;
    piece.events = {std::move(event)};
    piece.tokens = {{.id = id, .logprobs = TokenLogprobs{.id = id, .logprob = -0.5F, .rank = 1, .top = {}}}};
    piece.tokens[0].text_begin = text_begin;
    piece.tokens[0].text_end = text_end;
    writer->push(0, piece, kUsage, out);
  };
  push(says(" "), ' ', 0, 1);
  push(reasoning("x"), 'x', 0, 0);
  push(says("b"), 'b', 1, 2);
  writer->finish_choice(0, {}, kUsage, out);
  writer->end(kUsage, out);
  const Json body = *parse_json(writer->body());
  const Json& part = body.find("output")->as_array()[1].find("content")->as_array()[0];
  EXPECT_EQ(part.find("text")->as_string(), "b");
  ASSERT_EQ(part.find("logprobs")->size(), 1U);
  EXPECT_EQ(part.find("logprobs")->as_array()[0].find("token")->as_string(), "b");
}

TEST(ResponsesWriter, AFailureSaysWhyAndKeepsWhatWasSaid) {
  Answer s;
  const auto writer = s.writer(true);
  std::string out;
  writer->begin(out);
  Piece piece;
  piece.events = {says("half")};
  writer->push(0, piece, kUsage, out);
  writer->fail({ErrorCode::kTimeout, "too slow", "", 0}, out);
  const auto events = events_of(out);
  const Json& last = events.back();
  EXPECT_EQ(last.find("type")->as_string(), "response.failed");
  const Json& response = *last.find("response");
  EXPECT_EQ(response.find("status")->as_string(), "failed");
  EXPECT_EQ(dump_json(*response.find("error")), R"({"code":"server_error","message":"too slow"})");
  EXPECT_EQ(response.find("output")->as_array()[0].find("status")->as_string(), "incomplete");
  EXPECT_EQ(events[events.size() - 2].find("type")->as_string(), "response.output_item.done");

  Answer t;
  std::string before;
  t.writer(true)->fail({ErrorCode::kRateLimited, "full", "", 0}, before);
  EXPECT_EQ(before,
            "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"rate_limit_exceeded\","
            "\"message\":\"full\",\"param\":null}\n\n");
}

std::shared_ptr<StoredResponse> stored(Answer& s, ResponseStore& store, bool background, bool streamed) {
  s.extras->background = background;
  s.extras->store = &store;
  s.extras->record = std::make_shared<StoredResponse>(
      StoredResponse::Origin{.owner = "",
                             .history = {},
                             .input = std::make_shared<const std::string>("[]"),
                             .background = background,
                             .streamed = streamed});
  EXPECT_TRUE(store.insert(kId, s.extras->record));
  return s.extras->record;
}

TEST(ResponsesWriter, AStoredAnswerIsReadableAtEveryMoment) {
  const SteadyClock clock;
  ResponseStore store({.bytes = 1 << 20, .ttl_s = 60}, clock);
  Answer s;
  const auto record = stored(s, store, true, true);
  const auto writer = s.writer(true);
  const auto status = [&] { return parse_json(record->object())->find("status")->as_string(); };
  std::string out;
  writer->begin(out);
  EXPECT_EQ(status(), "queued");
  EXPECT_NE(out.find("event: response.queued"), std::string::npos);
  EXPECT_EQ(out.find("event: response.in_progress"), std::string::npos);
  Piece piece;
  piece.events = {says("a")};
  writer->push(0, piece, kUsage, out);
  EXPECT_EQ(status(), "in_progress");
  writer->finish_choice(0, {}, kUsage, out);
  writer->end(kUsage, out);
  EXPECT_EQ(status(), "completed");
  EXPECT_EQ(record->object(), writer->body());
  std::string replay;
  std::size_t at = 0;
  EXPECT_TRUE(record->read(at, 1 << 20, replay).over);
  EXPECT_EQ(replay, out);
  std::string rest;
  at = record->position_after(2).value();
  record->read(at, 1 << 20, rest);
  EXPECT_EQ(rest, out.substr(out.find("event: ", out.find("\"sequence_number\":2"))));
}

TEST(ResponsesWriter, AnUnstreamedAnswerIsChargedFromTheStart) {
  const SteadyClock clock;
  ResponseStore store({.bytes = 1 << 20, .ttl_s = 60}, clock);
  Answer s;
  s.extras->object.set("instructions", std::string(50'000, 'x'));
  const auto record = stored(s, store, false, false);
  const auto writer = s.writer(false);
  std::string out;
  writer->begin(out);
  EXPECT_GT(store.bytes(), 50'000U);
  EXPECT_EQ(store.bytes(), record->bytes());
  Piece piece;
  piece.events = {says("a")};
  writer->push(0, piece, kUsage, out);
  EXPECT_EQ(store.bytes(), record->bytes());
  writer->finish_choice(0, {}, kUsage, out);
  writer->end(kUsage, out);
  EXPECT_EQ(store.bytes(), record->bytes());
}

TEST(ResponsesWriter, CancelEndsTheStreamAndTheRecordOnce) {
  const SteadyClock clock;
  ResponseStore store({.bytes = 1 << 20, .ttl_s = 60}, clock);
  Answer s;
  const auto record = stored(s, store, false, true);
  auto writer = s.writer(true);
  std::string out;
  writer->begin(out);
  Piece piece;
  piece.events = {says("part")};
  writer->push(0, piece, kUsage, out);
  std::string last;
  EXPECT_TRUE(record->finish_cancelled(last));
  EXPECT_FALSE(record->finish_cancelled(last));
  const auto events = events_of(out + last);
  EXPECT_EQ(events.back().find("response")->find("status")->as_string(), "cancelled");
  EXPECT_EQ(parse_json(record->object())->find("status")->as_string(), "cancelled");
  std::string after;
  writer->push(0, piece, kUsage, after);
  writer->end(kUsage, after);
  EXPECT_EQ(after, "");
  writer.reset();
  EXPECT_EQ(parse_json(record->object())->find("status")->as_string(), "cancelled");
}

TEST(ResponsesWriter, AnAnswerThatNobodyFinishesIsNotLeftRunning) {
  const SteadyClock clock;
  ResponseStore store({.bytes = 1 << 20, .ttl_s = 60}, clock);
  Answer s;
  const auto record = stored(s, store, true, false);
  auto writer = s.writer(false);
  std::string out;
  writer->begin(out);
  writer.reset();
  EXPECT_TRUE(record->finished());
}

// ---- streamed and unstreamed are one

/// A client's view of a stream, put together as the official one does it.
struct Accumulated {
  std::vector<Json> items;
  Json final_response;
};

Accumulated accumulate(const std::vector<Json>& events) {
  Accumulated out;
  const auto index = [](const Json& e) { return static_cast<std::size_t>(e.find("output_index")->as_int()); };
  for (const Json& e : events) {
    const std::string& type = e.find("type")->as_string();
    if (type == "response.output_item.added") {
      EXPECT_EQ(index(e), out.items.size()) << "items come in the order of their indices";
      out.items.push_back(*e.find("item"));
    } else if (type == "response.content_part.added") {
      out.items[index(e)].find("content")->push(*e.find("part"));
    } else if (type.ends_with(".delta")) {
      Json& item = out.items[index(e)];
      Json* content = item.find("content");
      Json* field = content ? content->as_array().at(0).find("text")
                            : item.find(item.find("input") ? "input" : "arguments");
      *field = Json(field->as_string() + e.find("delta")->as_string());
      EXPECT_EQ(*e.find("item_id"), *item.find("id"));
    } else if (type == "response.output_item.done") {
      Json added = out.items[index(e)];
      added.set("status", *e.find("item")->find("status"));
      EXPECT_EQ(added, *e.find("item")) << "what was streamed is what is said at the end";
    } else if (type == "response.completed" || type == "response.incomplete") {
      out.final_response = *e.find("response");
    }
  }
  return out;
}

OutputEvents random_events(Rng& rng) {
  static const std::vector<std::string> kTexts = {"a",          "Hello ", "\n",   " ",   "naïve",
                                                  "\"quoted\"", "🍃",      "\n\n", "</x>"};
  OutputEvents out;
  std::int32_t calls = 0;
  for (std::uint64_t n = rng.below(8); n > 0; --n) {
    const std::uint64_t what = rng.below(3);
    const std::string& words = kTexts[rng.below(kTexts.size())];
    if (what == 0) {
      out.push_back(reasoning(words));
    } else if (what == 1) {
      out.push_back(says(words));
    } else {
      out.push_back(tool(calls, rng.below(2) == 0 ? "f" : "patch", rng.below(3) == 0 ? "native" : ""));
      for (std::uint64_t k = rng.below(4); k > 0; --k)
        out.push_back(args(calls, kTexts[rng.below(kTexts.size())]));
      out.push_back(tool_end(calls, rng.below(5) != 0));
      ++calls;
    }
  }
  return out;
}

/// The same events, texts cut between characters and events gathered at random.
std::vector<OutputEvents> cut(const OutputEvents& events, Rng& rng) {
  std::vector<OutputEvents> out(1);
  const auto put = [&](OutputEvent e) {
    if (rng.below(2) == 0) out.emplace_back();
    out.back().push_back(std::move(e));
  };
  for (const OutputEvent& e : events) {
    if (e.kind == Kind::kToolStart || e.kind == Kind::kToolEnd) {
      put(e);
      continue;
    }
    std::size_t from = 0;
    while (from < e.text.size()) {
      std::size_t to = std::min(e.text.size(), from + 1 + rng.below(4));
      while (to < e.text.size() && (static_cast<unsigned char>(e.text[to]) & 0xC0) == 0x80) ++to;
      OutputEvent piece = e;
      piece.text = e.text.substr(from, to - from);
      put(std::move(piece));
      from = to;
    }
  }
  return out;
}

TEST(ResponsesWriter, StreamedAndUnstreamedAreOneHoweverTheEventsAreCut) {
  Rng rng(7);
  for (int round = 0; round < 500; ++round) {
    const OutputEvents events = random_events(rng);
    const FinishReason finish = rng.below(3) == 0 ? FinishReason::kLength : FinishReason::kStop;
    Answer plain;
    plain.spec.tools.tools = {{.name = "patch", .description = "", .parameters = {}, .custom = true}};
    const auto whole = plain.writer(false);
    run(*whole, {events}, finish);
    const Json body = *parse_json(whole->body());
    for (int k = 0; k < 3; ++k) {
      Answer s;
      s.spec.tools.tools = plain.spec.tools.tools;
      const auto writer = s.writer(true);
      const auto seen = accumulate(events_of(run(*writer, cut(events, rng), finish)));
      ASSERT_EQ(dump_json(seen.final_response), dump_json(body)) << "round " << round;
      ASSERT_EQ(writer->body(), whole->body());
      ASSERT_EQ(seen.items.size(), body.find("output")->size());
    }
  }
}

// ---- ids and seals

TEST(ResponsesIds, ItemsKnowTheirResponse) {
  EXPECT_EQ(response_of_item(item_id("msg", kId, 3)), kId);
  EXPECT_EQ(response_of_item(input_item_id(Json::object({{"type", "function_call_output"}}), kId, 1)), kId);
  for (const char* id :
       {"", "msg_", "msg_1", "msg_0123456789abcdef0123456Z0000", "0123456789abcdef012345670000"})
    EXPECT_FALSE(response_of_item(id)) << id;
}

TEST(ResponsesIds, ListedItemsAreWhole) {
  EXPECT_EQ(
      dump_json(listed_item(Json::object({{"role", "user"}, {"content", "hi"}}), kId, 0)),
      R"({"role":"user","content":[{"type":"input_text","text":"hi"}],"id":"msg_0123456789abcdef012345678000",)"
      R"("type":"message","status":"completed"})");
  const Json own = listed_item(
      Json::object({{"type", "message"}, {"role", "assistant"}, {"id", "msg_mine"}, {"content", "x"}}), kId,
      1);
  EXPECT_EQ(own.find("id")->as_string(), "msg_mine");
  EXPECT_EQ(dump_json(*own.find("content")),
            R"([{"type":"output_text","text":"x","annotations":[],"logprobs":[]}])");
  EXPECT_EQ(listed_item(Json(3), kId, 2), Json(3));
  const Json skipped = listed_item(Json::object({{"id", "x"}, {"content", 5}}), kId, 3);
  EXPECT_EQ(*skipped.find("content"), Json(5));
}

TEST(ResponsesSeal, OnlyTheSameSecretAndScopeOpen) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32},
                                 std::size_t{33}, std::size_t{5000}}) {
    const std::string text(size, 'x');
    const std::string sealed = seal_reasoning("s", "me", text);
    EXPECT_EQ(open_reasoning("s", "me", sealed), text);
    EXPECT_FALSE(open_reasoning("t", "me", sealed));
    EXPECT_FALSE(open_reasoning("s", "you", sealed));
    EXPECT_EQ(sealed.find("eHh4eHh4eHh4"), std::string::npos);  // x in base64
    EXPECT_NE(sealed, seal_reasoning("s", "me", text)) << "equal thoughts do not look equal";
  }
  EXPECT_EQ(seal_reasoning("s", "me", std::string(kMaxSealedText + 1, 'x')), "");
}

TEST(ResponsesSeal, ChangedSealsDoNotOpen) {
  const std::string sealed = seal_reasoning("s", "me", "a thought");
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(open_reasoning("s", "me", changed)) << i;
    EXPECT_FALSE(open_reasoning("s", "me", sealed.substr(0, i))) << i;
  }
  for (const char* other : {"", "gAAAAAB", "barg1.", "barg1.====", "barg2.AAAA"})
    EXPECT_FALSE(open_reasoning("s", "me", other));
}

}  // namespace
}  // namespace barg::server::responses_writer_test
