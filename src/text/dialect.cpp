// The table of dialects. Order matters where evidence overlaps: what is more particular comes first.
#include "text/dialect.h"

#include <algorithm>

#include "text/dialect_spec.h"

namespace barg::text {
namespace {

using std::string_view;

// -- gpt-oss
constexpr Channels kHarmonyChannels = {.start = "<|start|>",
                                       .channel = "<|channel|>",
                                       .constrain = "<|constrain|>",
                                       .message = "<|message|>",
                                       .ends = {"<|end|>", "<|call|>", "<|return|>"},
                                       .reasoning_channel = "analysis",
                                       .recipient = "to=",
                                       .function_prefix = "functions.",
                                       .nobody = {"assistant", "user", "all"}};
constexpr string_view kHarmonyAliases[] = {"openai", "gpt_oss", "gpt-oss"};
constexpr Evidence kHarmonyEvidence[] = {{{"<|channel|>", "<|message|>"}}};
constexpr string_view kHarmonyEnds[] = {"<|call|>"};
constexpr Dialect kHarmony = {.name = "harmony",
                              .summary = "channels analysis, commentary and final; recipients are tools",
                              .aliases = kHarmonyAliases,
                              .evidence = kHarmonyEvidence,
                              .channels = &kHarmonyChannels,
                              .call_ends = kHarmonyEnds};

// -- Gemma 4
constexpr CallForm kGemmaForms[] = {{.call_open = "<|tool_call>",
                                     .head = Head::kNamed,
                                     .lead = "call:",
                                     .arguments = Arguments::kGemma,
                                     .call_close = "<tool_call|>"}};
constexpr Evidence kGemmaEvidence[] = {{{"<|tool_call>"}}};
constexpr string_view kGemmaEnds[] = {"<|tool_response>"};
constexpr Dialect kGemma4 = {.name = "gemma4",
                             .summary = "<|tool_call>call:NAME{key:value}<tool_call|>",
                             .evidence = kGemmaEvidence,
                             .forms = kGemmaForms,
                             .call_ends = kGemmaEnds};

// -- DeepSeek. A function of V3.1 could be called "function", so each form is tried, the own one first.
constexpr CallForm kDeepSeekV3Form = {.open = {"<｜tool▁calls▁begin｜>"},
                                      .close = {"<｜tool▁calls▁end｜>"},
                                      .call_open = "<｜tool▁call▁begin｜>",
                                      .head = Head::kNamed,
                                      .lead = "function<｜tool▁sep｜>",
                                      .args_open = "```json",
                                      .args_close = "```",
                                      .call_close = "<｜tool▁call▁end｜>"};
constexpr CallForm kDeepSeekV31Form = {.open = {"<｜tool▁calls▁begin｜>"},
                                       .close = {"<｜tool▁calls▁end｜>"},
                                       .call_open = "<｜tool▁call▁begin｜>",
                                       .head = Head::kNamed,
                                       .name_end = "<｜tool▁sep｜>",
                                       .call_close = "<｜tool▁call▁end｜>"};
constexpr CallForm kDeepSeekV3Forms[] = {kDeepSeekV3Form, kDeepSeekV31Form};
constexpr CallForm kDeepSeekV31Forms[] = {kDeepSeekV31Form, kDeepSeekV3Form};
constexpr Evidence kDeepSeekV3Evidence[] = {{{"<｜tool▁sep｜>", "```json"}}};
constexpr Evidence kDeepSeekV31Evidence[] = {{{"<｜tool▁sep｜>"}}};
constexpr string_view kDeepSeekV3Aliases[] = {"deepseek_r1", "deepseekv3"};
constexpr string_view kDeepSeekV31Aliases[] = {"deepseekv31"};
constexpr Dialect kDeepSeekV3 = {.name = "deepseek_v3",
                                 .summary = "function<｜tool▁sep｜>NAME and fenced JSON",
                                 .aliases = kDeepSeekV3Aliases,
                                 .evidence = kDeepSeekV3Evidence,
                                 .forms = kDeepSeekV3Forms};
constexpr Dialect kDeepSeekV31 = {.name = "deepseek_v31",
                                  .summary = "NAME<｜tool▁sep｜>JSON",
                                  .aliases = kDeepSeekV31Aliases,
                                  .evidence = kDeepSeekV31Evidence,
                                  .forms = kDeepSeekV31Forms};

// V3.2 says function_calls, V4 tool_calls; one dialect reads both.
constexpr Tags kDsmlTags = {.key_open = "<｜DSML｜parameter name=\"",
                            .key_ends = {{{"\" string=\"true\">", Typing::kString},
                                          {"\" string=\"false\">", Typing::kJson},
                                          {"\">", Typing::kSchema}}},
                            .value_close = "</｜DSML｜parameter>"};
constexpr CallForm dsml(string_view open, string_view close) {
  return {.open = {open},
          .close = {close},
          .head = Head::kNamed,
          .lead = "<｜DSML｜invoke name=\"",
          .name_end = "\">",
          .arguments = Arguments::kTags,
          .tags = &kDsmlTags,
          .args_close = "</｜DSML｜invoke>"};
}
constexpr CallForm kDsmlForms[] = {dsml("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
                                   dsml("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")};
constexpr Evidence kDsmlEvidence[] = {{{"｜DSML｜"}}};
constexpr string_view kDsmlAliases[] = {"deepseek_v32", "deepseek_v4", "deepseekv32"};
constexpr Dialect kDsml = {.name = "deepseek_dsml",
                           .summary = "<｜DSML｜invoke name=\"NAME\"> and typed parameters",
                           .aliases = kDsmlAliases,
                           .evidence = kDsmlEvidence,
                           .forms = kDsmlForms};

// -- Kimi K2
constexpr CallForm kKimiForms[] = {{.open = {"<|tool_calls_section_begin|>"},
                                    .close = {"<|tool_calls_section_end|>"},
                                    .call_open = "<|tool_call_begin|>",
                                    .head = Head::kNamed,
                                    .name_prefix = "functions.",
                                    .indexed = true,
                                    .name_end = "<|tool_call_argument_begin|>",
                                    .call_close = "<|tool_call_end|>"}};
constexpr Evidence kKimiEvidence[] = {{{"<|tool_call_argument_begin|>"}}, {{"<|tool_calls_section_begin|>"}}};
constexpr string_view kKimiAliases[] = {"kimi"};
constexpr Dialect kKimi = {.name = "kimi_k2",
                           .summary = "functions.NAME:INDEX and JSON between section tokens",
                           .aliases = kKimiAliases,
                           .evidence = kKimiEvidence,
                           .forms = kKimiForms};

// -- MiniMax-M2. Its templates want the reasoning of earlier turns back; clients that return only the content keep
// it with the second dialect, which leaves it there.
constexpr Tags kMiniMaxTags = {.key_open = "<parameter name=\"",
                               .key_ends = {{{"\">", Typing::kSchema}}},
                               .value_close = "</parameter>",
                               .lines = true};
constexpr CallForm kMiniMaxForms[] = {{.open = {"<minimax:tool_call>"},
                                       .close = {"</minimax:tool_call>"},
                                       .head = Head::kNamed,
                                       .lead = "<invoke name=\"",
                                       .name_end = "\">",
                                       .arguments = Arguments::kTags,
                                       .tags = &kMiniMaxTags,
                                       .args_close = "</invoke>"}};
constexpr Evidence kMiniMaxEvidence[] = {{{"<minimax:tool_call>"}}, {{"minimax:tool_call"}}};
constexpr string_view kMiniMaxAliases[] = {"minimax", "minimax-m2"};
constexpr string_view kMiniMaxThinkAliases[] = {"minimax_m2_append_think"};
constexpr Dialect kMiniMax = {.name = "minimax_m2",
                              .summary = "<minimax:tool_call> with <invoke> and <parameter>",
                              .aliases = kMiniMaxAliases,
                              .evidence = kMiniMaxEvidence,
                              .forms = kMiniMaxForms};
constexpr Dialect kMiniMaxThink = {.name = "minimax_append_think",
                                   .summary = "minimax_m2 with the reasoning left in the text",
                                   .aliases = kMiniMaxThinkAliases,
                                   .forms = kMiniMaxForms,
                                   .keep_reasoning_in_text = true};

// -- GLM 4.5 to 5
constexpr Tags kGlmTags = {.key_open = "<arg_key>",
                           .key_ends = {{{"</arg_key>", Typing::kSchema}}},
                           .value_open = "<arg_value>",
                           .value_close = "</arg_value>"};
constexpr CallForm kGlmForms[] = {{.call_open = "<tool_call>",
                                   .head = Head::kNamed,
                                   .arguments = Arguments::kTags,
                                   .tags = &kGlmTags,
                                   .args_close = "</tool_call>"}};
constexpr Evidence kGlmEvidence[] = {{{"<arg_key>"}}};
constexpr string_view kGlmAliases[] = {"glm45", "glm47", "glm4_moe"};
constexpr Dialect kGlm = {.name = "glm",
                          .summary = "<tool_call>NAME with <arg_key> and <arg_value>",
                          .aliases = kGlmAliases,
                          .evidence = kGlmEvidence,
                          .forms = kGlmForms};

// -- Qwen3-Coder, Qwen3.5/3.6, Nemotron-3, Step-3.5; Seed-OSS writes the same without newlines. Models leave the
// outer tag out now and then; the inner one is no token, so alone it counts at the start only, and with a declared name:
// a quoted call is none.
constexpr Tags kQwenTags = {.key_open = "<parameter=",
                            .key_ends = {{{">", Typing::kSchema}}},
                            .value_close = "</parameter>",
                            .lines = true};
constexpr Tags kSeedTags = {.key_open = "<parameter=",
                            .key_ends = {{{">", Typing::kSchema}}},
                            .value_close = "</parameter>"};
constexpr CallForm function_tags(const Tags* tags, string_view open, string_view close) {
  return {.where = open.empty() ? Where::kStart : Where::kAnywhere,
          .call_open = open,
          .head = Head::kNamed,
          .lead = "<function=",
          .name_end = ">",
          .arguments = Arguments::kTags,
          .tags = tags,
          .args_close = "</function>",
          .call_close = close,
          .declared_only = open.empty()};
}
constexpr CallForm kQwenForms[] = {function_tags(&kQwenTags, "<tool_call>", "</tool_call>"),
                                   function_tags(&kQwenTags, "", "</tool_call>")};
constexpr CallForm kSeedForms[] = {function_tags(&kSeedTags, "<seed:tool_call>", "</seed:tool_call>"),
                                   function_tags(&kSeedTags, "", "</seed:tool_call>")};
constexpr Evidence kQwenEvidence[] = {{{"<function=", "<parameter="}}};
constexpr Evidence kSeedEvidence[] = {{{"<seed:tool_call>"}}};
constexpr string_view kQwenAliases[] = {"qwen3_xml", "qwen3_coder_xml", "step3p5", "nemotron3"};
constexpr string_view kSeedAliases[] = {"seed"};
constexpr Dialect kQwenCoder = {.name = "qwen3_coder",
                                .summary = "<tool_call> with <function=NAME> and <parameter=KEY>",
                                .aliases = kQwenAliases,
                                .evidence = kQwenEvidence,
                                .forms = kQwenForms};
constexpr Dialect kSeed = {.name = "seed_oss",
                           .summary = "<seed:tool_call> with <function=NAME> and <parameter=KEY>",
                           .aliases = kSeedAliases,
                           .evidence = kSeedEvidence,
                           .forms = kSeedForms};

// -- Functionary 3.1 (the "custom tools" format of Llama 3.1)
constexpr CallForm kFunctionaryForms[] = {
    {.head = Head::kNamed, .lead = "<function=", .name_end = ">", .args_close = "</function>"}};
constexpr Evidence kFunctionaryEvidence[] = {{{"<function="}, "<parameter="}};
constexpr Dialect kFunctionary = {.name = "functionary_v31",
                                  .summary = "<function=NAME>JSON</function>",
                                  .evidence = kFunctionaryEvidence,
                                  .forms = kFunctionaryForms};

// -- MiroThinker and other models that were taught Cline's way to reach tools of MCP servers. Names of tools are unique
// here, so which server has one is not read, and may be missing.
constexpr CallForm mcp_call(string_view server, string_view server_close) {
  return {.open = {"<use_mcp_tool>"},
          .close = {"</use_mcp_tool>"},
          .call_open = server,
          .aside_close = server_close,
          .head = Head::kNamed,
          .lead = "<tool_name>",
          .name_end = "</tool_name>",
          .args_open = "<arguments>",
          .args_close = "</arguments>"};
}
constexpr CallForm kMcpForms[] = {mcp_call("<server_name>", "</server_name>"), mcp_call("", "")};
constexpr Evidence kMcpEvidence[] = {{{"<use_mcp_tool>", "<tool_name>"}}};
constexpr string_view kMcpAliases[] = {"mirothinker"};
constexpr Dialect kMcp = {.name = "mcp_xml",
                          .summary = "<use_mcp_tool> with <server_name>, <tool_name> and JSON in <arguments>",
                          .aliases = kMcpAliases,
                          .evidence = kMcpEvidence,
                          .forms = kMcpForms};

// -- Cohere
constexpr CallForm kCommandR7bForms[] = {
    {.open = {"<|START_ACTION|>", "["}, .separator = ",", .close = {"]", "<|END_ACTION|>"}}};
constexpr CallForm kCommandRForms[] = {
    {.where = Where::kLine, .open = {"Action:", "```json", "["}, .separator = ",", .close = {"]", "```"}}};
constexpr Evidence kCommandR7bEvidence[] = {{{"<|START_ACTION|>"}}};
constexpr Evidence kCommandREvidence[] = {{{"Action:", "tool_name"}}};
constexpr string_view kCommandR7bAliases[] = {"cohere2", "cohere_command_a"};
constexpr Dialect kCommandR7b = {.name = "command_r7b",
                                 .summary = "<|START_ACTION|> and a JSON list",
                                 .aliases = kCommandR7bAliases,
                                 .evidence = kCommandR7bEvidence,
                                 .forms = kCommandR7bForms,
                                 .answer_open = "<|START_RESPONSE|>",
                                 .answer_close = "<|END_RESPONSE|>"};
constexpr Dialect kCommandR = {.name = "command_r",
                               .summary = "Action: and a fenced JSON list",
                               .evidence = kCommandREvidence,
                               .forms = kCommandRForms};

// -- Mistral: named calls since v11, a JSON list before
constexpr CallForm kMistralForms[] = {{.call_open = "[TOOL_CALLS]",
                                       .head = Head::kNamed,
                                       .id_mark = "[CALL_ID]",
                                       .name_end = "[ARGS]",
                                       .name_end_optional = true},
                                      {.open = {"[TOOL_CALLS]", "["}, .separator = ",", .close = {"]"}, .late_id = true},
                                      {.call_open = "[TOOL_CALLS]"}};
constexpr Evidence kMistralEvidence[] = {{{"[TOOL_CALLS]"}}};
constexpr Dialect kMistral = {.name = "mistral",
                              .summary = "[TOOL_CALLS]NAME[ARGS]JSON, or a JSON list",
                              .evidence = kMistralEvidence,
                              .forms = kMistralForms};

// -- JSON in one pair of markers: a list, or one object
constexpr CallForm list_of(string_view open, string_view close) {
  return {.open = {open, "["}, .separator = ",", .close = {"]", close}};
}
constexpr CallForm object_in(string_view open, string_view close) {
  return {.open = {open}, .close = {close}};  // several objects in a row too
}
constexpr CallForm kJsonListForms[] = {
    {.open = {"<tool_calls>", "["}, .separator = ",", .close = {"]", "</tool_calls>"}, .late_id = true},
    object_in("<tool_calls>", "</tool_calls>")};
constexpr Evidence kJsonListEvidence[] = {{{"<tool_calls>["}}, {{"<tool_calls>", "</tool_calls>"}, "<tool_call>"}};
constexpr string_view kJsonListAliases[] = {"apriel", "hunyuan_a13b", "jamba"};
constexpr Dialect kJsonList = {.name = "tool_calls_list",
                               .summary = "<tool_calls>[{\"name\", \"arguments\"}]</tool_calls>",
                               .aliases = kJsonListAliases,
                               .evidence = kJsonListEvidence,
                               .forms = kJsonListForms};

constexpr CallForm kNemotronForms[] = {list_of("<TOOLCALL>", "</TOOLCALL>"), object_in("<TOOLCALL>", "</TOOLCALL>")};
constexpr Evidence kNemotronEvidence[] = {{{"<TOOLCALL>"}}};
constexpr Dialect kNemotron = {.name = "nemotron_json",
                               .summary = "<TOOLCALL>[{\"name\", \"arguments\"}]</TOOLCALL>",
                               .evidence = kNemotronEvidence,
                               .forms = kNemotronForms};

constexpr CallForm kGigaChatForms[] = {object_in("<|function_call|>", ""), object_in("function call<|role_sep|>", "")};
constexpr Evidence kGigaChatEvidence[] = {{{"<|function_call|>"}}, {{"function call", "<|role_sep|>"}}};
constexpr Dialect kGigaChat = {.name = "gigachat",
                               .summary = "<|function_call|>{\"name\", \"arguments\"}",
                               .evidence = kGigaChatEvidence,
                               .forms = kGigaChatForms};

// -- Phi-4-mini, Firefunction
constexpr CallForm kFunctoolsForms[] = {list_of("<|tool_call|>", "<|/tool_call|>"),
                                        object_in("<|tool_call|>", "<|/tool_call|>"),
                                        {.open = {"functools["}, .separator = ",", .close = {"]"}}};
constexpr Evidence kFunctoolsEvidence[] = {{{"<|/tool|>"}}, {{"<|/tool_call|>"}}, {{"functools["}}};
constexpr string_view kFunctoolsAliases[] = {"phi4_mini_json", "firefunction", "functools"};
constexpr Dialect kFunctools = {.name = "phi4_mini",
                                .summary = "<|tool_call|>[{\"name\", \"arguments\"}]<|/tool_call|>, or functools[...]",
                                .aliases = kFunctoolsAliases,
                                .evidence = kFunctoolsEvidence,
                                .forms = kFunctoolsForms};

// -- Granite 3.x
constexpr CallForm kGraniteForms[] = {list_of("<|tool_call|>", ""), object_in("<|tool_call|>", ""),
                                      list_of("<tool_call>", "</tool_call>"), object_in("<tool_call>", "</tool_call>")};
constexpr Evidence kGraniteEvidence[] = {{{"<|tool_call|>"}}};
constexpr string_view kGraniteAliases[] = {"granite"};
constexpr Dialect kGranite = {.name = "granite3",
                              .summary = "<|tool_call|>[{\"name\", \"arguments\"}]",
                              .aliases = kGraniteAliases,
                              .evidence = kGraniteEvidence,
                              .forms = kGraniteForms};

// -- calls in Python's notation
constexpr CallForm python_calls(string_view open, string_view close) {
  return {.open = {open, "["},
          .separator = ",",
          .close = {"]", close},
          .head = Head::kNamed,
          .name_end = "(",
          .arguments = Arguments::kPython};
}
constexpr CallForm kBareObject = {.where = Where::kStart, .separator = ";", .bare = true};
constexpr CallForm kBarePython = {.where = Where::kStart,
                                  .open = {"["},
                                  .separator = ",",
                                  .close = {"]"},
                                  .head = Head::kNamed,
                                  .name_end = "(",
                                  .arguments = Arguments::kPython};
constexpr CallForm kLfmForms[] = {python_calls("<|tool_call_start|>", "<|tool_call_end|>"),
                                  object_in("<|tool_call_start|>", "<|tool_call_end|>"), kBarePython};
constexpr CallForm kOlmoForms[] = {{.open = {"<function_calls>"},
                                    .close = {"</function_calls>"},
                                    .head = Head::kNamed,
                                    .name_end = "(",
                                    .arguments = Arguments::kPython}};
constexpr CallForm kPythonicForms[] = {kBarePython, python_calls("<|python_start|>", "<|python_end|>"), kBareObject};
constexpr Evidence kLfmEvidence[] = {
    {{"<|tool_call_start|>"}}, {{"<|tool_list_start|>"}}, {{"List of tools: ["}}};
constexpr Evidence kOlmoEvidence[] = {{{"<function_calls>"}, "invoke"}};
constexpr Evidence kPythonicEvidence[] = {{{"<|python_start|>"}}, {{"func_name1("}}, {{"<|header_start|>"}}};
constexpr string_view kLfmAliases[] = {"lfm2_5"};
constexpr string_view kPythonicAliases[] = {"llama4_pythonic", "llama4"};
constexpr string_view kPythonicEnds[] = {"<|eom|>", "<|eom_id|>"};
constexpr Dialect kLfm = {.name = "lfm2",
                          .summary = "<|tool_call_start|>[name(key=value)]<|tool_call_end|>",
                          .aliases = kLfmAliases,
                          .evidence = kLfmEvidence,
                          .forms = kLfmForms};
constexpr Dialect kOlmo = {.name = "olmo3",
                           .summary = "lines of name(key=value) in <function_calls>",
                           .evidence = kOlmoEvidence,
                           .forms = kOlmoForms};
constexpr Dialect kPythonic = {.name = "pythonic",
                               .summary = "[name(key=value), ...]",
                               .aliases = kPythonicAliases,
                               .evidence = kPythonicEvidence,
                               .forms = kPythonicForms,
                               .call_ends = kPythonicEnds};

// -- Llama 3.x: an object, or a built-in tool's NAME.call(key=value) behind its token
constexpr CallForm kLlamaForms[] = {kBareObject,
                                    {.open = {"<|python_tag|>"}, .separator = ";"},
                                    {.call_open = "<|python_tag|>",
                                     .head = Head::kNamed,
                                     .name_suffix = ".call",
                                     .name_end = "(",
                                     .arguments = Arguments::kPython}};
constexpr Evidence kLlamaEvidence[] = {{{"<|python_tag|>"}},
                                       {{"{\"name\": function name, \"parameters\""}},
                                       {{"<|start_header_id|>", "\"parameters\": "}}};
constexpr string_view kLlamaAliases[] = {"llama3", "llama4_json"};
constexpr string_view kLlamaEnds[] = {"<|eom_id|>"};
constexpr Dialect kLlama = {.name = "llama3_json",
                            .summary = "{\"name\", \"parameters\"}, several with \"; \" between",
                            .aliases = kLlamaAliases,
                            .evidence = kLlamaEvidence,
                            .forms = kLlamaForms,
                            .call_ends = kLlamaEnds};

// -- Hermes, Qwen2.5, Qwen3, Granite 4, SmolLM3, MiMo, Ernie: the commonest
constexpr CallForm kHermesForms[] = {object_in("<tool_call>", "</tool_call>"), list_of("<tool_call>", "</tool_call>")};
constexpr Evidence kHermesEvidence[] = {{{"<tool_call>"}}};
constexpr string_view kHermesAliases[] = {"qwen25", "qwen3", "qwen", "granite4", "ernie45", "smollm3"};
constexpr Dialect kHermes = {.name = "hermes",
                             .summary = "<tool_call>{\"name\", \"arguments\"}</tool_call>",
                             .aliases = kHermesAliases,
                             .evidence = kHermesEvidence,
                             .forms = kHermesForms};

// -- Models without a format of their own. What marks a call is its exact shape and a declared name.
constexpr CallForm kGenericForms[] = {{.where = Where::kLine, .bare = true, .declared_only = true},
                                      {.where = Where::kLine,
                                       .open = {"["},
                                       .separator = ",",
                                       .close = {"]"},
                                       .bare = true,
                                       .declared_only = true},
                                      {.where = Where::kLine,
                                       .open = {"```json", "["},
                                       .separator = ",",
                                       .close = {"]", "```"},
                                       .bare = true,
                                       .declared_only = true},
                                      {.where = Where::kLine,
                                       .open = {"```json"},
                                       .close = {"```"},
                                       .bare = true,
                                       .declared_only = true},
                                      object_in("<tool_call>", "</tool_call>"),
                                      list_of("<tool_call>", "</tool_call>")};
constexpr Dialect kGeneric = {.name = "generic",
                              .summary = "a JSON object with a declared name and arguments, bare, fenced or in <tool_call>",
                              .forms = kGenericForms};

constexpr const Dialect* kDialects[] = {
    &kHarmony, &kGemma4,      &kDsml,     &kDeepSeekV3, &kDeepSeekV31, &kKimi,      &kMiniMax, &kMiniMaxThink,
    &kSeed,    &kGlm,         &kQwenCoder, &kFunctionary, &kMcp,       &kCommandR7b, &kCommandR, &kMistral,
    &kJsonList, &kNemotron,   &kGigaChat, &kFunctools,   &kGranite,   &kLfm,       &kOlmo,    &kPythonic,
    &kLlama,   &kHermes,      &kGeneric};

/// Templates of families whose calls nothing here reads: better told than taken for another's.
struct Unread {
  Evidence evidence;
  string_view what;
};
constexpr Unread kUnread[] = {
    {{{">>>${recipient}"}}, "Functionary 3.2, whose answers are \">>>RECIPIENT\" and a line feed before each part"},
    {{{"<|recipient|>"}}, "Functionary 2, whose answers name a recipient before each part"},
    {{{"<|action_start|>"}}, "InternLM, whose calls are actions"},
};

bool holds(string_view source, const Evidence& evidence) {
  if (!evidence.none.empty() && source.find(evidence.none) != source.npos) return false;
  return std::all_of(evidence.all.begin(), evidence.all.end(),
                     [&](string_view text) { return text.empty() || source.find(text) != source.npos; });
}

struct ReasoningRule {
  string_view sign;  ///< in the template
  ReasoningMarkers markers;
};

// Of several that fit, the first.
const ReasoningRule kReasoning[] = {
    {"<|channel>thought", {.open = "<|channel>thought\n", .close = "<channel|>"}},
    {"[THINK]", {.open = "[THINK]", .close = "[/THINK]"}},
    {"<seed:think>", {.open = "<seed:think>", .close = "</seed:think>"}},
    {"<|START_THINKING|>", {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>"}},
    {"[BEGIN FINAL RESPONSE]",
     {.open = "Here are my reasoning steps:\n",
      .close = "[BEGIN FINAL RESPONSE]",
      .answer_close = "[END FINAL RESPONSE]"}},
    {"<response>",
     {.open = "<think>", .close = "</think>", .answer_open = "<response>", .answer_close = "</response>"}},
    {"</think>", {.open = "<think>", .close = "</think>"}},
    {"<think>", {.open = "<think>", .close = "</think>"}},
};

ReasoningMarkers channel_markers(const Channels& c) {
  return {.open = std::string(c.channel) + std::string(c.reasoning_channel) + std::string(c.message),
          .close = std::string(c.ends[0])};
}

}  // namespace

std::span<const Dialect* const> dialects() { return kDialects; }

string_view dialect_name(const Dialect& dialect) { return dialect.name; }
string_view dialect_summary(const Dialect& dialect) { return dialect.summary; }

const Dialect* find_dialect(string_view name) {
  for (const Dialect* d : kDialects) {
    if (d->name == name || std::find(d->aliases.begin(), d->aliases.end(), name) != d->aliases.end()) return d;
  }
  return nullptr;
}

ReasoningMarkers reasoning_of(string_view source, const Dialect& dialect) {
  if (dialect.channels) return channel_markers(*dialect.channels);
  for (const ReasoningRule& rule : kReasoning) {
    if (source.find(rule.sign) != source.npos) return rule.markers;
  }
  return {};
}

DetectedDialect detect_dialect(string_view source) {
  for (const Unread& family : kUnread) {
    if (!holds(source, family.evidence)) continue;
    std::string why = std::string(family.evidence.all[0]) + " in the chat template: " + std::string(family.what);
    return {&kGeneric, reasoning_of(source, kGeneric), std::move(why), false};
  }
  for (const Dialect* d : kDialects) {
    for (const Evidence& evidence : d->evidence) {
      if (!holds(source, evidence)) continue;
      std::string why(evidence.all[0]);
      if (!evidence.all[1].empty()) why += " and " + std::string(evidence.all[1]);
      return {d, reasoning_of(source, *d), why + " in the chat template"};
    }
  }
  return {&kGeneric, reasoning_of(source, kGeneric),
          source.empty() ? "no chat template" : "no known marker in the chat template"};
}

bool reasoning_open(const ReasoningMarkers& markers, string_view prompt_tail) {
  if (markers.open.empty()) return false;
  const std::size_t open = prompt_tail.rfind(markers.open);
  if (open == prompt_tail.npos) return false;
  const std::size_t close = markers.close.empty() ? prompt_tail.npos : prompt_tail.rfind(markers.close);
  return close == prompt_tail.npos || close < open;
}

}  // namespace barg::text
