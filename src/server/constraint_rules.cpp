#include "server/constraint_rules.h"

#include <optional>
#include <utility>

#include "server/openai_json.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr std::size_t kMaxTextBytes = 1 << 20;
constexpr std::size_t kMaxChoiceBytes = 64 << 10;  // each becomes a state of an automaton
constexpr double kMaxChoicesListed = 4096;

constexpr FieldSpec kSchemaRows[] = {
    {.name = "name", .type = kString, .about = "For people.", .max = 256},
    {.name = "description", .type = kString, .about = "For people."},
    {.name = "schema", .about = "A JSON Schema (drafts 7, 2019-09, 2020-12), or its JSON text."},
    {.name = "strict", .type = kBool, .about = "Accepted; a schema is always enforced."},
    {.name = "lenient", .type = kBool, .about = "Keywords that cannot be enforced are listed in the answer, not refused."},
};
constexpr FieldSpec kFormat[] = {
    {.name = "type", .type = kString,
     .about = "text, json_object, json_schema, regex, grammar, structural_tag.", .max = 64, .required = true},
    {.name = "json_schema", .type = kObject, .about = "Of json_schema: the schema and its name.", .members = kSchemaRows},
    {.name = "name", .type = kString, .about = "For people.", .max = 256},
    {.name = "description", .type = kString, .about = "For people."},
    {.name = "schema", .about = "Of json_schema and json_object: the schema itself."},
    {.name = "strict", .type = kBool, .about = "Accepted; a schema is always enforced."},
    {.name = "lenient", .type = kBool, .about = "Keywords that cannot be enforced are listed in the answer, not refused."},
    {.name = "pattern", .type = kString, .about = "Of regex: the whole content.", .max = double{kMaxTextBytes}},
    {.name = "grammar", .type = kString, .about = "Of grammar: GBNF with a rule root.", .max = double{kMaxTextBytes}},
    {.name = "format", .type = kObject, .about = "Of structural_tag."},
    {.name = "structures", .type = kArray, .about = "Of structural_tag, the older form.", .max = 1024},
    {.name = "triggers", .type = kArray, .about = "Of structural_tag, the older form.", .max = 1024},
};
constexpr FieldSpec kStructured[] = {
    {.name = "json", .about = "A JSON Schema, or its JSON text."},
    {.name = "json_object", .type = kBool, .about = "Any JSON object."},
    {.name = "regex", .type = kString, .about = "The whole content.", .max = double{kMaxTextBytes}},
    {.name = "choice", .type = kArray, .about = "One of these strings.", .max = kMaxChoicesListed},
    {.name = "grammar", .type = kString, .about = "GBNF with a rule root.", .max = double{kMaxTextBytes}},
    {.name = "structural_tag", .about = "A structural tag, or its JSON text."},
    {.name = "lenient", .type = kBool, .about = "Keywords that cannot be enforced are listed in the answer, not refused."},
    {.name = "disable_any_whitespace", .type = kBool, .about = "Compact JSON."},
    {.name = "disable_additional_properties", .about = "Not supported: say additionalProperties.", .effect = kRefused},
    {.name = "whitespace_pattern", .about = "Not supported: white space is bounded.", .effect = kRefused},
    {.name = "backend", .about = "Ignored.", .effect = kIgnored},
};
constexpr FieldSpec kShared[] = {
    {.name = "response_format", .type = kObject, .about = "What the content must be.",
     .apis = api_bit(Api::kChat) | api_bit(Api::kCompletions), .members = kFormat},
    {.name = "structured_outputs", .type = kObject, .about = "The same, as vLLM has it.", .members = kStructured},
    {.name = "guided_json", .about = "A JSON Schema, or its JSON text."},
    {.name = "guided_regex", .type = kString, .about = "The whole content.", .max = double{kMaxTextBytes}},
    {.name = "guided_choice", .type = kArray, .about = "One of these strings.", .max = kMaxChoicesListed},
    {.name = "guided_grammar", .type = kString, .about = "GBNF with a rule root.", .max = double{kMaxTextBytes}},
    {.name = "guided_whitespace_pattern", .about = "Not supported: white space is bounded.", .effect = kRefused},
    {.name = "guided_decoding_backend", .about = "Ignored.", .effect = kIgnored},
    {.name = "json_schema", .about = "A JSON Schema, or its JSON text, as SGLang and llama.cpp have it."},
    {.name = "regex", .type = kString, .about = "The whole content, as SGLang has it.", .max = double{kMaxTextBytes}},
    {.name = "ebnf", .type = kString, .about = "A grammar, as SGLang has it.", .max = double{kMaxTextBytes}},
    {.name = "grammar", .type = kString, .about = "GBNF, as llama.cpp has it.", .max = double{kMaxTextBytes}},
    {.name = "lenient", .type = kBool,
     .about = "Schemas, those of strict tools too: keywords that cannot be enforced are listed in the answer, not refused."},
};

void two_at_once(Fields& fields, const ConstraintSpec& one, const ConstraintSpec& other) {
  fields.fail_at(ErrorCode::kInvalidValue, one.field + " and " + other.field + " exclude each other: give one constraint",
                 other.field);
}

class Reader {
 public:
  Reader(Fields& fields, ConstraintSpec& out) : fields_(fields), out_(out) {}

  /// False: something is there already, or what was read is wrong.
  bool take(ConstraintKind kind, std::string_view name) {
    if (!fields_.ok()) return false;
    ConstraintSpec found{.kind = kind, .field = fields_.path_of(name)};
    if (out_) {
      two_at_once(fields_, out_, found);
      return false;
    }
    out_.kind = kind;
    out_.field = std::move(found.field);
    return true;
  }

  /// A JSON value, or the text of one.
  void json(ConstraintKind kind, std::string_view name) {
    const Json* value = fields_.get(name);
    if (!value || !take(kind, name)) return;
    if (!value->is_string()) {
      out_.value = *value;
    } else if (value->as_string().size() > kMaxTextBytes) {
      return fail("is longer than " + std::to_string(std::size_t{kMaxTextBytes}) + " bytes", name);
    } else if (auto parsed = parse_json(value->as_string())) {
      out_.value = std::move(*parsed);
    } else {
      return fail("is no JSON: " + parsed.error().message, name);
    }
    const bool schema = out_.value.is_object() || (kind == ConstraintKind::kSchema && out_.value.is_bool());
    if (!schema) fail("must be an object, or the JSON text of one", name);
  }
  void text(ConstraintKind kind, std::string_view name) {
    auto value = fields_.string(name);
    if (value && take(kind, name)) out_.text = std::move(*value);
  }
  void choice(std::string_view name) {
    const Json* list = fields_.array(name);
    if (!list || !take(ConstraintKind::kChoice, name)) return;
    std::size_t bytes = 0;
    for (const Json& item : list->as_array()) {
      if (!item.is_string() || item.as_string().empty())
        return fail("must be strings that are not empty", name);
      bytes += item.as_string().size();
      if (bytes > kMaxChoiceBytes)
        return fail("may have at most " + std::to_string(kMaxChoiceBytes) + " bytes together", name);
      out_.choices.push_back(item.as_string());
    }
    if (out_.choices.empty()) fail("has no choices", name);
  }
  void object(std::string_view name) {
    if (fields_.boolean(name).value_or(false)) take(ConstraintKind::kJsonObject, name);
  }
  /// That the value of `name` `is` wrong.
  void fail(const std::string& is, std::string_view name) {
    fields_.fail(ErrorCode::kInvalidValue, fields_.path_of(name) + " " + is, name);
  }
  void options() {
    if (fields_.knows("lenient") && fields_.boolean("lenient").value_or(false)) out_.lenient = true;
    if (fields_.knows("disable_any_whitespace") && fields_.boolean("disable_any_whitespace").value_or(false))
      out_.compact = true;
  }

 private:
  Fields& fields_;
  ConstraintSpec& out_;
};

void read_structured(Fields& fields, ConstraintSpec& out) {
  auto inner = fields.nested("structured_outputs");
  if (!inner) return;
  Reader reader(*inner, out);
  reader.json(ConstraintKind::kSchema, "json");
  reader.object("json_object");
  reader.text(ConstraintKind::kRegex, "regex");
  reader.choice("choice");
  reader.text(ConstraintKind::kGrammar, "grammar");
  reader.json(ConstraintKind::kTags, "structural_tag");
  reader.options();
  inner->refuse_unsupported();
  fields.absorb(*inner);
}

/// {"type": "json_schema", "json_schema": {"schema": ...}}, or with the schema flat. `wrapped`: the former is usual here.
void read_schema_format(Fields& format, ConstraintSpec& out, bool required, bool wrapped) {
  if (auto inner = format.nested("json_schema")) {
    Reader reader(*inner, out);
    reader.json(ConstraintKind::kSchema, "schema");
    reader.options();
    for (const char* name : {"name", "description"}) inner->string(name);
    inner->boolean("strict");
    format.absorb(*inner);
  }
  Reader(format, out).json(ConstraintKind::kSchema, "schema");
  if (!required || !format.ok() || out) return;
  const std::string_view missing = !wrapped ? "schema" : format.get("json_schema") ? "json_schema.schema" : "json_schema";
  format.fail(ErrorCode::kMissingParameter, format.path_of(missing) + " is missing", missing);
}

void read_tags(Fields& format, const std::string& field, ConstraintSpec& out) {
  if (!Reader(format, out).take(ConstraintKind::kTags, "type")) return;
  out.value = Json::object();
  for (const char* name : {"format", "structures", "triggers"}) {
    if (const Json* value = format.get(name)) out.value.set(name, *value);
  }
  if (!out.value.find("format") && !out.value.find("structures"))
    format.fail(ErrorCode::kMissingParameter, field + ".format is missing", "format");
}

/// A format whose members are all its own.
void read_own_format(Fields& format, const std::string& field, ConstraintSpec& out) {
  const auto type = format.string("type");
  if (!format.ok()) return;
  if (!type) return format.fail(ErrorCode::kMissingParameter, field + ".type is missing", "type");
  Reader reader(format, out);
  for (const char* name : {"name", "description"}) format.string(name);
  format.boolean("strict");
  if (*type == "json_schema" || *type == "json_object") {
    read_schema_format(format, out, *type == "json_schema", field == "response_format");
    if (*type == "json_object" && format.ok() && !out) reader.take(ConstraintKind::kJsonObject, "type");
  } else if (*type == "regex" || *type == "grammar") {
    const char* member = *type == "regex" ? "pattern" : "grammar";
    reader.text(*type == "regex" ? ConstraintKind::kRegex : ConstraintKind::kGrammar, member);
    if (format.ok() && !out)
      format.fail(ErrorCode::kMissingParameter, field + "." + member + " is missing", member);
  } else if (*type == "structural_tag") {
    read_tags(format, field, out);
  } else if (*type != "text") {
    return format.fail(ErrorCode::kInvalidValue,
                       field + ".type must be text, json_object, json_schema, regex, grammar or structural_tag", "type");
  }
  reader.options();
  if (format.ok() && (out.kind == ConstraintKind::kJsonObject || out.kind == ConstraintKind::kTags)) out.field = field;
}

}  // namespace

const std::span<const FieldSpec> kConstraintRows(kShared);
const std::span<const FieldSpec> kFormatRows(kFormat);

void read_format(Fields& format, const std::string& field, ConstraintSpec& out) {
  ConstraintSpec own;
  read_own_format(format, field, own);
  if (!format.ok() || !own) return;
  if (out) return two_at_once(format, out, own);
  own.lenient = own.lenient || out.lenient;
  own.lenient_tools = out.lenient_tools;
  own.compact = out.compact;
  out = std::move(own);
}

void read_constraint(Fields& fields, ConstraintSpec& out) {
  if (fields.knows("response_format")) {
    if (auto format = fields.nested("response_format")) {
      read_format(*format, "response_format", out);
      fields.absorb(*format);
    }
  }
  read_structured(fields, out);
  Reader reader(fields, out);
  for (const char* name : {"guided_json", "json_schema"}) reader.json(ConstraintKind::kSchema, name);
  for (const char* name : {"guided_regex", "regex"}) reader.text(ConstraintKind::kRegex, name);
  reader.choice("guided_choice");
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) reader.text(ConstraintKind::kGrammar, name);
  if (fields.boolean("lenient").value_or(false)) out.lenient = out.lenient_tools = true;
}

}  // namespace barg::server
