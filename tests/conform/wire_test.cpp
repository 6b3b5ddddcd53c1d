// The client of the rules: answers cut anywhere, answers that lie, addresses, limits, the gauges.
#include <gtest/gtest.h>

#include "conform/answer_reader.h"
#include "conform/fake_server.h"
#include "conform/load_gauge.h"
#include "conform/look.h"
#include "conform/sse.h"
#include "conform/stream_view.h"

namespace barg::conform::wire_test {
namespace {

using End = Exchange::End;

Exchange read_cut(std::string_view bytes, std::size_t piece, bool closes = false) {
  Exchange out;
  AnswerReader reader(out, false);
  for (std::size_t i = 0; i < bytes.size(); i += piece) reader.feed(bytes.substr(i, piece), static_cast<double>(i));
  if (closes) reader.close();
  return out;
}

constexpr std::string_view kChunked =
    "HTTP/1.1 100 Continue\r\n\r\n"
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Name:  a b \r\n\r\n"
    "5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nTrailer: 1\r\n\r\n";

TEST(AnswerReader, CutAnywhereIsTheSame) {
  for (std::size_t piece = 1; piece <= kChunked.size(); ++piece) {
    const Exchange e = read_cut(kChunked, piece);
    EXPECT_EQ(e.end, End::kComplete) << piece << e.problem;
    EXPECT_EQ(e.status, 200);
    EXPECT_EQ(e.body, "hello world");
    EXPECT_TRUE(e.interim);
    EXPECT_TRUE(e.extra.empty());
    ASSERT_NE(e.header("x-name"), nullptr);
    EXPECT_EQ(*e.header("x-name"), "a b");
  }
}

TEST(AnswerReader, TimesOfTheBody) {
  Exchange out;
  AnswerReader reader(out, false);
  reader.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 1);
  reader.feed("he", 2);
  reader.feed("lloX", 3);
  ASSERT_EQ(out.packets.size(), 3U);
  EXPECT_EQ(out.packets[1].body_end, 2U);
  EXPECT_EQ(out.packets[2].body_end, 5U);
  EXPECT_EQ(out.extra, "X");
  EXPECT_EQ(out.end, End::kComplete);
}

TEST(AnswerReader, WhatIsWrongIsSaid) {
  const std::tuple<std::string, End, const char*> table[] = {
      {"SSH-2.0-x\r\n", End::kBroken, "does not speak HTTP"},
      {"HTTP/1.1 abc\r\n\r\n", End::kBroken, "first line"},
      {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", End::kBroken, "Content-Length"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", End::kBroken, "Content-Length"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", End::kCutShort, "middle of the body"},
      {"HTTP/1.1 200 OK\r\n", End::kCutShort, "complete head"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", End::kBroken, "longer than its size"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n", End::kBroken, "CR LF"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", End::kBroken, "hexadecimal"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(20000, '1'), End::kBroken, "endless line"},
      {"HTTP/1.1 200 OK\r\n" + std::string(70000, 'a'), End::kBroken, "64 KiB"},
      {"HTTP/1.1 200 OK\r\n\r\nuntil the end", End::kComplete, ""},
      {"HTTP/1.1 204 No Content\r\n\r\n", End::kComplete, ""},
  };
  for (const auto& [bytes, end, problem] : table) {
    for (const std::size_t piece : {std::size_t{7}, bytes.size()}) {
      const Exchange e = read_cut(bytes, piece, true);
      EXPECT_EQ(e.end, end) << bytes.substr(0, 60) << ": " << e.problem;
      EXPECT_NE(e.problem.find(problem), std::string::npos) << e.problem;
    }
  }
}

TEST(AnswerReader, ABodyIsBounded) {
  Exchange out;
  AnswerReader reader(out, false);
  reader.feed("HTTP/1.1 200 OK\r\n\r\n", 0);
  const std::string block(1 << 20, 'x');
  for (int i = 0; i < 40 && !reader.done(); ++i) reader.feed(block, 1);
  EXPECT_EQ(out.end, End::kBroken);
  EXPECT_LE(out.body.size(), kMaxBodyBytes);
}

TEST(ParseTarget, UrlsAndWhatIsNone) {
  const Target t = *parse_target("http://[::1]:8080/base/v1/");
  EXPECT_EQ(t.host, "::1");
  EXPECT_EQ(t.port, "8080");
  EXPECT_EQ(t.prefix, "/base");
  EXPECT_EQ(parse_target("http://host")->port, "80");
  EXPECT_EQ(parse_target("http://host/v1")->prefix, "");
  for (const char* bad : {"https://h", "h:1", "http://", "http://:80", "http://h:", "http://h:999999", "http://h:x",
                          "http://[::1", "http://h/a b", "http://h/?x", "http://h\r\nX: y"}) {
    EXPECT_FALSE(parse_target(bad)) << bad;
  }
}

TEST(Wire, HostNamesAndIpv6) {
  const testing::FakeServer four;
  const std::string port = four.url().substr(four.url().rfind(':'));
  EXPECT_EQ(
      exchange_once(*parse_target("http://localhost" + port), {.path = "/health", .body = {}, .headers = {}}, 5).status,
      200);
  const testing::FakeServer six({}, AF_INET6);
  if (!six.bound()) GTEST_SKIP() << "skipped: no IPv6 on this machine";
  EXPECT_EQ(exchange_once(*parse_target(six.url()), {.path = "/health", .body = {}, .headers = {}}, 5).status, 200);
}

TEST(Wire, SilenceAndAbsenceAreFacts) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const Target target = *parse_target("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  const Exchange nobody = exchange_once(target, {.body = {}, .headers = {}}, 0.2);
  EXPECT_EQ(nobody.end, End::kUnreachable);
  EXPECT_NE(nobody.problem.find("nobody answers"), std::string::npos);
  ASSERT_EQ(listen(listener, 4), 0);
  const Exchange silent = exchange_once(target, {.body = {}, .headers = {}}, 0.1);
  EXPECT_EQ(silent.end, End::kTimeout);
  EXPECT_LT(silent.seconds, 5);
  close(listener);
}

TEST(Sse, LinesAreKept) {
  Exchange e;
  e.body = ": hi\n\ndata: a\ndata:b\nid: 7\n\nevent: x\ndata: {}\r\n\r\ndata: rest\n";
  e.packets = {{1, 6}, {2, 30}, {3, e.body.size()}};
  const SseStream s = read_sse(e);
  ASSERT_EQ(s.events.size(), 2U);
  EXPECT_EQ(s.events[0].data, "a\nb");
  EXPECT_EQ(s.events[0].data_lines, 2);
  EXPECT_EQ(s.events[0].others, std::vector<std::string>{"id: 7"});
  EXPECT_EQ(s.events[1].event, "x");
  EXPECT_EQ(s.comments, std::vector<double>{1});
  EXPECT_EQ(s.events[0].at, 2);
  EXPECT_EQ(s.events[1].at, 3);
  EXPECT_EQ(s.rest, "data: rest\n");
  EXPECT_TRUE(s.carriage_returns);
}

TEST(StreamView, CallsAreJoinedByIndex) {
  Exchange e;
  const auto part = [&](const std::string& call) {
    e.body += "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[" + call + "]}}]}\n\n";
  };
  part(R"({"index":0,"id":"a","function":{"name":"f","arguments":"{"}})");
  part(R"({"index":0,"function":{"arguments":"}"}})");
  part(R"({"index":1,"id":"b","function":{"name":"g","arguments":"[]"}})");
  e.packets = {{1, e.body.size()}};
  const StreamView view = view_stream(e);
  const StreamedChoice& choice = view.choices.at(0);
  ASSERT_EQ(choice.calls.size(), 2U);
  EXPECT_EQ(choice.calls[0].arguments, "{}");
  EXPECT_EQ(choice.calls[1].name, "g");
  EXPECT_EQ(choice.call_problem, "");
}

TEST(LoadGauge, NamesOfEachServer) {
  const auto load = read_prometheus(
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{model_name=\"a } b\"} 2.0\nvllm:num_requests_waiting 1\n"
      "vllm:kv_cache_usage_perc{x=\"y\"} 0.25\nvllm:gpu_cache_usage_perc{x=\"y\"} 0.25\nother 9\n");
  ASSERT_TRUE(load);
  EXPECT_EQ(load->requests, 3);
  EXPECT_EQ(load->kv_usage, 0.25);
  EXPECT_EQ(read_prometheus("llamacpp:requests_processing 4\n")->requests, 4);
  EXPECT_FALSE(read_prometheus("llamacpp:requests_processing many\nup 1\n"));
  EXPECT_FALSE(read_prometheus(""));
}

TEST(Look, PathsAndWhatIsShown) {
  const Json json = *parse_json(R"({"a":[{"b":"x"},{"b":7}],"n":null})");
  EXPECT_EQ(text_at(json, "a.0.b"), "x");
  EXPECT_EQ(int_at(json, "a.1.b"), 7);
  EXPECT_EQ(at(json, "a.2.b"), nullptr);
  EXPECT_EQ(at(json, "a.x"), nullptr);
  EXPECT_TRUE(null_at(json, "n"));
  EXPECT_FALSE(null_at(json, "m"));
  EXPECT_EQ(shown("a\n\xff\x01\xe2\x98\x83"), "a\\n\\xff\\x01\xe2\x98\x83");
  EXPECT_LT(shown(std::string(1000, 'x')).size(), 250U);
}

}  // namespace
}  // namespace barg::conform::wire_test
