#include "text/grammar/formats.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar::formats_test {
namespace {

// How many words a finite language has.
std::uint64_t count_words(const Dfa& dfa) {
  std::map<Dfa::State, std::uint64_t> known;
  const auto count = [&](auto& self, Dfa::State s) -> std::uint64_t {
    if (const auto at = known.find(s); at != known.end()) return at->second;
    std::uint64_t n = dfa.accepting(s) ? 1 : 0;
    for (int b = 0; b < 256; ++b) {
      const Dfa::State t = dfa.next(s, static_cast<std::uint8_t>(b));
      if (t != Dfa::kDead) n += self(self, t);
    }
    return known[s] = n;
  };
  return dfa.empty() ? 0 : count(count, dfa.start());
}

// Of the words of a format those of a form.
std::uint64_t count_words(const char* format, const std::string& form) {
  const DfaLimits limits{.states = 60'000};
  return count_words(*dfa_intersect(*format_dfa(format), *regex_dfa(form, {.search = false}), limits));
}

TEST(Formats, DatesAreCounted) {
  EXPECT_EQ(count_words(*format_dfa("date")), 3'652'059U) << "days from the year 1 to 9999";
  EXPECT_EQ(count_words("date", "2000-02-.*"), 29U);
  EXPECT_EQ(count_words("date", "1900-02-.*"), 28U);
}

TEST(Formats, TimesAreCounted) {
  EXPECT_EQ(count_words("time", "[0-9:]{8}Z"), 86'401U) << "one leap second";
  // At every minute of the day there is one offset at which it is 23:59 in UTC.
  EXPECT_EQ(count_words("time", "[0-9:]{8}\\+[0-9:]{5}"), 86'400U * 1440 + 1440);
  EXPECT_EQ(count_words("time", "[0-9:]{8}-[0-9:]{5}"), 86'400U * 1440 + 1440);
  EXPECT_EQ(count_words("time", "[0-9:]{8}[.][0-9]Z"), 864'010U);
  EXPECT_EQ(count_words("date-time", "2024-02-29[Tt][0-9:]{8}[Zz]"), 86'401U * 4);
}

TEST(Formats, LeapSecondsAreAtMidnightInUtc) {
  const Dfa& dfa = *format_dfa("time");
  for (const char* good : {"23:59:60+00:00", "23:59:60-00:00", "00:59:60+01:00", "22:59:60-01:00"}) {
    EXPECT_TRUE(dfa.matches(good)) << good;
  }
  for (const char* bad : {"23:59:60+24:00", "00:00:60Z", "23:59:60+00:01", "22:59:60+01:00"}) {
    EXPECT_FALSE(dfa.matches(bad)) << bad;
  }
}

TEST(Formats, AddressesAreCounted) {
  EXPECT_EQ(count_words(*format_dfa("ipv4")), std::uint64_t{1} << 32);
  EXPECT_EQ(count_words("uuid", "0{8}-0000-0000-0000-0{8}[0-9A-Fa-f]{4}"), 22U * 22 * 22 * 22);
}

TEST(Formats, Ipv6ByItsRules) {
  // Groups "0", one "::" at most, that stands for one group or more.
  const Dfa& dfa = *format_dfa("ipv6");
  for (int left = 0; left <= 8; ++left) {
    for (int right = 0; right <= 8; ++right) {
      std::string text;
      for (int i = 0; i < left; ++i) text += i == 0 ? "0" : ":0";
      text += "::";
      for (int i = 0; i < right; ++i) text += i == 0 ? "0" : ":0";
      EXPECT_EQ(dfa.matches(text), left + right <= 7) << text;
      EXPECT_EQ(dfa.matches(text + (right == 0 ? "1.2.3.4" : ":1.2.3.4")), left + right <= 5)
          << text << ":1.2.3.4";
    }
  }
  for (int groups = 1; groups <= 10; ++groups) {
    std::string text = "abcd";
    for (int i = 1; i < groups; ++i) text += ":1";
    EXPECT_EQ(dfa.matches(text), groups == 8);
    EXPECT_EQ(dfa.matches(text + ":1.2.3.4"), groups == 6);
  }
}

TEST(Formats, HostNameLengths) {
  const Dfa& dfa = *format_dfa("hostname");
  const std::string label(63, 'a');
  EXPECT_TRUE(dfa.matches(label));
  EXPECT_FALSE(dfa.matches(label + "a"));
  const std::string three = label + "." + label + "." + label + ".";
  EXPECT_TRUE(dfa.matches(three + std::string(61, 'b')));
  EXPECT_FALSE(dfa.matches(three + std::string(62, 'b')));
  EXPECT_TRUE(dfa.matches("a--b.c"));
  for (const char* bad : {"a..b", ".a", "a.", "a-.b", "-a.b", "a_b", ""})
    EXPECT_FALSE(dfa.matches(bad)) << bad;
}

TEST(Formats, EmailLiterals) {
  const Dfa& dfa = *format_dfa("email");
  for (const char* good :
       {"a@[1.2.3.4]", "a@[001.2.3.255]", "a@[IPv6:1:2:3:4:5:6:7:8]", "a@[IPv6:1::8]", "a.b+c@d-e.f"}) {
    EXPECT_TRUE(dfa.matches(good)) << good;
  }
  for (const char* bad : {"a@[1.2.3.256]", "a@[1.2.3]", "a@[IPv6:1:2:3:4:5:6:7::]", "a@-b", "a@b-", "a@b..c",
                          "@b", "a@", "a b@c"}) {
    EXPECT_FALSE(dfa.matches(bad)) << bad;
  }
}

TEST(Formats, UnknownOnes) {
  for (const char* name : {"", "regex", "idn-email", "idn-hostname", "Date", "int32"})
    EXPECT_EQ(format_dfa(name), nullptr) << name;
  for (const std::string_view name : known_formats()) {
    ASSERT_NE(format_dfa(name), nullptr) << name;
    EXPECT_FALSE(format_dfa(name)->empty()) << name;
    EXPECT_TRUE(dfa_subtract(*format_dfa(name), dfa_valid_utf8(), {.states = 60'000})->empty()) << name;
  }
}

// The official tests: of every known format all strings.
TEST(Formats, SuiteOfJsonSchema) {
  namespace fs = std::filesystem;
  const fs::path suite = fs::path(BARG_SOURCE_DIR) / "../shared/data/json-schema";
  if (!fs::exists(suite)) GTEST_SKIP() << "skipped: no ../shared";
  int checked = 0;
  for (const char* draft : {"draft7", "draft2020-12"}) {
    for (const auto& entry : fs::directory_iterator(suite / draft / "optional/format")) {
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      const auto groups = parse_json(text.str());
      ASSERT_TRUE(groups) << entry.path();
      for (const Json& group : groups->as_array()) {
        const Json* name = group.find("schema")->find("format");
        const DfaPtr dfa = name == nullptr ? nullptr : format_dfa(name->as_string());
        if (dfa == nullptr) continue;
        for (const Json& test : group.find("tests")->as_array()) {
          const Json& data = *test.find("data");
          if (!data.is_string()) continue;
          EXPECT_EQ(dfa->matches(data.as_string()), test.find("valid")->as_bool())
              << name->as_string() << ": " << test.find("description")->as_string() << ": "
              << data.as_string();
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 400);
}

}  // namespace
}  // namespace barg::text::grammar::formats_test
