#include "server/answer_settings.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace barg::server {
namespace {

constexpr std::size_t kShownBytes = 48;

enum class Kind { kText, kNumber, kBool, kIds };

struct Setting {
  std::string_view name;
  Kind kind;
  bool may_be_null = false;
};
constexpr Setting kSettings[] = {
    {"chat_template", Kind::kText, true},  // a digest
    {"tool_dialect", Kind::kText, true},
    {"reasoning_open", Kind::kText, true},
    {"reasoning_close", Kind::kText, true},
    {"temperature", Kind::kNumber, true},
    {"top_p", Kind::kNumber, true},
    {"min_p", Kind::kNumber, true},
    {"top_k", Kind::kNumber, true},
    {"repetition_penalty", Kind::kNumber, true},
    {"max_model_len", Kind::kNumber},
    {"vocab_size", Kind::kNumber},
    {"end_ids", Kind::kIds},
    {"strip_volatile_lines", Kind::kBool},
    {"stores_responses", Kind::kBool},
};

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// Of both templates that a request may get.
Json template_digest(const ServedModel& model) {
  if (!model.chat_template || !model.chat_template->has_template()) return {};
  Sha256 digest;
  for (const std::string& source : {model.chat_template->source(), model.chat_template->tools_source()})
    digest.update(std::to_string(source.size()) + ":").update(source);
  return hex(digest.finish());
}

bool fits(const Json& value, const Setting& setting) {
  if (value.is_null()) return setting.may_be_null;
  switch (setting.kind) {
    case Kind::kText:
      return value.is_string();
    case Kind::kNumber:
      return value.is_number();
    case Kind::kBool:
      return value.is_bool();
    case Kind::kIds:
      return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(),
                                             [](const Json& id) { return id.is_integer(); });
  }
  return false;
}

std::string shown(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

}  // namespace

Json answer_settings(const ServedModel& model, const ReplayedOptions& options) {
  const EngineInfo& info = model.engine->info();
  Json ends = Json::array();
  for (const TokenId id : info.end_ids) ends.push(id);
  const auto* dialect = model.dialect.get();
  return Json::object(
      {{"chat_template", template_digest(model)},
       {"tool_dialect", dialect != nullptr ? Json(text::dialect_name(dialect->dialect())) : Json()},
       {"reasoning_open", dialect != nullptr ? Json(dialect->reasoning().open) : Json()},
       {"reasoning_close", dialect != nullptr ? Json(dialect->reasoning().close) : Json()},
       {"temperature", or_null(model.sampling.temperature)},
       {"top_p", or_null(model.sampling.top_p)},
       {"min_p", or_null(model.sampling.min_p)},
       {"top_k", or_null(model.sampling.top_k)},
       {"repetition_penalty", or_null(model.sampling.repetition_penalty)},
       {"max_model_len", info.max_model_len},
       {"vocab_size", info.vocab_size},
       {"end_ids", std::move(ends)},
       {"strip_volatile_lines", options.strip_volatile_lines},
       {"stores_responses", options.stores_responses}});
}

std::optional<std::string> wrong_setting(const Json& settings) {
  if (!settings.is_object()) return "settings";
  for (const auto& [name, value] : settings.as_object()) {
    const auto* row = std::find_if(std::begin(kSettings), std::end(kSettings),
                                   [&name](const Setting& s) { return s.name == name; });
    if (row == std::end(kSettings) || !fits(value, *row)) return "settings." + name;
  }
  for (const Setting& setting : kSettings) {
    if (settings.find(setting.name) == nullptr) return "settings." + std::string(setting.name);
  }
  return std::nullopt;
}

ReplayedOptions replayed_options(const Json& settings) {
  return {.strip_volatile_lines = settings.find("strip_volatile_lines")->as_bool(),
          .stores_responses = settings.find("stores_responses")->as_bool()};
}

std::string settings_difference(const Json& then, const Json& now) {
  std::string out;
  for (const auto& [name, value] : now.as_object()) {
    const Json* before = then.find(name);
    if (before != nullptr && *before == value) continue;
    out += (out.empty() ? "" : "; ") + name + " " + (before != nullptr ? shown(*before) : "absent") + " then, " +
           shown(value) + " now";
  }
  return out;
}

}  // namespace barg::server
