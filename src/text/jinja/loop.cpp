// Loops: where items come from, and the `loop` variable.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace barg::text::jinja {

std::string LoopObject::describe() const {
  const std::string total = length ? int_text(*length) : source.size ? int_text(*source.size) : "?";
  return "<LoopContext " + int_text(index0 + 1) + "/" + total + ">";
}

ItemSource Interpreter::open(const Value& iterable) {
  ItemSource source;
  if (iterable.is(Kind::kIterator)) {
    source.iterator = iterable.shared();
    return source;
  }
  if (!iterable.is_undefined()) {
    if (!is_iterable(iterable))
      type_error("'" + std::string(type_name(iterable)) + "' object is not iterable");
    source.items = iterate(rt_, iterable);
  }
  source.size = static_cast<Int>(source.items.size());
  return source;
}

bool Interpreter::passes(const Stmt& s, const Value& item, Value& bound) {
  // The filter runs in a scope of its own that knows the targets only; what it yields is the targets again,
  // so a list that was unpacked comes out as a tuple.
  const ScopePtr outer = scope_;
  scope_ = std::make_shared<Scope>();
  rt_.charge(sizeof(Scope));
  scope_->parent = outer;
  assign(*s.target, item, *scope_);
  const bool yes = truthy(eval(*s.test));
  if (yes) bound = s.target->kind == ExprKind::kTuple ? eval(*s.target) : item;
  scope_ = outer;
  return yes;
}

std::optional<Value> Interpreter::pull(LoopObject& loop) {
  const ScopePtr outer = scope_;
  while (true) {
    Value item;
    ItemSource& source = loop.source;
    if (source.iterator) {
      auto& it = static_cast<Iterator&>(*source.iterator);
      if (it.next == it.items.size()) {
        if (!it.error.empty()) raise(RenderError::Type::kTemplate, it.error);
        return std::nullopt;
      }
      item = it.items[it.next++];
    } else {
      if (source.next == source.items.size()) return std::nullopt;
      item = source.items[source.next++];
    }
    if (!loop.stmt->test || loop.filtered) return item;
    rt_.step();
    scope_ = loop.scope;
    Value bound;
    const bool yes = passes(*loop.stmt, item, bound);
    scope_ = outer;
    if (yes) return bound;
  }
}

const std::optional<Value>& Interpreter::peek(LoopObject& loop) {
  if (!loop.after) loop.after = pull(loop);
  return loop.after;
}

Int Interpreter::loop_length(LoopObject& loop) {
  if (loop.length) return *loop.length;
  if (loop.source.size) {
    loop.length = loop.source.size;
    return *loop.length;
  }
  // Without a len() the rest is taken eagerly.
  std::vector<Value> rest;
  while (std::optional<Value> item = pull(loop)) rest.push_back(std::move(*item));
  rt_.charge(rest.size() * sizeof(Value));
  loop.length = static_cast<Int>(rest.size()) + loop.index0 + 1 + (loop.after ? 1 : 0);
  // Already filtered: hand them out through an iterator that the filter does not see again.
  loop.source = ItemSource{};
  loop.source.items = std::move(rest);
  loop.filtered = true;
  return *loop.length;
}

Value Interpreter::loop_attribute(const Value& value, std::string_view name) {
  auto& loop = value.object<LoopObject>();
  const auto integer = [](Int i) { return Value::integer(i); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!peek(loop));
  if (name == "length") return integer(loop_length(loop));
  if (name == "revindex") return integer(loop_length(loop) - loop.index0);
  if (name == "revindex0") return integer(loop_length(loop) - loop.index0 - 1);
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 || !loop.before ? rt_.undefined("there is no previous item") : *loop.before;
  }
  if (name == "nextitem") return peek(loop) ? *peek(loop) : rt_.undefined("there is no next item");
  return get_attribute(rt_, value, make_literal(std::string(name)));
}

}  // namespace barg::text::jinja
