#include "server/capture.h"

#include <algorithm>

#include "server/openai_answer.h"

namespace barg::server {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kEventBytes = 96;  // of an event in memory, about
constexpr std::uint64_t kTokenBytes = 8;
/// Headers that change what an answer says. Keys and cookies are nobody's business.
constexpr std::string_view kHeaders[] = {"anthropic-version", "anthropic-beta", "content-type"};

Json headers_json(const HttpRequest& request) {
  Json out = Json::object();
  for (const std::string_view name : kHeaders) {
    if (const std::string* value = request.header(name)) out.set(std::string(name), *value);
  }
  return out;
}

}  // namespace

Capture::Capture(HttpRequest request, std::string owner, std::uint64_t max_bytes)
    : request_(std::move(request)), owner_(std::move(owner)), max_bytes_(max_bytes), bytes_(request_.body.size()) {}

void Capture::add(std::string& to, std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ <= max_bytes_) to += bytes;
}

void Capture::begin(const ResponseMeta& meta, const EngineInfo& info, std::string_view build) {
  id_ = "cap_" + meta.id;
  head_ = Json::object({{"object", "barg.capture"},
                        {"version", kVersion},
                        {"id", id_},
                        {"build", std::string(build)},
                        {"model", Json::object({{"name", meta.model},
                                                {"digest", info.model_digest},
                                                {"numerics_id", info.numerics_id}})},
                        {"answer_id", meta.id},
                        {"created", meta.created},
                        {"fingerprint", meta.fingerprint}});
}

Capture::Sequence& Capture::sequence(std::size_t prompt, std::int32_t choice) {
  const auto found = std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& s) {
    return s.prompt == prompt && s.choice == choice;
  });
  if (found != sequences_.end()) return *found;
  return sequences_.emplace_back(Sequence{.prompt = prompt, .choice = choice, .seed = 0, .ids = {}});
}

void Capture::event(std::size_t prompt, const TokenEvent& event) {
  bytes_ += kEventBytes + kTokenBytes * event.tokens.size();
  if (bytes_ > max_bytes_) return;
  Sequence& s = sequence(prompt, event.choice);
  for (const OutputToken& token : event.tokens) s.ids.push_back(token.id);
  if (event.finish != FinishReason::kNone) s.seed = event.stats.seed;
  const auto& [device, dram, disk, remote] = event.stats.cached_by_place;
  events_.push_back(Json::object({{"prompt", static_cast<std::int64_t>(prompt)},
                                  {"choice", event.choice},
                                  {"tokens", static_cast<std::int64_t>(event.tokens.size())},
                                  {"prompt_logprobs", static_cast<std::int64_t>(event.prompt_logprobs.size())},
                                  {"finish", static_cast<std::int64_t>(event.finish)},
                                  {"stop_token", event.stop_token},
                                  {"seconds", event.stats.last_token_s - event.stats.arrived_s},
                                  {"cached", Json::array()}}));
  if (event.finish == FinishReason::kNone) return;
  *events_.back().find("cached") = Json(Json::Array{event.stats.cached_tokens, device, dram, disk, remote});
}

std::optional<std::string> Capture::capsule(int status) const {
  if (bytes_ > max_bytes_ || id_.empty()) return std::nullopt;
  Json out = head_;
  out.set("path", request_.path);
  out.set("headers", headers_json(request_));
  out.set("body", request_.body);
  Json::Array outputs;
  for (const Sequence& s : sequences_) {
    outputs.push_back(Json::object({{"prompt", static_cast<std::int64_t>(s.prompt)},
                                    {"choice", s.choice},
                                    {"seed", s.seed},
                                    {"ids", ids_json(s.ids)}}));
  }
  out.set("outputs", Json(std::move(outputs)));
  out.set("events", Json(Json::Array(events_)));
  out.set("status", status);
  out.set("answer", answer_);
  return dump_json(out);
}

void CaptureRing::put(std::string id, std::string owner, std::string capsule) {
  const std::lock_guard lock(mutex_);
  if (capsule.size() > max_bytes_) return;
  bytes_ += capsule.size();
  entries_.push_back({std::move(id), std::move(owner), std::move(capsule)});
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.front().capsule.size();
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

}  // namespace barg::server
