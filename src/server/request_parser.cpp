#include "server/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cctype>
#include <limits>

#include "server/http_server.h"

namespace barg::server {
namespace http = boost::beast::http;
using boost::beast::error_code;
// Beast passes its own string_view; both convert from pointer and length.
using BeastView = boost::beast::string_view;

namespace {

constexpr std::size_t kMaxPendingChunkBytes = 16 * 1024;  // chunk header with extensions, or the trailer
constexpr std::uint64_t kMaxChunks = 100'000;
constexpr std::size_t kShortestLastChunk = 5;
constexpr std::size_t kMaxMethodBytes = 32;

std::string lower(BeastView s) {
  std::string out(s.data(), s.size());
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_token_char(unsigned char c) {
  return std::isalnum(c) ||
         std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
}

bool iequals(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool all_digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
}

/// host[:port] of a Host field or an authority: no path, no spaces, no userinfo, a port of digits.
bool valid_authority(std::string_view s) {
  if (s.empty()) return false;
  std::size_t host_end = 0;
  if (s.front() == '[') {
    host_end = s.find(']');
    if (host_end == std::string_view::npos) return false;
    for (const unsigned char c : s.substr(1, host_end - 1)) {
      if (!std::isxdigit(c) && c != ':' && c != '.') return false;
    }
    ++host_end;
  } else {
    while (host_end < s.size() && s[host_end] != ':') {
      const auto c = static_cast<unsigned char>(s[host_end]);
      if (!std::isalnum(c) && c != '.' && c != '-' && c != '_') return false;
      ++host_end;
    }
    if (host_end == 0) return false;
  }
  if (host_end == s.size()) return true;
  return s[host_end] == ':' && (host_end + 1 == s.size() || all_digits(s.substr(host_end + 1)));
}

}  // namespace

struct RequestParser::Impl final : http::basic_parser<true> {
  Impl(HttpRequest& r, std::uint64_t max) : request(r), max_body(max) {
    eager(true);
    header_limit(kMaxHeaderBytes + kMaxTargetBytes + 1024);  // ours are finer and come first
    // "No limit" would refuse every Content-Length in Beast 1.74 (a number compares greater than none).
    body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  HttpRequest& request;
  const std::uint64_t max_body;
  std::uint64_t body_bytes = 0;
  std::uint64_t chunks = 0;
  bool head_done = false;
  bool finished = false;
  bool discard = false;
  bool too_large = false;

  void on_request_impl(http::verb, BeastView method, BeastView target, int version, error_code&) override {
    request.method.assign(method.data(), method.size());
    request.target.assign(target.data(), target.size());
    request.minor = version % 10;
  }
  void on_response_impl(int, BeastView, int, error_code&) override {}
  void on_field_impl(http::field, BeastView name, BeastView value, error_code&) override {
    if (head_done) return;  // trailers carry nothing for us
    request.headers.emplace_back(lower(name), std::string(value.data(), value.size()));
  }
  void on_header_impl(error_code&) override { head_done = true; }
  void on_body_init_impl(boost::optional<std::uint64_t> const&, error_code&) override {}
  std::size_t on_body_impl(BeastView body, error_code& ec) override { return take(body, ec); }
  void on_chunk_header_impl(std::uint64_t size, BeastView, error_code& ec) override {
    if (size > max_body - std::min(max_body, body_bytes) || ++chunks > kMaxChunks) overflow(ec);
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code& ec) override {
    return take(body, ec);
  }
  void on_finish_impl(error_code&) override { finished = true; }

  void overflow(error_code& ec) {
    too_large = true;
    ec = http::make_error_code(http::error::body_limit);
  }
  std::size_t take(BeastView body, error_code& ec) {
    body_bytes += body.size();
    if (body_bytes > max_body && !discard) {
      overflow(ec);
      return 0;
    }
    if (!discard) request.body.append(body.data(), body.size());
    return body.size();
  }
};

RequestParser::RequestParser(std::uint64_t max_body) : impl_(std::make_unique<Impl>(request_, max_body)) {}
RequestParser::~RequestParser() = default;

void RequestParser::discard_body() {
  impl_->discard = true;
  request_.body.clear();
}

bool RequestParser::keep_alive() const {
  return state_ != State::kFailed && impl_->head_done && impl_->keep_alive();
}

RequestParser::State RequestParser::fail(int status, std::string reason) {
  status_ = status;
  reason_ = std::move(reason);
  return state_ = State::kFailed;
}

RequestParser::State RequestParser::feed(std::string& in) {
  if (state_ == State::kHead) return feed_head(in);
  if (state_ == State::kBody) return feed_body(in);
  return state_;
}

/// What can be refused before the head is complete, so that nobody waits for the end of a broken one.
/// False after fail().
bool RequestParser::check_head_so_far(const std::string& in) {
  for (; scanned_ < in.size(); ++scanned_) {
    const auto c = static_cast<unsigned char>(in[scanned_]);
    if (c == '\n' && (scanned_ == 0 || in[scanned_ - 1] != '\r'))
      return fail(400, "a line ends in a bare LF"), false;
    if (c == 0) return fail(400, "the head contains a NUL byte"), false;
    if (c != '\n' && scanned_ > 0 && in[scanned_ - 1] == '\r')
      return fail(400, "a bare CR in the head"), false;
    if (line_end_ == 0) {
      if (scanned_ < kMaxMethodBytes && in.find(' ') >= scanned_ && c != ' ' && c != '\r' &&
          !is_token_char(c)) {
        return fail(400, "this is not an HTTP request"), false;
      }
      if (c == '\n') line_end_ = scanned_ + 1;
      if (scanned_ > kMaxTargetBytes + kMaxMethodBytes + 16)
        return fail(414, "the request target is too long"), false;
    } else {
      if ((c == ' ' || c == '\t') && in[scanned_ - 1] == '\n')
        return fail(400, "a folded header line"), false;
      if (scanned_ - line_end_ > kMaxHeaderBytes) return fail(431, "the header is larger than 16 KiB"), false;
      if (c == '\n' && scanned_ - line_end_ < 2) break;                      // no fields at all
      if (c == '\n' && in.compare(scanned_ - 3, 4, "\r\n\r\n") == 0) break;  // end of the head
    }
    if (line_end_ == scanned_ + 1) {  // the request line is complete
      const std::string_view line(in.data(), line_end_ - 2);
      const std::size_t space = line.rfind(' ');
      if (space == std::string_view::npos || line.find(' ') == space)
        return fail(400, "the request line has no version"), false;
      const std::string_view version = line.substr(space + 1);
      if (version.starts_with("HTTP/") && version != "HTTP/1.1" && version != "HTTP/1.0") {
        return fail(505, "only HTTP/1.1 and HTTP/1.0 are spoken here"), false;
      }
    }
  }
  return true;
}

RequestParser::State RequestParser::feed_head(std::string& in) {
  while (scanned_ == 0 && in.starts_with("\r\n"))
    in.erase(0, 2);  // tolerated between requests (RFC 9112 2.2)
  if (scanned_ == 0 && in == "\r") return state_;
  if (!check_head_so_far(in)) return state_;
  if (scanned_ >= in.size()) return state_;

  const std::size_t head = scanned_ + 1;
  error_code ec;
  std::size_t used = 0;
  while (used < head && !ec && !impl_->head_done) used += impl_->put({in.data() + used, head - used}, ec);
  in.erase(0, head);
  if (ec == http::error::bad_version) return fail(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  if (ec == http::error::bad_method) return fail(400, "the method is malformed");
  if (ec == http::error::bad_target) return fail(400, "the request target is malformed");
  if (ec == http::error::bad_content_length) return fail(400, "Content-Length is malformed");
  if (ec == http::error::bad_transfer_encoding)
    return fail(400, "Content-Length and Transfer-Encoding contradict each other");
  if (ec == http::error::header_limit) return fail(431, "the header is too large");
  if (ec || !impl_->head_done)
    return fail(400, "the header is malformed: " + (ec ? ec.message() : "incomplete"));
  if (!check_fields()) return state_;
  return state_ = impl_->finished ? State::kDone : State::kBody;
}

RequestParser::State RequestParser::feed_body(std::string& in) {
  // A first chunk that is the last one: Beast asserts that its second look at it sees all five of
  // "0\r\n\r\n".
  if (request_.chunked && in.size() < kShortestLastChunk && in.starts_with('0')) return state_;
  std::size_t used = 0;
  error_code ec;
  while (used < in.size() && !impl_->finished) {
    used += impl_->put({in.data() + used, in.size() - used}, ec);
    if (ec) break;
  }
  in.erase(0, used);
  if (impl_->finished) return state_ = State::kDone;
  if (impl_->too_large) return fail(413, "the body is too large");
  if (ec && ec != http::error::need_more) return fail(400, "the chunked body is malformed");
  if (request_.chunked && in.size() > kMaxPendingChunkBytes) return fail(400, "a chunk header is too long");
  return state_;
}

bool RequestParser::check_fields() {
  if (request_.target.size() > kMaxTargetBytes) return fail(414, "the request target is too long"), false;
  if (request_.headers.size() > kMaxHeaderFields) return fail(431, "more than 100 header fields"), false;
  if (!check_framing() || !check_host()) return false;
  if (const std::string* expect = request_.header("expect")) {
    if (!iequals(*expect, "100-continue")) return fail(417, "unknown expectation"), false;
    expects_continue_ = request_.minor >= 1 && request_.has_body();
  }
  return true;
}

/// One length, plain digits, or chunked and nothing else: whatever two readers could understand differently
/// is refused.
bool RequestParser::check_framing() {
  const std::size_t lengths = request_.header_count("content-length");
  const std::size_t encodings = request_.header_count("transfer-encoding");
  if (lengths > 1) return fail(400, "more than one Content-Length"), false;
  if (lengths == 1) {
    if (!all_digits(*request_.header("content-length")))
      return fail(400, "Content-Length is malformed"), false;
    request_.content_length = impl_->content_length().value_or(0);
  }
  if (encodings > 1 || (encodings > 0 && lengths > 0)) return fail(400, "contradictory body framing"), false;
  if (encodings == 1) {
    if (request_.minor == 0) return fail(400, "Transfer-Encoding in HTTP/1.0"), false;
    if (!iequals(*request_.header("transfer-encoding"), "chunked")) {
      return fail(501, "the only transfer coding is chunked"), false;
    }
    request_.chunked = true;
  }
  return true;
}

bool RequestParser::check_host() {
  const std::size_t hosts = request_.header_count("host");
  if (hosts > 1 || (hosts == 0 && request_.minor >= 1))
    return fail(400, "exactly one Host field is needed"), false;
  if (hosts == 1 && !valid_authority(*request_.header("host")))
    return fail(400, "the Host field is malformed"), false;

  std::string_view target = request_.target;
  if (const bool http = iequals(target.substr(0, 7), "http://");
      http || iequals(target.substr(0, 8), "https://")) {
    target.remove_prefix(http ? 7 : 8);
    const std::size_t slash = std::min(target.find_first_of("/?#"), target.size());
    const std::string_view authority = target.substr(0, slash);
    if (!valid_authority(authority)) return fail(400, "the request target is malformed"), false;
    if (hosts == 1 && !iequals(authority, *request_.header("host"))) {
      return fail(400, "the request target and the Host field name different hosts"), false;
    }
    target.remove_prefix(slash);
    request_.path =
        target.empty() || target.front() != '/' ? "/" : target.substr(0, target.find_first_of("?#"));
    return true;
  }
  request_.path = target.substr(0, target.find_first_of("?#"));
  return true;
}

}  // namespace barg::server
