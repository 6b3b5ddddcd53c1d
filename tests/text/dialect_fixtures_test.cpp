// What models of every dialect write (tests/data/dialects, made by tests/tools/dialect_fixtures.py from the formats'
// definitions), read whole, cut in two at every character, at random places, and a character at a time: one result,
// and the one that the format means. Outputs that break off anywhere lose nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "text/dialect_support.h"
#include "text/tokenizer_data.h"

namespace barg::text::dialect_fixtures_test {
namespace {

using Kind = OutputEvent::Kind;

std::string fixture_path(const std::string& name) {
  return std::string(BARG_SOURCE_DIR) + "/tests/data/dialects/" + name + ".json";
}

// One way to read the outputs of a dialect: with its markers as added tokens, or all as text.
struct Reader {
  test::MarkerTokenizer tokenizer;
  std::shared_ptr<const BoundDialect> dialect;
  bool tokens;

  Reader(const Json& fixture, bool with_tokens)
      : tokenizer(markers(fixture, with_tokens)), tokens(with_tokens) {
    const Json& reasoning = *fixture.find("reasoning");
    const Dialect* d = find_dialect(fixture.find("dialect")->as_string());
    if (d == nullptr) return;
    const auto marker = [&](const char* name) {
      const Json* text = reasoning.find(name);
      return text == nullptr ? std::string() : text->as_string();
    };
    const ReasoningMarkers around = {marker("open"), marker("close"), marker("answer_open"), marker("answer_close")};
    dialect = bind_dialect({d, around, ""}, tokenizer);
  }

  static std::vector<test::MarkerTokenizer::Marker> markers(const Json& fixture, bool with_tokens) {
    std::vector<test::MarkerTokenizer::Marker> out;
    if (!with_tokens) return out;
    for (const Json& a : fixture.find("added")->as_array()) {
      out.push_back({a.find("text")->as_string(), a.find("special")->as_bool()});
    }
    return out;
  }

  test::Pieces pieces(const Json& output) const {
    test::Pieces out;
    const auto add = [&](const Json& part) {
      const bool plain = part.is_object();
      test::append_pieces(plain ? part.find("plain")->as_string() : part.as_string(), tokenizer, !plain, out);
    };
    if (output.is_array()) {
      for (const Json& part : output.as_array()) add(part);
    } else {
      add(output);
    }
    return out;
  }
};

bool flag(const Json& row, const char* name, bool otherwise) {
  const Json* v = row.find(name);
  return v == nullptr ? otherwise : v->as_bool();
}

// Everything that the events say.
std::string said(const OutputEvents& events) {
  std::string out;
  for (const OutputEvent& e : events) out += e.text + " " + e.native_id + " ";
  return out;
}

// Words of the output that are nobody's syntax.
std::vector<std::string> content_words(const std::string& raw) {
  std::vector<std::string> out;
  for (const char* word : {"Oslo", "Lima", "Paris", "capital", "Zürich", "東京", "Stand-up", "Monday", "Ann", "Bob", "hi(",
                           "Let me look", "That was it", "wonder", "Thinking goes on", "many", "would be a call", "docs",
                           "just-words", "nothing-here", "Oslo-77", "city-77", "I only quote", "indented"}) {
    if (raw.find(word) != std::string::npos) out.emplace_back(word);
  }
  return out;
}

// The events of an output that was cut are those of the whole one up to somewhere; behind them stand at most the
// broken end of a call, and as text the bytes that the end left undecided.
::testing::AssertionResult is_prefix(const OutputEvents& cut, const OutputEvents& whole, const std::string& raw) {
  std::size_t i = 0;
  while (i < cut.size() && i < whole.size() && cut[i] == whole[i]) ++i;
  bool diverged = false;
  for (std::size_t k = i; k < cut.size(); ++k) {
    const OutputEvent& e = cut[k];
    const bool same = !diverged && k < whole.size() && e.kind == whole[k].kind && e.call == whole[k].call;
    std::string_view rest = e.text;
    if (e.kind == Kind::kToolStart) return ::testing::AssertionFailure() << "another call: " << e.text;
    if (e.kind == Kind::kToolEnd) {
      if (e.complete && !same) return ::testing::AssertionFailure() << "a call that ends complete";
    } else if (same) {
      const auto at = std::mismatch(e.text.begin(), e.text.end(), whole[k].text.begin(), whole[k].text.end()).first;
      rest.remove_prefix(static_cast<std::size_t>(at - e.text.begin()));
    }
    if (e.kind == Kind::kToolArgs && !rest.empty()) {
      return ::testing::AssertionFailure() << "arguments that are no prefix: " << e.text;
    }
    if (e.kind != Kind::kToolEnd && !raw.ends_with(rest)) {
      return ::testing::AssertionFailure() << "not the end of the output: " << json_quote(rest);
    }
    diverged = true;
  }
  return ::testing::AssertionSuccess();
}

class Case {
 public:
  Case(const Reader& reader, const Json& fixture, const Json& row) : reader_(reader), row_(row) {
    if (!flag(row, "no_tools", false)) options_.tools = test::tool_infos(*fixture.find("tools"));
    options_.inside_reasoning = flag(row, "inside", false);
    natural_ = flag(row, "natural", true);
    pieces_ = reader.pieces(*row.find("output"));
    whole_ = parse(pieces_.size(), natural_, [](std::size_t) { return false; });
  }

  void check() const {
    expect_meaning();
    expect_one_result();
    expect_cuts();
  }

 private:
  template <class Cut>
  test::ParseResult parse(std::size_t count, bool natural, const Cut& cut) const {
    return test::parse_pieces(reader_.dialect, options_, reader_.tokenizer, pieces_, count, natural, cut);
  }

  void expect_meaning() const {
    const std::string raw = test::raw_text(pieces_);
    const std::string all = said(whole_.events);
    const bool malformed = row_.find("malformed") != nullptr;
    for (const std::string& word : content_words(raw)) {
      EXPECT_NE(all.find(word), std::string::npos) << word << " vanished: " << test::shown(whole_.events);
    }
    if (malformed) {
      EXPECT_EQ(whole_.complete_calls, 0) << test::shown(whole_.events);
      EXPECT_FALSE(whole_.note.empty()) << test::shown(whole_.events);
      for (const Json& word : row_.find("malformed")->as_array()) {
        EXPECT_NE(all.find(word.as_string()), std::string::npos) << test::shown(whole_.events);
      }
      return;
    }
    const Json& expect = *row_.find("expect");
    EXPECT_TRUE(test::same_json(test::summary(whole_.events), expect))
        << test::shown(whole_.events) << "\nwanted " << dump_json(expect);
    const Json* only = expect.size() == 1 ? expect.as_array()[0].find("text") : nullptr;
    if (only != nullptr && whole_.events.size() == 1) {
      EXPECT_EQ(whole_.events[0].text, only->as_string());
    }
    std::int32_t calls = 0;
    for (const Json& e : expect.as_array()) calls += e.find("call") != nullptr;
    EXPECT_EQ(whole_.complete_calls, calls);
  }

  void expect_one_result() const {
    const auto same = [&](const test::ParseResult& r, const std::string& how) {
      ASSERT_EQ(r.events, whole_.events) << how << "\n  " << test::shown(r.events) << "\n  " << test::shown(whole_.events);
      ASSERT_EQ(r.note.empty(), whole_.note.empty()) << how;
    };
    same(parse(pieces_.size(), natural_, [](std::size_t) { return true; }), "a character at a time");
    for (std::size_t at = 0; at < pieces_.size(); ++at) {
      same(parse(pieces_.size(), natural_, [&](std::size_t i) { return i == at; }), "cut behind " + std::to_string(at));
    }
    std::mt19937 random(7);
    for (int round = 0; round < 30; ++round) {
      const unsigned every = 2 + random() % 9;
      const auto now_and_then = [&](std::size_t) { return random() % every == 0; };
      same(parse(pieces_.size(), natural_, now_and_then), "random round " + std::to_string(round));
    }
  }

  void expect_cuts() const {
    std::string raw;
    for (std::size_t count = 0; count < pieces_.size(); ++count) {
      const auto cut = parse(count, false, [](std::size_t) { return true; });
      ASSERT_TRUE(is_prefix(cut.events, whole_.events, raw))
          << "cut at " << count << " of " << raw << "\n  " << test::shown(cut.events);
      const std::string all = said(cut.events);
      for (const std::string& word : content_words(raw)) {
        ASSERT_NE(all.find(word), std::string::npos)
            << word << " vanished, cut at " << count << ": " << raw << "\n  " << test::shown(cut.events);
      }
      raw += pieces_[count].text;
    }
  }

  const Reader& reader_;
  const Json& row_;
  ParserOptions options_;
  bool natural_ = true;
  test::Pieces pieces_;
  test::ParseResult whole_;
};

Json load(const std::string& path) {
  auto parsed = parse_json(test::read_file(path));
  EXPECT_TRUE(parsed) << path << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? std::move(*parsed) : Json();
}

class DialectFixtures : public ::testing::TestWithParam<std::string> {};

TEST_P(DialectFixtures, OneMeaningHoweverItIsCut) {
  const Json fixture = load(fixture_path(GetParam()));
  ASSERT_TRUE(fixture.is_object());
  const Json& outputs = *fixture.find("outputs");
  EXPECT_GE(outputs.size(), 12u);
  for (const bool tokens : {true, false}) {
    if (!tokens && !flag(fixture, "as_text", true)) continue;
    const Reader reader(fixture, tokens);
    ASSERT_NE(reader.dialect, nullptr);
    for (const Json& row : outputs.as_array()) {
      if (!tokens && flag(row, "tokens_only", false)) continue;
      SCOPED_TRACE(row.find("name")->as_string() + (tokens ? "" : " (all text)"));
      Case(reader, fixture, row).check();
      if (HasFatalFailure()) return;
    }
  }
}

constexpr const char* kNames[] = {
    "hermes",        "qwen3_coder",   "seed_oss", "llama3_json", "functionary_v31",      "pythonic",
    "lfm2",          "olmo3",         "mistral",  "mistral_old", "deepseek_v3",          "deepseek_v31",
    "deepseek_dsml", "glm",           "kimi_k2",  "minimax_m2",  "minimax_append_think", "harmony",
    "gemma4",        "granite3",      "phi4_mini", "command_r7b", "command_r",           "tool_calls_list",
    "nemotron_json", "mcp_xml",       "gigachat", "generic"};

INSTANTIATE_TEST_SUITE_P(All, DialectFixtures,
                         ::testing::ValuesIn(std::vector<std::string>(std::begin(kNames), std::end(kNames))),
                         [](const auto& info) { return info.param; });

// A row of the table without a file of outputs is untested.
TEST(DialectTable, EveryDialectHasOutputs) {
  std::set<std::string> tested;
  for (const char* name : kNames) tested.insert(load(fixture_path(name)).find("dialect")->as_string());
  for (const Dialect* d : dialects()) EXPECT_TRUE(tested.contains(std::string(dialect_name(*d)))) << dialect_name(*d);
  EXPECT_EQ(dialects().size(), tested.size());
}

}  // namespace
}  // namespace barg::text::dialect_fixtures_test
