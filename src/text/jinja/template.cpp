#include "text/jinja/template.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace barg::text::jinja {

namespace {

std::size_t json_bytes(const Json& v) {
  std::size_t n = sizeof(Value);
  if (v.is_string()) n += v.as_string().size();
  if (v.is_array()) {
    for (const Json& item : v.as_array()) n += json_bytes(item);
  }
  if (v.is_object()) {
    for (const auto& [k, item] : v.as_object()) n += k.size() + json_bytes(item);
  }
  return n;
}

class FromJson {
 public:
  FromJson(Runtime& rt, bool trusted) : rt_(rt), trusted_(trusted) {}

  Value convert(const Json& v) {
    switch (v.type()) {
      case Json::Type::kNull:
        return Value();
      case Json::Type::kBool:
        return Value::boolean(v.as_bool());
      case Json::Type::kInt:
        return Value::integer(v.as_int());
      case Json::Type::kUint:
        return Value::integer(static_cast<Int>(v.as_uint()));
      case Json::Type::kDouble:
        return Value::real(v.as_double());
      case Json::Type::kString:
        return text(v.as_string());
      case Json::Type::kArray: {
        std::vector<Value> items;
        items.reserve(v.as_array().size());
        for (const Json& item : v.as_array()) items.push_back(convert(item));
        return rt_.list(std::move(items));
      }
      case Json::Type::kObject: {
        Dict dict;
        for (const auto& [k, item] : v.as_object()) dict.set(text(k), convert(item));
        return rt_.dict(std::move(dict));
      }
    }
    return Value();
  }

 private:
  Value text(const std::string& s) {
    std::string valid = is_valid_utf8(s) ? s : repair_utf8(s);
    Marks marks;
    if (!trusted_ && !valid.empty()) marks.emplace_back(0, valid.size());
    return rt_.string(std::move(valid), std::move(marks));
  }

  Runtime& rt_;
  bool trusted_;
};

// Deep JSON would recurse: the walk over it is bounded before it starts.
bool deeper_than(const Json& v, int limit) {
  if (limit < 0) return true;
  const auto deep = [&](const Json& child) { return deeper_than(child, limit - 1); };
  if (v.is_array()) return std::any_of(v.as_array().begin(), v.as_array().end(), deep);
  if (v.is_object()) {
    return std::any_of(v.as_object().begin(), v.as_object().end(),
                       [&](const auto& m) { return deep(m.second); });
  }
  return false;
}

std::vector<Value> bind_names(Runtime& rt, const TemplateAst& ast, const std::vector<Variable>& variables) {
  std::vector<Value> out(ast.names.size(), Value::missing());
  for (std::size_t i = 0; i < ast.names.size(); ++i) {
    const auto given = std::find_if(variables.begin(), variables.end(),
                                    [&](const Variable& v) { return v.name == ast.names[i]; });
    if (given != variables.end()) {
      out[i] = FromJson(rt, given->trusted).convert(*given->value);
      continue;
    }
    for (const FunctionRow& row : functions()) {
      if (row.name != ast.names[i]) continue;
      auto f = std::make_shared<Function>();
      f->row = &row;
      out[i] = Value(Kind::kFunction, std::move(f));
    }
  }
  return out;
}

}  // namespace

Template::Template(std::unique_ptr<const TemplateAst> ast, const Limits& limits)
    : ast_(std::move(ast)), limits_(limits) {}
Template::~Template() = default;

Result<std::shared_ptr<const Template>> Template::parse(std::string_view source, const Limits& limits) {
  if (!is_valid_utf8(source)) return fail(ErrorCode::kBadFile, "the template is not valid UTF-8");
  try {
    return std::shared_ptr<const Template>(new Template(parse_template(source, limits), limits));
  } catch (const RenderError& e) {
    return fail(ErrorCode::kBadFile, "the template does not parse: " + e.message);
  }
}

Result<MarkedString> Template::render(const std::vector<Variable>& variables,
                                      const RenderOptions& options) const {
  std::size_t input = 0;
  for (const Variable& v : variables) {
    if (deeper_than(*v.value, limits_.call_depth - 1)) {
      return fail(ErrorCode::kInvalidValue, "'" + v.name + "' is nested too deeply");
    }
    input += json_bytes(*v.value);
  }
  try {
    Runtime rt(limits_, options, input);
    return Interpreter(rt, *ast_, bind_names(rt, *ast_, variables)).run();
  } catch (const RenderError& e) {
    return fail(ErrorCode::kInvalidValue, e.message);
  }
}

}  // namespace barg::text::jinja
