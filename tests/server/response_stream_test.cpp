// The same tokens, cut into events in every way and streamed or not, give the same answer.
#include "server/response_stream.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/env.h"
#include "fake_engine.h"
#include "fake_tokenizer.h"
#include "server/api_error.h"

namespace barg::server::response_stream_test {
namespace {

using test::bytes_of;
using test::FakeEngine;
using test::kEnd;

/// What a client has after reading an answer, streamed or not.
struct Read {
  std::string text;
  Json tokens = Json::array(), logprobs = Json::array(), ids = Json::array();
  std::string finish, stop_reason;
  Json usage;
  std::string error;
  bool done = false;
  int finishes = 0;
  bool operator==(const Read&) const = default;
};

void collect(const Json& choice, const char* holder, Read& out) {
  const Json* body = choice.find(holder);
  const Json* text = body ? body->find("content") : choice.find("text");
  if (text && text->is_string()) out.text += text->as_string();
  if (const Json* lp = choice.find("logprobs"); lp && !lp->is_null()) {
    if (const Json* content = lp->find("content")) {
      for (const Json& e : content->as_array()) out.logprobs.push(e);
    } else {
      for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
        Json* list = out.logprobs.size() > 0 || out.logprobs.is_object() ? out.logprobs.find(key) : nullptr;
        if (!list) {
          if (!out.logprobs.is_object()) out.logprobs = Json::object();
          out.logprobs.set(key, Json::array());
          list = out.logprobs.find(key);
        }
        for (const Json& e : lp->find(key)->as_array()) list->push(e);
      }
    }
  }
  if (const Json* ids = choice.find("token_ids")) {
    for (const Json& id : ids->as_array()) out.ids.push(id);
  }
  if (const Json* f = choice.find("finish_reason"); f && f->is_string()) {
    out.finish = f->as_string();
    ++out.finishes;
    if (const Json* s = choice.find("stop_reason")) out.stop_reason = dump_json(*s);
  }
}

std::vector<Read> read_stream(const std::string& bytes, std::size_t choices) {
  std::vector<Read> out(choices);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find("\n\n", at);
    const std::string data = bytes.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") {
      for (Read& r : out) r.done = true;
      EXPECT_EQ(at, bytes.size());
      break;
    }
    const Json json = *parse_json(data);
    if (const Json* e = json.find("error")) {
      for (Read& r : out) r.error = e->find("code")->as_string();
      continue;
    }
    for (const Json& c : json.find("choices")->as_array()) {
      EXPECT_NE(c.find("finish_reason"), nullptr);
      collect(c, "delta", out[static_cast<std::size_t>(c.find("index")->as_int())]);
    }
    if (const Json* u = json.find("usage"); u && !u->is_null()) {
      for (Read& r : out) r.usage = *u;
    }
  }
  return out;
}

std::vector<Read> read_body(const std::string& bytes) {
  std::vector<Read> out;
  const Json json = *parse_json(bytes);
  for (const Json& c : json.find("choices")->as_array()) {
    Read r;
    collect(c, "message", r);
    r.usage = *json.find("usage");
    r.done = true;
    out.push_back(std::move(r));
  }
  return out;
}

struct Scenario {
  OutputSpec spec;
  std::int32_t n = 1;
  std::vector<std::vector<TokenId>> tokens;  // per choice
  FinishReason finish = FinishReason::kLength;
  PromptInfo prompt{.ids = bytes_of("hey"), .text = "hey", .from_text = true};
};

/// Feeds the run's tokens in pieces of random size; an event after a stop string is still sent, as an engine
/// may.
std::vector<Read> play(Scenario run, bool stream, std::uint64_t seed,
                       std::vector<ResponseStream::FinishAt>* finish_at = nullptr) {
  static const test::FakeTokenizer tokenizer;
  run.spec.stream = stream;
  run.spec.include_usage = stream;
  ResponseStream rs({.id = "x", .model = "m", .fingerprint = "f", .created = 1}, run.spec, run.n,
                    {run.prompt}, tokenizer);
  std::string bytes = stream ? rs.begin() : "";
  Rng rng(seed);
  std::vector<std::size_t> at(run.tokens.size(), 0);
  std::vector<bool> over(run.tokens.size(), false);
  std::size_t left = run.tokens.size();
  bool prompt_sent = false, complete = false;
  while (left > 0) {
    const std::size_t k = rng.below(run.tokens.size());
    if (over[k]) continue;
    TokenEvent e;
    e.choice = static_cast<std::int32_t>(k);
    e.stats.cached_tokens = 2;
    e.stats.cached_by_place = {0, 0, 1, 1};
    if (k == 0 && !prompt_sent && (run.spec.prompt_logprobs || (run.spec.echo && run.spec.logprobs))) {
      for (const TokenId id : run.prompt.ids) e.prompt_logprobs.push_back(FakeEngine::logprobs_of(id, 2));
      e.prompt_logprobs[0] = {};
      e.prompt_logprobs[0].id = run.prompt.ids[0];
      prompt_sent = true;
    }
    for (std::uint64_t count = 1 + rng.below(3); count > 0 && at[k] < run.tokens[k].size(); --count) {
      const TokenId id = run.tokens[k][at[k]++];
      e.tokens.push_back({.id = id, .logprobs = std::nullopt});
      if (run.spec.logprobs) e.tokens.back().logprobs = FakeEngine::logprobs_of(id, *run.spec.logprobs);
    }
    if (at[k] == run.tokens[k].size()) {
      e.finish = run.finish;
      if (run.finish == FinishReason::kStop) e.stop_token = run.tokens[k].back();
      over[k] = true;
      --left;
    }
    auto step = rs.push(0, std::move(e), bytes);
    complete = complete || step.complete;
    if (finish_at) finish_at->insert(finish_at->end(), step.finish_at.begin(), step.finish_at.end());
    if (step.error) bytes += rs.error_events(*step.error);
  }
  EXPECT_TRUE(complete || run.finish == FinishReason::kError || run.finish == FinishReason::kAbort);
  if (!stream) return read_body(rs.body());
  return read_stream(bytes, static_cast<std::size_t>(run.n));
}

void expect_same_everywhere(const Scenario& run) {
  const auto want = play(run, false, 1);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    EXPECT_EQ(play(run, false, seed), want) << seed;
    const auto streamed = play(run, true, seed);
    ASSERT_EQ(streamed.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(streamed[i].text, want[i].text) << seed;
      EXPECT_EQ(dump_json(streamed[i].logprobs), dump_json(want[i].logprobs)) << seed;
      EXPECT_EQ(streamed[i].ids, want[i].ids) << seed;
      EXPECT_EQ(streamed[i].finish, want[i].finish) << seed;
      EXPECT_EQ(streamed[i].stop_reason, want[i].stop_reason) << seed;
      EXPECT_EQ(streamed[i].finishes, 1);
      EXPECT_EQ(dump_json(streamed[i].usage), dump_json(want[i].usage)) << seed;
      EXPECT_TRUE(streamed[i].done);
    }
  }
}

std::vector<TokenId> emoji_tokens() {
  auto ids = bytes_of("a\xF0\x9F\x98\x80z ");
  ids.insert(ids.end(), {test::kEmojiHead, test::kEmojiTail, test::kHello, kEnd, test::kWorld, 0xC3});
  return ids;
}

TEST(ResponseStream, AnySplitGivesTheSameChat) {
  Scenario run;
  run.n = 3;
  run.spec.logprobs = 2;
  run.spec.return_token_ids = true;
  run.tokens = {emoji_tokens(), bytes_of("other"), bytes_of("\xE2\x82\xAC\xE2")};
  expect_same_everywhere(run);
  const auto got = play(run, false, 5);
  EXPECT_EQ(got[0].text, "a\xF0\x9F\x98\x80z \xF0\x9F\x98\x80Hello world\xEF\xBF\xBD");
  EXPECT_EQ(got[0].logprobs.size(), emoji_tokens().size() - 1) << "one is a skipped special token";
  EXPECT_EQ(got[0].finish, "length");
  EXPECT_EQ(got[0].usage.find("completion_tokens")->as_int(),
            static_cast<std::int64_t>(emoji_tokens().size() + 9));
  EXPECT_EQ(got[0].usage.find("prompt_tokens")->as_int(), 3);
  EXPECT_EQ(got[0].usage.find("prompt_tokens_details")->find("cached_tokens")->as_int(), 2);
  EXPECT_EQ(dump_json(*got[0].usage.find("prompt_tokens_details")->find("cached_tokens_by_tier")),
            R"({"device":0,"dram":0,"disk":1,"remote":1})");
}

TEST(ResponseStream, AnySplitGivesTheSameCompletionWithStopsAndEcho) {
  for (const bool echo : {false, true}) {
    for (const bool include : {false, true}) {
      Scenario run;
      run.spec.api = Api::kCompletions;
      run.spec.echo = echo;
      run.spec.include_stop = include;
      run.spec.logprobs = 1;
      run.spec.stop = {"END", "Never", "Ex"};
      run.n = 2;
      run.tokens = {bytes_of("so E EN ENxEND and more"), bytes_of("no stop E")};
      expect_same_everywhere(run);
      const auto got = play(run, false, 3);
      EXPECT_EQ(got[0].text, std::string(echo ? "hey" : "") + "so E EN ENx" + (include ? "END" : ""));
      EXPECT_EQ(got[0].finish, "stop");
      EXPECT_EQ(got[0].stop_reason, "\"END\"");
      EXPECT_EQ(got[1].text, std::string(echo ? "hey" : "") + "no stop E");
      EXPECT_EQ(got[1].finish, "length");
      // 14 tokens up to the end of END, whether shown or not; with echo the prompt's three before them.
      EXPECT_EQ(got[0].logprobs.find("tokens")->size(), 14U + (echo ? 3U : 0U));
      EXPECT_EQ(got[0].logprobs.find("text_offset")->as_array()[0].as_int(), echo ? 0 : 3);
      EXPECT_EQ(got[0].logprobs.find("token_logprobs")->as_array()[0].is_null(), echo);
    }
  }
}

TEST(ResponseStream, StopStringTellsTheEngineOnce) {
  Scenario run;
  run.spec.stop = {"lo"};
  run.tokens = {bytes_of("hello hello hello")};
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    std::vector<ResponseStream::FinishAt> told;
    const auto got = play(run, true, seed, &told);
    EXPECT_EQ(got[0].text, "hel");
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].tokens, 5);
    EXPECT_EQ(got[0].usage.find("completion_tokens")->as_int(), 5);
  }
}

TEST(ResponseStream, MinTokensHoldsStopStringsOff) {
  Scenario run;
  run.spec.stop = {"ab"};
  run.spec.min_tokens = 3;
  run.tokens = {bytes_of("ababxab")};
  expect_same_everywhere(run);
  EXPECT_EQ(play(run, false, 1)[0].text, "ababx")
      << "the second b is token 4 but its a is within the first 3";
}

TEST(ResponseStream, EndTokenIsCountedAndNotShown) {
  Scenario run;
  run.finish = FinishReason::kStop;
  run.spec.logprobs = 0;
  run.tokens = {bytes_of("ok")};
  run.tokens[0].push_back(kEnd);
  expect_same_everywhere(run);
  const auto got = play(run, false, 1)[0];
  EXPECT_EQ(got.text, "ok");
  EXPECT_EQ(got.finish, "stop");
  EXPECT_EQ(got.stop_reason, "null");
  EXPECT_EQ(got.logprobs.size(), 2U) << "it is no part of the text";
  EXPECT_EQ(got.usage.find("completion_tokens")->as_int(), 3);
  run.tokens = {bytes_of("okX")};  // a stop id that is an ordinary token
  EXPECT_EQ(play(run, false, 1)[0].text, "ok");
  EXPECT_EQ(play(run, false, 1)[0].stop_reason, std::to_string('X'));
  run.spec.include_stop = true;
  EXPECT_EQ(play(run, false, 1)[0].text, "okX");
}

TEST(ResponseStream, SpecialTokensAreSkippedUnlessAskedFor) {
  Scenario run;
  run.tokens = {{'a', kEnd, 'b'}};
  EXPECT_EQ(play(run, false, 1)[0].text, "ab");
  run.spec.skip_special_tokens = false;
  EXPECT_EQ(play(run, false, 1)[0].text, "a<|end|>b");
}

TEST(ChoiceStream, RecordsLeaveWithTheTextThatCompletesThem) {
  static const test::FakeTokenizer tokenizer;
  OutputSpec spec;
  spec.stop = {"END"};
  ChoiceStream choice(tokenizer, spec, {.records = true});
  const auto push = [&](std::vector<TokenId> ids, FinishReason finish = FinishReason::kNone) {
    std::vector<OutputToken> tokens;
    for (const TokenId id : ids) tokens.push_back({.id = id, .logprobs = std::nullopt});
    const Piece piece = choice.push(std::move(tokens), finish, kNoToken);
    std::string text;
    for (const text::OutputEvent& event : piece.events) text += event.text;
    return std::pair(text, piece.tokens.size());
  };
  EXPECT_EQ(push({'a', test::kEmojiHead}), std::pair(std::string("a"), std::size_t{1}));
  EXPECT_EQ(push({0x98}), std::pair(std::string(), std::size_t{0}));
  EXPECT_EQ(push({0x80, 'E'}), std::pair(std::string("\xF0\x9F\x98\x80"), std::size_t{3}));
  EXPECT_EQ(push({'N'}), std::pair(std::string(), std::size_t{0}));
  // The token that ends the stop string begins a character that nobody will finish: its record is not lost.
  EXPECT_EQ(push({test::kHalf, 'x'}), std::pair(std::string(), std::size_t{3}));
  EXPECT_EQ(choice.token_count(), 7);
  EXPECT_EQ(choice.stop_string(), 0);
}

TEST(ChoiceStream, OffsetsPointAtTheTokenBehindABrokenCharacter) {
  static const test::FakeTokenizer tokenizer;
  ChoiceStream choice(tokenizer, {}, {.chars_before = 10, .records = true});
  std::vector<OutToken> records;
  for (const TokenId id : {TokenId{'a'}, TokenId{test::kHalf}, TokenId{'b'}, TokenId{'c'}}) {
    std::vector<OutputToken> one(1);
    one[0].id = id;
    Piece piece =
        choice.push(std::move(one), id == 'c' ? FinishReason::kLength : FinishReason::kNone, kNoToken);
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(records));
  }
  std::vector<std::size_t> starts;
  for (const OutToken& r : records) starts.push_back(r.char_start);
  EXPECT_EQ(starts, (std::vector<std::size_t>{10, 11, 13, 14}));  // a, D and U+FFFD, b, c
}

TEST(ResponseStream, ErrorsAndAbortsAreEventsNotReasons) {
  for (const FinishReason reason : {FinishReason::kError, FinishReason::kAbort}) {
    Scenario run;
    run.finish = reason;
    run.tokens = {bytes_of("abc")};
    const auto got = play(run, true, 1);
    EXPECT_EQ(got[0].finishes, 0);
    EXPECT_FALSE(got[0].error.empty());
    EXPECT_TRUE(got[0].done);
  }
}

TEST(ResponseStream, CharacterBegunInThePromptIsCompleted) {
  Scenario run;
  run.spec.api = Api::kCompletions;
  run.prompt = {.ids = {'x', test::kEmojiHead}, .text = {}};
  run.tokens = {{test::kEmojiTail, 'y'}};
  EXPECT_EQ(play(run, false, 1)[0].text, "\xF0\x9F\x98\x80y");
}

TEST(ResponseStream, ChatChunksHaveOpenAisShape) {
  static const test::FakeTokenizer tokenizer;
  OutputSpec spec;
  spec.stream = true;
  ResponseStream rs({.id = "chatcmpl-1", .model = "m", .fingerprint = "fp", .created = 7}, spec, 1,
                    {PromptInfo{.ids = {1}, .text = {}}}, tokenizer);
  EXPECT_EQ(rs.begin(),
            "data: "
            "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\","
            "\"system_fingerprint\":\"fp\","
            "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
            "\"finish_reason\":null}]}\n\n");
  TokenEvent e;
  e.tokens.push_back({.id = 'q', .logprobs = std::nullopt});
  e.finish = FinishReason::kLength;
  std::string bytes;
  rs.push(0, std::move(e), bytes);
  EXPECT_NE(bytes.find("\"choices\":[{\"index\":0,\"delta\":{\"content\":\"q\"},\"logprobs\":null,\"finish_"
                       "reason\":null}]}"),
            std::string::npos);
  EXPECT_NE(bytes.find("\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}]}"
                       "\n\ndata: [DONE]\n\n"),
            std::string::npos);
  EXPECT_EQ(bytes.find("usage"), std::string::npos);
}

TEST(ResponseStream, NonFiniteLogprobsAreClipped) {
  static const test::FakeTokenizer tokenizer;
  OutputSpec spec;
  spec.logprobs = 2;
  ResponseStream rs({}, spec, 1, {PromptInfo{.ids = {1}, .text = {}}}, tokenizer);
  TokenEvent e;
  TokenLogprobs lp{.id = 'a', .logprob = -INFINITY, .rank = 1, .top = {{'b', NAN}, {'c', -1e30F}}};
  e.tokens.push_back({.id = 'a', .logprobs = lp});
  e.finish = FinishReason::kLength;
  std::string bytes;
  rs.push(0, std::move(e), bytes);
  const std::string body = rs.body();
  EXPECT_EQ(body.find("inf"), std::string::npos);
  std::size_t floors = 0;
  for (std::size_t at = body.find("-9999.0"); at != std::string::npos; at = body.find("-9999.0", at + 1))
    ++floors;
  EXPECT_EQ(floors, 3U);
}

}  // namespace
}  // namespace barg::server::response_stream_test
