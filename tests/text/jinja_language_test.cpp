// The language, rule by rule: each row is a template and what Jinja2 3.1.6 prints for it in the environment of
// transformers (computed with it, not by hand), or nullptr where Jinja2 refuses.
#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace barg::text::jinja_language_test {
namespace {

struct Row {
  const char* source;
  const char* output;  // nullptr: an error
};

const char* const kContext = R"json({
"s": "Hello",
"n": 3,
"f": 2.0,
"no": null,
"t": true,
"l": [
 3,
 1,
 2
],
"d": {
 "b": 1,
 "a": 2
},
"schema": {
 "properties": {
  "items": {
   "type": "array"
  },
  "keys": {
   "type": "string"
  }
 }
},
"m": {
 "items": "field",
 "k": 1
},
"msgs": [
 {
  "role": "system",
  "content": "S"
 },
 {
  "role": "user",
  "content": "U"
 },
 {
  "role": "assistant",
  "content": "A"
 }
],
"u": "Grüße",
"tree": [
 {
  "n": 1,
  "c": [
   {
    "n": 2,
    "c": []
   }
  ]
 }
],
"html": "<b>&'\""
})json";

void check(std::initializer_list<Row> rows) {
  const auto context = parse_json(kContext);
  ASSERT_TRUE(context) << context.error().message;
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 10, now.tm_mday = 29, now.tm_hour = 12, now.tm_min = 34, now.tm_sec = 56;
  for (const Row& row : rows) {
    const auto out = render_template(row.source, *context, now);
    if (row.output == nullptr) {
      EXPECT_FALSE(out) << row.source;
      EXPECT_TRUE(out || !out.error().message.empty()) << row.source;
      continue;
    }
    EXPECT_EQ(out ? *out : "error: " + out.error().message, row.output) << row.source;
  }
}

TEST(JinjaLanguage, Attributes) {
  check({
      {"{{ m.items is callable }}", "True"},
      {"{{ m['items'] }}", "field"},
      {"{{ m.k }}", "1"},
      {"{{ schema.properties['items'].type }}", "array"},
      {"{{ schema.properties.items().__class__ is defined }}", "False"},
      {"{{ m.nope is defined }}", "False"},
      {"{{ m['nope'] is defined }}", "False"},
      {"{{ nope.x is defined }}", nullptr},
      {"{{ s.nope|default('D') }}", "D"},
      {"{{ l.0 }}{{ l[-1] }}", "32"},
      {"{{ l[9] is defined }}", "False"},
      {"{{ s[1:3] }}{{ s[::-1] }}{{ s[-2:] }}", "elolleHlo"},
      {"{{ no.x is defined }}", "False"},
      {"{{ no.x.y }}", nullptr},
      {"{{ d.keys()|list }}{{ d.values()|list }}{{ d.items()|list }}",
       "['b', 'a'][1, 2][('b', 1), ('a', 2)]"},
      {"{{ l.append(4) }}", nullptr},
      {"{{ d.update({'x': 1}) }}", nullptr},
      {"{{ d.pop is defined }}", "False"},
      {"{{ d.get('zz', 7) }}{{ d.get('zz') }}", "7None"},
      {"{{ s.__class__ }}", ""},
      {"{{ s.__class__.x }}", nullptr},
  });
}

TEST(JinjaLanguage, Undefined) {
  check({
      {"{{ nope }}|{{ nope is defined }}|{{ not nope }}", "|False|True"},
      {"{% for x in nope %}x{% endfor %}ok", "ok"},
      {"{{ nope|length }}", "0"},
      {"{{ nope + 1 }}", nullptr},
      {"{{ nope == nope2 }}", "True"},
      {"{{ 'a' in nope }}", "False"},
      {"{{ nope|default('d') }}{{ ''|default('d') }}{{ ''|default('d', true) }}", "dd"},
      {"{{ nope() }}", nullptr},
      {"{{ 1 if false }}|", "|"},
      {"{{ (1 if false) is defined }}", "False"},
      {"{{ nope < 1 }}", nullptr},
      {"{{ nope|int }}", nullptr},
      {"{{ nope|list }}{{ nope|join(',') }}", "[]"},
      {"{{ nope|upper }}", ""},
  });
}

TEST(JinjaLanguage, Printing) {
  check({
      {"{{ true }}{{ none }}{{ 1.0 }}{{ 1e16 }}{{ 1e-5 }}{{ 0.1 + 0.2 }}",
       "TrueNone1.01e+161e-050.30000000000000004"},
      {"{{ [1, 'a', none, true, 2.5, {'k': 'v'}] }}", "[1, 'a', None, True, 2.5, {'k': 'v'}]"},
      {"{{ (1,) }}{{ () }}{{ (1, 'b') }}", "(1,)()(1, 'b')"},
      {"{{ ['it\\'s', 'say \"hi\"', 'both \\'\"'] }}", "[\"it's\", 'say \"hi\"', 'both \\'\"']"},
      {"{{ ['\\n\\t\\\\', 'é', '\\u200b', '\\x00'] }}", "['\\n\\t\\\\', 'é', '\\u200b', '\\x00']"},
      {"{{ d }}{{ d.items() }}", "{'b': 1, 'a': 2}dict_items([('b', 1), ('a', 2)])"},
      {"{{ namespace(a=1) }}", "<Namespace {'a': 1}>"},
      {"{{ range(3) }}{{ range(1, 9, 2)|list }}", "range(0, 3)[1, 3, 5, 7]"},
      {"{{ l|string ~ true ~ none ~ 1.5 }}", "[3, 1, 2]TrueNone1.5"},
  });
}

TEST(JinjaLanguage, Arithmetic) {
  check({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }}", "3 -4 -2 2 3.5 3.0"},
      {"{{ 2 ** 3 ** 2 }}", "64"},
      {"{{ 1 + -2|abs }}", "3"},
      {"{{ -1|abs }}", "1"},
      {"{{ 2 ** -1 }}", "0.5"},
      {"{{ 7.5 // 2 }} {{ -7.5 % 2 }}", "3.0 0.5"},
      {"{{ 1 / 0 }}", nullptr},
      {"{{ 'a' * 3 }}{{ 2 * [1] }}", "aaa[1, 1]"},
      {"{{ 'a' + 1 }}", nullptr},
      {"{{ 1 + 'a' }}", nullptr},
      {"{{ [1] + (2,) }}", nullptr},
      {"{{ true + true }}", "2"},
      {"{{ 10 ** 20 }}", "100000000000000000000"},
      {"{{ 9223372036854775807 + 1 }}", "9223372036854775808"},
      {"{{ 1_000 + 0x1F + 0b11 + 0o17 }}", "1049"},
      {"{{ '%s-%d %5.2f|%x' % ('a', 3.9, 2.345, 255) }}", "a-3  2.35|ff"},
      {"{{ '%s' % l }}{{ '%(b)s' % d }}", "[3, 1, 2]1"},
      {"{{ '%d' % 'a' }}", nullptr},
      {"{{ 'a' % 1 }}", nullptr},
      {"{{ 1 ~ 2 + 3 }}", nullptr},
  });
}

TEST(JinjaLanguage, Comparison) {
  check({
      {"{{ not 1 == 2 }}", "True"},
      {"{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}", "TrueFalse"},
      {"{{ 1 == 1.0 }}{{ true == 1 }}{{ '1' == 1 }}", "TrueTrueFalse"},
      {"{{ (1, 2) == [1, 2] }}", "False"},
      {"{{ [1, [2]] == [1, [2]] }}{{ {'a': 1} == {'a': 1.0} }}", "TrueTrue"},
      {"{{ 'b' in d }}{{ 'z' not in d }}{{ 'ell' in s }}{{ 2 in l }}", "TrueTrueTrueTrue"},
      {"{{ 1 in 'a' }}", nullptr},
      {"{{ none in 'a' }}", nullptr},
      {"{{ 1 < 'a' }}", nullptr},
      {"{{ [1, 2] < [1, 3] }}", "True"},
      {"{{ 'a' < 'B' }}", "False"},
      {"{{ 1 and 0 or 'x' }}{{ none or false }}", "xFalse"},
  });
}

TEST(JinjaLanguage, Tests) {
  check({
      {"{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}",
       "TrueFalseTrueTrueTrue"},
      {"{{ 'a' is iterable }}{{ 'a' is sequence }}{{ {} is sequence }}{{ {} is mapping }}{{ 1 is iterable }}",
       "TrueTrueTrueTrueFalse"},
      {"{{ none is none }}{{ false is false }}{{ 0 is false }}{{ none is not string }}", "TrueTrueFalseTrue"},
      {"{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "TrueTrueTrueFalse"},
      {"{{ 1 is in [1] }}{{ 1 is eq 1 }}{{ 2 is gt 1 }}{{ 'a' is equalto 'a' }}{{ 1 is sameas 1 }}",
       "TrueTrueTrueTrueTrue"},
      {"{{ l|map('string') is iterable }}{{ l|map('string') is sequence }}", "TrueFalse"},
      {"{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}", "TrueFalseTrue"},
      {"{{ 'a' is lower }}{{ 'A' is upper }}{{ '1' is lower }}", "TrueTrueFalse"},
      {"{{ 1 is nope }}", nullptr},
      {"{% if false %}{{ 1 is nope }}{% endif %}ok", "ok"},
      {"{% for i in l %}{% if i is not odd %}{{ i }}{% endif %}{% endfor %}", "2"},
  });
}

TEST(JinjaLanguage, Filters) {
  check({
      {"{{ d|dictsort }}{{ d|dictsort(reverse=true) }}{{ d|dictsort(by='value') }}",
       "[('a', 2), ('b', 1)][('b', 1), ('a', 2)][('b', 1), ('a', 2)]"},
      {"{{ msgs|selectattr('role', 'equalto', 'user')|list }}", "[{'role': 'user', 'content': 'U'}]"},
      {"{{ msgs|rejectattr('role', 'in', ['user', 'system'])|map(attribute='content')|join(',') }}", "A"},
      {"{{ msgs|map(attribute='x.y', default='-')|list }}", "['-', '-', '-']"},
      {"{{ l|sort }}{{ l|sort(reverse=true) }}{{ ['b', 'A']|sort }}{{ ['b', 'A']|sort(case_sensitive=true) }}",
       "[1, 2, 3][3, 2, 1]['A', 'b']['A', 'b']"},
      {"{{ msgs|sort(attribute='role')|map(attribute='role')|join }}", "assistantsystemuser"},
      {"{{ l|min }}{{ l|max }}{{ l|sum }}{{ l|first }}{{ l|last }}{{ l|length }}", "136323"},
      {"{{ ''|first is defined }}{{ []|max is defined }}", "FalseFalse"},
      {"{{ l|map('string')|length }}", nullptr},
      {"{% if []|select %}always{% endif %}", "always"},
      {"{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "['3', '1', '2'][]"},
      {"{{ 'a b'|title }}{{ 'hELLO wORLD'|capitalize }}{{ u|upper }}{{ 'ß'|upper }}",
       "A BHello worldGRÜSSESS"},
      {"{{ '  x '|trim }}|{{ 'xxaxx'|trim('x') }}", "x|a"},
      {"{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('> ', blank=true) }}",
       "a\n    b\n\n    c|  a\n  b|a\n> \n> b"},
      {"{{ 'abcabc'|replace('b', 'X', 1) }}{{ 'ab'|replace('', '-') }}", "aXcabc-a-b-"},
      {"{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 2.1|round(0, 'ceil') }}{{ 5|round }}",
       "2.04.02.673.05"},
      {"{{ '12'|int }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ '0x1f'|int(base=16) }}{{ '3.9'|int }}{{ ' 4 '|float }}{{ none|float }}",
       "12073134.00.0"},
      {"{{ ['a', 'A', 'b']|unique|list }}{{ ['a', 'A']|unique(true)|list }}", "['a', 'b']['a', 'A']"},
      {"{{ [1,2,3,4,5]|batch(2)|list }}{{ [1,2,3,4,5]|slice(2)|list }}{{ [1,2,3]|batch(2, 'x')|list }}",
       "[[1, 2], [3, 4], [5]][[1, 2, 3], [4, 5]][[1, 2], [3, 'x']]"},
      {"{{ msgs|groupby('role')|map(attribute='grouper')|list }}", "['assistant', 'system', 'user']"},
      {"{{ l|reverse|list }}{{ s|reverse }}", "[2, 1, 3]olleH"},
      {"{{ 'a b&c/d'|urlencode }}{{ {'a b': 1}|urlencode }}", "a%20b%26c/da+b=1"},
      {"{{ 'one two three'|truncate(9, leeway=0) }}{{ 'one two three'|truncate(9, true, '!', 0) }}",
       "one...one two !"},
      {"{{ '%s %s'|format('a', 1) }}{{ '%(x)s'|format(x=2) }}", "a 12"},
      {"{{ html|e }}{{ html|escape|escape }}{{ html|forceescape }}",
       "&lt;b&gt;&amp;&#39;&#34;&lt;b&gt;&amp;&#39;&#34;&lt;b&gt;&amp;&#39;&#34;"},
      {"{{ 1|nope }}", nullptr},
      {"{% if false %}{{ 1|nope }}{% endif %}ok", "ok"},
      {"{{ 1|nope if false else 'ok' }}", "ok"},
      {"{{ 'a'|center(6) }}|{{ 'ab'|center(5) }}|", "  a   |  ab |"},
      {"{{ 1000000|filesizeformat }} {{ 1|filesizeformat }}", "1.0 MB 1 Byte"},
      {"{{ {'a': 1, 'b': none}|xmlattr }}", " a=\"1\""},
      {"{{ m|attr('items') is callable }}{{ m|attr('k') is defined }}", "TrueFalse"},
      {"{{ 'x y z'|wordcount }}", "3"},
  });
}

TEST(JinjaLanguage, Json) {
  check({
      {"{{ msgs|tojson }}",
       "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U\"}, {\"role\": \"assistant\", \"content\": \"A\"}]"},
      {"{{ {'a': [1, 2.0, true, none], 'b': {}, 'c': []}|tojson(indent=2) }}",
       "{\n  \"a\": [\n    1,\n    2.0,\n    true,\n    null\n  ],\n  \"b\": {},\n  \"c\": []\n}"},
      {"{{ u|tojson }}{{ u|tojson(ensure_ascii=true) }}{{ '😀'|tojson(ensure_ascii=true) }}",
       "\"Grüße\"\"Gr\\u00fc\\u00dfe\"\"\\ud83d\\ude00\""},
      {"{{ html|tojson }}", "\"<b>&'\\\"\""},
      {"{{ d|tojson(sort_keys=true) }}{{ d|tojson(separators=(',', ':')) }}",
       "{\"a\": 2, \"b\": 1}{\"b\":1,\"a\":2}"},
      {"{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson }}",
       "{\"1\": \"c\", \"null\": \"b\", \"1.5\": \"d\"}"},
      {"{{ '\\x7f\\x1f\\b\\f'|tojson }}", "\"\177\\u001f\\b\\f\""},
      {"{{ l|map('string')|tojson }}", nullptr},
      {"{{ nope|tojson }}", nullptr},
      {"{{ (1, (2,))|tojson }}", "[1, [2]]"},
      {"{{ {(1, 2): 3}|tojson }}", nullptr},
      {"{{ 1e300|tojson }}", "1e+300"},
  });
}

TEST(JinjaLanguage, Markup) {
  check({
      {"{{ 'a'|safe + '<' }}", "a&lt;"},
      {"{{ '<' + 'a'|safe }}", "&lt;a"},
      {"{{ '<'|safe ~ '>' }}", "<>"},
      {"{{ ['<']|join('a'|safe) }}", "<"},
      {"{{ ('<'|safe) * 2 + '&' }}", "<<&amp;"},
      {"{{ '%s'|safe % '<' }}", "&lt;"},
      {"{{ ('<b>'|safe).replace('b', '&') }}", "<&amp;>"},
      {"{{ ('a,<'|safe).split(',') }}", "[Markup('a'), Markup('<')]"},
      {"{{ 'x'|safe is escaped }}{{ 'x' is escaped }}", "TrueFalse"},
  });
}

TEST(JinjaLanguage, Methods) {
  check({
      {"{{ 'a b  c'.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a b c'.split(' ', 1) }}{{ ' a b '.split(none, 1) }}",
       "['a', 'b', 'c']['a', 'b', '', 'c']['a', 'b c']['a', 'b ']"},
      {"{{ 'abc'.split('') }}", nullptr},
      {"{{ 'xxhixx'.strip('x') }}{{ ' hi '.lstrip() }}|{{ 'abcba'.rstrip('ab') }}", "hihi |abc"},
      {"{{ s.startswith('He') }}{{ s.endswith(('x', 'lo')) }}{{ s.startswith(1) }}", nullptr},
      {"{{ s.find('l') }}{{ s.rfind('l') }}{{ s.find('z') }}{{ s.count('l') }}{{ s.index('z') }}", nullptr},
      {"{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'a-b-c'.rsplit('-', 1) }}",
       "('a', '-', 'b-c')('a-b', '-', 'c')['a-b', 'c']"},
      {"{{ ', '.join(['a', 'b']) }}{{ ','.join([1]) }}", nullptr},
      {"{{ 'aXb'.lower() }}{{ 'ab cd'.title() }}{{ \"it's\".title() }}{{ 'AbC'.swapcase() }}",
       "axbAb CdIt'SaBc"},
      {"{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a\\n'.splitlines(true) }}", "['a', 'b', 'c']['a\\n']"},
      {"{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}{{ 'a'.center(4, '*') }}",
       "007-007a..  a*a**"},
      {"{{ '12'.isdigit() }}{{ 'ab1'.isalnum() }}{{ ' '.isspace() }}{{ 'é'.isalpha() }}{{ 'A'.isupper() }}",
       "TrueTrueTrueTrueTrue"},
      {"{{ '{} {1}'.format(1, 2) }}", nullptr},
      {"{{ '{0}-{x!r}-{y[a]:>4}|{z:.2f}'.format(1, x='q', y=d, z=2) }}", "1-'q'-   2|2.00"},
      {"{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.py'.removesuffix('.py') }}", "xx"},
      {"{{ (5).real }}{{ l.index(2) }}{{ l.count(1) }}{{ (2.0).is_integer() }}", "521True"},
      {"{{ 'ΣΑΣ'.lower() }}{{ 'ﬁ'.upper() }}{{ 'ŉ'.title() }}", "σαςFIʼN"},
  });
}

TEST(JinjaLanguage, Scoping) {
  check({
      {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = i %}{% endfor %}{{ ns.x }}", "2"},
      {"{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
      {"{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}", "312"},
      {"{% for i in [1] %}{{ s }}{% endfor %}{% set s = 2 %}{{ s }}", "2"},
      {"{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 2 %}{{ m() }}", "2"},
      {"{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "121"},
      {"{% set s.x = 1 %}", nullptr},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set a, b = [1] %}", nullptr},
      {"{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "1"},
      {"{% set x %}<{{ n }}>{% endset %}{{ x }}{% set y|upper %}a{% endset %}{{ y }}", "<3>A"},
      {"{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}", "12False"},
      {"{% for loop in l %}{% endfor %}", nullptr},
      {"{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}", "a"},
  });
}

TEST(JinjaLanguage, Loops) {
  check({
      {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
       "103TrueFalse3;212FalseFalse3;321FalseTrue3;"},
      {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "<3>1;3<1>2;1<2>;"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}", "b=1,a=2,"},
      {"{% for x in [] %}a{% else %}empty{% endfor %}", "empty"},
      {"{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "1/2:3 2/2:2 "},
      {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "32"},
      {"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "3"},
      {"{% for x in l %}{% continue %}{% else %}else{% endfor %}", "else"},
      {"{% for x in tree recursive %}[{{ x.n }}{{ loop.depth }}{{ loop(x.c) }}]{% endfor %}", "[11[22]]"},
      {"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }}{% endfor %}", "aTruebTrueaFalse"},
      {"{% for x in 5 %}{% endfor %}", nullptr},
      {"{% for a, b in [1] %}{% endfor %}", nullptr},
      {"{% break %}", nullptr},
      {"{% for c in 'héy' %}{{ c }}.{% endfor %}", "h.é.y."},
      {"{% for m in msgs[1:] %}{{ m.role }}{% endfor %}", "userassistant"},
      {"{% for x in l %}{% for y in [1] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
       "111213"},
  });
}

TEST(JinjaLanguage, Macros) {
  check({
      {"{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}",
       "121123454"},
      {"{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "False"},
      {"{% macro m() %}{% endmacro %}{{ m(1) }}", nullptr},
      {"{% macro m() %}{% endmacro %}{{ m(x=1) }}", nullptr},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "(1, 2){'x': 3}"},
      {"{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(v) m() %}{{ v }}!{% endcall %}", "<x!>"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"},
      {"{% macro m(a) %} {{ a }} {% endmacro %}[{{ m('x')|trim }}]{{ m.name }}", "[x]m"},
      {"{% macro m(x) %}{{ loop }}{% endmacro %}{% for i in [1] %}{{ m(i) }}{% endfor %}", ""},
      {"{{ cycler('a', 'b').next() }}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b", "aa|b"},
      {"{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)]) }}", "{'a': 1, 'b': 2}{'x': 1}"},
      {"{{ raise_exception('stop ' ~ n) }}", nullptr},
      {"{{ strftime_now('%Y-%m-%d %H:%M:%S %A %d %b %j') }}", "2026-11-29 12:34:56 Sunday 29 Nov 333"},
      {"{% filter upper|replace('A', 'b') %}a{{ s }}{% endfilter %}", "bHELLO"},
  });
}

TEST(JinjaLanguage, Whitespace) {
  check({
      {"  {% if true %}  \n  x\n  {% endif %}  \n", "  \n  x\n  "},
      {"a\n\n  {%- if true -%}  \n b \n {%- endif %}\nc", "abc"},
      {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a {#- c -#} b", "ab"},
      {"  {# c #}\nx", "x"},
      {"  {%+ if true %}x{% endif %}", "  x"},
      {"{% if true +%}\nx{% endif %}", "\nx"},
      {"{% raw %}{{ x }} {% if %}{% endraw %}", "{{ x }} {% if %}"},
      {"a  {%- raw -%}  {{ b }}  {%- endraw -%}  c", "a{{ b }}c"},
      {"\t {% set x = 1 %}\n{{ x }}", "1"},
      {"a\r\nb\rc\n", "a\nb\nc"},
      {"{{- ' x ' -}}  y", " x y"},
      {"x {% set a = 1 -%}  \n\n  y", "x y"},
      {"{{ 'a' 'b' \"c\" }}", "abc"},
      {"{{ '\\u00e9\\x41\\101\\q' }}", "éAA\\q"},
      {"{{ 'é\\n' }}", "é\n"},
      {"{{ {'a': {'b': 1}}['a'] }}", "{'b': 1}"},
      {"{{ {} }}}", "{}}"},
      {"{% if true: %}x{% endif %}", "x"},
      {"{% print 1, 2 %}", "12"},
  });
}

TEST(JinjaLanguage, Syntax) {
  check({
      {"{{ 1 +", nullptr},
      {"{% if %}", nullptr},
      {"{% for x in %}", nullptr},
      {"{% endif %}", nullptr},
      {"{% if true %}", nullptr},
      {"{{ 'a }}", nullptr},
      {"{# open", nullptr},
      {"{% raw %}", ""},
      {"{{ a..b }}", nullptr},
      {"{{ (1 }}", nullptr},
      {"{{ 1 | }}", nullptr},
      {"{% set 1 = 2 %}", nullptr},
      {"{% set true = 2 %}", nullptr},
      {"{{ f(a=1, 2) }}", nullptr},
      {"{{ x is a is b }}", nullptr},
      {"{% macro m(a=1, b) %}{% endmacro %}", nullptr},
      {"{% include 'x' %}", nullptr},
      {"{% nope %}", nullptr},
      {"{{ $ }}", nullptr},
      {"{{ [1, 2 }}", nullptr},
      {"{{ }}", nullptr},
      {"{{ foo bar }}", nullptr},
      {"{{ f(*l, 1) }}", nullptr},
      {"{{ not }}", nullptr},
  });
}

}  // namespace
}  // namespace barg::text::jinja_language_test
