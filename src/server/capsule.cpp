#include "server/capsule.h"

#include <algorithm>

#include "server/answer_settings.h"
#include "server/capture.h"
#include "server/openai_json.h"

namespace barg::server {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 24, kMaxUnixSeconds = std::int64_t{1} << 40, kMaxUtcOffset = 24 * 3600;
constexpr double kMaxSeconds = 1e9;
constexpr std::size_t kPlaces = 5;  // of cached tokens: all, device, DRAM, disk, remote

/// The members of one object. What is wrong first is the error; done() refuses members that nobody has asked for.
class Members {
 public:
  Members(const Json* object, std::string path) : object_(object), path_(std::move(path)) {
    if (object_ == nullptr || !object_->is_object()) wrong("", "is no object");
  }

  std::string text(std::string_view name) {
    const Json* v = take(name);
    if (v == nullptr || v->is_string()) return v != nullptr ? v->as_string() : std::string();
    return wrong(name, "is no string"), std::string();
  }
  std::int64_t number(std::string_view name, std::int64_t min, std::int64_t max) {
    const Json* v = take(name);
    if (v == nullptr) return min;
    if (v->type() == Json::Type::kInt && v->as_int() >= min && v->as_int() <= max) return v->as_int();
    return wrong(name, "is no whole number in its range"), min;
  }
  double seconds(std::string_view name) {
    const Json* v = take(name);
    if (v == nullptr) return 0;
    if (v->is_number() && v->as_double() >= -kMaxSeconds && v->as_double() <= kMaxSeconds) return v->as_double();
    return wrong(name, "is no number of seconds"), 0;
  }
  std::uint64_t seed(std::string_view name) {
    const Json* v = take(name);
    if (v == nullptr) return 0;
    if (v->type() == Json::Type::kUint || (v->type() == Json::Type::kInt && v->as_int() >= 0)) return v->as_uint();
    return wrong(name, "is no seed"), 0;
  }
  const Json::Array& array(std::string_view name) {
    static const Json::Array kNone;
    const Json* v = take(name);
    if (v == nullptr) return kNone;
    if (v->is_array()) return v->as_array();
    return wrong(name, "is no array"), kNone;
  }
  /// Null where it is missing, which is an error already.
  const Json* any(std::string_view name) { return take(name); }

  void wrong(std::string_view name, std::string_view why) {
    if (error_) return;
    const std::string path = path_ + (path_.empty() || name.empty() ? "" : ".") + std::string(name);
    error_ = Error{ErrorCode::kInvalidValue,
                   "this is no capsule of barg: " + (path.empty() ? "it" : json_quote(path)) + " " + std::string(why), path, 0};
  }
  std::optional<Error> done() {
    if (error_ || object_ == nullptr) return error_;
    for (const auto& [name, value] : object_->as_object()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) wrong(name.substr(0, 64), "is unknown");
    }
    return error_;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Json* take(std::string_view name) {
    known_.push_back(name);
    if (error_) return nullptr;
    const Json* v = object_->find(name);
    if (v == nullptr) wrong(name, "is missing");
    return v;
  }

  const Json* object_;
  const std::string path_;
  std::vector<std::string_view> known_;  // literals
  std::optional<Error> error_;
};

std::string indexed(std::string_view list, std::size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

Capsule::Place place_of(Members& m) {
  const auto prompt = static_cast<std::size_t>(m.number("prompt", 0, static_cast<std::int64_t>(kMaxPrompts) - 1));
  return {prompt, static_cast<std::int32_t>(m.number("choice", 0, kMaxChoices - 1))};
}

std::optional<Error> read_outputs(const Json::Array& outputs, Capsule& out) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Members m(&outputs[i], indexed("outputs", i));
    const Capsule::Place place = place_of(m);
    Capsule::Output output{.seed = m.seed("seed"), .ids = {}};
    for (const Json& id : m.array("ids")) {
      const bool good = id.type() == Json::Type::kInt && id.as_int() >= 0 && id.as_int() < kMaxTokens;
      if (!good) m.wrong("ids", "holds something else than token ids");
      if (good) output.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    if (out.outputs.contains(place)) m.wrong("choice", "is there twice");
    if (auto error = m.done()) return error;
    out.outputs[place] = std::move(output);
  }
  return std::nullopt;
}

void read_cached(Members& m, bool last, RequestStats& stats) {
  const Json::Array& cached = m.array("cached");
  const bool numbers = std::all_of(cached.begin(), cached.end(), [](const Json& n) {
    return n.type() == Json::Type::kInt && n.as_int() >= 0 && n.as_int() <= kMaxTokens;
  });
  if (!numbers || cached.size() != (last ? kPlaces : 0)) return m.wrong("cached", "is not what its event has");
  if (!last) return;
  stats.cached_tokens = static_cast<std::int32_t>(cached[0].as_int());
  for (std::size_t i = 0; i + 1 < kPlaces; ++i)
    stats.cached_by_place[i] = static_cast<std::int32_t>(cached[i + 1].as_int());
}

std::optional<Error> read_steps(const Json::Array& events, Capsule& out) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    Members m(&events[i], indexed("events", i));
    Capsule::Step step;
    step.place = place_of(m);
    step.tokens = static_cast<std::size_t>(m.number("tokens", 0, kMaxTokens));
    step.prompt_logprobs = static_cast<std::size_t>(m.number("prompt_logprobs", 0, kMaxTokens));
    step.finish = static_cast<FinishReason>(m.number("finish", 0, static_cast<std::int64_t>(FinishReason::kError)));
    step.stop = static_cast<TokenId>(m.number("stop_token", kNoToken, kMaxTokens));
    step.stats.last_token_s = m.seconds("seconds");
    read_cached(m, step.finish != FinishReason::kNone, step.stats);
    if (auto error = m.done()) return error;
    out.steps.push_back(std::move(step));
  }
  return std::nullopt;
}

std::optional<Error> read_error(const Json* json, Capsule& out) {
  if (json == nullptr || json->is_null()) return std::nullopt;
  Members m(json, "error");
  const std::string stage = m.text("stage");
  if (stage != Capture::kRefused && stage != Capture::kFailed) m.wrong("stage", "is unknown");
  out.failure = Capsule::Failure{.refused = stage == Capture::kRefused, .code = m.text("code"), .message = m.text("message")};
  m.text("param");
  return m.done();
}

std::optional<Error> read_model(const Json* json, Capsule& out) {
  if (json == nullptr || (json->is_null() && out.failure)) return std::nullopt;  // refused before one was found
  Members m(json, "model");
  out.meta.model = m.text("name");
  out.model_digest = m.text("digest");
  out.numerics_id = m.text("numerics_id");
  return m.done();
}

std::optional<Error> read_headers(const Json* json, Capsule& out) {
  if (json == nullptr) return std::nullopt;
  Members m(json, "headers");
  if (m.error()) return m.error();
  for (const auto& [name, value] : json->as_object()) {
    if (!value.is_string()) m.wrong(name.substr(0, 64), "is no string");
    if (value.is_string()) out.request.headers.emplace_back(name, value.as_string());
  }
  return m.error();
}

/// What it is at all.
std::optional<Error> check_kind(Members& m) {
  if (m.text("object") != "barg.capture") m.wrong("object", "is not \"barg.capture\"");
  const std::int64_t version = m.number("version", 1, 1 << 20);
  if (m.error() || version == kCapsuleVersion) return m.error();
  return Error{ErrorCode::kInvalidValue,
               "this capsule has version " + std::to_string(version) + ", and this version of barg reads version " +
                   std::to_string(kCapsuleVersion),
               "version", 0};
}

}  // namespace

Result<Capsule> read_capsule(const Json& json) {
  Members m(&json, "");
  if (auto error = check_kind(m)) return std::unexpected(*error);
  Capsule out;
  m.text("id");
  out.request.method = "POST";
  out.request.path = out.request.target = m.text("path");
  out.request.body = m.text("body");
  out.meta.id = m.text("answer_id");
  out.meta.fingerprint = m.text("fingerprint");
  out.meta.created = m.number("created", 0, kMaxUnixSeconds);
  out.utc_offset = m.number("utc_offset", -kMaxUtcOffset, kMaxUtcOffset);
  out.build = m.text("build");
  out.answer = m.text("answer");
  m.number("status", 100, 599);
  for (const Json& part : m.array("truncated")) {
    if (!part.is_string()) m.wrong("truncated", "holds something else than names");
    if (part.is_string()) out.truncated.push_back(part.as_string());
  }
  std::optional<Error> error = read_error(m.any("error"), out);
  if (!error) error = read_model(m.any("model"), out);
  if (!error) error = read_headers(m.any("headers"), out);
  if (!error) error = read_outputs(m.array("outputs"), out);
  if (!error) error = read_steps(m.array("events"), out);
  if (const Json* settings = m.any("settings"); settings != nullptr && !(settings->is_null() && out.failure)) {
    out.settings = *settings;
    if (const auto name = wrong_setting(out.settings)) m.wrong(*name, "is missing, unknown or of another type");
  }
  if (m.error()) error = m.error();
  if (!error) error = m.done();
  if (error) return std::unexpected(*error);
  return out;
}

}  // namespace barg::server
