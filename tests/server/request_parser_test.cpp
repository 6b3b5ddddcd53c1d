#include "server/request_parser.h"

#include <gtest/gtest.h>

#include "server/http_server.h"

namespace barg::server::request_parser_test {
namespace {

using State = RequestParser::State;

struct Outcome {
  State state = State::kHead;
  int status = 0;
  HttpRequest request;
  std::string rest;
};

/// Feeds `bytes` cut at the given step.
Outcome parse(const std::string& bytes, std::size_t step, std::uint64_t max_body = 1000) {
  RequestParser parser(max_body);
  Outcome out;
  std::string buffer;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    buffer += bytes.substr(at, step);
    State before = State::kHead;
    do {
      before = parser.state();
      parser.feed(buffer);
    } while (parser.state() != before);
    if (parser.state() == State::kFailed || parser.state() == State::kDone) {
      out.rest = buffer + (at + step < bytes.size() ? bytes.substr(at + step) : "");
      break;
    }
  }
  out.state = parser.state();
  out.status = parser.status();
  out.request = parser.request();
  return out;
}

struct Case {
  const char* name;
  std::string bytes;
  int status;  // 0: accepted
};

std::string head(const std::string& fields) { return "POST /x HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"; }

std::vector<Case> cases() {
  std::string many;
  for (int i = 0; i < 101; ++i) many += "A" + std::to_string(i) + ": b\r\n";
  return {
      {"plain", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
      {"empty line before", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
      {"http/1.0 without host", "GET / HTTP/1.0\r\n\r\n", 0},
      {"length", head("Content-Length: 3\r\n") + "abc", 0},
      {"chunked", head("Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n", 0},
      {"absolute target", "GET http://h/x?y HTTP/1.1\r\nHost: h\r\n\r\n", 0},
      {"long target", "GET /" + std::string(64 * 1024, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 414},
      {"target just over", "GET /" + std::string(kMaxTargetBytes, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 414},
      {"101 fields", "GET / HTTP/1.1\r\nHost: h\r\n" + many + "\r\n", 431},
      {"17 KiB of header", head("A: " + std::string(17 * 1024, 'b') + "\r\n"), 431},
      {"endless header", "GET / HTTP/1.1\r\nA: " + std::string(40'000, 'b'), 431},
      {"length and chunked", head("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "abc", 400},
      {"chunked and length", head("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n") + "abc", 400},
      {"two lengths", head("Content-Length: 3\r\nContent-Length: 4\r\n") + "abc", 400},
      {"two equal lengths", head("Content-Length: 3\r\nContent-Length: 3\r\n") + "abc", 400},
      {"listed lengths", head("Content-Length: 3, 3\r\n") + "abc", 400},
      {"plus length", head("Content-Length: +5\r\n"), 400},
      {"negative length", head("Content-Length: -1\r\n"), 400},
      {"hex length", head("Content-Length: 0x10\r\n"), 400},
      {"length 2^64", head("Content-Length: 18446744073709551616\r\n"), 400},
      {"empty length", head("Content-Length:\r\n"), 400},
      {"gzip coding", head("Transfer-Encoding: gzip\r\n"), 501},
      {"gzip, chunked", head("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunk size -2", head("Transfer-Encoding: chunked\r\n") + "-2\r\nab\r\n", 400},
      {"chunk size 17 digits", head("Transfer-Encoding: chunked\r\n") + "11111111111111111\r\n", 400},
      {"chunk size in words", head("Transfer-Encoding: chunked\r\n") + "zz\r\n", 400},
      {"empty chunked", head("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", 0},
      {"chunk without CRLF", head("Transfer-Encoding: chunked\r\n") + "3\r\nabcdef\r\n", 400},
      {"chunk too large", head("Transfer-Encoding: chunked\r\n") + "fffff\r\n", 413},
      {"chunk extension bomb", head("Transfer-Encoding: chunked\r\n") + "3;" + std::string(40'000, 'x'), 400},
      {"trailer bomb", head("Transfer-Encoding: chunked\r\n") + "0\r\nA: " + std::string(40'000, 'x'), 400},
      {"folded", head("A: b\r\n c\r\n"), 400},
      {"bare LF", "GET / HTTP/1.1\nHost: h\n\n", 400},
      {"bare CR", "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400},
      {"NUL", std::string("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 26), 400},
      {"space before colon", head("A : b\r\n"), 400},
      {"no colon", head("Abc\r\n"), 400},
      {"missing host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
      {"host with slash", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", 400},
      {"host with query", "GET / HTTP/1.1\r\nHost: h?x\r\n\r\n", 400},
      {"host with user", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400},
      {"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
      {"host v6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 0},
      {"absolute target of another host", "GET http://other/x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"http/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"http/9.9", "GET / HTTP/9.9\r\nHost: h\r\n\r\n", 505},
      {"http/0.9", "GET /\r\n", 400},
      {"http/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
      {"tls hello", std::string("\x16\x03\x01\x02\x00\x01\x00", 7), 400},
      {"space first", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"other expectation", head("Expect: magic\r\nContent-Length: 3\r\n") + "abc", 417},
      {"control character in target", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
  };
}

TEST(RequestParser, TableOfHeads) {
  for (const Case& c : cases()) {
    const Outcome o = parse(c.bytes, c.bytes.size());
    EXPECT_EQ(o.status, c.status) << c.name;
    EXPECT_EQ(o.state, c.status == 0 ? State::kDone : State::kFailed) << c.name;
  }
}

TEST(RequestParser, FragmentationChangesNothing) {
  for (const Case& c : cases()) {
    const Outcome whole = parse(c.bytes, c.bytes.size());
    for (const std::size_t step : {1, 2, 3, 7, 64, 1000}) {
      const Outcome cut = parse(c.bytes, step);
      EXPECT_EQ(cut.state, whole.state) << c.name << " step " << step;
      EXPECT_EQ(cut.status, whole.status) << c.name << " step " << step;
      if (whole.state != State::kDone) continue;
      EXPECT_EQ(cut.request.headers, whole.request.headers) << c.name;
      EXPECT_EQ(cut.request.body, whole.request.body) << c.name;
      EXPECT_EQ(cut.request.path, whole.request.path) << c.name;
      EXPECT_EQ(cut.rest, whole.rest) << c.name;
    }
  }
}

TEST(RequestParser, LeavesTheNextRequestAlone) {
  const Outcome o = parse(head("Content-Length: 3\r\n") + "abcGET /", 1000);
  EXPECT_EQ(o.request.body, "abc");
  EXPECT_EQ(o.rest, "GET /");
}

TEST(RequestParser, PathIsRawAndWithoutQuery) {
  EXPECT_EQ(parse("GET /v1/models/a%2Fb?x=1#y HTTP/1.1\r\nHost: h\r\n\r\n", 99).request.path,
            "/v1/models/a%2Fb");
  EXPECT_EQ(parse("GET http://h?x HTTP/1.1\r\nHost: h\r\n\r\n", 99).request.path, "/");
}

}  // namespace
}  // namespace barg::server::request_parser_test
