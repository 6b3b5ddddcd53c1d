#include "server/messages_volatile.h"

namespace barg::server {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header";
constexpr std::string_view kOpen = "<total_tokens>", kClose = " tokens left</total_tokens>";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxDigits = 32;

/// Length of a marker at the front of `s`, 0 if there is none.
std::size_t marker_length(std::string_view s) {
  if (!s.starts_with(kOpen)) return 0;
  std::size_t at = kOpen.size();
  while (at < s.size() && at < kOpen.size() + kMaxDigits && std::string_view("0123456789,_").contains(s[at])) ++at;
  if (at == kOpen.size() || !s.substr(at).starts_with(kClose)) return 0;
  return at + kClose.size();
}

}  // namespace

std::string without_volatile_lines(std::string_view text) {
  for (std::string_view rest = text;;) {
    const std::size_t start = rest.find_first_not_of(kSpace);
    if (start == std::string_view::npos || !rest.substr(start).starts_with(kBilling)) break;
    const std::size_t end = rest.find('\n', start);
    text = rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find(kOpen);
    if (at == std::string_view::npos) break;
    const std::size_t length = marker_length(text.substr(at));
    out += text.substr(0, length > 0 ? at : at + kOpen.size());
    text.remove_prefix(length > 0 ? at + length : at + kOpen.size());
    if (length > 0) out.erase(out.find_last_not_of(kSpace) + 1);
  }
  return out += text;
}

}  // namespace barg::server
