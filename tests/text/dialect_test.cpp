// The table of dialects: names, what templates they are found by, and how a tokenizer spells them.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "text/dialect_bound.h"
#include "text/dialect_spec.h"
#include "text/dialect_support.h"
#include "text/tokenizer_data.h"

namespace barg::text::dialect_test {
namespace {

TEST(DialectTable, NamesAndAliasesAreUnique) {
  std::set<std::string_view> seen;
  for (const Dialect* d : dialects()) {
    EXPECT_TRUE(seen.insert(d->name).second) << d->name;
    EXPECT_FALSE(d->summary.empty()) << d->name;
    EXPECT_EQ(find_dialect(d->name), d);
    for (const std::string_view alias : d->aliases) {
      EXPECT_TRUE(seen.insert(alias).second) << alias;
      EXPECT_EQ(find_dialect(alias), d);
    }
  }
  EXPECT_EQ(find_dialect("klingon"), nullptr);
  EXPECT_EQ(dialects().back(), find_dialect("generic"));
}

// What the parser takes for granted: a form begins with something, and no trigger hides another.
TEST(DialectTable, TriggersDoNotHideEachOther) {
  const test::MarkerTokenizer plain({});
  for (const Dialect* d : dialects()) {
    const BoundDialectImpl bound({d, {}, ""}, plain);
    for (const BoundForm& a : bound.forms()) {
      for (const BoundForm& b : bound.forms()) {
        if (a.trigger.size() >= b.trigger.size()) continue;
        EXPECT_FALSE(std::equal(a.trigger.begin(), a.trigger.end(), b.trigger.begin())) << d->name;
      }
      EXPECT_EQ(a.form->arguments == Arguments::kTags, a.form->tags != nullptr) << d->name;
      EXPECT_FALSE(a.form->tags && a.form->args_close.empty()) << d->name;
    }
  }
}

TEST(DialectTable, OneDescriptionIsEnough) {
  static constexpr CallForm kForms[] = {{.open = {"<<calls>>"}, .separator = "|", .close = {"<<end>>"}}};
  static constexpr Dialect kNew = {.name = "new", .summary = "a test", .forms = kForms};
  const test::MarkerTokenizer plain({});
  OutputParser parser(bind_dialect({&kNew, {}, ""}, plain),
                      {.tools = std::make_shared<std::vector<ToolInfo>>(1, ToolInfo{"f", {}, false})});
  OutputEvents events;
  parser.push_text("Now: <<calls>>{\"name\":\"f\",\"arguments\":{\"a\":1}}|{\"name\":\"f\"}<<end>>", events);
  parser.finish(true, events);
  EXPECT_EQ(test::shown(test::joined(events)),
            "text\"Now:\" start#0\"f\" args\"{\\\"a\\\":1}\" end start#1\"f\" args\"{}\" end ");
}

TEST(DialectTable, TheDocumentNamesEveryDialect) {
  const std::string document = test::read_file(std::string(BARG_SOURCE_DIR) + "/docs/tool-dialects.md");
  for (const Dialect* d : dialects()) {
    EXPECT_NE(document.find("| `" + std::string(d->name) + "` |"), std::string::npos) << d->name;
  }
}

struct Found {
  const char* dialect;
  const char* open;  ///< of reasoning
};

// Every published template in the collection, by name; * for all that begin so.
const std::map<std::string, Found> kFound = {
    {"Apriel-1.6-15b-Thinker-fixed", {"tool_calls_list", "Here are my reasoning steps:\n"}},
    {"Bielik-11B-v3.0-Instruct", {"hermes", "<think>"}},
    {"ByteDance-Seed-OSS", {"seed_oss", "<seed:think>"}},
    {"CohereForAI-c4ai-command-r-plus-tool_use", {"command_r", ""}},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", {"command_r7b", "<|START_THINKING|>"}},
    {"GLM-4.6", {"glm", "<think>"}},
    {"GigaChat3-10B-A1.8B", {"gigachat", ""}},
    {"GigaChat3.1-10B-A1.8B", {"gigachat", ""}},
    {"HuggingFaceTB-SmolLM3-3B", {"generic", "<think>"}},
    {"Kimi-K2-Instruct", {"kimi_k2", ""}},
    {"LFM2.5-Instruct", {"lfm2", "<think>"}},
    {"MiMo-VL", {"hermes", ""}},
    {"MiroThinker", {"mcp_xml", "<think>"}},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {"hermes", ""}},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", {"hermes", ""}},
    {"Qwen-QwQ-32B", {"hermes", "<think>"}},
    {"Qwen-Qwen2.5-7B-Instruct", {"hermes", ""}},
    {"Qwen-Qwen3-0.6B", {"hermes", "<think>"}},
    {"Qwen3-Coder", {"qwen3_coder", ""}},
    {"Reka-Edge", {"hermes", "<think>"}},
    {"StepFun3.5-Flash", {"qwen3_coder", "<think>"}},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {"deepseek_v3", "<think>"}},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek_v3", "<think>"}},
    {"deepseek-ai-DeepSeek-V3.1", {"deepseek_v31", "<think>"}},
    {"deepseek-ai-DeepSeek-V4", {"deepseek_dsml", "<think>"}},
    {"fireworks-ai-llama-3-firefunction-v2", {"phi4_mini", ""}},
    {"google-gemma-2-2b-it", {"generic", ""}},
    {"google-gemma-4-31B-it-interleaved", {"gemma4", "<|channel>thought\n"}},
    {"llama-cpp-deepseek-r1", {"deepseek_v3", "<think>"}},
    {"llama-cpp-rwkv-world", {"generic", "<think>"}},
    {"meetkai-functionary-medium-v3.1", {"functionary_v31", ""}},
    {"meta-llama-Llama-3.1-8B-Instruct", {"llama3_json", ""}},
    {"meta-llama-Llama-3.3-70B-Instruct", {"llama3_json", ""}},
    {"microsoft-Phi-3.5-mini-instruct", {"generic", ""}},
    {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", "[THINK]"}},
    {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral", ""}},
    {"moonshotai-Kimi-K2", {"kimi_k2", ""}},
    {"stepfun-ai-Step-3.5-Flash", {"qwen3_coder", "<think>"}},
    {"unsloth-Apriel-1.5", {"tool_calls_list", "Here are my reasoning steps:\n"}},
};

TEST(DetectDialect, PublishedTemplates) {
  const std::string folder = test::shared_data("templates/Qwen3-Coder.jinja");
  if (folder.empty()) GTEST_SKIP() << test::kNoShared;
  int checked = 0;
  for (const auto& [name, found] : kFound) {
    const std::string path = test::shared_data("templates/" + name + ".jinja");
    if (path.empty()) continue;
    ++checked;
    const DetectedDialect detected = detect_dialect(test::read_file(path));
    EXPECT_EQ(dialect_name(*detected.dialect), found.dialect) << name << ": " << detected.evidence;
    EXPECT_EQ(detected.reasoning.open, found.open) << name;
    EXPECT_EQ(detected.reasoning.close.empty(), detected.reasoning.open.empty()) << name;
    EXPECT_FALSE(detected.evidence.empty()) << name;
  }
  EXPECT_GE(checked, 5);
}

// Better no dialect than another family's: the stand-in says that it is one.
TEST(DetectDialect, WhatNobodyReadsIsSaid) {
  for (const char* source : {"Respond in this format:\n>>>${recipient}\n${content}", "<|from|>{{ role }}\n<|recipient|>all",
                             "<|action_start|><|plugin|>{{ call }} not <tool_call>"}) {
    const DetectedDialect detected = detect_dialect(source);
    EXPECT_FALSE(detected.known) << source;
    EXPECT_EQ(dialect_name(*detected.dialect), "generic") << source;
    EXPECT_NE(detected.evidence.find(" in the chat template: "), std::string::npos) << detected.evidence;
  }
  EXPECT_TRUE(detect_dialect("").known);
  EXPECT_TRUE(detect_dialect("<tool_call>").known);
  const std::string published = test::shared_data("templates/meetkai-functionary-medium-v3.2.jinja");
  if (published.empty()) GTEST_SKIP() << test::kNoShared;
  EXPECT_FALSE(detect_dialect(test::read_file(published)).known);
}

// Families whose templates are not in the collection, by what their model cards show.
TEST(DetectDialect, OtherTemplates) {
  const auto name_of = [](std::string_view source) { return dialect_name(*detect_dialect(source).dialect); };
  EXPECT_EQ(name_of("{{'<|start|>assistant<|channel|>final<|message|>'}}"), "harmony");
  EXPECT_EQ(name_of("{%- set toolcall_begin_token = '<minimax:tool_call>' -%}<invoke name=\""), "minimax_m2");
  EXPECT_EQ(name_of("<|tool|>{{ tools }}<|/tool|>"), "phi4_mini");
  EXPECT_EQ(name_of("write <|tool_call|> and a list"), "granite3");
  EXPECT_EQ(name_of("within <tool_call></tool_call>, Granite 4"), "hermes");
  EXPECT_EQ(name_of("You may use <function_calls> and <functions>"), "olmo3");
  EXPECT_EQ(name_of("[func_name1(params_name1=params_value1), func_name2(params)]"), "pythonic");
  EXPECT_EQ(name_of("<|header_start|>assistant<|header_end|>"), "pythonic");
  EXPECT_EQ(name_of("<TOOLCALL>[{\"name\""), "nemotron_json");
  EXPECT_EQ(name_of("<tool_calls>\n</tool_calls>"), "tool_calls_list");
  EXPECT_EQ(name_of("'<｜DSML｜function_calls>'"), "deepseek_dsml");
  EXPECT_EQ(name_of(""), "generic");
  EXPECT_EQ(detect_dialect("").evidence, "no chat template");
}

TEST(ReasoningMarkers, OfATemplateAndAPrompt) {
  const auto granite = detect_dialect("<think></think> then <response></response> <|tool_call|>").reasoning;
  EXPECT_EQ(granite, (ReasoningMarkers{"<think>", "</think>", "<response>", "</response>"}));
  const auto harmony = detect_dialect("<|channel|> <|message|>").reasoning;
  EXPECT_EQ(harmony.open, "<|channel|>analysis<|message|>");
  EXPECT_EQ(harmony.close, "<|end|>");

  const ReasoningMarkers think = {"<think>", "</think>"};
  EXPECT_TRUE(reasoning_open(think, "<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(reasoning_open(think, "<think>a</think>b<think>\nHm"));
  EXPECT_FALSE(reasoning_open(think, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(reasoning_open(think, "</think>"));
  EXPECT_FALSE(reasoning_open(think, "<|im_start|>assistant\n"));
  EXPECT_FALSE(reasoning_open({}, "<think>"));
}

TEST(BindDialect, AddedTokensAreTokensAndNothingElse) {
  const test::MarkerTokenizer tokenizer({{"<tool_call>", false}, {"<think>", false}, {"<|eom_id|>", true}, {"x", true}});
  const auto hermes = bind_dialect({find_dialect("hermes"), {"<think>", "</think>"}, ""}, tokenizer);
  EXPECT_EQ(dialect_name(hermes->dialect()), "hermes");
  EXPECT_TRUE(hermes->is_marker(256));
  EXPECT_TRUE(hermes->is_marker(257));
  EXPECT_FALSE(hermes->is_marker(258));
  EXPECT_FALSE(hermes->is_marker(259));
  EXPECT_FALSE(hermes->is_marker('{'));
  EXPECT_TRUE(hermes->call_end_ids().empty());
  const auto llama = bind_dialect({find_dialect("llama3_json"), {}, ""}, tokenizer);
  ASSERT_EQ(llama->call_end_ids().size(), 1u);
  EXPECT_EQ(llama->call_end_ids()[0], 258);
}

}  // namespace
}  // namespace barg::text::dialect_test
