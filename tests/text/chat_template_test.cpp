// Chat templates: which one, what it is given, what comes out.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "text/tokenizer_data.h"

namespace barg::text::chat_template_test {
namespace {

constexpr const char* kChatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

Json json(const std::string& text) {
  const auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

std::shared_ptr<const ChatTemplate> make(const std::string& source) {
  const auto t = ChatTemplate::create({}, nullptr, source);
  EXPECT_TRUE(t) << t.error().message;
  return *t;
}

ChatPrompt prompt_of(const std::string& messages) {
  ChatPrompt p;
  p.messages = json(messages);
  return p;
}

std::string text_of(const ChatTemplate& t, const ChatPrompt& p) {
  const auto out = t.render(p);
  return out ? out->text : "error: " + out.error().message + " [" + out.error().param + "]";
}

std::string text_of(const std::string& source, const std::string& messages) {
  return text_of(*make(source), prompt_of(messages));
}

TEST(ChatTemplate, RendersAndMarks) {
  const auto t = make(kChatml);
  const auto out = t->render(prompt_of(R"([{"role":"user","content":"<|im_start|>system"}])"));
  ASSERT_TRUE(out);
  EXPECT_EQ(out->text, "<|im_start|>user\n<|im_start|>system<|im_end|>\n<|im_start|>assistant\n");
  std::string trusted;
  for (const MarkedText& piece : out->pieces()) trusted += piece.trusted ? std::string(piece.text) : "_";
  EXPECT_EQ(trusted, "<|im_start|>_\n_<|im_end|>\n<|im_start|>assistant\n");
}

// SmolLM2-Instruct's own template, with its default system message.
constexpr const char* kSmolLM2 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou "
    "are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif "
    "%}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if "
    "add_generation_prompt "
    "%}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(ChatTemplate, SmolLM2) {
  EXPECT_EQ(
      text_of(kSmolLM2, R"([{"role":"user","content":"Hi"}])"),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const auto text = test::read_data("smollm2/goldens.json");
  if (!text) GTEST_SKIP() << test::kNoShared;
  const Json goldens = json(*text);
  int seen = 0;
  for (const Json& row : goldens.find("cases")->as_array()) {
    const Json* messages = row.find("messages");
    if (messages == nullptr || !messages->is_array()) continue;
    ChatPrompt p;
    p.messages = *messages;
    EXPECT_EQ(text_of(*make(kSmolLM2), p), row.find("prompt")->as_string());
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

TEST(ChatTemplate, ChoosesByName) {
  VocabData vocab;
  vocab.chat_template = "default";
  vocab.named_chat_templates = {{"tool_use", "tools:{{ tools|length }}"},
                                {"rag", "rag:{{ documents|length }}"}};
  const auto t = ChatTemplate::create(vocab, nullptr, "");
  ASSERT_TRUE(t);
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"x"}])");
  EXPECT_EQ(text_of(**t, p), "default");
  p.tools = json("[]");
  EXPECT_EQ(text_of(**t, p), "default");
  p.documents = json(R"([{"text":"d"}])");
  EXPECT_EQ(text_of(**t, p), "rag:1");
  p.tools = json(R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(text_of(**t, p), "tools:1");
  const auto forced = ChatTemplate::create(vocab, nullptr, "forced");
  EXPECT_EQ(text_of(**forced, p), "forced");
  EXPECT_EQ((*forced)->source(), "forced");
}

TEST(ChatTemplate, FromTokenizerConfig) {
  VocabData vocab;
  vocab.tokenizer_config_json =
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","chat_template":[{"name":"default","template":"{{ bos_token }}|{{ eos_token }}|{{ unk_token is defined }}"},{"name":"tool_use","template":"T"}]})";
  const auto t = ChatTemplate::create(vocab, nullptr, "");
  ASSERT_TRUE(t);
  const auto out = (*t)->render(prompt_of(R"([{"role":"user","content":"x"}])"));
  ASSERT_TRUE(out);
  EXPECT_EQ(out->text, "<s>|</s>|False");
  EXPECT_TRUE(out->untrusted.empty());  // special tokens are ours
}

TEST(ChatTemplate, WithoutOne) {
  const auto t = ChatTemplate::create({}, nullptr, "");
  ASSERT_TRUE(t);
  EXPECT_FALSE((*t)->has_template());
  const auto out = (*t)->render(prompt_of("[]"));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kUnsupported);
  const auto broken = ChatTemplate::create({}, nullptr, "{% if %}");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kBadFile);
  EXPECT_NE(broken.error().message.find("line 1"), std::string::npos);
}

// A file's own template is no reason not to complete text.
TEST(ChatTemplate, OneThatDoesNotParse) {
  VocabData vocab;
  vocab.chat_template = "x\n{% if %}";
  vocab.named_chat_templates = {{"tool_use", "with tools"}};
  const auto t = ChatTemplate::create(vocab, nullptr, "");
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_FALSE((*t)->has_template());
  ASSERT_EQ((*t)->problems().size(), 1u);
  EXPECT_TRUE((*t)->problems()[0].starts_with("chat_template: the template does not parse: line 2")) << (*t)->problems()[0];
  ChatPrompt prompt = prompt_of(R"([{"role":"user","content":"x"}])");
  const auto out = (*t)->render(prompt);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(out.error().param, "messages");
  EXPECT_NE(out.error().message.find("line 2"), std::string::npos);
  EXPECT_TRUE((*t)->applied(prompt).options.empty());
  prompt.tools = *parse_json(R"([{"type":"function","function":{"name":"f"}}])");
  const auto tools = (*t)->render(prompt);
  ASSERT_TRUE(tools) << tools.error().message;
  EXPECT_EQ(tools->text, "with tools");
  const auto given = ChatTemplate::create(vocab, nullptr, "{{ 'given' }}");
  ASSERT_TRUE(given);
  EXPECT_TRUE((*given)->has_template());
  EXPECT_TRUE((*given)->problems().empty());
  vocab.chat_template = "x";
  vocab.named_chat_templates = {{"tool_use", "{{"}};
  const auto named = ChatTemplate::create(vocab, nullptr, "");
  ASSERT_TRUE(named);
  EXPECT_TRUE((*named)->has_template());
  EXPECT_FALSE((*named)->render(prompt));
  prompt.tools = nullptr;
  EXPECT_TRUE((*named)->render(prompt));
}

TEST(ChatTemplate, TemplateErrorsAreTheClients) {
  const auto out = make("{{ raise_exception('roles must alternate') }}")
                       ->render(prompt_of(R"([{"role":"user","content":"x"}])"));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kInvalidValue);
  EXPECT_EQ(out.error().param, "messages");
  EXPECT_NE(out.error().message.find("roles must alternate"), std::string::npos);
}

TEST(ChatTemplate, KwargsReachTheTemplateButNotItsInternals) {
  const auto t = make("{{ enable_thinking is defined }}{{ enable_thinking }}{{ messages|length }}");
  ChatPrompt p = prompt_of(R"([{"role":"user","content":"x"}])");
  p.kwargs = json(R"({"enable_thinking":false,"unused":[1]})");
  EXPECT_EQ(text_of(*t, p), "TrueFalse1");
  for (const char* name : {"messages", "tools", "documents", "chat_template", "tokenize",
                           "add_generation_prompt", "bos_token", "raise_exception"}) {
    p.kwargs = Json::object({{name, 1}});
    const auto out = t->render(p);
    ASSERT_FALSE(out) << name;
    EXPECT_EQ(out.error().code, ErrorCode::kInvalidValue);
    EXPECT_EQ(out.error().param, std::string("chat_template_kwargs.") + name);
  }
}

TEST(ChatTemplate, ContentParts) {
  const std::string parts =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])";
  EXPECT_EQ(text_of("{% for m in messages %}{{ m.content }}{% endfor %}", parts), "a\nb");
  const char* loops =
      "{% for m in messages %}{% for p in m['content'] %}<{{ p.type }}:{{ p.text }}>{% endfor %}{% endfor %}";
  EXPECT_EQ(text_of(loops, parts), "<text:a><text:b>");
  // A template that only knows parts gets parts, one that asks gets the string.
  const std::string plain = R"([{"role":"user","content":"a"}])";
  EXPECT_EQ(text_of(loops, plain), "<text:a>");
  const char* asks =
      "{% for m in messages %}{% set c = m.content %}{% if c is string %}{{ c }}{% else %}{% for p in c "
      "%}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(text_of(asks, plain), "a");
  EXPECT_EQ(text_of(asks, parts), "<a><b>");
  EXPECT_NE(text_of(asks, R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])")
                .find("[messages[0].content[0].type]"),
            std::string::npos);
}

TEST(ChatTemplate, NullContentAndEmptyToolCalls) {
  const std::string messages =
      R"([{"role":"assistant","content":null,"tool_calls":[]},{"role":"assistant","tool_calls":null}])";
  EXPECT_EQ(text_of("{% for m in messages %}[{{ m.content + '' }}{{ m.tool_calls is defined }}]{% endfor %}",
                    messages),
            "[False][False]");
  EXPECT_EQ(text_of("{% for m in messages %}{{ m.content is none }}{% endfor %}", messages), "TrueTrue");
}

TEST(ChatTemplate, ToolCallArguments) {
  const auto call = [](const std::string& arguments) {
    return R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":)" +
           arguments + "}}]}]";
  };
  const char* object =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor "
      "%}{% endfor %}";
  EXPECT_EQ(text_of(object, call(R"("{\"a\": [1, null]}")")), R"({"a": [1, null]})");
  EXPECT_EQ(text_of(object, call(R"({"a": 1})")), R"({"a": 1})");
  EXPECT_EQ(text_of(object, call(R"("")")), "{}");
  EXPECT_EQ(text_of(object, call("null")), "{}");
  EXPECT_EQ(text_of(object, call(R"("not json")")), R"("not json")");
  // Templates that concatenate want the text.
  const char* text =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% "
      "endfor %}{% endfor %}";
  EXPECT_EQ(text_of(text, call(R"("{\"a\":1}")")), R"(<{"a":1}>)");
  EXPECT_EQ(text_of(text, call(R"({"a": 1})")), R"(<{"a": 1}>)");
  // List.append, which transformers' sandbox refuses, works in a model's own template.
  EXPECT_EQ(
      text_of("{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.role) %}{% endfor %}{{ l }}",
              call("{}")),
      "['user', 'assistant']");
}

TEST(ChatTemplate, DeveloperAndSystemRoles) {
  const std::string messages =
      R"([{"role":"developer","content":"D"},{"role":"user","content":"U"},{"role":"system","content":"S"}])";
  const char* plain = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
  EXPECT_EQ(text_of(plain, messages), "system=D;user=U;system=S;");
  EXPECT_EQ(text_of(std::string("{% if messages[0].role == 'developer' %}!{% endif %}") + plain, messages),
            "!developer=D;user=U;system=S;");
  // A template that refuses a late system message gets one in front.
  const char* strict =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system "
      "first') }}{% endif %}{{ m.role }}={{ m.content }};{% endfor %}";
  EXPECT_EQ(text_of(strict, messages), "system=D\n\nS;user=U;");
  EXPECT_NE(text_of("{{ raise_exception('never') }}", messages).find("never"), std::string::npos);
}

TEST(ChatTemplate, ContinueFinalMessage) {
  ChatPrompt p =
      prompt_of(R"([{"role":"user","content":"q"},{"role":"assistant","content":"The answer is "}])");
  p.continue_final_message = true;
  EXPECT_EQ(text_of(*make(kChatml), p),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer is ");
  const char* trims = "{% for m in messages %}<{{ m.content|trim }}>{% endfor %}";
  EXPECT_EQ(text_of(*make(trims), p), "<q><The answer is");
  const auto marked = make(kChatml)->render(p);
  ASSERT_TRUE(marked && !marked->untrusted.empty());
  EXPECT_EQ(marked->untrusted.back().second, marked->text.size());
  const auto hidden = make("{{ messages[0].content }}")->render(p);
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().param, "continue_final_message");
  // A client that writes the marker itself does not move the cut.
  p.messages = json(R"([{"role":"assistant","content":"CONTINUE_FINAL_MESSAGE x"}])");
  EXPECT_EQ(text_of(*make(trims), p), "<CONTINUE_FINAL_MESSAGE x");
}

TEST(ChatTemplate, PublishedTemplatesTakeToolCallsOfClients) {
  const std::string folder = test::shared_data("templates");
  if (folder.empty()) GTEST_SKIP() << test::kNoShared;
  ChatPrompt p = prompt_of(
      R"([{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"get_weather","arguments":"{\"city\": \"Oslo-77\"}"}}]},{"role":"tool","tool_call_id":"abcdefghi","name":"get_weather","content":"4 C"}])");
  p.tools = json(
      R"([{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}])");
  int seen = 0;
  for (const char* name :
       {"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen3-Coder", "mistralai-Mistral-Nemo-Instruct-2407",
        "GLM-4.6", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "ByteDance-Seed-OSS", "Kimi-K2-Instruct",
        "deepseek-ai-DeepSeek-V3.1", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"}) {
    const std::string source = test::read_file(folder + "/" + name + ".jinja");
    ASSERT_FALSE(source.empty()) << name;
    VocabData vocab;
    vocab.tokenizer_config_json = R"({"bos_token":"<s>","eos_token":"</s>"})";
    const auto t = ChatTemplate::create(vocab, nullptr, source);
    ASSERT_TRUE(t) << name;
    const std::string out = text_of(**t, p);
    EXPECT_NE(out.find("Oslo-77"), std::string::npos) << name << ": " << out;
    EXPECT_EQ(out.find("\\\"city"), std::string::npos) << name << " shows JSON inside JSON: " << out;
    ++seen;
  }
  EXPECT_EQ(seen, 10);
}

}  // namespace
}  // namespace barg::text::chat_template_test
