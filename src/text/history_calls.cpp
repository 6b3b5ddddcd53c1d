#include "text/history_calls.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "text/chat_messages.h"
#include "text/history_tools.h"

namespace barg::text {

namespace {

bool alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string text_member(const Json& object, std::string_view key) {
  const Json* v = object.find(key);
  return v != nullptr && v->is_string() ? v->as_string() : std::string();
}

std::string call_name(const Json& call) {
  const Json* function = call.find("function");
  return function == nullptr ? std::string() : text_member(*function, "name");
}

bool has_role(const Json& m, std::string_view role) { return m.find("role")->as_string() == role; }
bool has_calls(const Json& m) { return has_role(m, "assistant") && m.find("tool_calls") != nullptr; }

// Gives every call an id by the template's rule, and results the id and name of their call.
class Matcher {
 public:
  explicit Matcher(const TemplateTraits& traits) : traits_(traits) {}

  void calls(Json& message) {
    open_.clear();
    by_id_.clear();
    by_name_.clear();
    next_ = 0;
    for (Json& call : message.find("tool_calls")->as_array()) {
      const std::string name = call_name(call), given = text_member(call, "id");
      const std::string id = new_id(given, name, open_.size());
      ++seen_;
      call.set("id", Json(id));
      by_id_[given].at.push_back(open_.size());
      by_name_[name].at.push_back(open_.size());
      open_.push_back({id, name, false});
      if (!given.empty()) known_[given] = {id, name};
    }
  }

  /// Position among the calls of the last message that called, or their number if it belongs to none of them.
  std::size_t result(Json& message) {
    const std::string given = text_member(message, "tool_call_id"), name = text_member(message, "name");
    const std::size_t at = find(given, name);
    std::string id = given, called = name;
    if (at < open_.size()) {
      open_[at].answered = true;
      id = open_[at].id;
      called = open_[at].name;
    } else if (const auto old = known_.find(given); old != known_.end()) {
      std::tie(id, called) = old->second;
    } else if (traits_.ids == IdRule::kNineAlnum) {
      id = nine_alnum(given);
    }
    if (!id.empty()) message.set("tool_call_id", Json(id));
    if (traits_.result_names && name.empty() && !called.empty()) message.set("name", Json(called));
    return at;
  }

  const std::string& name(std::size_t at) const { return open_[at].name; }
  std::size_t open_calls() const { return open_.size(); }

 private:
  struct Open {
    std::string id, name;
    bool answered;
  };
  struct Places {
    std::vector<std::size_t> at;  // into open_, ascending
    std::size_t next = 0;
  };

  std::string new_id(const std::string& given, const std::string& name, std::size_t in_message) const {
    switch (traits_.ids) {
      case IdRule::kNineAlnum:
        return nine_alnum(given.empty() ? "call " + std::to_string(seen_) : given);
      case IdRule::kKimi:
        if (is_kimi_id(given, name)) return given;
        return "functions." + name + ":" + std::to_string(seen_);
      case IdRule::kKimiPerTurn:
        return "functions." + name + ":" + std::to_string(in_message);
      case IdRule::kAsTheyAre:
        break;
    }
    return given.empty() ? "call_" + std::to_string(seen_) : given;
  }

  // By id (of calls that share one, the next that waits), else by name as legacy results, else the next that waits.
  std::size_t find(const std::string& given, const std::string& name) {
    if (!given.empty()) {
      const auto places = by_id_.find(given);
      if (places == by_id_.end()) return open_.size();
      Places& p = places->second;
      return p.at[p.next + 1 < p.at.size() ? p.next++ : p.next];
    }
    if (const auto places = by_name_.find(name); places != by_name_.end()) {
      Places& p = places->second;
      while (p.next < p.at.size() && open_[p.at[p.next]].answered) ++p.next;
      if (p.next < p.at.size()) return p.at[p.next];
    }
    while (next_ < open_.size() && open_[next_].answered) ++next_;
    return next_;
  }

  const TemplateTraits& traits_;
  std::vector<Open> open_;  // calls of the last message that called
  std::unordered_map<std::string, Places> by_id_, by_name_;
  std::size_t next_ = 0;  // calls before it are answered
  std::unordered_map<std::string, std::pair<std::string, std::string>> known_;  // id of the client -> ours, name
  std::size_t seen_ = 0;
};

// An assistant message with calls, and the results behind it.
struct Turn {
  Json caller;
  std::vector<std::pair<std::size_t, Json>> results;  // (position of the call, message)
};

Json with_call(const Json& caller, const Json& call) {
  Json one = caller;
  one.set("tool_calls", Json(Json::Array{call}));
  return one;
}

// {name, response} of Gemma's templates: an object as it is, all else as text.
Json folded(const Json& result, const std::string& name) {
  const std::string text = content_text(result.find("content"));
  auto parsed = parse_json(text);
  return Json::object({{"name", name}, {"response", parsed && parsed->is_object() ? std::move(*parsed) : Json(text)}});
}

class Shaper {
 public:
  explicit Shaper(const TemplateTraits& traits) : traits_(traits), matcher_(traits) {}

  Json run(const Json& messages) {
    const auto& list = messages.as_array();
    for (std::size_t i = 0; i < list.size();) {
      if (has_calls(list[i])) {
        i = turn(list, i);
      } else if (has_role(list[i], "tool")) {
        Json stray = list[i++];
        matcher_.result(stray);
        emit_result(std::move(stray));
      } else {
        flush();
        out_.push(list[i++]);
      }
    }
    flush();
    return std::move(out_);
  }

 private:
  std::size_t turn(const Json::Array& list, std::size_t i) {
    flush();
    Turn t{list[i++], {}};
    matcher_.calls(t.caller);
    while (i < list.size() && has_role(list[i], "tool")) {
      Json result = list[i++];
      const std::size_t at = matcher_.result(result);
      const bool told = !traits_.results || !traits_.calls;  // in words: whose it is must be said
      if (told && at < matcher_.open_calls()) result.set("name", Json(matcher_.name(at)));
      t.results.emplace_back(at, std::move(result));
    }
    // Where a template knows results by their order only, theirs must be that of the calls.
    if (!traits_.reads_call_id || !traits_.parallel_calls) {
      std::stable_sort(t.results.begin(), t.results.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    emit(std::move(t));
    return i;
  }

  void emit(Turn t) {
    if (!traits_.calls) return emit_as_text(std::move(t));
    if ((traits_.split_text || traits_.folds_results) && !content_empty(t.caller.find("content"))) {
      Json text = t.caller;
      remove_member(text, "tool_calls");
      remove_member(traits_.reasoning_with_calls ? text : t.caller, "reasoning_content");
      out_.push(std::move(text));
      t.caller.set("content", Json());
    }
    if (traits_.folds_results) return emit_folded(std::move(t));
    const std::size_t calls = t.caller.find("tool_calls")->size();
    if (traits_.parallel_calls || calls < 2) {
      out_.push(std::move(t.caller));
      for (auto& [at, result] : t.results) emit_result(std::move(result));
      return;
    }
    const Json list = *t.caller.find("tool_calls");
    remove_member(t.caller, "tool_calls");
    auto next = t.results.begin();
    for (std::size_t c = 0; c < calls; ++c) {
      out_.push(with_call(t.caller, list.as_array()[c]));
      for (; next != t.results.end() && next->first <= c; ++next) emit_result(std::move(next->second));
      flush();
      t.caller.set("content", Json());
      remove_member(t.caller, "reasoning_content");
    }
    for (; next != t.results.end(); ++next) emit_result(std::move(next->second));
  }

  void emit_folded(Turn t) {
    Json responses = Json::array();
    for (const auto& [at, result] : t.results) {
      responses.push(folded(result, at < matcher_.open_calls() ? matcher_.name(at) : text_member(result, "name")));
    }
    if (responses.size() > 0) t.caller.set("tool_responses", std::move(responses));
    out_.push(std::move(t.caller));
  }

  void emit_as_text(Turn t) {
    const Json calls = calls_as_text(*t.caller.find("tool_calls"));
    t.caller.set("content", join_contents({t.caller.find("content"), &calls}));
    remove_member(t.caller, "tool_calls");
    out_.push(std::move(t.caller));
    for (auto& [at, result] : t.results) emit_result(std::move(result));
  }

  // Results that the template does not know are collected into one message of the user.
  void emit_result(Json result) {
    if (traits_.results && traits_.calls) {
      out_.push(std::move(result));
      return;
    }
    if (!told_.empty()) told_ += "\n\n";
    told_ += result_as_text(text_member(result, "name"), content_text(result.find("content")));
  }

  void flush() {
    if (told_.empty()) return;
    out_.push(Json::object({{"role", "user"}, {"content", std::exchange(told_, {})}}));
  }

  const TemplateTraits& traits_;
  Matcher matcher_;
  Json out_ = Json::array();
  std::string told_;
};

}  // namespace

std::string nine_alnum(std::string_view id) {
  if (id.size() == 9 && std::all_of(id.begin(), id.end(), alnum)) return std::string(id);
  static constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const Digest digest = sha256(id.data(), id.size());
  std::string out;
  for (std::size_t i = 0; i < 9; ++i) out += kDigits[digest[i] % kDigits.size()];
  return out;
}

bool is_kimi_id(std::string_view id, std::string_view name) {
  const std::string head = "functions." + std::string(name) + ":";
  if (!id.starts_with(head) || id.size() == head.size() || id.size() > head.size() + 9) return false;
  return std::all_of(id.begin() + static_cast<std::ptrdiff_t>(head.size()), id.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

Json shape_calls(const Json& messages, const TemplateTraits& traits) { return Shaper(traits).run(messages); }

}  // namespace barg::text
