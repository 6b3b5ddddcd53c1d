// Published chat templates against Jinja2 3.1.6 in the environment of transformers, to the byte. An error there
// must be an error here.
#include <gtest/gtest.h>

#include <map>

#include "text/chat_template.h"
#include "text/tokenizer_data.h"

namespace barg::text::jinja_goldens_test {
namespace {

std::tm golden_time() {
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 10, now.tm_mday = 29, now.tm_hour = 12, now.tm_min = 34, now.tm_sec = 56;
  return now;
}

TEST(JinjaGoldens, EveryRowToTheByte) {
  const std::string folder = test::shared_data("templates");
  if (folder.empty()) GTEST_SKIP() << test::kNoShared;
  std::map<std::string, std::string> sources;
  int outputs = 0, errors = 0;
  for (const Json& row : test::parse_lines(test::read_file(folder + "/goldens.jsonl"))) {
    const std::string& name = row.find("template")->as_string();
    auto [source, fresh] = sources.try_emplace(name);
    if (fresh) source->second = test::read_file(folder + "/" + name);
    ASSERT_FALSE(source->second.empty()) << name;
    const auto out = render_template(source->second, *row.find("context"), golden_time());
    const std::string where = name + " / " + row.find("case")->as_string();
    if (const Json* want = row.find("output")) {
      ASSERT_TRUE(out) << where << ": " << out.error().message;
      EXPECT_EQ(*out, want->as_string()) << where;
      ++outputs;
    } else {
      EXPECT_FALSE(out) << where << " should fail: " << row.find("error")->as_string();
      ++errors;
    }
  }
  EXPECT_GE(sources.size(), 14u);
  EXPECT_GE(outputs + errors, 210);
  EXPECT_GE(errors, 30);
}

}  // namespace
}  // namespace barg::text::jinja_goldens_test
