// The shape of chat answers, whole and streamed: what the accumulator of openai-python and other strict clients need.
#include <algorithm>

#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr std::string_view kFinishes[] = {"stop", "length", "tool_calls", "content_filter", "function_call"};

bool standard_finish(const std::string& finish) { return std::ranges::find(kFinishes, finish) != std::end(kFinishes); }

Verdict answer(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  const Json& a = s.json("chat");
  const std::string& body = s.exchange("chat").body;
  if (text_at(a, "object") != "chat.completion") return failed("\"object\" is not \"chat.completion\"", body);
  if (text_at(a, "id").empty() || text_at(a, "model").empty() || int_at(a, "created") < 1)
    return failed("id, model or an integer created is missing", body);
  if (list_at(a, "choices").size() != 1 || int_at(a, "choices.0.index") != 0)
    return failed("there is not one choice with index 0", body);
  if (text_at(a, "choices.0.message.role") != "assistant" || at(a, "choices.0.message.content") == nullptr)
    return failed("the message lacks role \"assistant\" or content", body);
  if (!standard_finish(text_at(a, "choices.0.finish_reason")))
    return failed("finish_reason is none of the standard ones", body);
  return pass();
}

Verdict chunk_object(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  const StreamView& view = s.stream("chat.stream");
  for (const Chunk& chunk : view.chunks) {
    if (text_at(chunk.json, "object") != "chat.completion.chunk" || at(chunk.json, "choices") == nullptr)
      return failed("a chunk is not a chat.completion.chunk with choices", view.raw(chunk));
  }
  return pass();
}

Verdict same_ids(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream", "chat.usage"})) return *verdict;
  for (const char* probe : {"chat.stream", "chat.usage"}) {
    const StreamView& view = s.stream(probe);
    const Json& first = view.chunks.front().json;
    for (const Chunk& chunk : view.chunks) {
      for (const char* key : {"id", "created", "model"}) {
        const Json* value = at(chunk.json, key);
        if (value == nullptr || value->is_null() || *value == Json(""))
          return failed(std::string("a chunk has no ") + key, view.raw(chunk));
        const Json* before = at(first, key);
        if (before == nullptr || !(*before == *value))
          return failed(std::string(key) + " changes within a stream", view.raw(chunk));
      }
    }
  }
  if (text_at(s.stream("chat.stream").chunks.front().json, "id") ==
      text_at(s.stream("chat.usage").chunks.front().json, "id"))
    return failed("two streams have the same id", s.exchange("chat.usage").body);
  return pass();
}

/// The first choice of the first chunk for which `wrong` gives a sentence fails.
template <class Wrong>
Verdict each_choice(Session& s, std::string_view probe, Wrong wrong) {
  const StreamView& view = s.stream(probe);
  for (const Chunk& chunk : view.chunks) {
    for (const Json& choice : list_at(chunk.json, "choices")) {
      if (const std::string why = wrong(choice); !why.empty()) return failed(why, view.raw(chunk));
    }
  }
  return pass();
}

Verdict finish_key(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  return each_choice(s, "chat.stream", [](const Json& choice) -> std::string {
    const Json* finish = at(choice, "finish_reason");
    if (finish == nullptr) return "a chunk has no key finish_reason";
    return finish->is_null() || finish->is_string() ? "" : "finish_reason is neither null nor a string";
  });
}

Verdict finish_once(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream", "chat.usage", "chat.length.stream", "chat.n.stream"}))
    return *verdict;
  for (const char* probe : {"chat.stream", "chat.usage", "chat.length.stream", "chat.n.stream"}) {
    for (const auto& [index, choice] : s.stream(probe).choices) {
      const std::string& body = s.exchange(probe).body;
      if (choice.finishes.size() != 1)
        return failed(
            "choice " + std::to_string(index) + " has " + std::to_string(choice.finishes.size()) + " finish reasons",
            body);
      if (!standard_finish(choice.finishes.front()))
        return failed("finish_reason \"" + choice.finishes.front() + "\" is none of the standard ones", body);
    }
    std::map<std::int64_t, bool> finished;
    const Verdict late = each_choice(s, probe, [&](const Json& choice) -> std::string {
      bool& over = finished[int_at(choice, "index")];
      if (over) return "a chunk follows the one with the finish_reason";
      over = !text_at(choice, "finish_reason").empty();
      return "";
    });
    if (late.kind == Verdict::Kind::kFail) return late;
  }
  return pass();
}

Verdict finish_chunk(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  return each_choice(s, "chat.stream", [](const Json& choice) -> std::string {
    if (text_at(choice, "finish_reason").empty()) return "";
    const bool empty = text_at(choice, "delta.content").empty() && list_at(choice, "delta.tool_calls").empty() &&
                       at(choice, "delta") != nullptr;
    return empty ? "" : "the chunk with the finish_reason carries content, or has no delta";
  });
}

Verdict role_once(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream", "chat.n.stream"})) return *verdict;
  for (const char* probe : {"chat.stream", "chat.n.stream"}) {
    std::map<std::int64_t, int> chunks;
    const Verdict first = each_choice(s, probe, [&](const Json& choice) -> std::string {
      const bool has_role = at(choice, "delta.role") != nullptr && !null_at(choice, "delta.role");
      const bool is_first = chunks[int_at(choice, "index")]++ == 0;
      if (is_first && text_at(choice, "delta.role") != "assistant")
        return "the first delta of a choice has no role \"assistant\"";
      return !is_first && has_role ? "the role comes again" : "";
    });
    if (first.kind == Verdict::Kind::kFail) return first;
  }
  return pass();
}

// A number anywhere but under "index" would be added up.
bool holds_number(const Json& json) {
  if (json.is_number()) return true;
  if (json.is_array()) return std::ranges::any_of(json.as_array(), holds_number);
  if (!json.is_object()) return false;
  return std::ranges::any_of(json.as_object(),
                             [](const Json::Member& m) { return m.first != "index" && holds_number(m.second); });
}

Verdict no_numbers(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  return each_choice(s, "chat.stream", [](const Json& choice) -> std::string {
    const Json* delta = at(choice, "delta");
    return delta != nullptr && holds_number(*delta) ? "a delta holds a number" : "";
  });
}

Verdict content_is_text(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  return each_choice(s, "chat.stream", [](const Json& choice) -> std::string {
    const Json* delta = at(choice, "delta");
    if (delta == nullptr || !delta->is_object()) return "a choice has no delta";
    const Json* content = at(*delta, "content");
    return content == nullptr || content->is_string() || content->is_null() ? ""
                                                                            : "content is neither a string nor null";
  });
}

Verdict choice_indices(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.n.stream"})) return *verdict;
  const StreamView& view = s.stream("chat.n.stream");
  const std::string& body = s.exchange("chat.n.stream").body;
  if (int_at(view.chunks.front().json, "choices.0.index") != 0)
    return failed("the first chunk is not of choice 0", view.raw(view.chunks.front()));
  if (view.choices.size() != 2 || !view.choices.contains(0) || !view.choices.contains(1))
    return failed("with n = 2 the choices are not 0 and 1", body);
  return pass();
}

Verdict n_sorted(Session& s) {
  if (auto verdict = blocked(s, {"chat.n"})) return *verdict;
  const Json::Array& choices = list_at(s.json("chat.n"), "choices");
  if (choices.size() != 2)
    return failed("n = 2 gave " + std::to_string(choices.size()) + " choices", s.exchange("chat.n").body);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (int_at(choices[i], "index") != static_cast<std::int64_t>(i))
      return failed("the choices are not sorted by index", s.exchange("chat.n").body);
  }
  return pass();
}

Verdict stream_equals(Session& s) {
  if (auto verdict = blocked(s, {"chat", "chat.again"})) return *verdict;
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  if (!s.deterministic()) return not_applicable("equal requests get different answers (sampling.deterministic)");
  const Json& whole = s.json("chat");
  const auto& choices = s.stream("chat.stream").choices;
  const auto it = choices.find(0);
  if (it == choices.end()) return failed("the stream has no choice 0", s.exchange("chat.stream").body);
  if (it->second.text != text_at(whole, "choices.0.message.content"))
    return failed("the streamed text is not the whole answer's",
                  it->second.text + " | " + text_at(whole, "choices.0.message.content"));
  if (it->second.finishes.empty() || it->second.finishes.back() != text_at(whole, "choices.0.finish_reason"))
    return failed("the stream finishes for another reason", s.exchange("chat.stream").body);
  return pass();
}

constexpr Rule kRules[] = {
    {"chat.answer",
     "An answer is a chat.completion with id, created, model, one choice with a message, and a standard finish_reason.",
     "OpenAI's schema requires them.", answer},
    {"chat.chunk_object", "Every chunk is a chat.completion.chunk with choices.", "Typed clients refuse others.",
     chunk_object},
    {"chat.same_ids", "id, created and model are equal in all chunks of a stream, and the id is its own.",
     "openai-python builds one completion of them.", same_ids},
    {"chat.finish_key", "finish_reason is there in every choice of every chunk, null until the end.",
     "vLLM 19650: clients broke when the key was missing.", finish_key},
    {"chat.finish_once", "Each choice has one standard finish_reason, and nothing after it.",
     "vLLM 27572, vllm-mlx 628: agents report a stream without an end.", finish_once},
    {"chat.finish_chunk", "The chunk with the finish_reason has an empty delta.",
     "vllm-ascend 8327: some clients ignore the delta there.", finish_chunk},
    {"chat.role_once", "The first delta of a choice has the role, and no other.",
     "openai-python joins strings: assistantassistant.", role_once},
    {"chat.no_numbers", "A delta holds no number but index.", "openai-python adds numbers up.", no_numbers},
    {"chat.content_is_text", "content of a delta is a string or null.", "Typed clients refuse others.",
     content_is_text},
    {"chat.choice_indices", "With n = 2 a stream begins with choice 0 and has choices 0 and 1.",
     "openai-python starts its list with the first chunk's choices.", choice_indices},
    {"chat.n_sorted", "With n = 2 an answer has two choices, in the order of their index.",
     "Clients take them by place.", n_sorted},
    {"chat.stream_equals", "A streamed answer, joined, is the whole one, with the same finish_reason.",
     "vLLM 53269, PR 9209: the two paths differed.", stream_equals},
};

}  // namespace

const RuleGroup kChatRules{"chat", "Chat completions", kRules};

}  // namespace barg::conform
