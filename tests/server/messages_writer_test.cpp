// The Messages protocol's events, literally; and that what a client adds up from them is the unstreamed answer, for
// any events in any pieces.
#include "server/messages_writer.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/env.h"
#include "base/utf8.h"
#include "fake_tokenizer.h"
#include "server/messages_ids.h"
#include "server/partial_json.h"

namespace barg::server::messages_writer_test {
namespace {

using text::OutputEvent;
using Kind = OutputEvent::Kind;

OutputEvent event(Kind kind, std::string text = {}, std::int32_t call = -1) {
  OutputEvent e;
  e.kind = kind;
  e.text = std::move(text);
  e.call = call;
  return e;
}
OutputEvent end_of_call(std::int32_t call, bool complete = true) {
  OutputEvent e = event(Kind::kToolEnd, "", call);
  e.complete = complete;
  return e;
}

/// One answer written by one writer.
class Answer {
 public:
  explicit Answer(bool stream, std::vector<std::string> stops = {}, bool show_reasoning = true) {
    spec_.api = Api::kMessages;
    spec_.reasoning.show = show_reasoning;
    spec_.stream = stream;
    spec_.stop = std::move(stops);
    auto extras = std::make_shared<MessagesExtras>();
    extras->thought_key = thought_key("secret");
    spec_.extras = std::move(extras);
    prompts_.emplace_back();
    prompts_[0].ids.assign(10, 1);
    writer_ = make_messages_writer({.meta = {.id = "msg_1", .model = "m", .fingerprint = "fp", .created = 5},
                                    .spec = &spec_,
                                    .n = 1,
                                    .prompts = prompts_,
                                    .tokenizer = &tokenizer_});
    writer_->begin(out_);
  }
  Answer& push(std::vector<OutputEvent> events) {
    Piece piece;
    piece.events = std::move(events);
    writer_->push(0, piece, {}, out_);
    return *this;
  }
  Answer& finish(ChoiceEnd end = {}, UsageCounts usage = {.prompt = 10, .output = 4, .cached = 6, .by_place = {}, .reasoning = 1}) {
    writer_->finish_choice(0, end, usage, out_);
    writer_->end(usage, out_);
    return *this;
  }
  const std::string& bytes() const { return out_; }
  std::string since(std::size_t at) const { return out_.substr(at); }
  AnswerWriter& writer() { return *writer_; }
  Json body() { return *parse_json(writer_->body()); }
  std::string& out() { return out_; }

 private:
  OutputSpec spec_;
  std::vector<PromptInfo> prompts_;
  test::FakeTokenizer tokenizer_;
  std::unique_ptr<AnswerWriter> writer_;
  std::string out_;
};

constexpr const char* kStart =
    "event: message_start\n"
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\","
    "\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":10,"
    "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0,"
    "\"output_tokens_details\":{\"thinking_tokens\":0}}}}\n\n";
constexpr const char* kUsage =
    "\"usage\":{\"input_tokens\":4,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":6,\"output_tokens\":4,"
    "\"output_tokens_details\":{\"thinking_tokens\":1}}";

std::string block_start(int index, const std::string& block) {
  return "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":" + std::to_string(index) +
         ",\"content_block\":" + block + "}\n\n";
}
std::string delta(int index, const std::string& inner) {
  return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":" + std::to_string(index) +
         ",\"delta\":" + inner + "}\n\n";
}
std::string block_stop(int index) {
  return "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":" + std::to_string(index) + "}\n\n";
}
std::string ending(const std::string& reason, const std::string& sequence = "null") {
  return "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" + reason +
         "\",\"stop_sequence\":" + sequence + "}," + kUsage + "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
}

TEST(MessagesWriter, TextIsOneBlock) {
  Answer a(true);
  a.push({event(Kind::kText, "Hel")}).push({event(Kind::kText, "lo \"you\"\n")}).finish();
  EXPECT_EQ(a.bytes(), kStart + block_start(0, R"({"type":"text","text":""})") +
                           delta(0, R"({"type":"text_delta","text":"Hel"})") +
                           delta(0, R"({"type":"text_delta","text":"lo \"you\"\n"})") + block_stop(0) +
                           ending("end_turn"));
}

TEST(MessagesWriter, ThinkingTextAndToolsComeOneAfterTheOther) {
  Answer a(true);
  a.push({event(Kind::kReasoning, "Hm"), event(Kind::kReasoning, ".")})
      .push({event(Kind::kText, "\n\n"), event(Kind::kText, "Let me see.\n")})
      .push({event(Kind::kToolStart, "get_weather", 0), event(Kind::kToolArgs, "{\"ci", 0)})
      .push({event(Kind::kToolArgs, "ty\":\"Oslo\"}", 0), end_of_call(0), event(Kind::kText, "\n")})
      .push({event(Kind::kToolStart, "now", 1), end_of_call(1)})
      .finish({.finish = FinishReason::kStop, .complete_calls = 2, .note = {}});
  const std::string id0 = tool_use_id("msg_1", 0, ""), id1 = tool_use_id("msg_1", 1, "");
  const std::string thought = "Hm.";
  const std::string signature = thought_signature(thought_key("secret"), sha256(thought.data(), thought.size()));
  EXPECT_EQ(a.bytes(),
            kStart + block_start(0, R"({"type":"thinking","thinking":"","signature":""})") +
                delta(0, R"({"type":"thinking_delta","thinking":"Hm"})") +
                delta(0, R"({"type":"thinking_delta","thinking":"."})") +
                delta(0, R"({"type":"signature_delta","signature":")" + signature + "\"}") + block_stop(0) +
                block_start(1, R"({"type":"text","text":""})") +
                delta(1, R"({"type":"text_delta","text":"\n\nLet me see.\n"})") + block_stop(1) +
                block_start(2, R"({"type":"tool_use","id":")" + id0 + R"(","name":"get_weather","input":{}})") +
                delta(2, R"({"type":"input_json_delta","partial_json":"{\"ci"})") +
                delta(2, R"({"type":"input_json_delta","partial_json":"ty\":\"Oslo\"}"})") + block_stop(2) +
                block_start(3, R"({"type":"tool_use","id":")" + id1 + R"(","name":"now","input":{}})") + block_stop(3) +
                ending("tool_use"));
}

TEST(MessagesWriter, AnUnstreamedAnswerIsOneObject) {
  Answer a(false);
  a.push({event(Kind::kReasoning, "Hm."), event(Kind::kText, "Yes."), event(Kind::kToolStart, "f", 0),
          event(Kind::kToolArgs, "{\"a\": [1]}", 0), end_of_call(0)})
      .finish({.finish = FinishReason::kStop, .complete_calls = 1, .note = {}});
  EXPECT_EQ(a.bytes(), "");
  const std::string thought = "Hm.";
  const std::string signature = thought_signature(thought_key("secret"), sha256(thought.data(), thought.size()));
  EXPECT_EQ(a.writer().body(),
            "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["
            "{\"type\":\"thinking\",\"thinking\":\"Hm.\",\"signature\":\"" + signature + "\"},"
            "{\"type\":\"text\",\"text\":\"Yes.\"},"
            "{\"type\":\"tool_use\",\"id\":\"" + tool_use_id("msg_1", 0, "") + "\",\"name\":\"f\",\"input\":{\"a\": [1]}}],"
            "\"stop_reason\":\"tool_use\",\"stop_sequence\":null," + kUsage + "}");
}

TEST(MessagesWriter, StopReasons) {
  const auto reason = [](ChoiceEnd end) {
    Answer streamed(true, {"END", "\"q\""}), plain(false, {"END", "\"q\""});
    streamed.push({event(Kind::kText, "x")}).finish(end);
    plain.push({event(Kind::kText, "x")}).finish(end);
    const Json body = plain.body();
    const std::string pair = dump_json(*body.find("stop_reason")) + " " + dump_json(*body.find("stop_sequence"));
    const std::string sequence = dump_json(*body.find("stop_sequence"));
    EXPECT_TRUE(streamed.bytes().ends_with(ending(body.find("stop_reason")->as_string(), sequence))) << streamed.bytes();
    return pair;
  };
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .note = {}}), "\"end_turn\" null");
  EXPECT_EQ(reason({.finish = FinishReason::kLength, .note = {}}), "\"max_tokens\" null");
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .stop_string = 1, .note = {}}), "\"stop_sequence\" \"\\\"q\\\"\"");
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .complete_calls = 1, .note = {}}), "\"tool_use\" null");
  EXPECT_EQ(reason({.finish = FinishReason::kLength, .complete_calls = 1, .note = {}}), "\"max_tokens\" null")
      << "a cut answer says so, whatever it holds (api.md 3.3)";
}

TEST(MessagesWriter, WhiteSpaceAloneIsNoBlockButWhereNothingElseIs) {
  Answer a(true);
  const std::size_t start = a.bytes().size();
  a.push({event(Kind::kText, "\n"), event(Kind::kText, " \n")});
  EXPECT_EQ(a.since(start), "");
  a.finish();
  EXPECT_EQ(a.since(start), block_start(0, R"({"type":"text","text":""})") +
                                delta(0, R"({"type":"text_delta","text":"\n \n"})") + block_stop(0) + ending("end_turn"));
  Answer b(false);
  b.push({event(Kind::kReasoning, "x"), event(Kind::kText, "\n\n")}).finish();
  EXPECT_EQ(b.body().find("content")->size(), 1U);
  Answer c(false);
  c.finish();
  EXPECT_EQ(c.body().find("content")->size(), 0U);
}

TEST(MessagesWriter, ACallThatBrokeOffIsWhatTheClientsMakeOfIt) {
  Answer a(false);
  a.push({event(Kind::kToolStart, "f", 0), event(Kind::kToolArgs, "  {\"a\":1,\"b\":\"x", 0), end_of_call(0, false)})
      .finish({.finish = FinishReason::kLength, .note = {}});
  const Json body = a.body();
  EXPECT_EQ(dump_json(*body.find("content")->as_array()[0].find("input")), "{\"a\":1}");
  Answer b(true);
  b.push({event(Kind::kToolStart, "f", 0), event(Kind::kToolArgs, "\n ", 0), event(Kind::kToolArgs, " {\"a", 0)}).finish();
  EXPECT_NE(b.bytes().find(R"("partial_json":"{\"a"})"), std::string::npos) << "the object comes first";
  EXPECT_NE(b.bytes().find("content_block_stop"), std::string::npos) << "what is open is closed";
}

// Clients that run every tool_use block must be able to see that one is half a call, in both modes alike.
TEST(MessagesWriter, CallsThatBrokeOffAreNamed) {
  Answer streamed(true), plain(false);
  for (Answer* a : {&streamed, &plain}) {
    a->push({event(Kind::kToolStart, "f", 0), event(Kind::kToolArgs, "{}", 0), end_of_call(0), event(Kind::kToolStart, "g", 1),
             event(Kind::kToolArgs, "{\"a\":", 1), end_of_call(1, false)})
        .finish({.finish = FinishReason::kStop, .complete_calls = 1, .note = "broke off: g"});
  }
  const Json body = plain.body();
  const Json ids = Json(Json::Array{*body.find("content")->as_array()[1].find("id")});
  ASSERT_NE(body.find("incomplete_tool_uses"), nullptr);
  EXPECT_EQ(*body.find("incomplete_tool_uses"), ids);
  EXPECT_EQ(*body.find("stop_reason"), Json("tool_use"));
  EXPECT_NE(streamed.bytes().find(R"("tool_parse_error":"broke off: g","incomplete_tool_uses":)" + dump_json(ids) + "}"),
            std::string::npos);
  Answer whole(false);
  whole.push({event(Kind::kToolStart, "f", 0), event(Kind::kToolArgs, "{}", 0), end_of_call(0)}).finish();
  EXPECT_EQ(whole.body().find("incomplete_tool_uses"), nullptr);
}

TEST(MessagesWriter, HiddenThinkingIsInNoBlock) {
  for (const bool stream : {true, false}) {
    Answer a(stream, {}, false);
    a.push({event(Kind::kReasoning, "secret"), event(Kind::kText, "\n"), event(Kind::kText, "Yes.")}).finish();
    const std::string answer = stream ? a.bytes() : a.writer().body();
    EXPECT_EQ(answer.find("secret"), std::string::npos);
    EXPECT_EQ(answer.find("\"thinking\""), std::string::npos);
    EXPECT_NE(answer.find("Yes."), std::string::npos);
    EXPECT_NE(answer.find("\"thinking_tokens\":1"), std::string::npos) << "counted all the same";
  }
}

TEST(MessagesWriter, WhatIsOddIsMarked) {
  OutputEvent start = event(Kind::kToolStart, "nobody", 0);
  start.declared = false;
  const ChoiceEnd end{.finish = FinishReason::kStop, .note = "the call \"f\" has no name"};
  Answer streamed(true), plain(false);
  streamed.push({start, end_of_call(0)}).finish(end);
  plain.push({start, end_of_call(0)}).finish(end);
  const Json body = plain.body();
  EXPECT_EQ(*body.find("content")->as_array()[0].find("undeclared"), Json(true));
  EXPECT_EQ(*body.find("tool_parse_error"), Json(end.note));
  EXPECT_NE(streamed.bytes().find(R"("name":"nobody","undeclared":true,"input":{})"), std::string::npos);
  EXPECT_NE(streamed.bytes().find(R"(}},"tool_parse_error":"the call \"f\" has no name"})"), std::string::npos);
}

TEST(MessagesWriter, ErrorsCarryTypeAndMessage) {  // api.md 7, item 59
  Answer a(true);
  const std::size_t start = a.bytes().size();
  a.writer().fail({ErrorCode::kTimeout, "too long", "", 0}, a.out());
  EXPECT_EQ(a.since(start),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"too long\"}}\n\n");
  const std::size_t second = a.bytes().size();
  a.writer().fail({ErrorCode::kInternal, "secret path", "", 0}, a.out());
  EXPECT_EQ(a.since(second).find("secret path"), std::string::npos);
  EXPECT_NE(a.since(second).find("api_error"), std::string::npos);
}

// ---- streamed equals unstreamed

/// Adds events up as the official clients do, and fails on any order that they would not expect.
Json accumulated(const std::string& bytes) {
  Json message;
  std::vector<std::string> inputs;
  bool open = false, stopped = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find("\n\n", at);
    const std::string one = bytes.substr(at, end - at);
    at = end + 2;
    const std::size_t line = one.find("\ndata: ");
    const Json json = *parse_json(one.substr(line + 7));
    const std::string type = json.find("type")->as_string();
    EXPECT_EQ(one.substr(0, line), "event: " + type);
    EXPECT_FALSE(stopped);
    if (type == "message_start") {
      EXPECT_TRUE(message.is_null());
      message = *json.find("message");
      continue;
    }
    Json& content = *message.find("content");
    if (type == "content_block_start") {
      EXPECT_FALSE(open) << "blocks are strictly one after the other";
      open = true;
      EXPECT_EQ(json.find("index")->as_int(), static_cast<std::int64_t>(content.size()));
      content.push(*json.find("content_block"));
      inputs.emplace_back();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(json.find("index")->as_int(), static_cast<std::int64_t>(content.size()) - 1);
      Json& block = content.as_array().back();
      const Json& d = *json.find("delta");
      const std::string kind = d.find("type")->as_string();
      if (kind == "text_delta") block.set("text", block.find("text")->as_string() + d.find("text")->as_string());
      if (kind == "thinking_delta")
        block.set("thinking", block.find("thinking")->as_string() + d.find("thinking")->as_string());
      if (kind == "signature_delta") block.set("signature", *d.find("signature"));
      if (kind == "input_json_delta") {
        inputs.back() += d.find("partial_json")->as_string();
        block.set("input", *parse_json(closed_json_object(inputs.back())));
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      open = false;
    } else if (type == "message_delta") {
      EXPECT_FALSE(open);
      for (const char* key : {"stop_reason", "stop_sequence"}) message.set(key, *json.find("delta")->find(key));
      message.set("usage", *json.find("usage"));
      for (const char* key : {"tool_parse_error", "incomplete_tool_uses"}) {
        if (const Json* ours = json.find(key)) message.set(key, *ours);
      }
    } else {
      EXPECT_EQ(type, "message_stop");
      stopped = true;
    }
  }
  EXPECT_TRUE(stopped);
  return message;
}

std::string random_text(Rng& rng) {
  constexpr std::string_view kPieces[] = {"a", " ", "\n", "word", "\"", "\\", "é", "😀", "</think>", "{", "\u2028"};
  std::string out;
  for (std::uint64_t n = 1 + rng.below(5); n > 0; --n) out += kPieces[rng.below(std::size(kPieces))];
  return out;
}

/// Any sequence that the grammar of output_events.h allows.
std::vector<OutputEvent> random_events(Rng& rng) {
  constexpr const char* kArguments[] = {"{}", R"({"a":1})", R"({"q":"x \"y\" é","l":[1,{"b":null}]})", R"({"n":-1.5e3,"t":true})"};
  std::vector<OutputEvent> out;
  std::int32_t call = 0;
  for (std::uint64_t n = rng.below(7); n > 0; --n) {
    const auto kind = rng.below(4);
    if (kind == 0) out.push_back(event(Kind::kReasoning, random_text(rng)));
    if (kind == 1) out.push_back(event(Kind::kText, random_text(rng)));
    if (kind == 2) out.push_back(event(Kind::kText, "\n\n"));
    if (kind < 3) continue;
    OutputEvent start = event(Kind::kToolStart, "tool", call);
    if (rng.below(2) == 0) start.native_id = "functions.tool:0";
    out.push_back(std::move(start));
    std::string arguments = kArguments[rng.below(std::size(kArguments))];
    const bool whole = n > 1 || rng.below(2) == 0;
    if (!whole) arguments.resize(rng.below(arguments.size() + 1));
    while (!arguments.empty() && !is_valid_utf8(arguments)) arguments.pop_back();
    if (!arguments.empty()) out.push_back(event(Kind::kToolArgs, arguments, call));
    out.push_back(end_of_call(call++, whole));
  }
  return out;
}

/// The same events, texts cut between characters, in pieces of any size.
void push_cut(Answer& answer, const std::vector<OutputEvent>& events, Rng& rng) {
  std::vector<OutputEvent> piece;
  const auto add = [&](OutputEvent e) {
    piece.push_back(std::move(e));
    if (rng.below(3) == 0) answer.push(std::exchange(piece, {}));
  };
  for (const OutputEvent& e : events) {
    const bool cuttable = e.kind == Kind::kReasoning || e.kind == Kind::kText || e.kind == Kind::kToolArgs;
    if (!cuttable) {
      add(e);
      continue;
    }
    for (std::size_t at = 0; at < e.text.size();) {
      std::size_t end = at + 1 + rng.below(e.text.size() - at);
      while (end < e.text.size() && (static_cast<unsigned char>(e.text[end]) & 0xC0U) == 0x80U) ++end;
      OutputEvent part = e;
      part.text = e.text.substr(at, end - at);
      add(std::move(part));
      at = end;
    }
  }
  if (!piece.empty()) answer.push(std::move(piece));
}

TEST(MessagesWriter, AStreamAddsUpToTheUnstreamedAnswer) {
  int calls = 0, thoughts = 0, empty = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const auto events = random_events(rng);
    ChoiceEnd end;
    end.finish = rng.below(3) == 0 ? FinishReason::kLength : FinishReason::kStop;
    for (const OutputEvent& e : events) end.complete_calls += e.kind == Kind::kToolEnd && e.complete ? 1 : 0;
    if (rng.below(4) == 0) end.stop_string = 0;
    Answer streamed(true, {"STOP"}), plain(false, {"STOP"});
    push_cut(streamed, events, rng);
    push_cut(plain, events, rng);
    const Json body = plain.finish(end).body();
    ASSERT_EQ(dump_json(accumulated(streamed.finish(end).bytes())), dump_json(body)) << "seed " << seed;
    const auto& content = body.find("content")->as_array();
    empty += content.empty() ? 1 : 0;
    for (const Json& block : content) {
      calls += *block.find("type") == Json("tool_use") ? 1 : 0;
      thoughts += *block.find("type") == Json("thinking") ? 1 : 0;
    }
  }
  EXPECT_GT(calls, 500);
  EXPECT_GT(thoughts, 500);
  EXPECT_GT(empty, 50);
}

}  // namespace
}  // namespace barg::server::messages_writer_test
