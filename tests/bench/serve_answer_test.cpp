// Reading answers: framings, splits, dialects of servers, and what is not an answer.
#include <gtest/gtest.h>

#include "bench/serve_answer.h"
#include "scripted_server.h"

namespace barg::bench::serve_answer_test {
namespace {

using testing::chunk;
using testing::good_answer;
using testing::kStreamHead;
using testing::last_events;
using testing::token_event;
using State = ServeAnswer::State;

ServeAnswer read_whole(const std::string& bytes) {
  ServeAnswer answer;
  answer.begin(16, true);
  answer.feed(bytes, 5);
  return answer;
}

std::string plain(const std::string& events, const std::string& fields = "") {
  return "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + fields + "\r\n" + events;
}

TEST(ServeAnswer, ReadsEverySplitOfAChunkedStream) {
  const std::string bytes = good_answer(3);
  for (std::size_t step = 1; step < 40; ++step) {
    ServeAnswer answer;
    answer.begin(4, true);
    State state = State::kReading;
    std::int64_t now = 0;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_EQ(state, State::kReading) << step;
      state = answer.feed(std::string_view(bytes).substr(at, step), ++now);
    }
    ASSERT_EQ(state, State::kDone) << step;
    const AnswerFacts& facts = answer.facts();
    EXPECT_EQ(facts.status, 200);
    EXPECT_EQ(facts.stamps.size(), 3U);
    EXPECT_LE(facts.stamps[0], facts.stamps[1]);
    EXPECT_GE(facts.done, facts.stamps[2]);
    EXPECT_EQ(facts.text, " word word word");
    EXPECT_EQ(facts.prompt_tokens, 7);
    EXPECT_EQ(facts.completion_tokens, 3);
    EXPECT_EQ(facts.cached_tokens, 3);
    EXPECT_TRUE(facts.saw_done && facts.saw_finish && facts.error.empty());
    EXPECT_TRUE(answer.keep_alive());
  }
}

TEST(ServeAnswer, AnEventMayGoOnInTheNextChunk) {
  // A proxy cuts chunks where its buffer ends.
  const std::string events = token_event() + token_event() + last_events(7, 2);
  for (std::size_t step = 1; step < 80; ++step) {
    std::string bytes = kStreamHead;
    for (std::size_t at = 0; at < events.size(); at += step) bytes += chunk(events.substr(at, step));
    const ServeAnswer answer = read_whole(bytes + "0\r\n\r\n");
    ASSERT_EQ(answer.state(), State::kDone) << step << " " << answer.facts().detail;
    EXPECT_EQ(answer.facts().stamps.size(), 2U);
    EXPECT_EQ(answer.facts().completion_tokens, 2);
    EXPECT_TRUE(answer.facts().saw_done && answer.keep_alive());
  }
}

TEST(ServeAnswer, StampsAPieceWithTheReadThatCompletedIt) {
  ServeAnswer answer;
  answer.begin(4, false);
  answer.feed(kStreamHead, 1);
  const std::string event = chunk(token_event());
  answer.feed(event.substr(0, 30), 2);
  answer.feed(event.substr(30), 3);
  answer.feed(event + event, 4);
  EXPECT_EQ(answer.facts().stamps, (std::vector<std::int64_t>{3, 4, 4}));
}

TEST(ServeAnswer, KnowsTheThreeFramings) {
  const std::string events = token_event() + last_events(1, 1);
  const ServeAnswer counted = read_whole(plain(events, "Content-Length: " + std::to_string(events.size()) + "\r\n"));
  EXPECT_EQ(counted.state(), State::kDone);
  EXPECT_TRUE(counted.keep_alive());
  ServeAnswer open_ended = read_whole(plain(events));
  EXPECT_EQ(open_ended.state(), State::kReading);
  EXPECT_EQ(open_ended.end(6), State::kDone);
  EXPECT_FALSE(open_ended.keep_alive());
  EXPECT_EQ(open_ended.facts().done, 5);  // [DONE], not the close
  const ServeAnswer closing = read_whole(plain(events, "Connection: close\r\nContent-Length: " +
                                                           std::to_string(events.size()) + "\r\n"));
  EXPECT_EQ(closing.state(), State::kDone);
  EXPECT_FALSE(closing.keep_alive());
}

TEST(ServeAnswer, DialectsOfServers) {
  // llama-server: timings with the cache; vLLM: spaces, usage in every event; chat: a role first, reasoning.
  const ServeAnswer llama = read_whole(plain(
      "data: {\"choices\":[{\"text\":\"a\\\"b\\\\\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],\"usage\":{\"completion_tokens\":1,"
      "\"prompt_tokens\":9,\"total_tokens\":10},\"timings\":{\"cache_n\":4,\"prompt_n\":5}}\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(llama.facts().text, "a\\\"b\\\\");
  EXPECT_EQ(llama.facts().prompt_tokens, 9);
  EXPECT_EQ(llama.facts().cached_tokens, 4);
  const ServeAnswer vllm = read_whole(
      plain("data: {\"choices\": [{\"text\" : \"x\", \"finish_reason\": null}], \"usage\": {\"prompt_tokens\": 2, "
            "\"completion_tokens\": 2}}\r\n\r\ndata: {\"choices\": [{\"text\": \"y\", \"finish_reason\": \"stop\"}], "
            "\"usage\": {\"prompt_tokens\": 2, \"completion_tokens\": 5}}\r\n\r\ndata: [DONE]\r\n\r\n"));
  EXPECT_EQ(vllm.facts().counted, (std::vector<std::uint32_t>{2, 5}));
  const ServeAnswer chat = read_whole(
      plain("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: a comment\n\n"
            "data: {\"choices\":[{\"delta\":{\"content\":null,\"reasoning_content\":\"hm\"}}]}\n\n"
            "data: {\"choices\":[{\"delta\":{\"content\":\"say \\\"text\\\": \\\"no\\\"\"},"
            "\"logprobs\":{\"content\":[{\"token\":\"say\"}]}}]}\n\n"
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"));
  EXPECT_EQ(chat.facts().stamps.size(), 2U);
  EXPECT_EQ(chat.facts().text, "hmsay \\\"text\\\": \\\"no\\\"");
  EXPECT_TRUE(chat.facts().saw_finish);
  EXPECT_FALSE(chat.facts().saw_done);
}

TEST(ServeAnswer, ErrorsKeepTheServersSentence) {
  const std::string body = R"({"error":{"message":"the queue is full","type":"rate_limit"}})";
  const ServeAnswer limited =
      read_whole("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Type: application/json\r\n"
                 "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(limited.state(), State::kDone);
  EXPECT_EQ(limited.facts().status, 429);
  EXPECT_EQ(limited.facts().retry_after_s, 2);
  EXPECT_EQ(limited.facts().detail, "the queue is full");
  const ServeAnswer in_stream = read_whole(plain(token_event() + "data: {\"error\":{\"message\":\"lost\"}}\n\n"));
  EXPECT_EQ(in_stream.facts().error, "stream_error");
  EXPECT_EQ(in_stream.facts().detail, "lost");
  const ServeAnswer old_llama = read_whole(plain("error: {\"message\":\"slot died\"}\n\n"));
  EXPECT_EQ(old_llama.facts().detail, "slot died");
  const ServeAnswer no_stream =
      read_whole("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(no_stream.facts().error, "bad_stream");
}

TEST(ServeAnswer, GarbageIsAnErrorNotACrash) {
  EXPECT_EQ(read_whole("SSH-2.0-OpenSSH_9.2\r\n").facts().error, "bad_http");
  EXPECT_EQ(read_whole("HTTP/1.1 xx\r\n\r\n").facts().error, "bad_http");
  EXPECT_EQ(read_whole(std::string(kStreamHead) + "zz\r\n").facts().error, "bad_http");
  EXPECT_EQ(read_whole(good_answer(1) + "HTTP/1.1 200").facts().error, "bad_http");
  EXPECT_EQ(read_whole(plain("data: not json\n\n")).facts().error, "bad_stream");
  EXPECT_EQ(read_whole("HTTP/1.1 200 OK\r\nX: " + std::string(70 << 10, 'x')).facts().error, "bad_http");
  EXPECT_EQ(read_whole(plain("data: " + std::string(2 << 20, 'x'))).facts().error, "bad_stream");
  ServeAnswer cut = read_whole(std::string(kStreamHead) + chunk(token_event()));
  EXPECT_EQ(cut.end(6), State::kBroken);
  EXPECT_EQ(cut.facts().error, "connection_lost");
  // Every prefix of a good answer, and every answer with one byte changed, ends in some state.
  const std::string good = good_answer(2);
  for (std::size_t i = 0; i < good.size(); ++i) {
    read_whole(good.substr(0, i)).end(9);
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    read_whole(changed).end(9);
  }
}

TEST(ServeAnswer, AKeyIsNeverFoundInsideAText) {
  EXPECT_EQ(find_text_member(R"({"a":"\"text\":\"no\"","text":"yes"})", "\"text\""), "yes");
  EXPECT_EQ(find_text_member(R"({"a":"text","b":1})", "\"text\""), "");
  EXPECT_EQ(find_text_member(R"({"text":null,"x":{"text" : "deep"}})", "\"text\""), "deep");
  EXPECT_EQ(find_text_member(R"({"text":"never ends)", "\"text\""), "");
  EXPECT_EQ(find_text_member(R"({"text":"ends in a backslash\)", "\"text\""), "");
}

}  // namespace
}  // namespace barg::bench::serve_answer_test
