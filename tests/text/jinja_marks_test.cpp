// Where text came from: what the request wrote is marked through every operation, template text never is.
#include <gtest/gtest.h>

#include "text/jinja/template.h"

namespace barg::text::jinja::jinja_marks_test {
namespace {

// The output with the client's text in ⟦ ⟧.
std::string shown(const std::string& source, const Json& user) {
  const auto parsed = Template::parse(source);
  if (!parsed) return parsed.error().message;
  const Json bos = "<s>";
  const auto out = (*parsed)->render({{"u", &user, false}, {"bos_token", &bos, true}});
  if (!out) return out.error().message;
  std::string text, joined;
  for (const MarkedText& piece : out->pieces()) {
    text += piece.trusted ? std::string(piece.text) : "⟦" + std::string(piece.text) + "⟧";
    joined += piece.text;
  }
  EXPECT_EQ(joined, out->text) << source;
  std::size_t at = 0;
  for (const auto& [begin, end] : out->untrusted) {
    EXPECT_TRUE(begin < end && (begin > at || at == 0) && end <= out->text.size()) << source;
    at = end;
  }
  return text;
}

TEST(JinjaMarks, UserTextIsUntrusted) {
  EXPECT_EQ(shown("{{ bos_token }}<|im_start|>{{ u }}<|im_end|>", "<|im_start|>"),
            "<s><|im_start|>⟦<|im_start|>⟧<|im_end|>");
  // A literal that straddles the border: only the client's half is marked, which is all the tokenizer needs.
  EXPECT_EQ(shown("<|im{{ u }}", "_start|>"), "<|im⟦_start|>⟧");
  EXPECT_EQ(shown("{{ u.role + '\n' + u.content }}", Json::object({{"role", "user"}, {"content", "hi"}})),
            "⟦user⟧\n⟦hi⟧");
  EXPECT_EQ(shown("{% for k in u %}<{{ k }}={{ u[k] }}>{% endfor %}", Json::object({{"a", "b"}})),
            "<⟦a⟧=⟦b⟧>");
  EXPECT_EQ(shown("{{ u }}", ""), "");
}

TEST(JinjaMarks, OperationsKeepThem) {
  const Json u = "ab cd";
  EXPECT_EQ(shown("{{ '[' ~ u ~ ']' }}", u), "[⟦ab cd⟧]");
  EXPECT_EQ(shown("{{ ('x' + u + 'y')[2:] }}", u), "⟦b cd⟧y");
  EXPECT_EQ(shown("{{ ('x' + u)[::-1] }}", u), "⟦dc ba⟧x");
  EXPECT_EQ(shown("{{ (' ' + u + ' ')|trim }}", u), "⟦ab cd⟧");
  EXPECT_EQ(shown("{{ (u + '</think>' + 'z').split('</think>')[0] }}|{{ (u + '|z').split('|')[1] }}", u),
            "⟦ab cd⟧|z");
  EXPECT_EQ(shown("{{ u|upper }}{{ ('x' ~ u)|title }},{{ u.capitalize() }}", u), "⟦AB CD⟧X⟦ab Cd⟧,⟦Ab cd⟧");
  EXPECT_EQ(shown("{{ u.replace(' ', '<sep>') }}{{ 'a_b'.replace('_', u) }}", u), "⟦ab⟧<sep>⟦cd⟧a⟦ab cd⟧b");
  EXPECT_EQ(shown("{{ u.split()|join('<sep>') }},{{ '-'.join([u, 'x']) }}", u), "⟦ab⟧<sep>⟦cd⟧,⟦ab cd⟧-x");
  EXPECT_EQ(shown("{{ '%s|%5s' % (u, 'q') }}{{ '{}!'.format(u) }}", u), "⟦ab cd⟧|    q⟦ab cd⟧!");
  EXPECT_EQ(shown("{{ u * 2 }}{{ 'x'|center(3) }}{{ u.center(7, '*') }}", u), "⟦ab cdab cd⟧ x *⟦ab cd⟧*");
  EXPECT_EQ(shown("{{ ('a\\n' + u)|indent(2, true) }}", u), "  a\n  ⟦ab cd⟧");
  EXPECT_EQ(shown("{{ u|e }}{{ '<'|e }}", "<b"), "⟦&lt;b⟧&lt;");
  EXPECT_EQ(shown("{% for c in u %}{{ c }}.{% endfor %}", "é1"), "⟦é⟧.⟦1⟧.");
  EXPECT_EQ(shown("{{ u|first }}{{ u|last }}{{ u[1] }}", "xyz"), "⟦xzy⟧");
  EXPECT_EQ(shown("{{ u|truncate(4, true, '..', 0) }}{{ u|urlencode }}", u), "⟦ab⟧..⟦ab%20cd⟧");
}

TEST(JinjaMarks, StructuresKeepThem) {
  const Json u = Json::object({{"k<", Json(Json::Array{"v", 1, true})}});
  EXPECT_EQ(shown("{{ u|tojson }}", u), "{⟦\"k<\"⟧: [⟦\"v\"⟧, 1, true]}");
  EXPECT_EQ(shown("{{ u }}", u), "{⟦'k<'⟧: [⟦'v'⟧, 1, True]}");
  EXPECT_EQ(shown("{{ u|string }}{{ [u, 'own'] }}", "x"), "⟦x⟧[⟦'x'⟧, 'own']");
  EXPECT_EQ(shown("{% set x %}<{{ u }}>{% endset %}{{ x|upper }}", "a"), "<⟦A⟧>");
  EXPECT_EQ(
      shown("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{% filter upper %}b{{ u }}{% endfilter %}",
            "a"),
      "<⟦a⟧>B⟦A⟧");
  EXPECT_EQ(shown("{% set ns = namespace(x='') %}{% for c in ['p', u] %}{% set ns.x = ns.x + c %}{% endfor "
                  "%}{{ ns.x }}",
                  "a"),
            "p⟦a⟧");
  EXPECT_EQ(shown("{{ u|map('upper')|join(',') }}{{ u|sort|first }}{{ dict([(u[0], 1)]) }}",
                  Json(Json::Array{"b", "a"})),
            "⟦B⟧,⟦Aa⟧{⟦'b'⟧: 1}");
}

}  // namespace
}  // namespace barg::text::jinja::jinja_marks_test
