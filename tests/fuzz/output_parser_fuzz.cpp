// An output gives the same events whole, by characters and cut at random; arguments of complete calls are JSON, calls
// are numbered and closed, texts are whole characters. Byte 0 picks the dialect, byte 1 the options, byte 2 the cuts.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../text/dialect_support.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/dialect_spec.h"

namespace {

using namespace barg;
using text::OutputEvent;

std::vector<test::MarkerTokenizer::Marker> markers_of(const text::Dialect& dialect,
                                                      const text::ReasoningMarkers& around) {
  std::set<std::string> texts = {around.open, around.close};
  for (const text::CallForm& f : dialect.forms) {
    for (const auto s : {f.open[0], f.close[0], f.close[1], f.call_open, f.id_mark, f.name_end, f.call_close}) {
      if (s.size() > 1) texts.emplace(s);
    }
    if (f.arguments == text::Arguments::kGemma) texts.emplace("<|\"|>");
  }
  if (const text::Channels* c = dialect.channels) {
    texts = {"<|end|>",
             "<|call|>",
             "<|return|>",
             std::string(c->start),
             std::string(c->channel),
             std::string(c->constrain),
             std::string(c->message)};
  }
  texts.erase("");
  std::vector<test::MarkerTokenizer::Marker> out;
  for (const std::string& t : texts) out.push_back({t, out.size() % 2 == 0});
  return out;
}

std::shared_ptr<const std::vector<text::ToolInfo>> some_tools() {
  const Json schema = *parse_json(
      R"({"properties":{"s":{"type":"string"},"n":{"type":["integer","null"]},"o":{"type":"object"},"m":{"type":["string","null"]}}})");
  return std::make_shared<const std::vector<text::ToolInfo>>(std::vector<text::ToolInfo>{
      {"get_weather", schema, false}, {"f", schema, false}, {"g", Json(), false}, {"shell", Json(), true}});
}

void check(const text::OutputEvents& events) {
  std::int32_t calls = 0;
  bool open = false;
  std::string name, arguments;
  for (const OutputEvent& e : events) {
    CHECK(is_valid_utf8(e.text));
    const bool in_call = e.kind == OutputEvent::Kind::kToolArgs || e.kind == OutputEvent::Kind::kToolEnd;
    CHECK(in_call == open);
    if (e.kind == OutputEvent::Kind::kToolStart) {
      CHECK(e.call == calls && !e.text.empty());
      open = true;
      name = e.text;
      arguments.clear();
    } else if (e.kind == OutputEvent::Kind::kToolArgs) {
      CHECK(e.call == calls);
      arguments += e.text;
    } else if (e.kind == OutputEvent::Kind::kToolEnd) {
      CHECK(e.call == calls++);
      open = false;
      if (!e.complete || name == "shell") continue;
      const auto json = parse_json(arguments, {.max_depth = 200, .max_members = 0, .reject_duplicate_keys = false});
      CHECK(json && json->is_object());
    }
  }
  CHECK(!open);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto all = text::dialects();
  const text::Dialect& dialect = *all[data[0] % all.size()];
  const unsigned flags = data[1];
  text::ReasoningMarkers around = {"<think>", "</think>"};
  if ((flags & 1U) != 0) around = {"<think>", "</think>", "<response>", "</response>"};
  const bool tokens = (flags & 2U) != 0, natural = (flags & 4U) != 0;
  const text::ParserOptions options = {.tools = some_tools(),
                                       .inside_reasoning = (flags & 8U) != 0,
                                       .read_reasoning = (flags & 16U) == 0,
                                       .parallel = (flags & 32U) == 0};
  const test::MarkerTokenizer tokenizer(tokens ? markers_of(dialect, around)
                                               : std::vector<test::MarkerTokenizer::Marker>{});
  const auto bound = text::bind_dialect({&dialect, around, ""}, tokenizer);
  const std::string output = repair_utf8({reinterpret_cast<const char*>(data) + 3, size - 3});
  test::Pieces pieces;
  test::append_pieces(output, tokenizer, true, pieces);

  const auto parse = [&](const auto& cut) {
    return test::parse_pieces(bound, options, tokenizer, pieces, pieces.size(), natural, cut);
  };
  const auto whole = parse([](std::size_t) { return false; });
  check(whole.events);
  const auto characters = parse([](std::size_t) { return true; });
  CHECK(characters.events == whole.events);
  CHECK(characters.note == whole.note);
  std::uint32_t state = data[2] * 2654435761U + 1;
  const auto random = parse([&](std::size_t) { return ((state = state * 1664525U + 1013904223U) >> 29U) == 0; });
  CHECK(random.events == whole.events);
  return 0;
}
