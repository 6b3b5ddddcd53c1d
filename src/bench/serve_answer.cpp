#include "bench/serve_answer.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/json.h"

namespace barg::bench {
namespace {

constexpr std::size_t kMaxHead = 64 << 10;
constexpr std::size_t kMaxLine = 1 << 20;
constexpr std::size_t kMaxErrorBody = 8 << 10;

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](unsigned char x, unsigned char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view s) {
  s.remove_prefix(std::min(s.find_first_not_of(" \t"), s.size()));
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// What follows `key` and its colon from `from` on; npos when the key is not there.
std::size_t value_after(std::string_view json, std::string_view key, std::size_t from) {
  while (true) {
    const void* hit =
        from < json.size() ? memmem(json.data() + from, json.size() - from, key.data(), key.size()) : nullptr;
    if (hit == nullptr) return std::string_view::npos;
    std::size_t at = static_cast<std::size_t>(static_cast<const char*>(hit) - json.data()) + key.size();
    from = at;
    while (at < json.size() && json[at] == ' ') ++at;
    if (at >= json.size() || json[at] != ':') continue;  // a value, not a key
    ++at;
    while (at < json.size() && json[at] == ' ') ++at;
    return at;
  }
}

std::int64_t find_count(std::string_view json, std::string_view key) {
  const std::size_t at = value_after(json, key, 0);
  std::int64_t value = -1;
  if (at != std::string_view::npos) std::from_chars(json.data() + at, json.data() + json.size(), value);
  return value;
}

// One line of at most `limit` bytes that a report can show.
std::string one_line(std::string_view text, std::size_t limit = 300) {
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

// The sentence in {"error": {"message": ...}}, {"error": "..."} or {"message": ...}; else the text itself.
std::string error_sentence(std::string_view body) {
  const Result<Json> json = parse_json(body, {.reject_duplicate_keys = false});
  if (!json) return one_line(body);
  const Json* error = json->find("error");
  if (error != nullptr && error->is_string()) return one_line(error->as_string());
  const Json* message = (error != nullptr ? error : &*json)->find("message");
  return message != nullptr && message->is_string() ? one_line(message->as_string()) : one_line(body);
}

}  // namespace

std::string_view find_text_member(std::string_view json, std::string_view key) {
  for (std::size_t at = 0; (at = value_after(json, key, at)) != std::string_view::npos;) {
    if (at >= json.size() || json[at] != '"') continue;
    const std::size_t start = ++at;
    while (at < json.size() && json[at] != '"') at += json[at] == '\\' ? 2 : 1;
    if (at > start && at < json.size()) return json.substr(start, at - start);
  }
  return {};
}

void ServeAnswer::begin(std::size_t expected_pieces, bool keep_text) {
  facts_ = AnswerFacts{};
  facts_.stamps.reserve(expected_pieces);
  state_ = State::kReading;
  part_ = Part::kHead;
  keep_text_ = keep_text;
  keep_alive_ = true;
  chunked_ = has_length_ = event_stream_ = false;
  left_ = 0;
  line_.clear();
  event_.clear();
  error_body_.clear();
}

ServeAnswer::State ServeAnswer::broken(const char* error, std::string detail) {
  facts_.error = error;
  facts_.detail = std::move(detail);
  keep_alive_ = false;
  return state_ = State::kBroken;
}

ServeAnswer::State ServeAnswer::finish(std::int64_t now) {
  if (!facts_.saw_done) facts_.done = now;
  if (!event_stream_) take_error_body();
  return state_ = State::kDone;
}

void ServeAnswer::take_error_body() {
  if (facts_.status >= 200 && facts_.status < 300) {
    facts_.error = "bad_stream";
    facts_.detail = "the answer is not an event stream: " + one_line(error_body_, 100);
  } else {
    facts_.detail = error_sentence(error_body_);
  }
}

ServeAnswer::State ServeAnswer::feed(std::string_view bytes, std::int64_t now) {
  facts_.got_bytes = facts_.got_bytes || !bytes.empty();
  while (!bytes.empty() && state_ == State::kReading) {
    if (part_ == Part::kPlain || part_ == Part::kChunkData) {
      const bool counted = part_ == Part::kChunkData || has_length_;
      const std::size_t take = counted ? std::min<std::uint64_t>(left_, bytes.size()) : bytes.size();
      take_body(bytes.substr(0, take), now);
      bytes.remove_prefix(take);
      left_ -= counted ? take : 0;
      if (state_ == State::kReading && counted && left_ == 0) {
        if (part_ == Part::kPlain) return bytes.empty() ? finish(now) : broken("bad_http", "bytes after the answer.");
        part_ = Part::kChunkEnd;
      }
      continue;
    }
    // Everything else is lines.
    const std::size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end == std::string_view::npos ? bytes.size() : end + 1));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (line_.size() > kMaxHead) return broken("bad_http", "the answer's head does not end.");
    if (end == std::string_view::npos) break;
    if (part_ == Part::kHead) {
      if (!line_.ends_with("\r\n\r\n") && !line_.ends_with("\n\n")) {
        if (line_.find('\n') == line_.size() - 1 && !line_.starts_with("HTTP/1."))
          return broken("bad_http", "what answers there does not speak HTTP/1.");
        continue;
      }
      const std::string head = std::exchange(line_, {});
      if (!take_head(head)) return broken("bad_http", "the head of the answer is malformed.");
      if (part_ == Part::kPlain && has_length_ && left_ == 0)
        return bytes.empty() ? finish(now) : broken("bad_http", "bytes after the answer.");
    } else {
      const std::string line = std::exchange(line_, {});
      const std::string_view text = trimmed(std::string_view(line).substr(0, line.size() - 1));
      if (part_ == Part::kTrailer && text.empty())
        return bytes.empty() ? finish(now) : broken("bad_http", "bytes after the answer.");
      if (!take_chunk_line(text)) return broken("bad_http", "a chunk of the answer is malformed.");
    }
  }
  return state_;
}

bool ServeAnswer::take_chunk_line(std::string_view line) {
  if (part_ == Part::kTrailer) return true;  // trailer fields mean nothing here
  if (part_ == Part::kChunkEnd) {
    part_ = Part::kChunkSize;
    return line.empty();
  }
  const auto [end, ec] = std::from_chars(line.data(), line.data() + line.size(), left_, 16);
  if (ec != std::errc{} || (end != line.data() + line.size() && *end != ';' && *end != ' ')) return false;
  part_ = left_ == 0 ? Part::kTrailer : Part::kChunkData;
  return true;
}

ServeAnswer::State ServeAnswer::end(std::int64_t now) {
  if (state_ != State::kReading) return state_;
  keep_alive_ = false;
  if (part_ == Part::kPlain && !has_length_) {
    if (!event_.empty()) take_line(std::exchange(event_, {}), now);
    return state_ == State::kReading ? finish(now) : state_;
  }
  // A server that says [DONE] and leaves without the last chunk has said everything.
  if (facts_.saw_done) return finish(now);
  return broken("connection_lost", "the connection closed in the middle of an answer.");
}

bool ServeAnswer::take_head(std::string_view head) {
  const std::size_t first = head.find('\n');
  const std::string_view status = head.substr(0, first);
  if (!status.starts_with("HTTP/1.") || status.size() < 12) return false;
  if (std::from_chars(status.data() + 9, status.data() + 12, facts_.status).ec != std::errc{}) return false;
  keep_alive_ = status[7] != '0';
  head.remove_prefix(first + 1);
  while (!head.empty()) {
    const std::size_t end = head.find('\n');
    take_field(head.substr(0, end));
    head.remove_prefix(end + 1);
  }
  if (facts_.status == 100) {  // an interim answer: the real one follows
    facts_.status = 0;
    return true;
  }
  event_stream_ = event_stream_ && facts_.status == 200;
  part_ = chunked_ ? Part::kChunkSize : Part::kPlain;
  if (!chunked_ && !has_length_) keep_alive_ = false;
  return true;
}

void ServeAnswer::take_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = trimmed(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (equals_ignoring_case(name, "transfer-encoding")) {
    chunked_ = equals_ignoring_case(value, "chunked");
  } else if (equals_ignoring_case(name, "content-length")) {
    has_length_ = std::from_chars(value.data(), value.data() + value.size(), left_).ec == std::errc{};
  } else if (equals_ignoring_case(name, "connection")) {
    if (equals_ignoring_case(value, "close")) keep_alive_ = false;
    if (equals_ignoring_case(value, "keep-alive")) keep_alive_ = true;
  } else if (equals_ignoring_case(name, "content-type")) {
    event_stream_ = value.size() >= 17 && equals_ignoring_case(value.substr(0, 17), "text/event-stream");
  } else if (equals_ignoring_case(name, "retry-after")) {
    std::from_chars(value.data(), value.data() + value.size(), facts_.retry_after_s);
  }
}

void ServeAnswer::take_body(std::string_view bytes, std::int64_t now) {
  if (!event_stream_) {
    error_body_.append(bytes.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, error_body_.size())));
    return;
  }
  while (!bytes.empty() && state_ == State::kReading) {
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      event_.append(bytes);
      if (event_.size() > kMaxLine) broken("bad_stream", "an event of the stream does not end.");
      return;
    }
    if (event_.empty()) {
      take_line(bytes.substr(0, end), now);
    } else {
      event_.append(bytes.substr(0, end));
      take_line(event_, now);
      event_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void ServeAnswer::take_line(std::string_view line, std::int64_t now) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with("data:")) {  // comments and other fields; llama.cpp sends errors as `error: {...}`
    if (line.starts_with("error:")) broken("stream_error", error_sentence(trimmed(line.substr(6))));
    return;
  }
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (line == "[DONE]") {
    facts_.saw_done = true;
    facts_.done = now;
    return;
  }
  take_event(line, now);
}

void ServeAnswer::take_event(std::string_view json, std::int64_t now) {
  std::string_view piece = find_text_member(json, "\"content\"");
  if (piece.empty()) piece = find_text_member(json, "\"text\"");
  if (piece.empty()) piece = find_text_member(json, "\"reasoning_content\"");
  if (piece.empty()) piece = find_text_member(json, "\"reasoning\"");
  if (!piece.empty()) {
    facts_.stamps.push_back(now);
    if (keep_text_) facts_.text.append(piece);
  } else if (!json.starts_with('{') || !json.ends_with('}')) {
    broken("bad_stream", "an event is not a JSON object: " + one_line(json, 100));
    return;
  } else if (value_after(json, "\"choices\"", 0) == std::string_view::npos &&
             value_after(json, "\"error\"", 0) != std::string_view::npos) {
    broken("stream_error", error_sentence(json));
    return;
  }
  facts_.saw_finish = facts_.saw_finish || !find_text_member(json, "\"finish_reason\"").empty();
  take_usage(json);
  if (!piece.empty() && facts_.completion_tokens >= 0)
    facts_.counted.push_back(static_cast<std::uint32_t>(facts_.completion_tokens));
}

void ServeAnswer::take_usage(std::string_view json) {
  const std::size_t at = value_after(json, "\"usage\"", 0);
  if (at == std::string_view::npos || at >= json.size() || json[at] != '{') return;
  const std::string_view usage = json.substr(at);
  facts_.prompt_tokens = std::max(facts_.prompt_tokens, find_count(usage, "\"prompt_tokens\""));
  facts_.completion_tokens = std::max(facts_.completion_tokens, find_count(usage, "\"completion_tokens\""));
  facts_.cached_tokens = std::max(facts_.cached_tokens, find_count(usage, "\"cached_tokens\""));
  if (facts_.cached_tokens < 0) facts_.cached_tokens = find_count(json, "\"cache_n\"");  // llama-server
}

}  // namespace barg::bench
