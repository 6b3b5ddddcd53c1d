#include "base/utf8.h"

namespace barg {
namespace {

// Table 3-7 of the Unicode standard: how many bytes a lead byte starts, and the range of its second byte.
struct Lead {
  int length;  // 0 = not a lead byte
  unsigned char second_lo, second_hi;
};

Lead lead_of(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

struct Scan {
  std::size_t bytes;  // consumed: the whole sequence or its maximal valid subpart (at least 1)
  bool valid;
  bool truncated;     // valid so far, ended by the end of the text
};

Scan scan(std::string_view s, std::size_t i) {
  const Lead lead = lead_of(static_cast<unsigned char>(s[i]));
  if (lead.length == 0) return {1, false, false};
  for (int k = 1; k < lead.length; ++k) {
    if (i + k >= s.size()) return {static_cast<std::size_t>(k), false, true};
    const auto b = static_cast<unsigned char>(s[i + k]);
    const unsigned char lo = k == 1 ? lead.second_lo : 0x80;
    const unsigned char hi = k == 1 ? lead.second_hi : 0xBF;
    if (b < lo || b > hi) return {static_cast<std::size_t>(k), false, false};
  }
  return {static_cast<std::size_t>(lead.length), true, false};
}

}  // namespace

bool is_valid_utf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const Scan r = scan(s, i);
    if (!r.valid) return false;
    i += r.bytes;
  }
  return true;
}

char32_t next_code_point(std::string_view s, std::size_t& i) {
  const Scan r = scan(s, i);
  const std::size_t at = i;
  i += r.bytes;
  if (!r.valid) return 0xFFFD;
  const auto b0 = static_cast<unsigned char>(s[at]);
  if (r.bytes == 1) return b0;
  char32_t cp = b0 & (0xFF >> (r.bytes + 1));
  for (std::size_t k = 1; k < r.bytes; ++k) cp = (cp << 6) | (static_cast<unsigned char>(s[at + k]) & 0x3F);
  return cp;
}

void append_utf8(std::string& out, char32_t cp) {
  if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) cp = 0xFFFD;
  if (cp < 0x80) {
    out += static_cast<char>(cp);
  } else if (cp < 0x800) {
    out += static_cast<char>(0xC0 | (cp >> 6));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    out += static_cast<char>(0xE0 | (cp >> 12));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (cp >> 18));
    out += static_cast<char>(0x80 | ((cp >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((cp >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  }
}

std::string repair_utf8(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (std::size_t i = 0; i < s.size();) {
    const Scan r = scan(s, i);
    if (r.valid) {
      out.append(s.substr(i, r.bytes));
    } else {
      out += "\xEF\xBF\xBD";
    }
    i += r.bytes;
  }
  return out;
}

std::size_t complete_utf8_prefix(std::string_view s) {
  const std::size_t from = s.size() > 3 ? s.size() - 3 : 0;
  for (std::size_t i = from; i < s.size(); ++i) {
    if (lead_of(static_cast<unsigned char>(s[i])).length > 1 && scan(s, i).truncated) return i;
  }
  return s.size();
}

}  // namespace barg
