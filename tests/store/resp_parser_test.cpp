// RespParser: every kind of reply, cut at every byte; and what no server says.
#include "store/resp_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace barg::store::resp_parser_test {
namespace {

using barg::store::RespParser;
using Token = RespParser::Token;

/// What the parser makes of pieces, as text: data of a bulk string is joined.
std::string read(const std::vector<std::string>& pieces, RespParser::Limits limits = {}) {
  RespParser p(limits);
  std::string out;
  for (const std::string& piece : pieces) {
    std::string_view in = piece;
    while (true) {
      const Token t = p.next(in);
      if (t == Token::kMore) break;
      if (t == Token::kBad) return out + "bad:" + std::string(p.text());
      switch (t) {
        case Token::kSimple:
          out += "+" + std::string(p.text());
          break;
        case Token::kError:
          out += "-" + std::string(p.text());
          break;
        case Token::kInteger:
          out += ":" + std::to_string(p.integer());
          break;
        case Token::kNull:
          out += "null";
          break;
        case Token::kBulk:
          out += "$" + std::to_string(p.length()) + "(";
          break;
        case Token::kData:
          out += std::string(p.data());
          break;
        case Token::kBulkEnd:
          out += ")";
          break;
        case Token::kArray:
          out += "*" + std::to_string(p.length()) + "[";
          break;
        default:
          break;
      }
      if (p.reply_done()) out += ";";
    }
    EXPECT_TRUE(in.empty());
  }
  return out;
}

TEST(RespParser, RepliesCutAtEveryByte) {
  const std::string all =
      "+OK\r\n-ERR "
      "no\r\n:-42\r\n$5\r\nab\r\nc\r\n$0\r\n\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*0\r\n*-1\r\n+\r\n";
  const std::string want = "+OK;-ERR no;:-42;$5(ab\r\nc);$0();null;*2[:1*1[$1(x);*0[;null;+;";
  EXPECT_EQ(read({all}), want);
  for (std::size_t i = 0; i <= all.size(); ++i) {
    for (std::size_t j = i; j <= all.size(); j += 7) {
      EXPECT_EQ(read({all.substr(0, i), all.substr(i, j - i), all.substr(j)}), want) << i << " " << j;
    }
  }
}

TEST(RespParser, RefusesWhatIsNoRespAndWhatIsTooLarge) {
  RespParser::Limits small;
  small.max_bulk = 100;
  small.max_array = 10;
  small.max_line = 20;
  small.max_depth = 2;
  const std::vector<std::pair<std::string, std::string>> table = {
      {"HTTP/1.1 200 OK\r\n", "no type"},
      {"\r\n", "no type"},
      {"\n", "no type"},
      {"+\n", "not one of RESP"},
      {"+OK\n", "not one of RESP"},
      {"$101\r\n", "value of the reply is too long"},
      {"$99999999999999999999\r\n", "length of the reply is malformed"},
      {"$9223372036854775807\r\n", "too long"},
      {"$-2\r\n", "malformed"},
      {"$\r\n", "malformed"},
      {"$ 1\r\n", "malformed"},
      {"$+1\r\n", "malformed"},
      {"$1x\r\n", "malformed"},
      {"*11\r\n", "array of the reply is too long"},
      {"*1\r\n*1\r\n*1\r\n", "nested too deeply"},
      {":12a\r\n", "integer"},
      {":\r\n", "integer"},
      {"$1\r\nab\r\n", "where its length says"},
      {"$1\r\na\rx", "where its length says"},
      {"+" + std::string(21, 'x') + "\r\n", "line of the reply is too long"},
      {"-" + std::string(1000, 'x'), "line of the reply is too long"},
      {"%1\r\n", "no type"},
  };
  for (const auto& [text, why] : table) {
    const std::string got = read({text}, small);
    EXPECT_NE(got.find("bad:"), std::string::npos) << text;
    EXPECT_NE(got.find(why), std::string::npos) << text << " -> " << got;
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_NE(read(bytes, small).find(why), std::string::npos) << text;
  }
  RespParser p(small);
  std::string_view in = "?\r\n";
  EXPECT_EQ(p.next(in), Token::kBad);
  in = "+OK\r\n";
  EXPECT_EQ(p.next(in), Token::kBad) << "there is no way back into step";
}

TEST(RespParser, DataMayPassBeside) {
  RespParser p;
  std::string_view in = "$10\r\nabc";
  EXPECT_EQ(p.next(in), Token::kBulk);
  EXPECT_EQ(p.next(in), Token::kData);
  EXPECT_EQ(p.bulk_left(), 7U);
  p.skip(7);
  EXPECT_EQ(p.bulk_left(), 0U);
  in = "\r\n:1\r\n";
  EXPECT_EQ(p.next(in), Token::kBulkEnd);
  EXPECT_TRUE(p.reply_done());
  EXPECT_EQ(p.next(in), Token::kInteger);
}

}  // namespace
}  // namespace barg::store::resp_parser_test
