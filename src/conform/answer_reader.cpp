#include "conform/answer_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace barg::conform {
namespace {

constexpr std::size_t kMaxLine = 16 << 10;
constexpr std::size_t kKeepExtra = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

void AnswerReader::feed(std::string_view bytes, double at) {
  if (done()) {
    out_.extra.append(bytes.substr(0, kKeepExtra - std::min(kKeepExtra, out_.extra.size())));
    return;
  }
  buffer_.append(bytes);
  while (!done() && step()) {
  }
  if (done()) {
    out_.extra.append(buffer_, at_, kKeepExtra);
    buffer_.clear();
    at_ = 0;
  } else if (at_ > 0) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  out_.packets.push_back({at, out_.body.size()});
}

void AnswerReader::close() {
  if (done()) return;
  if (part_ == Part::kToClose) return finish(Exchange::End::kComplete);
  finish(Exchange::End::kCutShort, part_ == Part::kHead ? "the connection was closed before a complete head came."
                                                        : "the connection was closed in the middle of the body.");
}

void AnswerReader::finish(Exchange::End end, std::string problem) {
  part_ = Part::kDone;
  out_.end = end;
  out_.problem = std::move(problem);
}

bool AnswerReader::step() {
  std::string_view line;
  switch (part_) {
    case Part::kHead:
      return take_head();
    case Part::kSized:
    case Part::kToClose:
    case Part::kChunkData:
      return take_body();
    case Part::kChunkSize:
      return take_line(line) && take_chunk_size(line);
    case Part::kChunkEnd:
      if (!take_line(line)) return false;
      if (!line.empty()) {
        broken("a chunk is longer than its size says.");
        return false;
      }
      part_ = Part::kChunkSize;
      return true;
    case Part::kTrailer:
      if (!take_line(line)) return false;
      if (line.empty()) finish(Exchange::End::kComplete);
      return true;
    case Part::kDone:
      return false;
  }
  return false;
}

bool AnswerReader::take_head() {
  const std::size_t end = buffer_.find("\r\n\r\n", at_);
  if (end == std::string::npos) {
    const std::string_view start = std::string_view(buffer_).substr(at_, 5);
    if (start != std::string_view("HTTP/").substr(0, start.size())) {
      broken("what answers there does not speak HTTP.");
    } else if (buffer_.size() - at_ > kMaxHeadBytes) {
      broken("the head of the answer is longer than 64 KiB.");
    }
    return false;
  }
  const std::string head = buffer_.substr(at_, end - at_);
  at_ = end + 4;
  read_head(head);
  return !done();
}

// Up to CR LF, which is required: a bare LF in the framing is a fault that lenient clients hide.
bool AnswerReader::take_line(std::string_view& line) {
  const std::size_t end = buffer_.find('\n', at_);
  if (end == std::string::npos) {
    if (buffer_.size() - at_ > kMaxLine) broken("the framing of the answer has an endless line.");
    return false;
  }
  if (end == at_ || buffer_[end - 1] != '\r') {
    broken("a line of the chunk framing does not end with CR LF.");
    return false;
  }
  line = std::string_view(buffer_).substr(at_, end - 1 - at_);
  at_ = end + 1;
  return true;
}

bool AnswerReader::take_chunk_size(std::string_view line) {
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    broken("a chunk size is no hexadecimal number: " + std::string(line.substr(0, 40)));
    return false;
  }
  part_ = left_ == 0 ? Part::kTrailer : Part::kChunkData;
  return true;
}

bool AnswerReader::take_body() {
  const std::size_t there = buffer_.size() - at_;
  const std::size_t take = part_ == Part::kToClose ? there : std::min(there, left_);
  if (out_.body.size() + take > kMaxBodyBytes) {
    broken("the body of the answer is longer than 32 MiB.");
    return false;
  }
  out_.body.append(buffer_, at_, take);
  at_ += take;
  if (part_ == Part::kToClose) return false;
  left_ -= take;
  if (left_ > 0) return false;
  if (part_ == Part::kSized) {
    finish(Exchange::End::kComplete);
  } else {
    part_ = Part::kChunkEnd;
  }
  return true;
}

void AnswerReader::read_head(std::string_view head) {
  out_.head = head;
  out_.headers.clear();
  const std::size_t line_end = std::min(head.find("\r\n"), head.size());
  const std::string_view line = head.substr(0, line_end);
  int status = 0;
  if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
      std::from_chars(line.data() + 9, line.data() + 12, status).ec != std::errc{} || status < 100) {
    return broken("the first line of the answer is not one of HTTP/1: " + std::string(line.substr(0, 60)));
  }
  for (std::size_t i = line_end; i < head.size();) {
    const std::size_t begin = i + 2;
    const std::size_t end = std::min(head.find("\r\n", begin), head.size());
    if (begin < end) read_field(head.substr(begin, end - begin));
    i = end;
  }
  if (status < 200) {
    out_.interim = true;
    return;
  }
  out_.status = status;
  choose_body();
}

void AnswerReader::read_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string value(trimmed(line.substr(colon + 1)));
  if (name == "transfer-encoding") out_.chunked = lower(value) == "chunked";
  if (name == "content-length") {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    bad_length_ |=
        error != std::errc{} || end != value.data() + value.size() || (out_.length && *out_.length != length);
    out_.length = length;
  }
  out_.headers.emplace_back(name, value);
}

void AnswerReader::choose_body() {
  if (bad_length_) return broken("Content-Length is no number, or there are two.");
  if (to_head_ || out_.status == 204 || out_.status == 304) return finish(Exchange::End::kComplete);
  if (out_.chunked) {
    part_ = Part::kChunkSize;
  } else if (out_.length) {
    left_ = *out_.length;
    part_ = Part::kSized;
    if (left_ == 0) finish(Exchange::End::kComplete);
  } else {
    part_ = Part::kToClose;
  }
}

}  // namespace barg::conform
