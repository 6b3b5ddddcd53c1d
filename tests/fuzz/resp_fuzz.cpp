// Whatever a server says, RespParser says the same of it in one piece and byte by byte, and stays within its
// limits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "store/resp_parser.h"

namespace {

using barg::store::RespParser;
using Token = RespParser::Token;

constexpr RespParser::Limits kLimits{.max_bulk = 4096, .max_array = 64, .max_line = 64, .max_depth = 3};

/// The tokens of `in`, added to `out`; false after kBad.
bool take(RespParser& p, std::string_view in, std::string& out) {
  while (true) {
    const Token t = p.next(in);
    CHECK(p.bulk_left() <= kLimits.max_bulk);
    if (t == Token::kMore) {
      CHECK(in.empty());
      return true;
    }
    if (t == Token::kData) {
      CHECK(!p.data().empty());
      out += p.data();
      continue;
    }
    out += static_cast<char>('A' + static_cast<int>(t));
    if (t == Token::kSimple || t == Token::kError) {
      CHECK(p.text().size() <= kLimits.max_line);
      out += p.text();
    }
    if (t == Token::kInteger) out += std::to_string(p.integer());
    if (t == Token::kBulk || t == Token::kArray) out += std::to_string(p.length());
    if (p.reply_done()) out += ';';
    if (t == Token::kBad) return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  RespParser whole(kLimits), bytes(kLimits);
  std::string a, b;
  take(whole, all, a);
  for (std::size_t i = 0; i < size && take(bytes, all.substr(i, 1), b); ++i) {
  }
  CHECK(a == b);
  return 0;
}
