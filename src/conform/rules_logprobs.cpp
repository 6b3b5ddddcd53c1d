// Log-probabilities of chat completions.
#include <cmath>

#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr double kSlack = 1e-4;  // what rounding in print may cost

const Json::Array& entries(Session& s, std::string_view probe = "chat.logprobs") {
  return list_at(s.json(probe), "choices.0.logprobs.content");
}

double logprob(const Json& entry) {
  const Json* value = at(entry, "logprob");
  return value != nullptr && value->is_number() ? value->as_double() : NAN;
}

/// The bytes of an entry: of the array, or of the token where it is null.
std::string bytes_of(const Json& entry) {
  const Json* bytes = at(entry, "bytes");
  if (bytes == nullptr || !bytes->is_array()) return text_at(entry, "token");
  std::string out;
  for (const Json& byte : bytes->as_array()) {
    if (byte.type() == Json::Type::kInt) out += static_cast<char>(byte.as_int());
  }
  return out;
}

/// Nothing to look at makes the rules of the entries not applicable; logprobs.shape fails for it.
std::optional<Verdict> no_entries(Session& s) {
  if (auto verdict = blocked(s, {"chat.logprobs"})) return verdict;
  if (entries(s).empty()) return not_applicable("there are no entries (logprobs.shape)");
  return std::nullopt;
}

Verdict shape(Session& s) {
  if (auto verdict = blocked(s, {"chat.logprobs"})) return *verdict;
  const std::string& body = s.exchange("chat.logprobs").body;
  if (entries(s).empty()) return failed("choices[0].logprobs.content holds no entries", body);
  if (at(s.json("chat.logprobs"), "choices.0.logprobs.refusal") == nullptr)
    return failed("logprobs has no key refusal", body);
  for (const Json& entry : entries(s)) {
    const Json* bytes = at(entry, "bytes");
    const Json* top = at(entry, "top_logprobs");
    if (at(entry, "token") == nullptr || std::isnan(logprob(entry)) || bytes == nullptr || top == nullptr ||
        !top->is_array())
      return failed("an entry lacks token, logprob, bytes or top_logprobs", shown(entry));
    for (const Json& one : top->as_array()) {
      if (at(one, "token") == nullptr || std::isnan(logprob(one)) || at(one, "bytes") == nullptr)
        return failed("an alternative lacks token, logprob or bytes", shown(entry));
    }
  }
  return pass();
}

Verdict count(Session& s) {
  if (auto verdict = no_entries(s)) return *verdict;
  if (!text_at(s.json("chat.logprobs"), "choices.0.message.reasoning_content").empty())
    return not_applicable("the answer has reasoning, whose tokens are not the content's");
  const std::int64_t tokens = int_at(s.json("chat.logprobs"), "usage.completion_tokens");
  const auto there = static_cast<std::int64_t>(entries(s).size());
  // The token that ends an answer may have an entry or not.
  const bool natural = text_at(s.json("chat.logprobs"), "choices.0.finish_reason") == "stop";
  if (there == tokens || (natural && there == tokens - 1)) return pass();
  return failed(std::to_string(there) + " entries for " + std::to_string(tokens) + " tokens",
                s.exchange("chat.logprobs").body);
}

Verdict text(Session& s) {
  if (auto verdict = no_entries(s)) return *verdict;
  const std::string content = text_at(s.json("chat.logprobs"), "choices.0.message.content");
  const std::string reasoning = text_at(s.json("chat.logprobs"), "choices.0.message.reasoning_content");
  if (!reasoning.empty()) return not_applicable("the answer has reasoning, whose marks are in no text");
  std::string joined;
  std::string before_last;
  for (const Json& entry : entries(s)) {
    before_last = joined;
    joined += bytes_of(entry);
  }
  const bool natural = text_at(s.json("chat.logprobs"), "choices.0.finish_reason") == "stop";
  if (joined == content || (natural && before_last == content)) return pass();
  return failed("the bytes of the entries are not the content", joined + " | " + content);
}

Verdict range(Session& s) {
  if (auto verdict = no_entries(s)) return *verdict;
  for (const Json& entry : entries(s)) {
    double mass = 0;
    if (logprob(entry) > kSlack) return failed("a log-probability is above 0", shown(entry));
    for (const Json& one : list_at(entry, "top_logprobs")) {
      if (logprob(one) > kSlack) return failed("a log-probability is above 0", shown(entry));
      mass += std::exp(logprob(one));
    }
    if (mass > 1 + 1e-3)
      return failed("probabilities of different tokens add up to " + std::to_string(mass), shown(entry));
  }
  return pass();
}

Verdict top(Session& s) {
  if (auto verdict = no_entries(s)) return *verdict;
  for (const Json& entry : entries(s)) {
    const Json::Array& list = list_at(entry, "top_logprobs");
    if (list.size() != 3) return failed("three alternatives were asked for", shown(entry));
    for (std::size_t i = 1; i < list.size(); ++i) {
      if (logprob(list[i]) > logprob(list[i - 1]) + kSlack)
        return failed("the alternatives do not descend", shown(entry));
    }
    if (std::abs(logprob(list[0]) - logprob(entry)) > kSlack)
      return failed("at temperature 0 the chosen token is not the first alternative", shown(entry));
  }
  return pass();
}

Verdict alone(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.logprobs"})) return *verdict;
  const Exchange& e = s.exchange("chat.logprobs.alone");
  if (!e.complete() || e.status != 200) return failed("logprobs: true without top_logprobs is refused", e.body);
  if (entries(s, "chat.logprobs.alone").empty()) return failed("there are no entries", e.body);
  for (const Json& entry : entries(s, "chat.logprobs.alone")) {
    const Json* list = at(entry, "top_logprobs");
    if (list == nullptr || !list->is_array() || list->size() != 0)
      return failed("top_logprobs is not []", shown(entry));
  }
  return pass();
}

Verdict stream_equals(Session& s) {
  if (auto verdict = no_entries(s)) return *verdict;
  if (auto verdict = blocked_stream(s, {"chat.logprobs.stream"})) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  const auto& choices = s.stream("chat.logprobs.stream").choices;
  const auto it = choices.find(0);
  const Json::Array& whole = entries(s);
  const std::size_t streamed = it == choices.end() ? 0 : it->second.logprobs.size();
  if (streamed != whole.size())
    return failed(
        "the stream has " + std::to_string(streamed) + " entries, the whole answer " + std::to_string(whole.size()),
        s.exchange("chat.logprobs.stream").body);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Json& one = it->second.logprobs[i];
    if (bytes_of(one) != bytes_of(whole[i]) || !(std::abs(logprob(one) - logprob(whole[i])) <= 0.01))
      return failed("entry " + std::to_string(i) + " of the stream is another",
                    shown(one, 120) + " | " + shown(whole[i], 120));
  }
  return pass();
}

constexpr Rule kRules[] = {
    {"logprobs.shape", "An entry has token, logprob, bytes and top_logprobs; beside content there is refusal.",
     "OpenAI's schema requires the keys.", shape},
    {"logprobs.count", "There is one entry for each token of the content.", "Evaluations add them up.", count},
    {"logprobs.text", "The bytes of the entries, joined, are the content.",
     "vLLM 16540: tokens that are no characters.", text},
    {"logprobs.range", "Log-probabilities are at most 0, and probabilities add up to at most 1.",
     "vLLM 10234: infinities and NaN are no JSON.", range},
    {"logprobs.top", "There are as many alternatives as asked for, descending; greedy takes the first.",
     "OpenAI's reference says so.", top},
    {"logprobs.alone", "logprobs: true works without top_logprobs, with empty alternatives.",
     "vLLM 4795: it was an error.", alone},
    {"logprobs.stream_equals", "A stream has the entries of the whole answer.",
     "Entries were lost with held-back text.", stream_equals},
};

}  // namespace

const RuleGroup kLogprobRules{"logprobs", "Log-probabilities", kRules};

}  // namespace barg::conform
