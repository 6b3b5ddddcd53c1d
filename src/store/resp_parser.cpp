#include "store/resp_parser.h"

#include <algorithm>
#include <charconv>

namespace barg::store {
namespace {

/// Digits with an optional minus and nothing else.
bool parse_integer(std::string_view s, std::int64_t& out) {
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), out);
  return ec == std::errc{} && end == s.data() + s.size();
}

}  // namespace

RespParser::Token RespParser::bad(std::string_view why) {
  state_ = State::kBad;
  text_ = why;
  line_.clear();
  done_ = false;
  return Token::kBad;
}

RespParser::Token RespParser::value(Token t) {
  while (!open_.empty() && --open_.back() == 0) open_.pop_back();
  done_ = open_.empty();
  return t;
}

RespParser::Token RespParser::next(std::string_view& in) {
  done_ = false;
  switch (state_) {
    case State::kBad:
      return Token::kBad;
    case State::kBulkData:
      if (left_ > 0) {
        if (in.empty()) return Token::kMore;
        data_ = in.substr(0, std::min<std::uint64_t>(left_, in.size()));
        in.remove_prefix(data_.size());
        left_ -= data_.size();
        return Token::kData;
      }
      state_ = State::kBulkCr;
      [[fallthrough]];
    case State::kBulkCr:
      if (in.empty()) return Token::kMore;
      if (in[0] != '\r') return bad("a bulk string does not end where its length says");
      in.remove_prefix(1);
      state_ = State::kBulkLf;
      [[fallthrough]];
    case State::kBulkLf:
      if (in.empty()) return Token::kMore;
      if (in[0] != '\n') return bad("a bulk string does not end where its length says");
      in.remove_prefix(1);
      state_ = State::kLine;
      return value(Token::kBulkEnd);
    case State::kLine:
      break;
  }
  if (line_.empty() && !in.empty() && std::string_view("+-:$*").find(in[0]) == std::string_view::npos) {
    return bad("the reply is of no type of RESP2");
  }
  const std::size_t end = in.find('\n');
  const std::size_t take = end == std::string_view::npos ? in.size() : end;
  if (line_.size() + take > limits_.max_line + 2) return bad("a line of the reply is too long");
  line_.append(in.substr(0, take));
  in.remove_prefix(take);
  if (end == std::string_view::npos) return Token::kMore;
  in.remove_prefix(1);
  if (line_.size() < 2 || line_.back() != '\r') return bad("a line of the reply is not one of RESP");
  line_.pop_back();
  const Token t = line(line_);
  line_.clear();
  return t;
}

RespParser::Token RespParser::line(std::string_view s) {
  const char type = s[0];
  s.remove_prefix(1);
  switch (type) {
    case '+':
    case '-':
      if (s.size() > limits_.max_line) return bad("a line of the reply is too long");
      text_ = s;
      return value(type == '+' ? Token::kSimple : Token::kError);
    case ':':
      if (!parse_integer(s, integer_)) return bad("an integer of the reply is malformed");
      return value(Token::kInteger);
    default:
      return sized(type, s);
  }
}

RespParser::Token RespParser::sized(char type, std::string_view digits) {
  std::int64_t n = 0;
  if (!parse_integer(digits, n) || n < -1) return bad("a length of the reply is malformed");
  if (n == -1) return value(Token::kNull);
  length_ = static_cast<std::uint64_t>(n);
  if (type == '$') {
    if (length_ > limits_.max_bulk) return bad("a value of the reply is too long");
    left_ = length_;
    state_ = State::kBulkData;
    return Token::kBulk;
  }
  if (length_ > limits_.max_array) return bad("an array of the reply is too long");
  if (length_ == 0) return value(Token::kArray);
  if (open_.size() >= limits_.max_depth) return bad("the reply is nested too deeply");
  open_.push_back(length_);
  return Token::kArray;
}

}  // namespace barg::store
