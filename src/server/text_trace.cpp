#include "server/text_trace.h"

#include <algorithm>

namespace barg::server {
namespace {

using Kind = text::OutputEvent::Kind;

constexpr std::size_t kSpareBytes = 4096;  ///< decided ones that may lie in front before they are moved away
constexpr std::size_t kMaxUnseen = 256;    ///< bytes of a marker that the prompt wrote

/// Where `said` stands in `window` from `at` on, which a call of `behind` may have used the beginning of.
std::size_t place(std::string_view window, std::string_view said, std::size_t at, bool behind_call) {
  if (behind_call && window.size() >= at + said.size() && window.ends_with(said)) return window.size() - said.size();
  return window.find(said, at);
}

}  // namespace

void TextTrace::add(std::size_t begin, std::size_t size) {
  if (size == 0) return;
  const bool joins = !runs_.empty() && runs_.back().end == begin &&
                     runs_.back().text + (runs_.back().end - runs_.back().begin) == text_;
  if (joins) {
    runs_.back().end += size;
  } else {
    runs_.push_back({.begin = begin, .end = begin + size, .text = text_});
  }
}

void TextTrace::took(const text::OutputEvents& events, Mark since, std::size_t held) {
  const std::size_t undecided = waiting_.size() - head_;
  const std::size_t size = undecided - std::min(undecided, held);
  const std::string_view decided = window(size);
  bool behind_call = false;
  std::size_t at = 0;
  for (std::size_t i = since.events - (since.events > 0 ? 1 : 0); i < events.size(); ++i) {
    std::string_view said = events[i].text;
    if (i + 1 == since.events) said.remove_prefix(since.bytes);
    const Kind kind = events[i].kind;
    if (kind != Kind::kText && kind != Kind::kReasoning) {
      behind_call = behind_call || i >= since.events;
      continue;
    }
    std::size_t found = place(decided, said, at, behind_call), unseen = 0;
    if (found == std::string_view::npos) {  // it begins with what nobody gave: a marker that the prompt wrote
      found = at;
      while (unseen < said.size() && !decided.substr(at).starts_with(said.substr(unseen)))
        unseen = unseen < kMaxUnseen ? unseen + 1 : said.size();
    }
    if (kind == Kind::kText) {
      text_ += unseen;
      add(decided_ + found, said.size() - unseen);
      text_ += said.size() - unseen;
    }
    at = found + said.size() - unseen;
  }
  head_ += size;
  decided_ += size;
  if (head_ < kSpareBytes && head_ < waiting_.size()) return;
  waiting_.erase(0, head_);
  head_ = 0;
}

TextTrace::Range TextTrace::find(std::size_t begin, std::size_t end) {
  while (!runs_.empty() && runs_.front().end <= begin) runs_.pop_front();
  Range out;
  for (const Run& run : runs_) {
    if (run.begin >= end) break;
    const std::size_t first = std::max(run.begin, begin), last = std::min(run.end, end);
    if (out.begin == out.end) out.begin = run.text + (first - run.begin);
    out.end = run.text + (last - run.begin);
  }
  return out;
}

}  // namespace barg::server
