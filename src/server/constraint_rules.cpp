#include "server/constraint_rules.h"

#include <array>
#include <optional>
#include <utility>

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr double kMaxTextBytes = 1 << 20;
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
    {.name = "pattern", .type = kString, .about = "Of regex: the whole content.", .max = kMaxTextBytes},
    {.name = "grammar", .type = kString, .about = "Of grammar: GBNF with a rule root.", .max = kMaxTextBytes},
    {.name = "format", .type = kObject, .about = "Of structural_tag."},
    {.name = "structures", .type = kArray, .about = "Of structural_tag, the older form.", .max = 1024},
    {.name = "triggers", .type = kArray, .about = "Of structural_tag, the older form.", .max = 1024},
};
constexpr FieldSpec kStructured[] = {
    {.name = "json", .about = "A JSON Schema, or its JSON text."},
    {.name = "json_object", .type = kBool, .about = "Any JSON object."},
    {.name = "regex", .type = kString, .about = "The whole content.", .max = kMaxTextBytes},
    {.name = "choice", .type = kArray, .about = "One of these strings.", .max = kMaxChoicesListed},
    {.name = "grammar", .type = kString, .about = "GBNF with a rule root.", .max = kMaxTextBytes},
    {.name = "structural_tag", .about = "A structural tag, or its JSON text."},
    {.name = "lenient", .type = kBool, .about = "Keywords that cannot be enforced are listed in the answer, not refused."},
    {.name = "disable_any_whitespace", .type = kBool, .about = "Compact JSON."},
    {.name = "disable_additional_properties", .about = "Not supported: say additionalProperties.", .effect = kRefused},
    {.name = "whitespace_pattern", .about = "Not supported: white space is bounded.", .effect = kRefused},
    {.name = "backend", .about = "Ignored.", .effect = kIgnored},
};
constexpr FieldSpec kShared[] = {
    {.name = "response_format", .type = kObject, .about = "What the content must be.", .members = kFormat},
    {.name = "structured_outputs", .type = kObject, .about = "The same, as vLLM has it.", .members = kStructured},
    {.name = "guided_json", .about = "A JSON Schema, or its JSON text."},
    {.name = "guided_regex", .type = kString, .about = "The whole content.", .max = kMaxTextBytes},
    {.name = "guided_choice", .type = kArray, .about = "One of these strings.", .max = kMaxChoicesListed},
    {.name = "guided_grammar", .type = kString, .about = "GBNF with a rule root.", .max = kMaxTextBytes},
    {.name = "guided_whitespace_pattern", .about = "Not supported: white space is bounded.", .effect = kRefused},
    {.name = "guided_decoding_backend", .about = "Ignored.", .effect = kIgnored},
    {.name = "json_schema", .about = "A JSON Schema, or its JSON text, as SGLang and llama.cpp have it."},
    {.name = "regex", .type = kString, .about = "The whole content, as SGLang has it.", .max = kMaxTextBytes},
    {.name = "ebnf", .type = kString, .about = "A grammar, as SGLang has it.", .max = kMaxTextBytes},
    {.name = "grammar", .type = kString, .about = "GBNF, as llama.cpp has it.", .max = kMaxTextBytes},
};

class Reader {
 public:
  Reader(Fields& fields, ConstraintSpec& out) : fields_(fields), out_(out) {}

  /// False: something is there already, or what was read is wrong.
  bool take(ConstraintKind kind, std::string_view name) {
    if (!fields_.ok()) return false;
    const std::string field = fields_.path_of(name);
    if (out_) {
      fields_.fail(ErrorCode::kInvalidValue, out_.field + " and " + field + " exclude each other: give one constraint", name);
      return false;
    }
    out_.kind = kind;
    out_.field = field;
    return true;
  }

  /// A JSON value, or the text of one.
  void json(ConstraintKind kind, std::string_view name) {
    const Json* value = fields_.get(name);
    if (!value || !take(kind, name)) return;
    if (!value->is_string()) {
      out_.value = *value;
    } else if (auto parsed = parse_json(value->as_string())) {
      out_.value = std::move(*parsed);
    } else {
      return fields_.fail(ErrorCode::kInvalidValue, std::string(name) + " is no JSON: " + parsed.error().message, name);
    }
    const bool schema = out_.value.is_object() || (kind == ConstraintKind::kSchema && out_.value.is_bool());
    if (!schema) fields_.fail(ErrorCode::kInvalidValue, std::string(name) + " must be an object, or the JSON text of one", name);
  }
  void text(ConstraintKind kind, std::string_view name) {
    auto value = fields_.string(name);
    if (value && take(kind, name)) out_.text = std::move(*value);
  }
  void choice(std::string_view name) {
    const Json* list = fields_.array(name);
    if (!list || !take(ConstraintKind::kChoice, name)) return;
    for (const Json& item : list->as_array()) {
      if (!item.is_string() || item.as_string().empty())
        return fields_.fail(ErrorCode::kInvalidValue, std::string(name) + " must be strings that are not empty", name);
      out_.choices.push_back(item.as_string());
    }
    if (out_.choices.empty()) fields_.fail(ErrorCode::kInvalidValue, std::string(name) + " has no choices", name);
  }
  void object(std::string_view name) {
    if (fields_.boolean(name).value_or(false)) take(ConstraintKind::kJsonObject, name);
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

/// {"type": "json_schema", "json_schema": {"schema": ...}}, or with the schema flat.
void read_schema_format(Fields& format, ConstraintSpec& out, bool required) {
  if (auto inner = format.nested("json_schema")) {
    Reader reader(*inner, out);
    reader.json(ConstraintKind::kSchema, "schema");
    reader.options();
    for (const char* name : {"name", "description"}) inner->string(name);
    inner->boolean("strict");
    format.absorb(*inner);
  }
  Reader(format, out).json(ConstraintKind::kSchema, "schema");
  if (required && format.ok() && !out)
    format.fail(ErrorCode::kMissingParameter, format.path_of("schema") + " is missing", "schema");
}

}  // namespace

const std::span<const FieldSpec> kConstraintRows(kShared);
const std::span<const FieldSpec> kFormatRows(kFormat);

void read_format(Fields& format, const std::string& field, ConstraintSpec& out) {
  const auto type = format.string("type");
  if (!format.ok()) return;
  if (!type) return format.fail(ErrorCode::kMissingParameter, field + ".type is missing", "type");
  Reader reader(format, out);
  for (const char* name : {"name", "description"}) format.string(name);
  format.boolean("strict");
  if (*type == "json_schema" || *type == "json_object") {
    read_schema_format(format, out, *type == "json_schema");
    if (*type == "json_object" && format.ok() && !out) reader.take(ConstraintKind::kJsonObject, "type");
  } else if (*type == "regex" || *type == "grammar") {
    const char* member = *type == "regex" ? "pattern" : "grammar";
    reader.text(*type == "regex" ? ConstraintKind::kRegex : ConstraintKind::kGrammar, member);
    if (format.ok() && !out)
      format.fail(ErrorCode::kMissingParameter, field + "." + member + " is missing", member);
  } else if (*type == "structural_tag") {
    if (!reader.take(ConstraintKind::kTags, "type")) return;
    out.value = Json::object();
    for (const char* name : {"format", "structures", "triggers"}) {
      if (const Json* value = format.get(name)) out.value.set(name, *value);
    }
    if (!out.value.find("format") && !out.value.find("structures"))
      return format.fail(ErrorCode::kMissingParameter, field + ".format is missing", "format");
  } else if (*type != "text") {
    return format.fail(ErrorCode::kInvalidValue,
                       field + ".type must be text, json_object, json_schema, regex, grammar or structural_tag", "type");
  }
  reader.options();
  if (out && format.ok()) out.field = field;
}

void read_constraint(Fields& fields, ConstraintSpec& out) {
  if (auto format = fields.nested("response_format")) {
    read_format(*format, "response_format", out);
    fields.absorb(*format);
  }
  read_structured(fields, out);
  Reader reader(fields, out);
  for (const char* name : {"guided_json", "json_schema"}) reader.json(ConstraintKind::kSchema, name);
  for (const char* name : {"guided_regex", "regex"}) reader.text(ConstraintKind::kRegex, name);
  reader.choice("guided_choice");
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) reader.text(ConstraintKind::kGrammar, name);
}

}  // namespace barg::server
