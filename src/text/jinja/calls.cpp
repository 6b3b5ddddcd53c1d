// Calls: macros, recursive loops, bound methods and global functions.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace barg::text::jinja {

std::string MacroObject::describe() const {
  return macro->name.empty() ? "<Macro anonymous>" : "<Macro '" + macro->name + "'>";
}

Value Interpreter::make_macro(const Macro& macro) {
  rt_.charge(sizeof(MacroObject));
  auto m = std::make_shared<MacroObject>();
  m->macro = &macro;
  m->scope = scope_;
  if (!scope_->captured) {
    rt_.charge(sizeof(Scope) + sizeof(ScopePtr));
    scope_->captured = true;
    captured_.push_back(scope_);
  }
  return Value(Kind::kMacro, std::move(m));
}

Value Interpreter::macro_attribute(const Value& value, std::string_view name) {
  const Macro& macro = *value.object<MacroObject>().macro;
  if (name == "name") return macro.name.empty() ? Value() : rt_.string(macro.name);
  if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
  if (name == "caller") return Value::boolean(macro.uses_caller);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& [id, parameter] : macro.parameters) names.push_back(rt_.string(parameter));
    return rt_.tuple(std::move(names));
  }
  return get_attribute(rt_, value, make_literal(std::string(name)));
}

Value Interpreter::eval_call(const Expr& e, const Value* caller) {
  const Value callee = eval(*e.a);
  CallArgs args = eval_arguments(*e.call);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return call(callee, std::move(args));
}

Value Interpreter::call(const Value& callee, CallArgs args) {
  struct Level {
    int& calls;
    ~Level() { --calls; }
  };
  if (++calls_ > rt_.limits().call_depth) {
    --calls_;
    raise(RenderError::Type::kLimit,
          "macros call each other more than " + std::to_string(rt_.limits().call_depth) + " deep");
  }
  const Level level{calls_};
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee.object<MacroObject>(), std::move(args));
    case Kind::kMethod: {
      const auto& method = callee.object<Method>();
      if (method.row->fn == nullptr) {
        raise(RenderError::Type::kTemplate,
              "the method '" + std::string(method.row->name) + "' is not supported");
      }
      Args bound(method.row->signature, std::move(args), method.row->name);
      return method.row->fn(rt_, method.self, bound);
    }
    case Kind::kFunction: {
      const FunctionRow& row = *callee.object<Function>().row;
      if (row.fn == nullptr) {
        raise(RenderError::Type::kTemplate, "the function '" + std::string(row.name) + "' is not supported");
      }
      Args bound(row.signature, std::move(args), row.name);
      return row.fn(rt_, bound);
    }
    case Kind::kJoiner: {
      auto& joiner = callee.object<Joiner>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return rt_.string("");
    }
    case Kind::kLoop: {
      const auto& loop = callee.object<LoopObject>();
      if (!loop.stmt->recursive) {
        type_error("The loop must have the 'recursive' marker to be called recursively.");
      }
      const Args bound("iterable", std::move(args), "loop");
      const ScopePtr outer = std::exchange(scope_, loop.scope);
      out_.push_back(std::make_unique<TextBuilder>(rt_));
      exec_for(*loop.stmt, bound[0], loop.depth0 + 1);
      scope_ = outer;
      const std::unique_ptr<TextBuilder> text = std::move(out_.back());
      out_.pop_back();
      return text->finish();
    }
    case Kind::kUndefined:
      require_defined(callee);
      break;
    default:
      break;
  }
  type_error("'" + std::string(type_name(callee)) + "' object is not callable");
}

void Interpreter::bind_macro(const Macro& macro, CallArgs& args, Scope& scope) {
  const std::string shown = "macro '" + macro.name + "'";
  const std::size_t count = macro.parameters.size();
  const auto take = [&](const std::string& name) {
    const auto it =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& n) { return n.first == name; });
    if (it == args.named.end()) return Value::missing();
    Value v = std::move(it->second);
    args.named.erase(it);
    return v;
  };
  bool found_caller =
      args.positional.size() >= count && std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                                     [](const auto& p) { return p.second == "caller"; });
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [id, name] = macro.parameters[i];
    if (i < args.positional.size()) {
      scope.set(id, args.positional[i]);
    } else {
      found_caller |= name == "caller";
      scope.set(id, take(name));
    }
  }
  if (macro.uses_caller && !found_caller) {
    Value caller = take("caller");
    if (caller.is(Kind::kMissing) || caller.is_none()) caller = rt_.undefined("No caller defined");
    scope.set(macro.caller, std::move(caller));
  }
  if (macro.uses_kwargs) {
    Dict rest;
    for (auto& [name, v] : args.named) rest.set(rt_.string(name), std::move(v));
    scope.set(macro.kwargs, rt_.dict(std::move(rest)));
  } else if (!args.named.empty()) {
    type_error(shown + " takes no keyword argument '" + args.named.front().first + "'");
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope.set(macro.varargs, rt_.tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    type_error(shown + " takes not more than " + std::to_string(count) + " argument(s)");
  }
}

Value Interpreter::call_macro(const MacroObject& object, CallArgs args) {
  const Macro& macro = *object.macro;
  const ScopePtr outer = std::exchange(scope_, object.scope);
  const ScopePtr inner = push_scope(macro.block);
  rt_.charge(macro.parameters.size() * sizeof(Value));
  bind_macro(macro, args, *inner);
  scope_ = inner;
  const std::size_t without_default = macro.parameters.size() - macro.defaults.size();
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [id, name] = macro.parameters[i];
    if (!inner->find_here(id)->is(Kind::kMissing)) continue;
    inner->set(id, i < without_default ? rt_.undefined("parameter '" + name + "' was not provided")
                                       : eval(*macro.defaults[i - without_default]));
  }
  out_.push_back(std::make_unique<TextBuilder>(rt_));
  exec(macro.block.body);
  const std::unique_ptr<TextBuilder> text = std::move(out_.back());
  out_.pop_back();
  scope_ = outer;
  return text->finish();
}

}  // namespace barg::text::jinja
