// `barg grammar check`: exit codes, and what it says.
#include <gtest/gtest.h>

#include <sstream>

#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "support/temp_dir.h"

namespace barg::cli::grammar_test {
namespace {

struct Done {
  int code = 0;
  std::string out, err;
};

class GrammarCommand : public ::testing::Test {
 protected:
  Done check(const std::string& file, std::vector<std::string> more = {}, const std::string& text = {}) {
    std::vector<std::string> args{"grammar", "check", dir_.write("grammar", file)};
    args.insert(args.end(), more.begin(), more.end());
    std::istringstream in(text);
    std::ostringstream out, err;
    Io io{.in = in, .out = out, .err = err};
    const int code = run(args, {}, io);
    return {code, out.str(), err.str()};
  }
  static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  test::TempDir dir_;
};

constexpr const char* kSchema =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false})";

TEST_F(GrammarCommand, AnEnforceableSchemaIsListed) {
  const Done done = check(kSchema);
  EXPECT_EQ(done.code, kExitOk) << done.err;
  EXPECT_TRUE(says(done.out, "draft 2020-12")) << done.out;
  EXPECT_TRUE(says(done.out, "enforced: additionalProperties enum properties required type\n")) << done.out;
  EXPECT_TRUE(says(done.out, "5 keywords enforced, 0 places left out")) << done.out;
  EXPECT_EQ(done.err, "");
}

TEST_F(GrammarCommand, ARefusedSchemaNamesPointerAndKeyword) {
  const std::string schema = R"({"properties":{"a":{"x-secret":1,"type":"string"}}})";
  const Done done = check(schema);
  EXPECT_EQ(done.code, 1);
  EXPECT_TRUE(says(done.err, "#/properties/a")) << done.err;
  EXPECT_TRUE(says(done.err, "'x-secret'")) << done.err;
  const Done lenient = check(schema, {"--lenient"});
  EXPECT_EQ(lenient.code, kExitOk);
  EXPECT_TRUE(says(lenient.out, "not enforced: #/properties/a 'x-secret'")) << lenient.out;
  EXPECT_EQ(check("{").code, 1);
  EXPECT_EQ(check(R"({"type":"strin"})").code, 1);
}

TEST_F(GrammarCommand, ATextIsAcceptedOrItsFirstFaultIsShown) {
  EXPECT_EQ(check(kSchema, {"--text", "-"}, "{\"a\": 1}\n").code, kExitOk);
  const Done wrong = check(kSchema, {"--text", "-"}, "{\n  \"a\": 1,\n  \"b\": \"z\"\n}");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.err, "offset 20 (line 3, column 9) stands 'z'")) << wrong.err;
  EXPECT_TRUE(says(wrong.err, "'x'") && says(wrong.err, "'y'")) << wrong.err;
  EXPECT_FALSE(says(wrong.err, "'w'")) << wrong.err;
  const Done cut = check(kSchema, {"--text", "-"}, "{\"a\": 12");
  EXPECT_EQ(cut.code, 2);
  EXPECT_TRUE(says(cut.err, "offset 8 (line 1, column 9) it ends; allowed there: ")) << cut.err;
  EXPECT_TRUE(says(cut.err, "'0' to '9'") && says(cut.err, "'}'")) << cut.err;
  const Done more = check(kSchema, {"--text", "-"}, "{\"a\": 1}x");
  EXPECT_EQ(more.code, 2);
  EXPECT_TRUE(says(more.err, "allowed there: the end of the text")) << more.err;
}

TEST_F(GrammarCommand, DraftsAndKinds) {
  const std::string tuple = R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})";
  EXPECT_EQ(check(tuple).code, 1);
  EXPECT_EQ(check(tuple, {"--draft", "7", "--text", "-"}, "[1]").code, kExitOk);
  EXPECT_EQ(check(tuple, {"--draft", "4"}).code, 1);
  EXPECT_EQ(check("[a-c]+\n", {"--kind", "regex", "--text", "-"}, "abc\n").code, kExitOk);
  EXPECT_EQ(check("[a-c]+", {"--kind", "regex", "--text", "-"}, "abd").code, 2);
  EXPECT_EQ(check("(", {"--kind", "regex"}).code, 1);
  EXPECT_EQ(check("root ::= \"yes\" | \"no\"\n", {"--kind", "gbnf", "--text", "-"}, "no").code, kExitOk);
  EXPECT_EQ(check("root ::= missing", {"--kind", "gbnf"}).code, 1);
  EXPECT_EQ(check("{}", {"--kind", "yaml"}).code, kExitUsage);
  const Done old = check(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","maximum":1,"definitions":{"a":{"type":"integer"}}})");
  EXPECT_EQ(old.code, kExitOk);
  EXPECT_TRUE(says(old.out, "without effect: # 'maximum': draft 7")) << old.out;
}

TEST_F(GrammarCommand, FilesThatCannotBeReadAreErrors) {
  std::istringstream in;
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  EXPECT_EQ(run(std::vector<std::string>{"grammar", "check", "/nonexistent"}, {}, io), 1);
  EXPECT_EQ(run(std::vector<std::string>{"grammar", "check", "/tmp"}, {}, io), 1);
  EXPECT_EQ(run(std::vector<std::string>{"grammar", "check"}, {}, io), kExitUsage);
  EXPECT_EQ(check(kSchema, {"--text", "/nonexistent"}).code, 1);
}

}  // namespace
}  // namespace barg::cli::grammar_test
