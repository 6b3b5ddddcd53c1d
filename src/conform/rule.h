// Rule: one demand on the wire as data, and its verdict on one server. A group of rules is a file with a literal table;
// rules.cpp lists the groups. Constants and plain values.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace barg::conform {

class Session;

struct Verdict {
  enum class Kind { kPass, kFail, kNotApplicable };
  Kind kind = Kind::kPass;
  std::string why;       ///< one sentence; empty for a pass without remarks
  std::string evidence;  ///< the offending bytes, bounded and printable
};

struct Rule {
  std::string_view name;     ///< stable: "chat.finish_once"
  std::string_view demands;  ///< one sentence
  std::string_view reason;   ///< who breaks, or where it is written
  Verdict (*check)(Session&) = nullptr;
};

struct RuleGroup {
  std::string_view name;  ///< what the names of its rules begin with
  std::string_view title;
  std::span<const Rule> rules;
};

/// All of them, in the order in which they are asked and shown.
std::span<const RuleGroup* const> rule_groups();

inline Verdict pass(std::string remark = {}) { return {Verdict::Kind::kPass, std::move(remark), {}}; }
Verdict failed(std::string why, std::string_view evidence = {});
inline Verdict not_applicable(std::string why) { return {Verdict::Kind::kNotApplicable, std::move(why), {}}; }

}  // namespace barg::conform
