// What a template expects of a conversation. The first half is read off its AST here; the second is found by
// rendering small conversations when the template is loaded (history_probe.h), because what a template does with
// a message cannot be read off it.
//
// Plain data. The defaults of the second half are those of a template that does everything, so an unprobed
// template changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/jinja/template.h"

namespace barg::text {

/// What ids of tool calls must look like.
enum class IdRule : std::uint8_t {
  kAsTheyAre,
  kNineAlnum,    ///< Mistral: nine letters and digits
  kKimi,         ///< functions.NAME:IDX, IDX counts the calls of the conversation
  kKimiPerTurn,  ///< the same, IDX counts within a message
};

/// Where a template looks for the reasoning of an assistant message.
struct ReasoningPlace {
  enum class Kind : std::uint8_t {
    kNowhere,
    kMember,   ///< a member of the message: reasoning_content, thinking, ...
    kParts,    ///< a content part of type "thinking"
    kContent,  ///< in front of the content, between the model's own markers
  };
  Kind kind = Kind::kNowhere;
  std::string member;  ///< of kMember
};

/// How the generation prompt leaves the reasoning block.
enum class PromptEnd : std::uint8_t {
  kPlain,   ///< says nothing: the model opens it, or not
  kOpens,   ///< ends inside it
  kCloses,  ///< ends behind one that it closed: no reasoning
};

struct TemplateTraits {
  // -- read off the AST
  bool wants_parts = false;      ///< loops over a message's content
  bool checks_string = false;    ///< ... and tells strings from lists itself
  bool checks_null = false;      ///< asks whether content is none
  bool knows_developer = false;  ///< names the role
  bool reads_call_id = false;    ///< reads message.tool_call_id; else results are told apart by their order
  bool reads_system_tools = false;  ///< reads a member `tools` of a message
  bool folds_results = false;    ///< takes results as `tool_responses` of the message that called
  bool mentions_kimi_ids = false;
  bool mentions_call_id_marker = false;         ///< Mistral's [CALL_ID]
  std::vector<std::string> thinking_variables;  ///< of the known ones, those that it reads
  std::string effort_variable;                  ///< "" if it reads none
  std::string budget_variable;                  ///< "" if it reads none
  std::vector<ReasoningPlace> reasoning_candidates;

  // -- found by trying
  bool string_arguments = false;  ///< tool-call arguments as JSON text rather than an object
  bool takes_tools = true;        ///< renders when it is given tools
  bool tools = true;              ///< shows the tools it is given
  bool tools_need_system = false; ///< ... where there is a system message
  bool tools_in_system = false;   ///< ... as JSON text in a member `tools` of the system message
  bool calls = true;              ///< shows tool calls
  bool parallel_calls = true;     ///< ... several of one message
  bool split_text = false;        ///< text beside calls gets lost: it goes into a message of its own
  bool results = true;            ///< shows tool results
  bool result_names = false;      ///< shows the `name` of a result
  bool system = true;             ///< shows a system message
  bool late_system = true;        ///< ... also several, and behind others
  bool alternates = false;        ///< refuses, or loses one of, two user messages in a row
  bool reasoning_with_calls = false;  ///< shows reasoning of messages with calls only
  bool content_or_reasoning = false;  ///< refuses reasoning and content beside calls
  IdRule ids = IdRule::kAsTheyAre;
  ReasoningPlace reasoning;
  std::string reasoning_open, reasoning_close;  ///< the model's markers, "" if it has none
  PromptEnd prompt = PromptEnd::kPlain;           ///< where the request says nothing about thinking
  PromptEnd prompt_thinking = PromptEnd::kPlain;  ///< thinking on
  PromptEnd prompt_answer = PromptEnd::kPlain;    ///< thinking off
  std::string call_example;  ///< how the template writes a call, where it shows calls but no tools
};

/// The first half.
TemplateTraits read_traits(const jinja::TemplateAst& ast);

}  // namespace barg::text
