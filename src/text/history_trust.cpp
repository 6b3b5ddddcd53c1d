#include "text/history_trust.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/hash.h"

namespace barg::text {

namespace {

using Range = OwnWords::Range;

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMaxDigits = 10;

// `ranges` after the bytes of `cuts` (ascending, disjoint) are gone.
std::vector<Range> shifted(const std::vector<Range>& ranges, const std::vector<Range>& cuts) {
  std::size_t gone = 0;
  auto cut = cuts.begin();
  const auto moved = [&](std::size_t at) {
    for (; cut != cuts.end() && cut->second <= at; ++cut) gone += cut->second - cut->first;
    return (cut != cuts.end() && cut->first < at ? cut->first : at) - gone;
  };
  std::vector<Range> out;
  for (const auto& range : ranges) {
    const std::size_t begin = moved(range.first), end = moved(range.second);
    if (begin < end) out.emplace_back(begin, end);
  }
  return out;
}

std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& ours) {
  std::vector<Range> out;
  auto own = ours.begin();
  for (auto [begin, end] : ranges) {
    while (own != ours.end() && own->second <= begin) ++own;
    for (auto o = own; o != ours.end() && o->first < end; ++o) {
      if (o->first > begin) out.emplace_back(begin, o->first);
      begin = std::max(begin, o->second);
    }
    if (begin < end) out.emplace_back(begin, end);
  }
  return out;
}

}  // namespace

std::string unforeseen_word(std::initializer_list<const Json*> client) {
  Sha256 digest;
  for (const Json* part : client) {
    const std::string text = dump_json(*part);
    digest.update(std::to_string(text.size()) + ":").update(text);  // where one ends is said: nothing moves across
  }
  return hex(digest.finish());
}

OwnWords::OwnWords(std::initializer_list<const Json*> client)
    : nonce_(unforeseen_word(client).substr(0, kNonceBytes)) {}

std::string OwnWords::add(std::string words, std::vector<Range> ours) {
  if (nonce_.empty()) return words;
  std::string marked = mark(pieces_.size()) + words;
  pieces_.push_back({std::move(words), std::move(ours)});
  return marked;
}

void OwnWords::give_back(MarkedString& rendered) const {
  if (pieces_.empty()) return;
  const std::string_view all = rendered.text;
  std::string text;
  std::vector<Range> cuts, ours;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = all.find(nonce_, at)) != all.npos;) {
    const char* digits = all.data() + at + nonce_.size();
    const char* limit = digits + std::min(kMaxDigits, all.size() - at - nonce_.size());
    std::size_t i = 0;
    const char* behind = std::from_chars(digits, limit, i).ptr;
    std::size_t end = static_cast<std::size_t>(behind - all.data());
    if (end < all.size() && all[end] == ';') ++end;
    text.append(all, from, at - from);
    cuts.emplace_back(at, end);
    if (i < pieces_.size() && all.substr(end).starts_with(pieces_[i].words)) {
      for (const auto& [begin, stop] : pieces_[i].ours) ours.emplace_back(text.size() + begin, text.size() + stop);
    }
    from = at = end;
  }
  text.append(all, from);
  rendered.untrusted = without(shifted(rendered.untrusted, cuts), ours);
  rendered.text = std::move(text);
}

}  // namespace barg::text
