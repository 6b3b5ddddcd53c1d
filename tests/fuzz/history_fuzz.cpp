// Conversations of any shape through templates that object to different things: refused with a message, or rendered
// with ranges of the client's text that lie within it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

namespace {

using namespace barg;
using namespace barg::text;

// Knows calls, ids and names; demands nine characters; knows no tools and keeps reasoning in the content; refuses
// system messages, more than one call and two of a role in a row; takes results within the calling message.
constexpr std::array kTemplates = {
    "{% for m in messages %}{{ m.role }}{{ m.name }}({{ m.tool_call_id }})={{ m.content }}{{ m.thinking }}"
    "{% for c in m.tool_calls or [] %}[{{ c.id }}{{ c.function.name }}{{ c.function.arguments|tojson }}]{% endfor %}"
    "{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
    "{{ raise_exception('id') }}{% endif %}{{ c.function|tojson }}{% endfor %}{% endfor %}",
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n</think>{% endif %}",
    "{% if messages[0].role == 'system' %}{{ raise_exception('system') }}{% endif %}{% for m in messages %}"
    "{% if loop.previtem and loop.previtem.role == m.role %}{{ raise_exception('role') }}{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}{% if m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}"
    "{{ m.tool_calls[0].function.arguments|tojson }}{% endif %}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %}"
    "{% for r in m.tool_responses or [] %}{{ r.name }}{{ r.response }}{% endfor %}{% endfor %}"};

const auto& templates() {
  static const auto made = [] {
    std::array<std::shared_ptr<const ChatTemplate>, kTemplates.size()> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto t = ChatTemplate::create({}, nullptr, kTemplates[i]);
      CHECK(t.has_value());
      out[i] = *t;
    }
    return out;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  ChatPrompt prompt;
  prompt.messages = *json;
  const Json function = Json::object({{"name", "f"}, {"parameters", Json::object()}});
  for (const auto& t : templates()) {
    for (const bool tools : {false, true}) {
      prompt.tools = tools ? Json(Json::Array{Json::object({{"type", "function"}, {"function", function}})}) : Json();
      const auto out = t->render(prompt);
      if (!out) {
        CHECK(!out.error().message.empty());
        continue;
      }
      std::size_t at = 0;
      for (const auto& [begin, end] : out->untrusted) {
        CHECK(begin < end && end <= out->text.size() && (at == 0 || begin >= at));
        at = end;
      }
      CHECK(out->trusted_tail().size() <= out->text.size());
    }
  }
  return 0;
}
