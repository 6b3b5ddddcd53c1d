// Hostile templates: each ends in a clear error, without much memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "text/jinja/template.h"

namespace barg::text::jinja::jinja_limits_test {
namespace {

std::string error_of(const std::string& source, const Limits& limits = {},
                     const RenderOptions& options = {}) {
  const auto parsed = Template::parse(source, limits);
  if (!parsed) return parsed.error().message;
  const auto out = (*parsed)->render({}, options);
  return out ? "printed " + std::to_string(out->text.size()) + " bytes" : out.error().message;
}

std::string repeat(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(JinjaLimits, BombsEndInErrors) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"{% for i in range(10**9) %}{% endfor %}", "Range too big"},
      {"{{ 'a' * 10**9 }}", "string of more than"},
      {"{{ 'a' * 2**40 * 2**40 }}", "string of more than"},
      {"{{ ([0] * 10**9)|length }}", "list that is too long"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "deep"},
      {"{% for x in [[[1]]] recursive %}{{ loop([x]) }}{% endfor %}", "deep"},
      {"{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
       "too much data"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
       "too"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}", "deep"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
       "{{ ns.x == ns.x|list }}{{ ns.x }}",
       "steps"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too much data"},
      {"{% for a in range(99999) %}{% if 1 + a and a is odd and a < 0 and a > 9 or 'a' in 'abc' %}"
       "{% set b = 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 "
       "* 1 - 1"
       " + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 "
       "* 1"
       " - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 "
       "+ 1"
       " * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 + 1 * 1 - 1 %}"
       "{% endif %}{% endfor %}",
       "steps"},
      {"{% for a in range(99999) %}{% set b = 'x' * 100000 %}{% endfor %}", "too much data"},
      {"{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}", "string of more than"},
      {"{{ '%1000000000d' % 1 }}", "too large"},
      {"{{ '{:1000000000}'.format(1) }}", "too large"},
      {"{{ 'a'.center(10**12) }}", "string of more than"},
      {"{{ [1]|tojson(indent=10**9) }}", "too large"},
      {"{{ 'a,' * 1000000 }}{{ ('a' * 1000000)|replace('', 'b' * 1000) }}", "string of more than"},
      {"{{ 'x'|map(*(['map'] * 5000))|list }}", "deep"},
      {"{{ 2 ** 2 ** 2 ** 2 ** 100 }}", "too large"},
      {"{{ 10 ** 10 ** 10 }}", "too large"},
      {"{{ strftime_now('%9999999d') }}", "widths"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "too deeply"},
  };
  const long before = peak_kib();
  for (const auto& [source, message] : rows) {
    EXPECT_NE(error_of(source).find(message), std::string::npos) << source << "\n  " << error_of(source);
  }
#ifndef __SANITIZE_ADDRESS__
  // work_bytes bounds what is alive at any one time. (AddressSanitizer keeps freed memory.)
  EXPECT_LT(peak_kib() - before, 600 * 1024);
#else
  (void)before;
#endif
}

TEST(JinjaLimits, SourcesAreBounded) {
  EXPECT_NE(error_of(std::string(2 << 20, 'x')).find("larger than"), std::string::npos);
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                                                    {"[", "]"},
                                                                                    {"not ", ""},
                                                                                    {"-", ""},
                                                                                    {"1 if 1 else ", ""},
                                                                                    {"{1:", "}"},
                                                                                    {"f(", ")"}}) {
    const std::string source = "{{ " + repeat(open, 20000) + "1" + repeat(close, 20000) + " }}";
    EXPECT_NE(error_of(source).find("nested"), std::string::npos) << open;
  }
  EXPECT_NE(error_of("{{ a" + repeat(".b", 20000) + " }}").find("too deeply"), std::string::npos);
  EXPECT_NE(error_of("{{ 1" + repeat(" + 1", 20000) + " }}").find("too deeply"), std::string::npos);
  EXPECT_NE(error_of("{{ 1" + repeat("|abs", 20000) + " }}").find("too deeply"), std::string::npos);
  EXPECT_NE(error_of(repeat("{% if 1 %}", 20000)).find("nested"), std::string::npos);
  EXPECT_NE(error_of(repeat("{% for i in [1] %}", 99) + repeat("{% endfor %}", 99)).find("printed 0"),
            std::string::npos);
  // Long but flat is fine.
  EXPECT_EQ(error_of(repeat("{% if 0 %}{% elif 0 %}{% endif %}{{ 1 }}", 2000)), "printed 2000 bytes");
}

TEST(JinjaLimits, LimitsAreWhatTheySay) {
  Limits limits;
  limits.steps = 100;
  EXPECT_NE(error_of("{% for i in range(99) %}{{ i }}{% endfor %}", limits).find("100 steps"),
            std::string::npos);
  limits = {};
  limits.output_bytes = 10;
  EXPECT_EQ(error_of("0123456789", limits), "printed 10 bytes");
  EXPECT_NE(error_of("0123456789a", limits).find("more than 10 bytes"), std::string::npos);
  limits = {};
  limits.call_depth = 5;
  const std::string countdown = "{% macro f(n) %}{% if n %}x{{ f(n - 1) }}{% endif %}{% endmacro %}";
  EXPECT_EQ(error_of(countdown + "{{ f(4) }}", limits), "printed 4 bytes");
  EXPECT_NE(error_of(countdown + "{{ f(5) }}", limits).find("5 deep"), std::string::npos);
}

// Cycles that reference counting alone would leak, and chains that a recursive destructor would not survive
// (the sanitizer build of this test sees both).
TEST(JinjaLimits, CyclesAndChains) {
  RenderOptions options;
  options.allow_mutation = true;
  EXPECT_EQ(error_of("{% set ns = namespace() %}{% set ns.a = ns %}{% macro m() %}{{ ns }}{% endmacro %}{% "
                     "set ns.m = m %}"),
            "printed 0 bytes");
  EXPECT_EQ(error_of("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"), "printed 4 bytes");
  EXPECT_EQ(error_of("{% set l = [] %}{% set _ = l.append(l) %}{{ l|length }}", {}, options),
            "printed 1 bytes");
  EXPECT_EQ(error_of("{% set ns = namespace(g=none) %}{% macro m(f) %}{% macro g() %}{{ f }}{% endmacro %}"
                     "{% set ns.g = g %}{% endmacro %}{% for i in range(50000) %}{{ m(ns.g) }}{% endfor %}"
                     "{% set ns.g = none %}"),
            "printed 0 bytes");
  EXPECT_EQ(
      error_of("{% set o = namespace(n=none) %}{% for i in range(50000) %}{% set o.n = namespace(n=o.n) %}"
               "{% endfor %}{% set o.n = none %}"),
      "printed 0 bytes");
}

TEST(JinjaLimits, MutationIsRefusedUnlessAllowed) {
  EXPECT_NE(error_of("{% set l = [] %}{% set _ = l.append(1) %}{{ l }}").find("unsafe"), std::string::npos);
  RenderOptions options;
  options.allow_mutation = true;
  const auto parsed = Template::parse(
      "{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.extend([3]) %}{% set _ = l.insert(0, 0) %}{{ l "
      "}}{{ l.pop() }}"
      "{% set d = {} %}{% set _ = d.update({'a': 1}, b=2) %}{{ d }}{{ d.pop('a') }}{{ d.setdefault('c', 9) "
      "}}{{ d }}");
  ASSERT_TRUE(parsed);
  EXPECT_EQ((*parsed)->render({}, options)->text, "[0, 1, 2, 3]3{'a': 1, 'b': 2}19{'b': 2, 'c': 9}");
}

TEST(JinjaLimits, DeepJsonIsRefused) {
  Json deep = 1;
  for (int i = 0; i < 500; ++i) deep = Json(Json::Array{std::move(deep)});
  const auto parsed = Template::parse("{{ x }}");
  ASSERT_TRUE(parsed);
  const auto out = (*parsed)->render({{"x", &deep, false}});
  ASSERT_FALSE(out);
  EXPECT_NE(out.error().message.find("nested too deeply"), std::string::npos);
}

}  // namespace
}  // namespace barg::text::jinja::jinja_limits_test
