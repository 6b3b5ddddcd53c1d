// Expressions.
#include "text/jinja/interpreter.h"
#include "text/jinja/pystr.h"

namespace barg::text::jinja {

namespace {

Binary binary_op(ExprKind kind) {
  switch (kind) {
    case ExprKind::kAdd:
      return Binary::kAdd;
    case ExprKind::kSub:
      return Binary::kSub;
    case ExprKind::kMul:
      return Binary::kMul;
    case ExprKind::kDiv:
      return Binary::kDiv;
    case ExprKind::kFloorDiv:
      return Binary::kFloorDiv;
    case ExprKind::kMod:
      return Binary::kMod;
    default:
      return Binary::kPow;
  }
}

}  // namespace

Value Interpreter::eval(const Expr& e) {
  rt_.step();
  if (e.kind == ExprKind::kConst) return e.value;
  if (e.kind == ExprKind::kName) return eval_name(e.id);
  const Deeper deeper(*this);
  switch (e.kind) {
    case ExprKind::kAttribute:
      return eval_attribute(e);
    case ExprKind::kItem:
      return eval_item(e);
    case ExprKind::kCall:
      return eval_call(e, nullptr);
    case ExprKind::kFilter:
      return eval_filter(e, nullptr);
    case ExprKind::kTest: {
      const Value input = eval(*e.a);
      const auto* row = static_cast<const TestRow*>(e.builtin);
      return Value::boolean(apply_test(rt_, row, e.name, input, eval_arguments(*e.call)));
    }
    case ExprKind::kTuple:
      return rt_.tuple(eval_items(e.items));
    case ExprKind::kList:
      return rt_.list(eval_items(e.items));
    case ExprKind::kDict:
      return eval_dict(e);
    case ExprKind::kConcat:
      return eval_concat(e);
    case ExprKind::kCondition:
      if (truthy(eval(*e.a))) return eval(*e.b);
      return e.c ? eval(*e.c)
                 : rt_.undefined("the inline if-expression evaluated to false and has no else part");
    case ExprKind::kAnd: {
      Value a = eval(*e.a);
      return truthy(a) ? eval(*e.b) : a;
    }
    case ExprKind::kOr: {
      Value a = eval(*e.a);
      return truthy(a) ? a : eval(*e.b);
    }
    case ExprKind::kNot:
      return Value::boolean(!truthy(eval(*e.a)));
    case ExprKind::kNegate:
      return negate(eval(*e.a));
    case ExprKind::kPlus:
      return unary_plus(eval(*e.a));
    case ExprKind::kCompare:
      return eval_compare(e);
    case ExprKind::kSlice:
      type_error("a slice is not a value");
    case ExprKind::kNamespaceRef:
      type_error("a namespace target is not a value");
    default: {
      const Value a = eval(*e.a);
      return binary(rt_, binary_op(e.kind), a, eval(*e.b));
    }
  }
}

Value Interpreter::eval_name(NameId id) {
  for (Scope* s = scope_.get(); s != nullptr; s = s->parent.get()) {
    const Value* v = s->find_here(id);
    if (v == nullptr) continue;
    return v->is(Kind::kMissing) ? rt_.undefined("'" + ast_.names[id] + "' is undefined") : *v;
  }
  if (!variables_[id].is(Kind::kMissing)) return variables_[id];
  return rt_.undefined("'" + ast_.names[id] + "' is undefined");
}

Value Interpreter::eval_attribute(const Expr& e) {
  const Value object = eval(*e.a);
  if (object.is(Kind::kLoop)) return loop_attribute(object, e.name);
  if (object.is(Kind::kMacro)) return macro_attribute(object, e.name);
  return get_attribute(rt_, object, e.value);
}

Value Interpreter::eval_item(const Expr& e) {
  const Value object = eval(*e.a);
  if (e.b->kind == ExprKind::kSlice) {
    Value parts[3];
    for (std::size_t i = 0; i < 3; ++i) {
      if (e.b->items[i]) parts[i] = eval(*e.b->items[i]);
    }
    return slice(rt_, object, parts[0], parts[1], parts[2]);
  }
  const Value key = eval(*e.b);
  if (object.is(Kind::kLoop) && key.is_string()) return loop_attribute(object, key.text());
  if (object.is(Kind::kMacro) && key.is_string()) return macro_attribute(object, key.text());
  return get_item(rt_, object, key);
}

Value Interpreter::eval_concat(const Expr& e) {
  TextBuilder out(rt_);
  for (const ExprPtr& item : e.items) append_str(rt_, out, eval(*item));
  return out.finish();
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.a);
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.items[i]);
    if (!compare(e.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Interpreter::compare(Cmp op, const Value& a, const Value& b) {
  switch (op) {
    case Cmp::kEq:
      return equals(rt_, a, b);
    case Cmp::kNe:
      return !equals(rt_, a, b);
    case Cmp::kLt:
      return less(rt_, a, b, "<");
    case Cmp::kGt:
      return less(rt_, b, a, ">");
    case Cmp::kLe:
      return less(rt_, a, b, "<=") || equals(rt_, a, b);
    case Cmp::kGe:
      return less(rt_, b, a, ">=") || equals(rt_, a, b);
    case Cmp::kIn:
      return contains(rt_, b, a);
    case Cmp::kNotIn:
      return !contains(rt_, b, a);
  }
  return false;
}

std::vector<Value> Interpreter::eval_items(const std::vector<ExprPtr>& items) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const ExprPtr& e : items) out.push_back(eval(*e));
  return out;
}

Value Interpreter::eval_dict(const Expr& e) {
  Dict dict;
  for (std::size_t i = 0; i + 1 < e.items.size(); i += 2) {
    Value key = eval(*e.items[i]);
    if (!is_hashable(key)) type_error("unhashable type: '" + std::string(type_name(key)) + "'");
    rt_.step(1 + dict.items.size() / 16);
    dict.set(std::move(key), eval(*e.items[i + 1]));
  }
  return rt_.dict(std::move(dict));
}

CallArgs Interpreter::eval_arguments(const Arguments& args) {
  CallArgs out;
  out.positional = eval_items(args.positional);
  for (const auto& [name, e] : args.named) out.named.emplace_back(name, eval(*e));
  if (args.star) {
    for (Value& v : iterate(rt_, eval(*args.star))) out.positional.push_back(std::move(v));
  }
  if (args.star_star) {
    const Value more = eval(*args.star_star);
    if (!more.is_dict())
      type_error("argument after ** must be a mapping, not " + std::string(type_name(more)));
    for (const auto& [k, v] : more.dict().items) {
      if (!k.is_string()) type_error("keywords must be strings");
      out.named.emplace_back(k.text(), v);
    }
  }
  for (std::size_t i = 0; i < out.named.size(); ++i) {
    rt_.step(1 + i / 16);
    for (std::size_t j = 0; j < i; ++j) {
      if (out.named[i].first == out.named[j].first)
        type_error("got multiple values for keyword argument '" + out.named[i].first + "'");
    }
  }
  return out;
}

Value Interpreter::eval_filter(const Expr& e, const Value* input) {
  const Value value = e.a ? (e.a->kind == ExprKind::kFilter ? eval_filter(*e.a, input) : eval(*e.a)) : *input;
  return apply_filter(rt_, static_cast<const FilterRow*>(e.builtin), e.name, value, eval_arguments(*e.call));
}

}  // namespace barg::text::jinja
