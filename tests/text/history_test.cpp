// What a conversation's history needs before a template sees it: calls, results, reasoning, roles, and the options of
// a request in the template's own variables.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "text/chat_messages.h"
#include "text/chat_template.h"
#include "text/dialect.h"
#include "text/history_calls.h"
#include "text/history_roles.h"
#include "text/history_trust.h"
#include "text/tokenizer_data.h"

namespace barg::text::history_test {
namespace {

Json json(const std::string& text) {
  const auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

std::shared_ptr<const ChatTemplate> make(const std::string& source) {
  VocabData vocab;
  vocab.tokenizer_config_json = R"({"bos_token":"<s>","eos_token":"</s>"})";
  const auto t = ChatTemplate::create(vocab, nullptr, source);
  EXPECT_TRUE(t) << t.error().message;
  return *t;
}

ChatPrompt prompt_of(const std::string& messages, bool generation = false) {
  ChatPrompt p;
  p.messages = json(messages);
  p.add_generation_prompt = generation;
  return p;
}

std::string text_of(const ChatTemplate& t, const ChatPrompt& p) {
  const auto out = t.render(p);
  return out ? out->text : "error: " + out.error().message;
}

std::string text_of(const std::string& source, const std::string& messages) {
  return text_of(*make(source), prompt_of(messages));
}

std::string published(const std::string& name) {
  return test::read_file(test::shared_data("templates/" + name + ".jinja"));
}

const Json kTools = json(
    R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}])");

// A template that shows everything there is, ids included.
constexpr const char* kIds =
    "{% for m in messages %}{{ m.role }}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}={{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments|tojson }}]{% endfor %};"
    "{% endfor %}";

// Two calls, answered in the other order, then a third whose id was used before.
constexpr const char* kTwoTurns =
    R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[)"
    R"({"id":"call_0","type":"function","function":{"name":"f","arguments":"{\"a\": \"1\"}"}},)"
    R"({"id":"call_1","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
    R"({"role":"tool","tool_call_id":"call_1","content":"from g"},{"role":"tool","tool_call_id":"call_0","content":"from f"},)"
    R"({"role":"user","content":"again"},{"role":"assistant","tool_calls":[)"
    R"({"id":"call_0","type":"function","function":{"name":"h","arguments":{}}}]},)"
    R"({"role":"tool","tool_call_id":"call_0","content":"from h"}])";

TEST(HistoryIds, AsTheyAre) {
  EXPECT_EQ(text_of(kIds, kTwoTurns),
            "user=q;assistant=[call_0 f {\"a\": \"1\"}][call_1 g {}];tool(call_1)=from g;tool(call_0)=from f;"
            "user=again;assistant=[call_0 h {}];tool(call_0)=from h;");
}

TEST(HistoryIds, NineCharactersWhereTheTemplateDemandsThem) {
  const std::string strict = std::string(kIds) +
                             "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
                             "{{ raise_exception('9') }}{% endif %}{% endfor %}{% endfor %}";
  const std::string a = nine_alnum("call_0"), b = nine_alnum("call_1");
  EXPECT_EQ(a.size(), 9u);
  EXPECT_NE(a, b);
  EXPECT_EQ(nine_alnum("abcDEF123"), "abcDEF123");
  EXPECT_NE(nine_alnum("abcDEF-23"), "abcDEF-23");
  EXPECT_EQ(nine_alnum("").size(), 9u);
  EXPECT_EQ(text_of(strict, kTwoTurns), "user=q;assistant=[" + a + " f {\"a\": \"1\"}][" + b + " g {}];tool(" + b +
                                            ")=from g;tool(" + a + ")=from f;user=again;assistant=[" + a +
                                            " h {}];tool(" + a + ")=from h;");
  // Results of calls that the client has left out of the history.
  EXPECT_EQ(text_of(strict, R"([{"role":"user","content":"q"},{"role":"tool","tool_call_id":"call_0","content":"r"}])"),
            "user=q;tool(" + a + ")=r;");
}

TEST(HistoryIds, KimiCountsTheCallsOfTheConversation) {
  const std::string kimi = std::string(kIds) + "{# <|tool_call_begin|> <|tool_call_argument_begin|> #}";
  EXPECT_EQ(text_of(kimi, kTwoTurns),
            "user=q;assistant=[functions.f:0 f {\"a\": \"1\"}][functions.g:1 g {}];tool(functions.g:1)=from g;"
            "tool(functions.f:0)=from f;user=again;assistant=[functions.h:2 h {}];tool(functions.h:2)=from h;");
  // Ids of the model's own stay.
  EXPECT_EQ(text_of(kimi, R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[)"
                          R"({"id":"functions.f:7","function":{"name":"f","arguments":"{}"}}]},)"
                          R"({"role":"tool","tool_call_id":"functions.f:7","content":"r"}])"),
            "user=q;assistant=[functions.f:7 f {}];tool(functions.f:7)=r;");
  EXPECT_TRUE(is_kimi_id("functions.a.b:12", "a.b"));
  for (const char* id : {"functions.a:", "functions.a:x", "functions.b:1", "a:1", "functions.a:1234567890", ""}) {
    EXPECT_FALSE(is_kimi_id(id, "a")) << id;
  }
}

TEST(HistoryIds, KimiTemplateThatCountsWithinAMessage) {
  // The calls' ids are the template's own, the results' must match them.
  const std::string source =
      "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %}<|tool_call_argument_begin|>"
      "functions.{{ c.function.name }}:{{ loop.index0 }}{{ c.function.arguments|tojson }}{% endfor %}"
      "{% if m.role == 'tool' %}({{ m.tool_call_id }}){% endif %}={{ m.content }};{% endfor %}";
  const std::string out = text_of(source, kTwoTurns);
  EXPECT_NE(out.find("tool(functions.g:1)=from g;tool(functions.f:0)=from f;"), std::string::npos) << out;
  EXPECT_NE(out.find("tool(functions.h:0)=from h;"), std::string::npos) << out;
}

TEST(HistoryResults, OrderAndNames) {
  // Without ids only the order says whose result it is.
  const char* ordered =
      "{% for m in messages %}{{ m.role }}={{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}"
      "{{ c.function.arguments|tojson }}]{% endfor %};{% endfor %}";
  const std::string in_order = text_of(ordered, kTwoTurns);
  EXPECT_NE(in_order.find("tool=from f;tool=from g;"), std::string::npos) << in_order;
  // A template that shows names gets them, one that does not keeps its messages as they were.
  const std::string named = "{% for m in messages %}{{ m.get('name', m.role) }}={{ m.content }}{% for c in m.tool_calls or [] %}"
                            "[{{ c.function.arguments|tojson }}]{% endfor %};{% endfor %}";
  const std::string with_names = text_of(named, kTwoTurns);
  EXPECT_NE(with_names.find(";f=from f;g=from g;"), std::string::npos) << with_names;
  EXPECT_NE(with_names.find(";h=from h;"), std::string::npos) << with_names;
  EXPECT_EQ(text_of("{% for m in messages %}{{ m.name is defined }}{% for c in m.tool_calls or [] %}"
                    "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
                    kTwoTurns)
                .find("True"),
            std::string::npos);
}

TEST(HistoryResults, OldAndOddSpellings) {
  const std::string legacy =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\": 1}"}},)"
      R"({"role":"function","name":"f","content":"r"}])";
  EXPECT_EQ(text_of(kIds, legacy), "user=q;assistant=[call_0 f {\"a\": 1}];tool(call_0)=r;");
  const std::string custom =
      R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"sh","input":"ls"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":{"files":["a"]}}])";
  EXPECT_EQ(text_of(kIds, custom), "user=q;assistant=[c sh {\"input\": \"ls\"}];tool(c)={\"files\": [\"a\"]};");
  const std::string no_ids =
      R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"function":{"name":"g","arguments":null}}]},)"
      R"({"role":"tool","content":"1"},{"role":"tool","content":"2"}])";
  EXPECT_EQ(text_of(kIds, no_ids), "user=q;assistant=[call_0 f {}][call_1 g {}];tool(call_0)=1;tool(call_1)=2;");
  // Odd, and no reason to fail.
  EXPECT_EQ(text_of(kIds, R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":"none"}])"),
            "user=q;assistant=a;");
  EXPECT_EQ(text_of(kIds, R"([{"role":"ctx","content":"c"},{"role":"msg","content":"m"}])"), "user=c;user=m;");
}

TEST(HistoryResults, PartsBecomeText) {
  const std::string messages =
      R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"one"},{"type":"output_text","text":"two"}]}])";
  EXPECT_EQ(text_of(kIds, messages), "user=q;assistant=[c f {}];tool(c)=one\ntwo;");
  EXPECT_NE(text_of(kIds, R"([{"role":"tool","content":[{"type":"image_url"}]}])").find("messages[0].content[0]"),
            std::string::npos);
}

TEST(HistoryCalls, OneAtATimeWhereTheTemplateTakesNoMore) {
  const std::string single =
      "{% for m in messages %}{{ m.role }}={{ m.content }}{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}"
      "{{ raise_exception('one') }}{% endif %}[{{ m.tool_calls[0].function.name }} "
      "{{ m.tool_calls[0].function.arguments|tojson }}]{% endif %};{% endfor %}";
  const std::string out = text_of(single, kTwoTurns);
  EXPECT_EQ(out, "user=q;assistant=[f {\"a\": \"1\"}];tool=from f;assistant=[g {}];tool=from g;user=again;"
                 "assistant=[h {}];tool=from h;");
  EXPECT_FALSE(make(single)->capabilities().parallel_tool_calls);
  EXPECT_TRUE(make(kIds)->capabilities().parallel_tool_calls);
}

TEST(HistoryCalls, TextThatWouldGetLostIsAMessageOfItsOwn) {
  const std::string loses =
      "{% for m in messages %}{{ m.role }}={% if m.tool_calls %}{% for c in m.tool_calls %}"
      "[{{ c.function.arguments|tojson }}]{% endfor %}{% else %}{{ m.content }}{% endif %};{% endfor %}";
  EXPECT_EQ(text_of(loses, R"([{"role":"user","content":"q"},{"role":"assistant","content":"see","tool_calls":[)"
                           R"({"id":"c","function":{"name":"f","arguments":"{\"a\": 1}"}}]}])"),
            "user=q;assistant=see;assistant=[{\"a\": 1}];");
}

constexpr const char* kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(HistoryTools, InWordsWhereTheTemplateKnowsNone) {
  const auto t = make(kChatml);
  EXPECT_FALSE(t->capabilities().tools);
  EXPECT_FALSE(t->capabilities().tool_calls);
  ChatPrompt p = prompt_of(kTwoTurns);
  p.tools = kTools;
  const std::string out = text_of(*t, p);
  EXPECT_TRUE(out.starts_with("<|im_start|>system\nYou may call tools.")) << out;
  EXPECT_NE(out.find(R"({"name": "f", "description": "d", "parameters": {"type": "object")"), std::string::npos) << out;
  EXPECT_NE(out.find("<|im_start|>assistant\n[{\"name\": \"f\", \"arguments\": {\"a\": \"1\"}}, "
                     "{\"name\": \"g\", \"arguments\": {}}]<|im_end|>\n<|im_start|>user\nResult of the tool f:\nfrom f\n\n"
                     "Result of the tool g:\nfrom g<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n"
                     "<|im_start|>assistant\n{\"name\": \"h\", \"arguments\": {}}<|im_end|>\n"),
            std::string::npos)
      << out;
  // Behind what the client told the model; and nothing where there are no tools.
  p.messages = json(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"q"}])");
  EXPECT_TRUE(text_of(*t, p).starts_with("<|im_start|>system\nBe brief.\n\nYou may call tools."));
  p.tools = json("[]");
  EXPECT_EQ(text_of(*t, p), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n");
  p.tools = kTools;
  const AppliedOptions applied = t->applied(p);
  ASSERT_EQ(applied.options.size(), 1u);
  EXPECT_EQ(applied.options[0].option, "tools");
  EXPECT_EQ(applied.options[0].value.as_string(), "described in a system message");
}

TEST(HistoryTools, TheTemplatesOwnFormatWhereItOnlyShowsCalls) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
      "{{ c.function.arguments|tojson }}</call>{% endfor %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"q"}])", true);
  p.tools = kTools;
  const std::string out = text_of(*make(source), p);
  EXPECT_NE(out.find("exactly this format, and nothing behind it:\n<call>example_tool:{\"argument\": \"value\"}</call>\n"),
            std::string::npos)
      << out;
  // A template that breaks when it is given tools is not given any.
  const std::string breaks = "{% if tools %}{{ raise_exception('no') }}{% endif %}" + source;
  EXPECT_EQ(text_of(*make(breaks), p), out);
}

TEST(HistoryTools, WhereASystemMessageCarriesThem) {
  const char* with_system =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'system' and tools %}[{{ tools|length }}"
      "{{ tools[0].function.name }}]{% endif %}{% endfor %}";
  const char* as_member =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}"
      "{% endfor %}";
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(text_of(*make(with_system), p), "<user>q");
  p.tools = kTools;
  EXPECT_EQ(text_of(*make(with_system), p), "<system>[1f]<user>q");
  EXPECT_TRUE(make(as_member)->capabilities().tools);
  EXPECT_EQ(text_of(*make(as_member), p),
            "<system><|tool|>[{\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", "
            "\"properties\": {\"a\": {\"type\": \"string\"}}}}]<|/tool|><user>q");
  p.messages = json(R"([{"role":"system","content":"S"},{"role":"user","content":"q"}])");
  EXPECT_EQ(text_of(*make(with_system), p), "<system>S[1f]<user>q");
}

TEST(HistoryReasoning, EverySpellingInTheFieldThatTheTemplateReads) {
  const auto shows = [](const std::string& field) {
    return "{% for m in messages %}{{ m.role }}:{% if m." + field + " %}<think>{{ m." + field +
           " }}</think>{% endif %}{{ m.content }};{% endfor %}";
  };
  for (const char* field : {"reasoning_content", "reasoning", "thinking", "thought"}) {
    const auto t = make(shows(field));
    EXPECT_TRUE(t->capabilities().reasoning_history) << field;
    for (const char* spelling :
         {R"("content":"A","reasoning_content":"R")", R"("content":"A","reasoning":"R")", R"("content":"A","thinking":"R")",
          R"("content":"A","reasoning_details":[{"type":"reasoning.text","text":"R"},{"type":"reasoning.encrypted","data":"x"}])",
          R"("content":"A","reasoning_details":[{"type":"reasoning.summary","summary":"R"}])",
          R"("content":[{"type":"thinking","thinking":"R","signature":"s"},{"type":"text","text":"A"}])",
          R"("content":[{"type":"redacted_thinking","data":"x"},{"type":"reasoning","text":"R"},{"type":"text","text":"A"}])"}) {
      const std::string messages =
          R"([{"role":"user","content":"q"},{"role":"assistant",)" + std::string(spelling) + "}]";
      EXPECT_EQ(text_of(*t, prompt_of(messages)), "user:q;assistant:<think>R</think>A;") << field << " " << spelling;
    }
    EXPECT_EQ(text_of(*t, prompt_of(R"([{"role":"assistant","content":"A","reasoning":""}])")), "assistant:A;");
    EXPECT_EQ(text_of(*t, prompt_of(R"([{"role":"assistant","content":"A","reasoning":null}])")), "assistant:A;");
  }
}

TEST(HistoryReasoning, AsPartOrInFrontOfTheContentOrNotAtAll) {
  const std::string messages =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"A","reasoning_content":"R"}])";
  const char* parts =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
      "{% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]{% else %}{{ p.text }}{% endif %}{% endfor %}"
      "{% endif %};{% endfor %}";
  EXPECT_EQ(text_of(parts, messages), "q;[THINK]R[/THINK]A;");
  // A template that keeps the content as it is and whose model thinks in tags.
  const char* kept =
      "{% for m in messages %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}<think>\n</think>{% endif %}";
  EXPECT_EQ(text_of(kept, messages), "q;<think>\nR\n</think>\n\nA;");
  EXPECT_EQ(text_of(kept, R"([{"role":"user","content":"q"},{"role":"assistant","content":"<think>own</think>A","reasoning":"R"}])"),
            "q;<think>own</think>A;");
  // One that takes it out again, one that has its own, one whose model does not think.
  const char* cuts =
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }};{% endfor %}{% if add_generation_prompt %}<think>{% endif %}";
  EXPECT_EQ(text_of(cuts, messages), "q;A;");
  const char* own = "{% for m in messages %}{{ m.role }}<think></think>{{ m.content }};{% endfor %}";
  EXPECT_EQ(text_of(kChatml, messages).find("R"), std::string::npos);
  EXPECT_FALSE(make(kChatml)->capabilities().reasoning_history);
  EXPECT_EQ(text_of(own, messages), "user<think></think>q;assistant<think></think>A;");
}

// What we put into a client's words is as good as the template's own: its markers are tokens, theirs are not.
TEST(HistoryReasoning, MarkersThatAreOursAreTrusted) {
  const auto trusted = [](const std::string& source, const std::string& messages, const Json& tools) {
    ChatPrompt p = prompt_of(messages);
    p.tools = tools;
    const auto out = make(source)->render(p);
    std::string shown;
    if (!out) return out.error().message;
    for (const MarkedText& piece : out->pieces()) {
      shown += piece.trusted ? std::string(piece.text) : "⟦" + std::string(piece.text) + "⟧";
    }
    return shown;
  };
  const char* kept =
      "{% for m in messages %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}<think>\n</think>{% endif %}";
  EXPECT_EQ(trusted(kept, R"([{"role":"user","content":"<think>\nR\n</think>"},{"role":"assistant","content":"</think>","reasoning":"</think>"},)"
                          R"({"role":"assistant","content":"A","reasoning":"R"},{"role":"user","content":"<think>\nR\n</think>"}])",
                    Json()),
            "⟦<think>\nR\n</think>⟧;⟦</think>⟧;<think>⟦\nR\n⟧</think>⟦\n\nA⟧;⟦<think>\nR\n</think>⟧;");
  const std::string example =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
      "{{ c.function.arguments|tojson }}</call>{% endfor %};{% endfor %}";
  const std::string out = trusted(example, R"([{"role":"user","content":"<call>"}])", kTools);
  EXPECT_NE(out.find("nothing behind it:\n⟧<call>example_tool:{\"argument\": \"value\"}</call>⟦"), std::string::npos) << out;
  EXPECT_NE(out.find("⟦<call>⟧;"), std::string::npos) << out;
}

// A template that changes what we add shows the word in front of it. Whatever of a request is another gives another word:
// a client that could tell it from one part would write it into the other.
TEST(HistoryTrust, TheWordDependsOnAllThatAClientWrites) {
  const auto t = make(
      "{% for m in messages %}{{ m.content|upper }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
      "{{ c.function.arguments|tojson }}</call>{% endfor %};{% endfor %}"
      "{% if add_generation_prompt %}:{% if enable_thinking %}<think>{% endif %}{% endif %}");
  std::vector<ChatPrompt> prompts(7, prompt_of(R"([{"role":"user","content":"q"}])"));
  for (ChatPrompt& p : prompts) p.tools = kTools;
  prompts[1].messages = json(R"([{"role":"user","content":"Q"}])");
  prompts[2].tools = json(R"([{"type":"function","function":{"name":"f","description":"D"}}])");
  prompts[3].documents = json(R"([{"text":"d"}])");
  prompts[4].kwargs = json(R"({"note":"n"})");
  prompts[5].kwargs = json(R"({"note":"m"})");
  prompts[6].thinking = true;
  std::set<std::string> words;
  for (const ChatPrompt& p : prompts) {
    const std::string text = text_of(*t, p);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(text, found, std::regex("[0-9A-F]{32}"))) << text;
    words.insert(found.str());
  }
  EXPECT_EQ(words.size(), prompts.size());
}

TEST(HistoryTrust, NothingMovesFromOnePartToTheNext) {
  const Json a = "a", ab = "ab", b = "b", none;
  EXPECT_EQ(unforeseen_word({&a, &b}), unforeseen_word({&a, &b}));
  EXPECT_NE(unforeseen_word({&a, &b}), unforeseen_word({&b, &a}));
  EXPECT_NE(unforeseen_word({&a, &none}), unforeseen_word({&none, &a}));
  EXPECT_NE(unforeseen_word({&ab}), unforeseen_word({&a, &b}));
}

// The place where a message is continued is marked in the same way: an argument that names it is not taken for it.
TEST(HistoryTrust, ATemplateArgumentCannotMoveTheEndOfAContinuedMessage) {
  const auto t = make("{% for m in messages %}{{ m.content }}{% endfor %}{{ note|default('') }}");
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"q"}])");
  p.continue_final_message = true;
  p.kwargs = Json::object({{"note", "more CONTINUE_" + unforeseen_word({&p.messages}) + " "}});
  EXPECT_EQ(text_of(*t, p), "q");
}

TEST(HistoryReasoning, BesideCallsWhereOnlyOneOfThemMayStand) {
  const std::string either =
      "{% for m in messages %}{{ m.role }}:{% if m.tool_calls and m.content and m.thinking %}"
      "{{ raise_exception('either') }}{% endif %}{% if m.thinking %}({{ m.thinking }}){% endif %}{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %};{% endfor %}";
  EXPECT_EQ(text_of(either, R"([{"role":"user","content":"q"},{"role":"assistant","content":"A","reasoning":"R","tool_calls":[)"
                            R"({"id":"c","function":{"name":"f","arguments":"{}"}}]}])"),
            "user:q;assistant:(R\n\nA){};");
}

TEST(HistoryRoles, WhatATemplateObjectsTo) {
  const std::string refuses =
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('must alternate') }}{% endif %}{{ m.role }}={{ m.content }};{% endfor %}";
  const auto t = make(refuses);
  EXPECT_FALSE(t->capabilities().system_role);
  const std::string messages =
      R"([{"role":"system","content":"S"},{"role":"user","content":"1"},{"role":"developer","content":"D"},)"
      R"({"role":"user","content":"2"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":[{"type":"text","text":"3"}]}])";
  EXPECT_EQ(text_of(*t, prompt_of(messages)), "user=S\n\nD\n\n1\n\n2;assistant=a\n\nb;user=3;");
  // Only a system message: the user says it.
  EXPECT_EQ(text_of(*t, prompt_of(R"([{"role":"system","content":"S"}])")), "user=S;");
  // What cannot be mended is the client's to hear of.
  EXPECT_NE(text_of(*t, prompt_of(R"([{"role":"assistant","content":"a"}])")).find("must alternate"), std::string::npos);
  // A late system message that a template silently leaves out is not lost either.
  const char* first_only =
      "{% if messages[0].role == 'system' %}S:{{ messages[0].content }};{% endif %}{% for m in messages %}"
      "{% if m.role != 'system' %}{{ m.role }}={{ m.content }};{% endif %}{% endfor %}";
  EXPECT_EQ(text_of(first_only, messages), "S:S\n\nD;user=1;user=2;assistant=a;assistant=b;user=3;");
}

// -- options

std::string how(const AppliedOptions& applied, const std::string& option) {
  std::string out;
  for (const AppliedOption& o : applied.options) {
    if (o.option == option) out += o.variable + "=" + dump_json(o.value) + " " + std::string(how_name(o.how)) + ";";
  }
  return out;
}

constexpr const char* kSwitch =
    "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}<off>{% elif enable_thinking is "
    "defined %}<on>{% endif %}{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}";

TEST(HistoryOptions, ThinkingAndEffortInTheTemplatesVariables) {
  const auto t = make(kSwitch);
  EXPECT_EQ(t->capabilities().thinking_switch, "enable_thinking");
  EXPECT_EQ(t->capabilities().effort_variable, "reasoning_effort");
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(text_of(*t, p), "q");
  EXPECT_EQ(how(t->applied(p), "thinking"), "enable_thinking=null defaulted;");
  EXPECT_EQ(how(t->applied(p), "reasoning_effort"), "reasoning_effort=null defaulted;");
  p.thinking = false;
  EXPECT_EQ(text_of(*t, p), "q<off>");
  EXPECT_EQ(how(t->applied(p), "thinking"), "enable_thinking=false applied;");
  p.thinking = true;
  EXPECT_EQ(text_of(*t, p), "q<on>");
  p.thinking.reset();
  p.reasoning_effort = "high";
  EXPECT_EQ(text_of(*t, p), "q<on>high");
  EXPECT_EQ(how(t->applied(p), "reasoning_effort"), "reasoning_effort=\"high\" applied;");
  p.reasoning_effort = "none";
  EXPECT_EQ(text_of(*t, p), "q<off>");
  p.thinking = true;  // said twice: the switch itself counts
  EXPECT_EQ(text_of(*t, p), "q<on>");
  EXPECT_EQ(how(t->applied(p), "reasoning_effort"), "=\"none\" no effect;");
  p.thinking = false;
  p.reasoning_effort = "high";
  EXPECT_EQ(text_of(*t, p), "q<off>");
  EXPECT_EQ(how(t->applied(p), "reasoning_effort"), "=\"high\" no effect;");
  p.kwargs = json(R"({"enable_thinking":true})");
  EXPECT_EQ(text_of(*t, p), "q<on>");
  EXPECT_EQ(how(t->applied(p), "thinking"), "enable_thinking=true chat_template_kwargs;");
}

TEST(HistoryOptions, OtherTemplates) {
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"q"}])");
  p.thinking = false;
  p.reasoning_effort = "low";
  const auto plain = make(kChatml);
  EXPECT_EQ(how(plain->applied(p), "thinking"), "=false no effect;");
  EXPECT_EQ(how(plain->applied(p), "reasoning_effort"), "=\"low\" no effect;");
  // A number of tokens.
  const auto budget = make("{{ messages[0].content }}{{ thinking_budget if thinking_budget is defined }}");
  EXPECT_EQ(budget->capabilities().budget_variable, "thinking_budget");
  EXPECT_EQ(text_of(*budget, p), "q0");
  p.thinking.reset();
  EXPECT_EQ(text_of(*budget, p), "q1024");
  p.reasoning_effort = "max";
  EXPECT_EQ(text_of(*budget, p), "q");
  // A template that cannot stop thinking thinks as little as it can.
  const auto effort = make("{{ messages[0].content }}{{ reasoning_effort if reasoning_effort is defined }}");
  p.reasoning_effort = "none";
  EXPECT_EQ(text_of(*effort, p), "qlow");
  // Two names for one switch; a variable of that name that turns nothing is none.
  const auto two = make("{{ messages[0].content }}{% if not thinking is defined %}{% if enable_thinking is defined %}"
                        "{% set thinking = enable_thinking %}{% else %}{% set thinking = false %}{% endif %}{% endif %}"
                        "{{ '<on>' if thinking else '<off>' }}{% set reasoning = 1 %}{{ reasoning }}");
  p.reasoning_effort = "high";
  EXPECT_EQ(text_of(*two, p), "q<on>1");
  EXPECT_EQ(how(two->applied(p), "thinking").find("reasoning="), std::string::npos);
}

// What a prompt that goes on with its last message ends in: that message, and the template's words before it.
TEST(MarkedString, TheTailOfAContinuedPrompt) {
  const auto tail = [](std::string text, std::vector<std::pair<std::size_t, std::size_t>> untrusted) {
    return std::string(MarkedString{std::move(text), std::move(untrusted)}.continued_tail());
  };
  EXPECT_EQ(tail("<u>hi<a><think>so", {{3, 5}, {15, 17}}), "<a><think>so");
  EXPECT_EQ(tail("<u>hi<a>so", {{3, 5}, {8, 9}, {9, 10}}), "<a>so") << "parts of one message";
  EXPECT_EQ(tail("<a>so", {{3, 5}}), "<a>so");
  EXPECT_EQ(tail("<u>hi<a>so</think>", {{3, 5}, {8, 10}}), "</think>") << "the template closed it";
  EXPECT_EQ(tail("<a>", {}), "<a>");
  EXPECT_EQ(tail("", {}), "");
}

TEST(MarkedString, ContinuedAnswersOfPublishedTemplates) {
  const std::string source = published("Qwen-Qwen3-0.6B");
  if (source.empty()) GTEST_SKIP() << test::kNoShared;
  const ReasoningMarkers think = {"<think>", "</think>"};
  const auto open = [&](const char* content) {
    ChatPrompt p;
    p.messages = Json(Json::Array{Json::object({{"role", "user"}, {"content", "<think>"}}),
                                  Json::object({{"role", "assistant"}, {"content", content}})});
    p.add_generation_prompt = false;
    p.continue_final_message = true;
    const auto out = make(source)->render(p);
    EXPECT_TRUE(out);
    return out && reasoning_open(think, out->continued_tail());
  };
  EXPECT_TRUE(open("<think>\nI wonder"));
  EXPECT_FALSE(open("<think>\nI wonder\n</think>\n\nSo"));
  EXPECT_FALSE(open("So"));
}

// -- what a template can do

TEST(TemplateCapabilities, OfPublishedTemplates) {
  struct Row {
    const char* name;
    bool tools, calls, parallel, results, system, reasoning;
    const char* thinking;
    PromptEnd prompt, on, off;
  };
  using P = PromptEnd;
  for (const Row& r : {
           Row{"Qwen-Qwen3-0.6B", true, true, true, true, true, true, "enable_thinking", P::kPlain, P::kPlain, P::kCloses},
           Row{"Qwen3-Coder", true, true, true, true, true, false, "", P::kPlain, P::kPlain, P::kPlain},
           Row{"Qwen-Qwen2.5-7B-Instruct", true, true, true, true, true, false, "", P::kPlain, P::kPlain, P::kPlain},
           Row{"GLM-4.6", true, true, true, true, true, true, "enable_thinking", P::kPlain, P::kPlain, P::kCloses},
           Row{"deepseek-ai-DeepSeek-V3.1", false, true, true, true, true, false, "enable_thinking", P::kCloses, P::kOpens, P::kCloses},
           Row{"Qwen-QwQ-32B", true, true, true, true, true, true, "enable_thinking", P::kCloses, P::kOpens, P::kCloses},
           Row{"mistralai-Mistral-Nemo-Instruct-2407", true, true, true, true, true, false, "", P::kPlain, P::kPlain, P::kPlain},
           Row{"HuggingFaceTB-SmolLM3-3B", false, false, false, false, true, true, "enable_thinking", P::kPlain, P::kPlain, P::kCloses},
           Row{"microsoft-Phi-3.5-mini-instruct", false, false, false, false, true, false, "", P::kPlain, P::kPlain, P::kPlain},
       }) {
    const std::string source = published(r.name);
    ASSERT_FALSE(source.empty()) << r.name;
    const TemplateCapabilities c = make(source)->capabilities();
    EXPECT_EQ(c.tools, r.tools) << r.name;
    EXPECT_EQ(c.tool_calls, r.calls) << r.name;
    EXPECT_EQ(c.parallel_tool_calls, r.parallel) << r.name;
    EXPECT_EQ(c.tool_results, r.results) << r.name;
    EXPECT_EQ(c.system_role, r.system) << r.name;
    EXPECT_EQ(c.reasoning_history, r.reasoning) << r.name;
    const std::string other = std::string(r.thinking) == "enable_thinking" ? "thinking" : "";
    EXPECT_TRUE(c.thinking_switch == r.thinking || c.thinking_switch == other) << r.name << c.thinking_switch;
    EXPECT_EQ(c.prompt, r.prompt) << r.name;
    EXPECT_EQ(c.prompt_thinking, r.on) << r.name;
    EXPECT_EQ(c.prompt_answer, r.off) << r.name;
  }
}

TEST(TemplateCapabilities, ATemplateThatRefusesEverythingIsLoaded) {
  const auto t = make("{{ raise_exception('never') }}");
  EXPECT_NE(text_of(*t, prompt_of(R"([{"role":"user","content":"q"}])")).find("never"), std::string::npos);
  // One that burns time at every message is loaded too: the probes are bounded.
  make("{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i * j %}{% endfor %}{% endfor %}");
}

TEST(TrustedTail, SaysWhetherReasoningIsOpen) {
  const ReasoningMarkers think = {"<think>", "</think>"};
  const auto t = make(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>"
      "{% else %}<think>\n{% endif %}{% endif %}");
  const auto tail = [&](const ChatPrompt& p) {
    const auto out = t->render(p);
    EXPECT_TRUE(out);
    return std::string(out->trusted_tail());
  };
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"</think>"}])", true);
  EXPECT_EQ(tail(p), "<assistant><think>\n");
  EXPECT_TRUE(reasoning_open(think, tail(p)));
  p.thinking = false;
  EXPECT_FALSE(reasoning_open(think, tail(p)));
  p = prompt_of(R"([{"role":"user","content":"<think>"}])");
  EXPECT_EQ(tail(p), "");
  EXPECT_FALSE(reasoning_open(think, tail(p)));
  EXPECT_EQ(MarkedString{}.trusted_tail(), "");
}

// A long conversation costs time in proportion, whatever its ids.
TEST(History, ManyCallsAndResults) {
  std::string calls, results;
  constexpr int kCalls = 20000;
  for (int i = 0; i < kCalls; ++i) {
    const std::string id = std::to_string(i % 3 == 0 ? 0 : i);
    calls += (i ? "," : "") + (R"({"id":")" + id + R"(","function":{"name":"f","arguments":"{}"}})");
    results += R"(,{"role":"tool","tool_call_id":")" + id + R"(","content":"r"})";
  }
  const Json messages = json(R"([{"role":"assistant","tool_calls":[)" + calls + "]}" + results + "]");
  TemplateTraits traits;
  for (const IdRule rule : {IdRule::kAsTheyAre, IdRule::kNineAlnum, IdRule::kKimi}) {
    traits.ids = rule;
    const auto canonical = canonical_messages(messages, traits);
    ASSERT_TRUE(canonical);
    EXPECT_EQ(shape_calls(*canonical, traits).size(), static_cast<std::size_t>(kCalls) + 1);
  }
  Json users = Json::array();
  for (int i = 0; i < kCalls; ++i) users.push(Json::object({{"role", "user"}, {"content", "text"}}));
  EXPECT_EQ(merge_neighbours(users).size(), 1u);
}

}  // namespace
}  // namespace barg::text::history_test
