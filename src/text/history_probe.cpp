#include "text/history_probe.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/history_tools.h"

namespace barg::text {

namespace {

constexpr const char* kQuestion = "probe_question";
constexpr const char* kName = "probe_name";
constexpr const char* kShortId = "probecal1";
constexpr const char* kOtherId = "probecal2";
constexpr std::size_t kMaxExample = 2048;
constexpr const char* kLongId = "call_0123456789abcdefghijklmn";

Json message(const char* role, const char* content) {
  return Json::object({{"role", role}, {"content", content == nullptr ? Json() : Json(content)}});
}

Json call(const char* id, const char* name, Json arguments) {
  return Json::object({{"id", id},
                       {"type", "function"},
                       {"function", Json::object({{"name", name}, {"arguments", std::move(arguments)}})}});
}

Json probe_call(const char* id, const char* value) {
  return call(id, kName, Json::object({{"probe_key", value}}));
}

Json caller(const char* content, Json::Array calls) {
  Json m = message("assistant", content);
  m.set("tool_calls", Json(std::move(calls)));
  return m;
}

Json result(const char* id, const char* content) {
  Json m = message("tool", content);
  m.set("tool_call_id", id);
  return m;
}

Json the_tools() {
  const Json key = Json::object({{"type", "string"}, {"description", "d"}});
  const Json parameters = Json::object({{"type", "object"},
                                        {"properties", Json::object({{"probe_key", key}})},
                                        {"required", Json(Json::Array{"probe_key"})}});
  const Json function = Json::object({{"name", kName}, {"description", "d"}, {"parameters", parameters}});
  return Json(Json::Array{Json::object({{"type", "function"}, {"function", function}})});
}

class Prober {
 public:
  Prober(TemplateTraits& traits, const ReasoningMarkers& markers, const ProbeRender& render)
      : traits_(traits), markers_(markers), render_(render), user_(message("user", kQuestion)) {}

  void run() {
    traits_.reasoning_open = markers_.open;
    traits_.reasoning_close = markers_.close;
    // A template that does not even take a question is asked nothing else.
    if (!text({user_}, false)) {
      traits_.thinking_variables.clear();
      return;
    }
    traits_.takes_tools = text({user_}, true).has_value();
    probe_arguments();
    probe_roles();
    probe_calls();
    probe_switches();
    probe_reasoning();
    probe_prompt();
  }

 private:
  std::optional<std::string> text(Json::Array messages, bool tools, Json variables = Json::object()) const {
    const auto out = render_(traits_, {Json(std::move(messages)), tools ? the_tools() : Json(),
                                       std::move(variables), false});
    return out ? std::optional(out->text) : std::nullopt;
  }

  bool shows(Json::Array messages, bool tools, std::initializer_list<std::string_view> words,
             Json variables = Json::object()) const {
    const auto out = text(std::move(messages), tools, std::move(variables));
    return out && std::all_of(words.begin(), words.end(),
                              [&](std::string_view w) { return out->find(w) != std::string::npos; });
  }

  // Objects where the template shows them, else text where it shows that.
  void probe_arguments() {
    const auto shown = [&](bool as_text) {
      traits_.string_arguments = as_text;
      return shows({user_, caller(nullptr, {probe_call(kShortId, "probe_value")})}, true, {"probe_value"});
    };
    traits_.calls = shown(false) || shown(true);
    if (!traits_.calls && traits_.checks_null) {
      // It asks for none, and yet breaks on it.
      traits_.checks_null = false;
      traits_.calls = shown(false) || shown(true);
      traits_.checks_null = !traits_.calls;
    }
    if (!traits_.calls) traits_.string_arguments = false;
  }

  void probe_roles() {
    // What a template that shows nobody's words does with a message cannot be seen.
    const bool silent = !shows({user_}, false, {kQuestion});
    const auto works = [&](Json::Array messages, std::initializer_list<std::string_view> words) {
      return silent ? text(std::move(messages), false).has_value() : shows(std::move(messages), false, words);
    };
    const Json system = message("system", "probe_system");
    traits_.system = works({system, user_}, {"probe_system"});
    traits_.late_system =
        traits_.system && works({system, user_, message("assistant", "a"), message("system", "probe_late"), user_},
                                {"probe_system", "probe_late"});
    traits_.alternates = !works({user_, message("user", "probe_second")}, {kQuestion, "probe_second"});
    probe_tools();
  }

  void probe_tools() {
    traits_.tools = shows({user_}, true, {kName});
    if (traits_.tools) return;
    traits_.tools_in_system = traits_.reads_system_tools;
    traits_.tools_need_system = traits_.tools = true;
    traits_.tools = shows({user_}, true, {kName});
    if (!traits_.tools) traits_.tools_in_system = traits_.tools_need_system = false;
  }

  void probe_calls() {
    if (!traits_.calls) {
      traits_.results = false;
      return;
    }
    const Json one = probe_call(kShortId, "probe_value"), two = probe_call(kOtherId, "probe_other");
    const Json answer = result(kShortId, "probe_result");
    traits_.results = shows({user_, caller(nullptr, {one}), answer}, true, {"probe_result"});
    traits_.parallel_calls = shows({user_, caller(nullptr, {one, two})}, true, {"probe_value", "probe_other"});
    if (!shows({user_, caller("probe_text", {one})}, true, {"probe_text", "probe_value"})) {
      traits_.split_text = shows({user_, message("assistant", "probe_text"), caller(nullptr, {one})}, true,
                                 {"probe_text", "probe_value"}) &&
                           shows({user_, message("assistant", "probe_text"), caller(nullptr, {one}), answer,
                                  message("assistant", "probe_end")},
                                 true, {"probe_text", "probe_value", "probe_end"});
    }
    Json named = answer;
    named.set("name", "probe_named");
    traits_.result_names = shows({user_, caller(nullptr, {one}), named}, true, {"probe_named"});
    probe_ids(one, two, answer);
    if (!traits_.tools) find_call_example();
  }

  void probe_ids(const Json& one, const Json& two, const Json& answer) {
    const Json with_long = probe_call(kLongId, "probe_value");
    const bool any = text({user_, caller(nullptr, {with_long}), result(kLongId, "r")}, true).has_value();
    const bool nine = text({user_, caller(nullptr, {one}), answer}, true).has_value();
    if (traits_.mentions_call_id_marker || (nine && !any)) {
      traits_.ids = IdRule::kNineAlnum;
    } else if (traits_.mentions_kimi_ids) {
      const auto turns = text({user_, caller(nullptr, {one}), answer, caller(nullptr, {two}), result(kOtherId, "r")}, true);
      const std::string first = std::string("functions.") + kName + ":0", second = std::string("functions.") + kName + ":1";
      const bool per_turn = turns && turns->find(first) != std::string::npos && turns->find(second) == std::string::npos;
      traits_.ids = per_turn ? IdRule::kKimiPerTurn : IdRule::kKimi;
    }
  }

  // What a message with a call has that one with a text has not.
  void find_call_example() {
    const Json example = call(kShortId, kExampleTool, Json::object({{kExampleArgument, kExampleValue}}));
    const auto calls = text({user_, caller(nullptr, {example})}, false);
    const auto says = text({user_, message("assistant", "~probe~")}, false);
    if (!calls || !says) return;
    const auto head = static_cast<std::size_t>(
        std::mismatch(calls->begin(), calls->end(), says->begin(), says->end()).first - calls->begin());
    const auto tail = static_cast<std::size_t>(
        std::mismatch(calls->rbegin(), calls->rend(), says->rbegin(), says->rend()).first - calls->rbegin());
    if (head + tail >= calls->size()) return;
    std::string written = calls->substr(head, calls->size() - tail - head);
    while (!written.empty() && written.back() == '\n') written.pop_back();
    const bool whole_call = written.find(kExampleTool) != std::string::npos && written.size() <= kMaxExample;
    if (whole_call && is_valid_utf8(written)) traits_.call_example = std::move(written);
  }

  // A variable is a switch if turning it turns anything.
  void probe_switches() {
    const auto with = [&](const std::string& name, Json value) {
      Json thinker = message("assistant", "probe_answer");
      thinker.set("reasoning_content", "probe_reasoning");
      Json variables = Json::object();
      variables.set(name, std::move(value));
      const auto out = render_(traits_, {Json(Json::Array{user_, thinker, user_}), Json(), std::move(variables), true});
      return out ? out->text : std::string();
    };
    std::erase_if(traits_.thinking_variables,
                  [&](const std::string& name) { return with(name, true) == with(name, false); });
  }

  Json thinking(bool on) const {
    Json variables = Json::object();
    for (const std::string& name : traits_.thinking_variables) variables.set(name, on);
    return variables;
  }

  void probe_reasoning() {
    Json with_calls = caller(nullptr, {probe_call(kShortId, "probe_value")});
    Json plain = message("assistant", "probe_answer");
    for (Json* m : {&with_calls, &plain}) m->set("reasoning_content", "probe_reasoning");
    const Json answer = result(kShortId, "probe_result");
    using Place = ReasoningPlace::Kind;
    for (const ReasoningPlace& place : traits_.reasoning_candidates) {
      if (place.kind == Place::kContent && !shows_in_content(plain)) continue;
      traits_.reasoning = place;
      const bool in_answers = shows({user_, plain}, false, {"probe_reasoning"}, thinking(true));
      const bool with_a_call = shows({user_, with_calls, answer}, true, {"probe_reasoning"}, thinking(true));
      traits_.reasoning_with_calls = with_a_call && !in_answers;
      if (in_answers || with_a_call) break;
      traits_.reasoning = {};
    }
    if (traits_.reasoning.kind != Place::kMember) return;
    Json both = with_calls;
    both.set("content", "probe_text");
    traits_.content_or_reasoning = shows({user_, with_calls, answer}, true, {"probe_reasoning"}, thinking(true)) &&
                                   !text({user_, both, answer}, true, thinking(true));
  }

  // A template that takes reasoning out of an answer's content, or writes markers of its own besides, is given none.
  bool shows_in_content(const Json& plain) {
    if (markers_.open.empty() || markers_.close.empty()) return false;
    const auto count = [&](Json::Array messages) {
      const auto out = text(std::move(messages), false, thinking(true));
      int n = 0;
      for (std::size_t at = 0; out && (at = out->find(markers_.open, at)) != std::string::npos; ++at) ++n;
      return n;
    };
    traits_.reasoning = {};
    const int before = count({user_});
    const int without = count({user_, plain});
    traits_.reasoning = {ReasoningPlace::Kind::kContent, {}};
    const int with = count({user_, plain});
    traits_.reasoning = {};
    return without == before && with == before + 1;
  }

  PromptEnd prompt_end(Json variables) const {
    const auto out = render_(traits_, {Json(Json::Array{user_}), Json(), std::move(variables), true});
    if (!out || markers_.close.empty()) return PromptEnd::kPlain;
    const std::string_view tail = out->trusted_tail();
    if (reasoning_open(markers_, tail)) return PromptEnd::kOpens;
    return tail.find(markers_.close) != std::string_view::npos ? PromptEnd::kCloses : PromptEnd::kPlain;
  }

  void probe_prompt() {
    traits_.prompt = prompt_end(Json::object());
    traits_.prompt_thinking = prompt_end(thinking(true));
    traits_.prompt_answer = prompt_end(thinking(false));
  }

  TemplateTraits& traits_;
  const ReasoningMarkers& markers_;
  const ProbeRender& render_;
  const Json user_;
};

}  // namespace

void probe_traits(TemplateTraits& traits, const ReasoningMarkers& markers, const ProbeRender& render) {
  Prober(traits, markers, render).run();
}

}  // namespace barg::text
