#include "server/capture.h"

#include <algorithm>

#include "base/utf8.h"

namespace barg::server {
namespace {

constexpr std::uint64_t kFactsBytes = 8 << 10;  // what begin() keeps beside the request: about 40 JSON values
constexpr std::uint64_t kNodeBytes = 64;        // of a map, beside its value, and the allocator's part
constexpr std::uint64_t kRestBytes = 256;       // of a ring's entry beside its capsule
/// Headers that change what an answer says. Keys and cookies are nobody's business.
constexpr std::string_view kHeaders[] = {"anthropic-version", "anthropic-beta", "content-type"};

Json headers_json(const HttpRequest& request) {
  Json out = Json::object();
  for (const std::string_view name : kHeaders) {
    if (const std::string* value = request.header(name)) out.set(std::string(name), *value);
  }
  return out;
}

std::uint64_t header_bytes(const Json& headers) {
  std::uint64_t sum = headers.as_object().capacity() * sizeof(Json::Member);
  for (const auto& [name, value] : headers.as_object()) sum += name.capacity() + value.as_string().capacity();
  return sum;
}

Json error_object(const std::optional<Capture::Failure>& failure) {
  if (!failure) return {};
  return Json::object({{"stage", failure->stage},
                       {"code", failure->code},
                       {"message", failure->message},
                       {"param", failure->param}});
}

/// A member whose value may have to stay behind.
struct Part {
  std::string_view name, nothing;
  std::string json;
};

}  // namespace

// ---- the ring
// ---------------------------------------------------------------------------------------------------

bool CaptureRing::charge(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (running_ + bytes > half_) return false;
  running_ += bytes;
  return true;
}

void CaptureRing::release(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  running_ -= bytes;
}

std::uint64_t CaptureRing::running_bytes() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void CaptureRing::put(std::string id, std::string owner, std::string capsule) {
  Entry entry{std::move(id), std::move(owner), std::move(capsule)};
  const std::lock_guard lock(mutex_);
  if (entry.bytes() > half_) return;
  bytes_ += entry.bytes();
  entries_.push_back(std::move(entry));
  while (bytes_ > half_) {
    bytes_ -= entries_.front().bytes();
    entries_.pop_front();
  }
}

std::optional<std::string> CaptureRing::find(std::string_view id, std::string_view owner) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.id == id && entry.owner == owner) return entry.capsule;
  }
  return std::nullopt;
}

// ---- a capture
// --------------------------------------------------------------------------------------------------

Capture::Capture(std::string answer_id, std::string owner, CaptureRing& ring)
    : answer_id_(std::move(answer_id)), id_("cap_" + answer_id_), owner_(std::move(owner)), ring_(ring) {
  body_cut_ = cut_ = !charge(sizeof *this + kFactsBytes);
}

bool Capture::charge(std::uint64_t more) {
  if (bytes_ + more > ring_.capture_bytes() || !ring_.charge(more)) return false;
  bytes_ += more;
  return true;
}

/// For `more` elements. Grows as the container would, but asks first.
template <class T>
bool Capture::make_room(T& to, std::size_t more) {
  const std::size_t needed = to.size() + more;
  if (needed <= to.capacity()) return true;
  const std::size_t capacity = std::max(needed, 2 * to.capacity());
  if (!charge((capacity - to.capacity()) * sizeof(typename T::value_type))) return false;
  to.reserve(capacity);
  return true;
}

void Capture::begin(Facts facts, HttpRequest& request) {
  facts_ = std::move(facts);
  path_ = request.path;
  headers_ = headers_json(request);
  std::string body = std::exchange(request.body, {});
  body_cut_ = body_cut_ || !charge(body.capacity() + path_.capacity() + header_bytes(headers_));
  if (!body_cut_) body_ = std::move(body);
}

Capture::Sequence* Capture::sequence(Place place) {
  if (const auto found = sequences_.find(place); found != sequences_.end()) return &found->second;
  if (!charge(sizeof(std::pair<Place, Sequence>) + kNodeBytes)) return nullptr;
  return &sequences_[place];
}

void Capture::event(std::size_t prompt, const TokenEvent& event) {
  if (cut_) return;
  Sequence* s = sequence({prompt, event.choice});
  cut_ = s == nullptr || !make_room(s->ids, event.tokens.size()) || !make_room(events_, 1);
  if (cut_) return;
  for (const OutputToken& token : event.tokens) s->ids.push_back(token.id);
  const bool last = event.finish != FinishReason::kNone;
  if (last) s->seed = event.stats.seed;
  const auto& [device, dram, disk, remote] = event.stats.cached_by_place;
  events_.push_back({.prompt = static_cast<std::uint32_t>(prompt),
                     .tokens = static_cast<std::uint32_t>(event.tokens.size()),
                     .prompt_logprobs = static_cast<std::uint32_t>(event.prompt_logprobs.size()),
                     .choice = event.choice,
                     .finish = event.finish,
                     .stop = event.stop_token,
                     .seconds = event.stats.last_token_s - event.stats.arrived_s,
                     .cached = {event.stats.cached_tokens, device, dram, disk, remote}});
}

void Capture::write(std::string_view bytes) {
  cut_ = cut_ || !make_room(answer_, bytes.size());
  if (!cut_) answer_ += bytes;
}

void Capture::end(int status, std::optional<Failure> failure) {
  status_ = status;
  failure_ = std::move(failure);
}

std::string Capture::outputs_json() const {
  std::string out = "[";
  for (const auto& [place, s] : sequences_) {
    out += out.size() > 1 ? ",{" : "{";
    out += "\"prompt\":" + std::to_string(place.first) + ",\"choice\":" + std::to_string(place.second) +
           ",\"seed\":" + std::to_string(s.seed) + ",\"ids\":[";
    for (std::size_t i = 0; i < s.ids.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(s.ids[i]);
    out += "]}";
  }
  return out += "]";
}

std::string Capture::events_json() const {
  std::string out = "[";
  for (const Event& e : events_) {
    out += out.size() > 1 ? ",{" : "{";
    out += "\"prompt\":" + std::to_string(e.prompt) + ",\"choice\":" + std::to_string(e.choice) +
           ",\"tokens\":" + std::to_string(e.tokens) + ",\"prompt_logprobs\":" + std::to_string(e.prompt_logprobs) +
           ",\"finish\":" + std::to_string(static_cast<int>(e.finish)) + ",\"stop_token\":" + std::to_string(e.stop) +
           ",\"seconds\":" + dump_json(Json(e.seconds)) + ",\"cached\":[";
    if (e.finish != FinishReason::kNone) {
      for (std::size_t i = 0; i < e.cached.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(e.cached[i]);
    }
    out += "]}";
  }
  return out += "]";
}

std::string Capture::capsule(std::uint64_t max_bytes) const {
  std::string head = dump_json(Json::object({{"object", "barg.capture"},
                                             {"version", kCapsuleVersion},
                                             {"id", id_},
                                             {"build", facts_.build},
                                             {"model", facts_.model},
                                             {"settings", facts_.settings},
                                             {"answer_id", answer_id_},
                                             {"created", facts_.created},
                                             {"utc_offset", facts_.utc_offset},
                                             {"fingerprint", facts_.fingerprint},
                                             {"path", path_},
                                             {"headers", headers_},
                                             {"status", status_},
                                             {"error", error_object(failure_)}}));
  head.pop_back();  // its brace: more follows
  std::array<Part, 4> parts = {{{"body", "\"\"", json_quote(body_)},
                                {"outputs", "[]", outputs_json()},
                                {"events", "[]", events_json()},
                                {"answer", "\"\"", json_quote(answer_)}}};
  std::array<bool, 4> cut = {body_cut_ || !is_valid_utf8(body_), cut_, cut_, cut_};  // JSON holds no other bytes
  std::uint64_t size = head.size() + kRestBytes;
  for (const Part& part : parts) size += part.json.size() + 2 * part.name.size() + 8;
  while (size > max_bytes) {
    const auto largest = std::max_element(parts.begin(), parts.end(),
                                          [](const Part& a, const Part& b) { return a.json.size() < b.json.size(); });
    if (largest->json.size() <= largest->nothing.size()) break;
    size -= largest->json.size() - largest->nothing.size();
    largest->json = largest->nothing;
    cut[static_cast<std::size_t>(largest - parts.begin())] = true;
  }
  std::string truncated;
  std::string out;
  out.reserve(size);
  out += head;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    out.append(",\"").append(parts[i].name).append("\":").append(parts[i].json);
    if (cut[i]) truncated.append(truncated.empty() ? "\"" : ",\"").append(parts[i].name).append("\"");
  }
  return out.append(",\"truncated\":[").append(truncated).append("]}");
}

void Capture::keep() const {
  std::string text = capsule(ring_.capsule_bytes() - std::min(ring_.capsule_bytes(), kRestBytes));
  text.shrink_to_fit();
  ring_.put(id_, owner_, std::move(text));
}

}  // namespace barg::server
