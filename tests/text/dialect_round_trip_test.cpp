// A conversation with calls and results, as a client sends it, through the published template of each family: the
// rendering is Jinja2's of the conversation shaped by hand (tests/tools/dialect_goldens.py), and the calling turn in
// it, read by the family's dialect, is again what the client sent.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/hash.h"
#include "text/chat_template.h"
#include "text/dialect_support.h"
#include "text/tokenizer_data.h"

namespace barg::text::dialect_round_trip_test {
namespace {

std::string data_path(const std::string& relative) {
  return std::string(BARG_SOURCE_DIR) + "/tests/data/dialects/" + relative;
}

Json load(const std::string& path) {
  auto parsed = parse_json(test::read_file(path));
  EXPECT_TRUE(parsed) << path;
  return parsed ? std::move(*parsed) : Json::object();
}

std::string template_source(const std::string& name) {
  const std::string own = data_path("templates/" + name);
  return test::read_file(std::filesystem::exists(own) ? own : test::shared_data("templates/" + name));
}

class DialectRoundTrip : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    row_ = load(data_path("round_trips/" + GetParam() + ".json"));
    source_ = template_source(text("template"));
    if (source_.empty()) GTEST_SKIP() << test::kNoShared;
    VocabData vocab;
    vocab.tokenizer_config_json = dump_json(*row_.find("specials"));
    auto made = ChatTemplate::create(vocab, nullptr, source_);
    ASSERT_TRUE(made) << made.error().message;
    template_ = *made;
  }

  std::string text(const char* key) const { return row_.find(key)->as_string(); }

  MarkedString render(std::size_t messages) const {
    ChatPrompt prompt;
    const auto& all = row_.find("messages")->as_array();
    prompt.messages = Json(Json::Array(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(messages)));
    prompt.tools = *row_.find("tools");
    prompt.add_generation_prompt = false;
    if (const Json* thinking = row_.find("thinking")) prompt.thinking = thinking->as_bool();
    if (const Json* effort = row_.find("effort")) prompt.reasoning_effort = effort->as_string();
    auto out = template_->render(prompt);
    EXPECT_TRUE(out) << out.error().message;
    return out ? std::move(*out) : MarkedString{};
  }

  // The turns of the assistant in the rendering of three messages, without their headers and ends.
  std::vector<std::string> calling_turns() const {
    const std::string before = render(2).text, whole = render(3).text, start = text("turn_start"), end = text("turn_end");
    const auto common = static_cast<std::size_t>(
        std::mismatch(whole.begin(), whole.end(), before.begin(), before.end()).first - whole.begin());
    std::vector<std::string> out;
    std::size_t at = whole.find(start, common - std::min(common, start.size()));
    while (at != whole.npos) {
      at += start.size();
      const std::size_t stop = end.empty() ? whole.npos : whole.find(end, at);
      out.push_back(whole.substr(at, stop == whole.npos ? whole.npos : stop - at));
      at = stop == whole.npos || start.empty() ? whole.npos : whole.find(start, stop);
    }
    return out;
  }

  Json row_;
  std::string source_;
  std::shared_ptr<const ChatTemplate> template_;
};

TEST_P(DialectRoundTrip, RendersAsJinja2) {
  const std::string rendered = render(row_.find("messages")->size()).text;
  if (const Json* whole = row_.find("rendered")) {
    EXPECT_EQ(rendered, whole->as_string());
  } else {
    EXPECT_EQ(hex(sha256(rendered.data(), rendered.size())), text("rendered_sha256")) << rendered;
  }
}

TEST_P(DialectRoundTrip, ReadsWhatItRenders) {
  const DetectedDialect detected = detect_dialect(source_);
  EXPECT_EQ(dialect_name(*detected.dialect), text("dialect")) << detected.evidence;
  std::vector<test::MarkerTokenizer::Marker> markers;
  const Json fixture = load(data_path(text("dialect") + ".json"));
  for (const Json& a : fixture.find("added")->as_array()) {
    markers.push_back({a.find("text")->as_string(), a.find("special")->as_bool()});
  }
  for (const bool tokens : {true, false}) {
    if (!tokens && !fixture.find("as_text")->as_bool()) continue;
    const test::MarkerTokenizer tokenizer(tokens ? markers : std::vector<test::MarkerTokenizer::Marker>{});
    const auto dialect = bind_dialect(detected, tokenizer);
    OutputEvents events;
    std::int32_t calls = 0;
    for (const std::string& turn : calling_turns()) {
      test::Pieces pieces;
      test::append_pieces(turn, tokenizer, true, pieces);
      ParserOptions options;
      options.tools = test::tool_infos(*row_.find("tools"));
      auto parsed = test::parse_pieces(dialect, options, tokenizer, pieces, pieces.size(), true,
                                       [](std::size_t) { return true; });
      EXPECT_EQ(parsed.note, "");
      for (OutputEvent& e : parsed.events) events.push_back(std::move(e));
      calls += parsed.complete_calls;
    }
    const Json* some = row_.find("calls");  // how many the template shows
    EXPECT_EQ(calls, some ? some->as_int() : 2);
    EXPECT_TRUE(test::same_json(test::summary(test::joined(events)), *row_.find("expect")))
        << test::shown(events) << "\nwanted " << dump_json(*row_.find("expect"));
  }
}

// Turn by turn a conversation's prompts grow at their end, else no prefix would ever be found again. What a template
// writes behind the last message may differ.
TEST_P(DialectRoundTrip, LaterTurnsExtendEarlierOnes) {
  const std::string answered = render(5).text, final = render(6).text;
  const auto common = std::mismatch(answered.begin(), answered.end(), final.begin(), final.end()).first - answered.begin();
  const Json* tail = row_.find("tail");
  const auto behind = static_cast<std::size_t>(tail ? tail->as_int() : 80);
  EXPECT_GE(static_cast<std::size_t>(common) + behind, answered.size()) << answered << "\n" << final;
}

INSTANTIATE_TEST_SUITE_P(All, DialectRoundTrip,
                         ::testing::Values("hermes", "hermes_qwen25", "qwen3_coder", "seed_oss", "llama3_json", "pythonic",
                                           "mistral_old", "mistral", "deepseek_v3", "deepseek_v31", "deepseek_dsml", "glm",
                                           "kimi_k2", "minimax_m2", "harmony", "gemma4", "granite3", "phi4_mini",
                                           "command_r7b", "command_r", "functionary_v31", "gigachat", "tool_calls_list",
                                           "lfm2", "mcp_xml", "nemotron_json", "olmo3", "generic"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace barg::text::dialect_round_trip_test
