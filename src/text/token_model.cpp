#include "text/token_model.h"

#include <array>

namespace barg::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

constexpr std::array<std::array<char, 6>, 256> kByteTokens = [] {
  std::array<std::array<char, 6>, 256> t{};
  for (unsigned b = 0; b < 256; ++b) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    t[b] = {'<', '0', 'x', kDigits[b >> 4], kDigits[b & 15], '>'};
  }
  return t;
}();

}  // namespace

int byte_of_token(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>') return -1;
  const int high = hex_digit(spelling[3]), low = hex_digit(spelling[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string_view token_of_byte(unsigned char byte) { return {kByteTokens[byte].data(), kByteTokens[byte].size()}; }

}  // namespace barg::text
