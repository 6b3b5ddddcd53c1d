#include "text/grammar/answer_grammar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/dialect_bound.h"
#include "text/grammar/build.h"
#include "text/grammar/call_values.h"

namespace barg::text::grammar {
namespace {

constexpr std::int64_t kMostAsideChars = 64;
constexpr std::int64_t kMostCalls = 32;  ///< in a row; an answer that calls for ever is none

/// How a family spells the members of a call that is a JSON object; what is not listed says name and arguments.
struct ObjectKeys {
  std::string_view dialect, id, name, arguments;
};
constexpr std::array<ObjectKeys, 4> kObjectKeys = {{{"command_r7b", "tool_call_id", "tool_name", "parameters"},
                                                    {"command_r", "", "tool_name", "parameters"},
                                                    {"llama3_json", "", "name", "parameters"},
                                                    {"", "", "name", "arguments"}}};

const ObjectKeys& keys_of(const Dialect& dialect) {
  return *std::find_if(kObjectKeys.begin(), kObjectKeys.end(), [&](const ObjectKeys& keys) {
    return keys.dialect == dialect.name || keys.dialect.empty();
  });
}

Json no_arguments() { return Json::object({{"type", "object"}, {"additionalProperties", false}}); }
Json custom_input() {
  return Json::object({{"type", "object"},
                       {"properties", Json::object({{"input", Json::object({{"type", "string"}})}})},
                       {"required", Json(Json::Array{Json("input")})},
                       {"additionalProperties", false}});
}

class AnswerWriter {
 public:
  AnswerWriter(const AnswerTools& tools, const BoundDialectImpl& dialect, const SchemaOptions& options)
      : tools_(tools), dialect_(dialect), options_(options) {
    if (options_.work == nullptr) options_.work = &own_work_;
    out_.grammar.spacing = options.spacing;
  }

  Result<AnswerGrammar> write(const Grammar* content) {
    std::vector<NodeId> answers;
    if (content) answers.push_back(answer(splice(g_, *content)));
    if (!tools_.tools.empty()) {
      auto calls = dialect_.channels().channels ? channel_calls() : form_calls(content != nullptr);
      if (!calls) return std::unexpected(calls.error());
      answers.push_back(*calls);
      if (!content && !tools_.must_call) {
        auto text = free_text();
        if (!text) return std::unexpected(text.error());
        answers.push_back(answer(*text));
      }
    }
    CHECK(!answers.empty());
    g_.root = add_choice(g_, std::move(answers));
    return std::move(out_);
  }

 private:
  NodeId literal(const Literal& symbols) { return add_symbols(g_, symbols); }
  NodeId literal(std::string_view text) { return add_literal(g_, text); }
  NodeId gap() { return gap_ == kNoNode ? gap_ = add_gap(g_) : gap_; }

  // ---- the arguments

  Result<NodeId> schema_of(const ConstrainedTool& tool) {
    const Json schema = tool.custom ? custom_input() : tool.parameters.is_null() ? no_arguments() : tool.parameters;
    SchemaOptions options = options_;
    options.lenient = options.lenient || !tool.strict;
    auto compiled = compile_schema(schema, options);
    if (!compiled) {
      Error error = compiled.error();
      error.param = tool.field;
      return std::unexpected(std::move(error));
    }
    for (auto* list : {&compiled->unenforced, &compiled->without_effect}) {
      for (Unenforced& lost : *list) {
        lost.pointer = tool.field + lost.pointer;
        out_.unenforced.push_back(std::move(lost));
      }
    }
    return splice(g_, compiled->grammar);
  }

  Result<NodeId> arguments_of(const ConstrainedTool& tool, const BoundForm& form) {
    auto schema = schema_of(tool);
    if (!schema) return schema;
    auto made = notation(tool, form, *schema);
    if (made) return made;
    Error error = made.error();
    error.param = tool.field;
    return std::unexpected(std::move(error));
  }

  Result<NodeId> notation(const ConstrainedTool& tool, const BoundForm& form, NodeId schema) {
    switch (form.form->arguments) {
      case Arguments::kJson: return schema;
      case Arguments::kTags: return tag_arguments(g_, form.tags, schema, tool.custom ? custom_input() : tool.parameters);
      case Arguments::kPython: return keyword_arguments(g_, schema);
      case Arguments::kGemma: return gemma_arguments(g_, dialect_.quote(), schema);
    }
    return schema;
  }

  // ---- one call

  Result<NodeId> call(const BoundForm& form) {
    std::vector<NodeId> parts;
    if (!form.call_open.empty()) {
      parts.push_back(literal(form.call_open));
      if (!form.aside_close.empty()) {
        auto aside = aside_of(form);
        if (!aside) return aside;
        parts.push_back(*aside);
      }
      if (form.form->head == Head::kObject || !form.lead.empty()) parts.push_back(gap());
    }
    auto body = form.form->head == Head::kObject ? object_call(form) : named_calls(form);
    if (!body) return body;
    parts.push_back(*body);
    if (!form.call_close.empty()) {
      parts.push_back(gap());
      parts.push_back(literal(form.call_close));
    }
    return add_sequence(g_, std::move(parts));
  }

  /// What may stand between the opening marker and the name: a few words that nobody reads.
  Result<NodeId> aside_of(const BoundForm& form) {
    auto letter = dfa_subtract(dfa_any_char(), dfa_literal(std::string(1, static_cast<char>(form.aside_close[0]))));
    if (!letter) return std::unexpected(letter.error());
    const NodeId words = g_.add(RepeatNode{add_bytes(g_, std::move(*letter)), kNoNode, 1, kMostAsideChars});
    return add_sequence(g_, {words, literal(form.aside_close)});
  }

  /// {"name": "NAME", "arguments": {...}}
  Result<NodeId> object_call(const BoundForm& form) {
    const ObjectKeys& keys = keys_of(dialect_.dialect());
    const auto key = [&](std::string_view name) {
      return add_sequence(g_, {literal(json_quote(name)), literal(":"), gap()});
    };
    std::vector<NodeId> tools;
    for (const ConstrainedTool& tool : tools_.tools) {
      auto arguments = arguments_of(tool, form);
      if (!arguments) return arguments;
      tools.push_back(add_sequence(g_, {literal(json_quote(tool.name)), literal(","), gap(), key(keys.arguments), *arguments}));
    }
    std::vector<NodeId> parts = {literal("{"), gap()};
    if (!keys.id.empty()) {
      const NodeId id = g_.add(StringNode{.content = nullptr, .min_chars = 1, .max_chars = 16});
      parts.push_back(add_optional(g_, add_sequence(g_, {key(keys.id), id, literal(","), gap()})));
    }
    parts.insert(parts.end(), {key(keys.name), add_choice(g_, std::move(tools)), gap(), literal("}")});
    return add_sequence(g_, std::move(parts));
  }

  /// lead NAME [id_mark ID] name_end args_open ARGS args_close, NAME one of the tools.
  Result<NodeId> named_calls(const BoundForm& form) {
    std::vector<NodeId> tools;
    for (const ConstrainedTool& tool : tools_.tools) {
      auto arguments = arguments_of(tool, form);
      if (!arguments) return arguments;
      tools.push_back(named_call(form, tool.name, *arguments));
    }
    std::vector<NodeId> parts;
    if (!form.lead.empty()) parts.push_back(literal(form.lead));
    if (!form.form->name_prefix.empty()) parts.push_back(literal(form.form->name_prefix));
    parts.push_back(add_choice(g_, std::move(tools)));
    return add_sequence(g_, std::move(parts));
  }

  NodeId named_call(const BoundForm& form, std::string_view name, NodeId arguments) {
    const CallForm& f = *form.form;
    std::vector<NodeId> parts = {literal(name)};
    if (!f.name_suffix.empty()) parts.push_back(literal(f.name_suffix));
    if (f.indexed) parts.push_back(add_sequence(g_, {literal(":"), digits()}));
    if (!form.id_mark.empty()) parts.push_back(add_optional(g_, add_sequence(g_, {literal(form.id_mark), call_id()})));
    if (!form.name_end.empty()) parts.push_back(literal(form.name_end));
    const bool keywords = f.arguments == Arguments::kPython;
    if (!form.args_open.empty()) parts.insert(parts.end(), {gap(), literal(form.args_open)});
    if (!keywords && f.arguments != Arguments::kGemma) parts.push_back(gap());
    parts.push_back(arguments);
    if (keywords) parts.push_back(literal(")"));
    if (!form.args_close.empty()) {
      if (f.arguments != Arguments::kTags) parts.push_back(gap());  // its members end with one
      parts.push_back(literal(form.args_close));
    }
    return add_sequence(g_, std::move(parts));
  }

  NodeId digits() {
    std::vector<std::string> numbers;
    for (int i = 0; i < 1000; ++i) numbers.push_back(std::to_string(i));
    return add_bytes(g_, dfa_literals(numbers));
  }
  NodeId call_id() {
    std::vector<std::string> letters;
    for (const char c : std::string_view("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
      letters.emplace_back(1, c);
    const NodeId letter = add_bytes(g_, dfa_literals(letters));
    return g_.add(RepeatNode{letter, kNoNode, 9, 9});
  }

  // ---- a run of calls

  Result<NodeId> form_calls(bool instead_of_content) {
    const std::vector<BoundForm>& forms = dialect_.forms();
    if (forms.empty()) return fail(ErrorCode::kUnsupported, "this model has no format of calls to enforce", "tools");
    const BoundForm& form = forms.front();
    auto one = call(form);
    if (!one) return one;
    const bool inside = !form.separator.empty() || !form.call_open.empty() || (form.trigger_opens && !form.lead.empty());
    NodeId calls = *one;
    if (tools_.parallel && inside) calls = g_.add(RepeatNode{calls, separator(form), 1, kMostCalls});
    NodeId run = enclosed(form, calls);
    if (tools_.parallel && !inside) run = g_.add(RepeatNode{run, gap(), 1, kMostCalls});
    if (tools_.must_call || instead_of_content) return run;
    auto before = text_before(form);
    if (!before) return before;
    return add_sequence(g_, {*before, run});
  }

  NodeId separator(const BoundForm& form) {
    if (form.separator.empty()) return gap();
    return add_sequence(g_, {literal(form.separator), gap()});
  }

  NodeId enclosed(const BoundForm& form, NodeId calls) {
    std::vector<NodeId> parts;
    const auto add = [&](NodeId part) {
      if (!parts.empty()) parts.push_back(gap());
      parts.push_back(part);
    };
    if (form.trigger_opens) add(literal(form.trigger));
    for (const Literal& open : form.open) add(literal(open));
    add(calls);
    for (const Literal& close : form.close) add(literal(close));
    return add_sequence(g_, std::move(parts));
  }

  // ---- text where nothing binds it

  /// What starts a call in any form of the dialect, as bytes: text may not hold it.
  Result<Dfa> text_without_calls() {
    Dfa text = dfa_valid_utf8();
    for (const BoundForm& form : dialect_.forms()) {
      if (std::any_of(form.trigger.begin(), form.trigger.end(), [](Symbol s) { return is_token(s); })) continue;
      std::string trigger;
      for (const Symbol s : form.trigger) trigger += static_cast<char>(s);
      auto calls = begins_a_call(form.form->where, trigger);
      auto rest = calls ? dfa_subtract(text, *calls) : calls;
      if (!rest) return rest;
      text = std::move(*rest);
    }
    return text;
  }

  /// Texts behind which a line begins.
  static Result<Dfa> whole_lines() {
    const auto lines = dfa_concat(dfa_valid_utf8(), dfa_literal("\n"));
    return lines ? dfa_unite(*lines, dfa_literal("")) : lines;
  }

  /// Texts with `trigger` where `where` takes it for a call.
  static Result<Dfa> begins_a_call(Where where, const std::string& trigger) {
    auto before = dfa_repeat(dfa_literals({" ", "\t", "\r", "\n"}), 0, kUnbounded);
    if (where == Where::kAnywhere) before = dfa_valid_utf8();
    if (before && where == Where::kLine) {
      const auto lines = whole_lines();
      before = lines ? dfa_concat(*lines, *before) : lines;
    }
    if (before) before = dfa_concat(*before, dfa_literal(trigger));
    if (before) before = dfa_concat(*before, dfa_valid_utf8());
    return before;
  }

  Result<NodeId> free_text() {
    auto text = text_without_calls();
    if (!text) return std::unexpected(text.error());
    return add_bytes(g_, std::move(*text));
  }

  Result<NodeId> text_before(const BoundForm& form) {
    if (form.form->where == Where::kStart) return gap();
    if (form.form->where == Where::kAnywhere) return free_text();
    auto text = text_without_calls();
    const auto lines = whole_lines();
    if (text && !lines) text = lines;
    if (text) text = dfa_intersect(*text, *lines);
    if (!text) return std::unexpected(text.error());
    return add_bytes(g_, std::move(*text));
  }

  // ---- answers in channels, and between markers

  /// [<|start|>assistant]<|channel|>NAME: where reasoning was a message of its own, the next one begins again.
  NodeId header(NodeId channel) {
    const auto& controls = dialect_.channels().controls;
    const NodeId again = add_sequence(g_, {literal(controls[0]), literal("assistant")});
    return add_sequence(g_, {add_optional(g_, again), literal(controls[1]), channel});
  }

  NodeId answer(NodeId content) {
    if (dialect_.channels().channels)
      return add_sequence(g_, {header(literal("final")), literal(dialect_.channels().controls[3]), content});
    if (dialect_.answer_open().empty()) return content;
    const NodeId marked = add_sequence(g_, {literal(dialect_.answer_open()), content, literal(dialect_.answer_close())});
    return add_choice(g_, {marked, content});
  }

  Result<NodeId> channel_calls() {
    const auto& bound = dialect_.channels();
    std::vector<NodeId> tools;
    for (const ConstrainedTool& tool : tools_.tools) {
      auto arguments = schema_of(tool);
      if (!arguments) return arguments;
      tools.push_back(add_sequence(
          g_, {literal(tool.name), gap(), add_optional(g_, add_sequence(g_, {literal(bound.controls[2]), literal("json")})),
               literal(bound.controls[3]), *arguments}));
    }
    const std::string to = "commentary " + std::string(bound.channels->recipient) + std::string(bound.channels->function_prefix);
    return header(add_sequence(g_, {literal(to), add_choice(g_, std::move(tools))}));
  }

  const AnswerTools& tools_;
  const BoundDialectImpl& dialect_;
  SchemaOptions options_;
  std::int64_t own_work_ = kCompileWork;
  AnswerGrammar out_;
  Grammar& g_ = out_.grammar;
  NodeId gap_ = kNoNode;
};

}  // namespace

Result<AnswerGrammar> answer_grammar(const Grammar* content, const AnswerTools& tools, const BoundDialect& dialect,
                                     const SchemaOptions& options) {
  return AnswerWriter(tools, static_cast<const BoundDialectImpl&>(dialect), options).write(content);
}

}  // namespace barg::text::grammar
