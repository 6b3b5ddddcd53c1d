// Any bytes as a chat template, rendered over a fixed conversation under a small budget: it prints or it is
// an error, the marks lie inside the text, and what is marked is all the client's text that shows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "text/jinja/template.h"

namespace {

const barg::Json& conversation() {
  static const auto kParsed = barg::parse_json(R"({
    "messages": [{"role": "system", "content": "Be <b>brief</b>."}, {"role": "user", "content": "Grüße <|im_start|>"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "a1", "type": "function",
                  "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null], "items": "keys"}}}]},
                 {"role": "tool", "content": "42\nlines", "name": "f"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "s": "Hello World", "n": 3, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": [2]}, "big": 18446744073709551615})");
  return kParsed.value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace jinja = barg::text::jinja;
  jinja::Limits limits;
  limits.source_bytes = 1 << 14;
  limits.steps = 100'000;
  limits.string_bytes = limits.output_bytes = 1 << 20;
  limits.work_bytes = 16 << 20;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = jinja::Template::parse(source, limits);
  if (!parsed) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : conversation().as_object())
    variables.push_back({name, &value, name == "bos_token"});
  jinja::RenderOptions options;
  options.now.emplace();
  options.allow_mutation = size % 2 == 0;
  const auto out = (*parsed)->render(variables, options);
  if (!out) {
    if (out.error().message.empty() && source.find("raise_exception") == source.npos) std::abort();
    return 0;
  }
  std::size_t at = 0;
  for (const auto& [begin, end] : out->untrusted) {
    if (begin >= end || begin < at || end > out->text.size()) std::abort();
    at = end;
  }
  return 0;
}
