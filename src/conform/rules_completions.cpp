// Completions, the endpoint that evaluations and benchmarks use.
#include "base/utf8.h"
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr std::string_view kPrompt = "One, two, three, four,";

std::string text(Session& s, std::string_view probe) { return text_at(s.json(probe), "choices.0.text"); }

Verdict answer(Session& s) {
  if (auto verdict = blocked(s, {"completions"})) return *verdict;
  const Json& a = s.json("completions");
  const std::string& body = s.exchange("completions").body;
  if (text_at(a, "object") != "text_completion") return failed("\"object\" is not \"text_completion\"", body);
  if (text_at(a, "id").empty() || text_at(a, "model").empty() || int_at(a, "created") < 1)
    return failed("id, model or an integer created is missing", body);
  const Json* said = at(a, "choices.0.text");
  if (said == nullptr || !said->is_string() || int_at(a, "choices.0.index") != 0 ||
      text_at(a, "choices.0.finish_reason").empty() || at(a, "choices.0.logprobs") == nullptr)
    return failed("the choice lacks text, index 0, a finish_reason or the key logprobs", body);
  return pass();
}

Verdict stream(Session& s) {
  if (auto verdict = blocked_stream(s, {"completions.stream"})) return *verdict;
  const StreamView& view = s.stream("completions.stream");
  const Json& first = view.chunks.front().json;
  for (const Chunk& chunk : view.chunks) {
    if (text_at(chunk.json, "object") != "text_completion")
      return failed("a chunk is no text_completion", view.raw(chunk));
    if (text_at(chunk.json, "id").empty() || text_at(chunk.json, "id") != text_at(first, "id"))
      return failed("the id changes within a stream", view.raw(chunk));
    for (const Json& choice : list_at(chunk.json, "choices")) {
      const Json* said = at(choice, "text");
      if (said == nullptr || !said->is_string() || at(choice, "finish_reason") == nullptr ||
          int_at(choice, "index") != 0)
        return failed("a choice of a chunk lacks text, index or the key finish_reason", view.raw(chunk));
    }
  }
  const auto it = view.choices.find(0);
  if (it == view.choices.end() || it->second.finishes.size() != 1)
    return failed("the stream does not have one finish_reason", s.exchange("completions.stream").body);
  return pass();
}

Verdict stream_equals(Session& s) {
  if (auto verdict = blocked(s, {"completions"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"completions.stream"})) return *verdict;
  if (blocked(s, {"chat", "chat.again"}) || !s.deterministic())
    return not_applicable("equal requests get different answers (sampling.deterministic)");
  const StreamView& view = s.stream("completions.stream");
  const auto it = view.choices.find(0);
  const std::string streamed = it == view.choices.end() ? "" : it->second.text;
  if (streamed != text(s, "completions"))
    return failed("the streamed text is another", streamed + " | " + text(s, "completions"));
  for (const char* key : {"prompt_tokens", "completion_tokens"}) {
    if (int_at(view.usage, key) != int_at(s.json("completions"), std::string("usage.") + key))
      return failed(std::string(key) + " of the stream is not the whole answer's", shown(view.usage));
  }
  return pass();
}

Verdict echo(Session& s) {
  if (auto verdict = blocked(s, {"completions.echo"})) return *verdict;
  return text(s, "completions.echo").starts_with(kPrompt)
             ? pass()
             : failed("with echo the text does not begin with the prompt", s.exchange("completions.echo").body);
}

/// The four lists, of one length; a sentence if they are not.
std::string lists_problem(const Json& logprobs) {
  const std::size_t tokens = list_at(logprobs, "tokens").size();
  if (tokens == 0) return "logprobs.tokens is missing or empty";
  for (const char* key : {"token_logprobs", "text_offset"}) {
    if (list_at(logprobs, key).size() != tokens) return std::string(key) + " is not as long as tokens";
  }
  const Json* top = at(logprobs, "top_logprobs");
  if (top != nullptr && top->is_array() && top->size() != 0 && top->size() != tokens)
    return "top_logprobs is not as long as tokens";
  return "";
}

Verdict score(Session& s) {
  if (auto verdict = blocked(s, {"completions.score"})) return *verdict;
  const Json& a = s.json("completions.score");
  const std::string& body = s.exchange("completions.score").body;
  if (text(s, "completions.score") != kPrompt) return failed("echo with max_tokens 0 is not the prompt alone", body);
  const Json* logprobs = at(a, "choices.0.logprobs");
  if (const std::string why = lists_problem(logprobs ? *logprobs : Json()); !why.empty()) return failed(why, body);
  if (!null_at(*logprobs, "token_logprobs.0"))
    return failed("the first token of the prompt has a log-probability", body);
  const Json::Array& values = list_at(*logprobs, "token_logprobs");
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (!values[i].is_number() || values[i].as_double() > 1e-4)
      return failed("a token of the prompt has no log-probability", body);
  }
  return pass();
}

Verdict logprobs(Session& s) {
  if (auto verdict = blocked(s, {"completions.logprobs"})) return *verdict;
  const std::string& body = s.exchange("completions.logprobs").body;
  const Json* logprobs = at(s.json("completions.logprobs"), "choices.0.logprobs");
  if (const std::string why = lists_problem(logprobs ? *logprobs : Json()); !why.empty()) return failed(why, body);
  const Json::Array& top = list_at(*logprobs, "top_logprobs");
  if (top.empty()) return failed("top_logprobs is missing", body);
  for (const Json& one : top) {
    if (!one.is_object() || one.size() < 2)
      return failed("an element of top_logprobs has less than two tokens", shown(one));
  }
  return pass();
}

Verdict logprobs_zero(Session& s) {
  if (auto verdict = blocked(s, {"completions.logprobs.zero"})) return *verdict;
  const Json* logprobs = at(s.json("completions.logprobs.zero"), "choices.0.logprobs");
  const std::string why = lists_problem(logprobs ? *logprobs : Json());
  return why.empty() ? pass() : failed("with logprobs = 0 " + why, s.exchange("completions.logprobs.zero").body);
}

std::size_t characters(std::string_view bytes) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < bytes.size(); ++out) next_code_point(bytes, i);
  return out;
}

Verdict text_offset(Session& s) {
  if (auto verdict = blocked(s, {"completions.logprobs"})) return *verdict;
  const Json* logprobs = at(s.json("completions.logprobs"), "choices.0.logprobs");
  const std::string& body = s.exchange("completions.logprobs").body;
  if (!lists_problem(logprobs ? *logprobs : Json()).empty())
    return not_applicable("there are no lists (completions.logprobs)");
  const Json::Array& tokens = list_at(*logprobs, "tokens");
  const Json::Array& offsets = list_at(*logprobs, "text_offset");
  std::string joined;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string() || offsets[i].type() != Json::Type::kInt)
      return failed("a token is no string, or an offset no integer", body);
    // From the start of the answer, or of the prompt: OpenAI does the latter, vLLM the former.
    const auto expected = static_cast<std::int64_t>(characters(joined)) + offsets[0].as_int();
    const bool whole = joined.find("\xef\xbf\xbd") == std::string::npos && joined.find("bytes:") == std::string::npos;
    if (whole && offsets[i].as_int() != expected)
      return failed("text_offset of token " + std::to_string(i) + " is " + std::to_string(offsets[i].as_int()) +
                        ", not " + std::to_string(expected),
                    body);
    joined += tokens[i].as_string();
  }
  return pass();
}

Verdict prompts(Session& s) {
  if (auto verdict = blocked(s, {"completions.prompts"})) return *verdict;
  const Json::Array& choices = list_at(s.json("completions.prompts"), "choices");
  const std::string& body = s.exchange("completions.prompts").body;
  if (choices.size() != 4)
    return failed("two prompts with n = 2 gave " + std::to_string(choices.size()) + " choices", body);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (int_at(choices[i], "index") != static_cast<std::int64_t>(i))
      return failed("the choices are not 0, 1, 2, 3", body);
  }
  const bool echoes = !blocked(s, {"completions.echo"}) && text(s, "completions.echo").starts_with(kPrompt);
  if (!echoes) return pass("without echo it cannot be seen which prompt a choice belongs to");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!text_at(choices[i], "text").starts_with(i < 2 ? "A, B, C," : "1, 2, 3,"))
      return failed("choice " + std::to_string(i) + " is not of prompt " + std::to_string(i / 2), body);
  }
  return pass();
}

Verdict token_ids(Session& s) {
  if (auto verdict = blocked(s, {"completions.ids"})) return *verdict;
  const std::int64_t counted = int_at(s.json("completions.ids"), "usage.prompt_tokens");
  // Some models put a token of their own in front of text; ids are complete.
  return counted == 5
             ? pass()
             : failed("five token ids are counted as " + std::to_string(counted), s.exchange("completions.ids").body);
}

Verdict id_lists(Session& s) {
  if (auto verdict = blocked(s, {"completions.id_lists"})) return *verdict;
  const Json& a = s.json("completions.id_lists");
  const std::string& body = s.exchange("completions.id_lists").body;
  if (list_at(a, "choices").size() != 2) return failed("two lists of ids did not give two choices", body);
  if (int_at(a, "usage.prompt_tokens") != 7) return failed("seven token ids are counted otherwise", body);
  return pass();
}

constexpr Rule kRules[] = {
    {"completions.answer",
     "An answer is a text_completion with id, created, model, and a choice with text, finish_reason and logprobs.",
     "OpenAI's schema requires them.", answer},
    {"completions.stream",
     "Every chunk is a text_completion of the same id, with text and finish_reason, which is set once.",
     "Load generators read only these.", stream},
    {"completions.stream_equals", "A streamed answer, joined, is the whole one, with the same counts.",
     "Benchmarks stream, evaluations do not.", stream_equals},
    {"completions.echo", "With echo the text begins with the prompt.", "Ollama lacks it; lm-eval needs it.", echo},
    {"completions.score", "echo with max_tokens 0 and logprobs scores the prompt; the first token has null.",
     "lm-eval's loglikelihood.", score},
    {"completions.logprobs", "tokens, token_logprobs, top_logprobs and text_offset have one element a token.",
     "OpenAI's legacy schema.", logprobs},
    {"completions.logprobs_zero", "logprobs = 0 gives the chosen tokens' values.", "vLLM 3707: it gave none.",
     logprobs_zero},
    {"completions.text_offset", "text_offset advances by the characters of each token.", "vLLM PR 47815: it was wrong.",
     text_offset},
    {"completions.prompts", "Several prompts with n give choices prompt by prompt, index = prompt * n + k.",
     "OpenAI's order; evaluations pair by it.", prompts},
    {"completions.token_ids", "A prompt of token ids is taken as it is.", "lm-eval and RL libraries send ids.",
     token_ids},
    {"completions.id_lists", "So are several.", "lm-eval sends batches.", id_lists},
};

}  // namespace

const RuleGroup kCompletionRules{"completions", "Completions", kRules};

}  // namespace barg::conform
