// Arithmetic as Python does it.
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"

namespace barg::text::jinja {

namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void unsupported(Binary op, const Value& a, const Value& b) {
  type_error("unsupported operand type(s) for " + std::string(kSymbols[static_cast<int>(op)]) + ": '" +
             std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

[[noreturn]] void too_large() { raise(RenderError::Type::kOverflow, "an integer is too large"); }
[[noreturn]] void by_zero(const char* what) { raise(RenderError::Type::kTemplate, what); }

Int floor_div(Int a, Int b) {
  if (b == 0) by_zero("integer division or modulo by zero");
  if (b == -1) {
    Int r = 0;
    if (__builtin_sub_overflow(static_cast<Int>(0), a, &r)) too_large();
    return r;
  }
  const Int q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

Int modulo(Int a, Int b) {
  if (b == 0) by_zero("integer division or modulo by zero");
  if (b == -1) return 0;
  const Int r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

double float_modulo(double a, double b) {
  if (b == 0) by_zero("float modulo");
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double float_floor_div(double a, double b) {
  if (b == 0) by_zero("float divmod()");
  const double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && ((b < 0) != (mod < 0))) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(div);
  if (div - floored > 0.5) floored += 1.0;
  return floored;
}

Value power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.as_int() >= 0) {
    Int result = 1, base = a.as_int(), e = b.as_int();
    while (e > 0) {
      if ((e & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
      e >>= 1;
      if (e > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return Value::integer(result);
  }
  const double x = a.as_float(), y = b.as_float();
  if (x == 0 && y < 0) by_zero("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
    raise(RenderError::Type::kTemplate, "complex numbers are not supported");
  }
  const double r = std::pow(x, y);
  if (std::isinf(r) && std::isfinite(x) && std::isfinite(y))
    raise(RenderError::Type::kOverflow, "Result too large");
  return Value::real(r);
}

Value numbers(Binary op, const Value& a, const Value& b) {
  const bool integers = a.is_integral() && b.is_integral();
  const Int i = integers ? a.as_int() : 0, j = integers ? b.as_int() : 0;
  const double x = a.as_float(), y = b.as_float();
  Int r = 0;
  switch (op) {
    case Binary::kAdd:
      if (!integers) return Value::real(x + y);
      if (__builtin_add_overflow(i, j, &r)) too_large();
      return Value::integer(r);
    case Binary::kSub:
      if (!integers) return Value::real(x - y);
      if (__builtin_sub_overflow(i, j, &r)) too_large();
      return Value::integer(r);
    case Binary::kMul:
      if (!integers) return Value::real(x * y);
      if (__builtin_mul_overflow(i, j, &r)) too_large();
      return Value::integer(r);
    case Binary::kDiv:
      if (y == 0) by_zero(integers ? "division by zero" : "float division by zero");
      return Value::real(x / y);
    case Binary::kFloorDiv:
      return integers ? Value::integer(floor_div(i, j)) : Value::real(float_floor_div(x, y));
    case Binary::kMod:
      return integers ? Value::integer(modulo(i, j)) : Value::real(float_modulo(x, y));
    case Binary::kPow:
      return power(a, b);
  }
  return Value();
}

Value repeat_list(Runtime& rt, const Value& list, Int count) {
  const auto& items = list.list().items;
  std::vector<Value> out;
  if (count > 0 && !items.empty()) {
    const auto most = static_cast<Int>(rt.limits().string_bytes / sizeof(Value) / items.size());
    if (count > most) raise(RenderError::Type::kLimit, "the template makes a list that is too long");
    const std::size_t total = items.size() * static_cast<std::size_t>(count);
    rt.step(total);
    rt.charge(total * sizeof(Value));
    out.reserve(total);
    for (Int k = 0; k < count; ++k) out.insert(out.end(), items.begin(), items.end());
  }
  return list.is(Kind::kList) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
}

Value repeat(Runtime& rt, const Value& v, Int count) {
  return v.is_string() ? pystr::repeat(rt, v.str(), count) : repeat_list(rt, v, count);
}

}  // namespace

Value binary(Runtime& rt, Binary op, const Value& a, const Value& b) {
  if (op == Binary::kMod && a.is_string()) return percent_format(rt, a.str(), b);
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == Binary::kAdd) {
    if (a.is_string() && b.is_string()) return pystr::concat(rt, a.str(), b.str());
    if (a.is_sequence() && a.kind() == b.kind()) {
      std::vector<Value> items;
      rt.charge((a.list().items.size() + b.list().items.size()) * sizeof(Value));
      rt.step(a.list().items.size() + b.list().items.size());
      items = a.list().items;
      items.insert(items.end(), b.list().items.begin(), b.list().items.end());
      return a.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
    }
    if (a.is_string() || a.is_sequence()) {
      const std::string type(a.is_string() ? "str" : type_name(a));
      type_error("can only concatenate " + type + " (not \"" + std::string(type_name(b)) + "\") to " + type);
    }
  }
  if (op == Binary::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(rt, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(rt, b, a.as_int());
    if (a.is_string() || a.is_sequence() || b.is_string() || b.is_sequence()) {
      const Value& other = a.is_string() || a.is_sequence() ? b : a;
      type_error("can't multiply sequence by non-int of type '" + std::string(type_name(other)) + "'");
    }
  }
  // dict views of keys are sets in Python; nothing uses them so.
  unsupported(op, a, b);
}

Value negate(const Value& v) {
  require_defined(v);
  if (v.is(Kind::kFloat)) return Value::real(-v.as_float());
  if (!v.is_integral()) type_error("bad operand type for unary -: '" + std::string(type_name(v)) + "'");
  Int r = 0;
  if (__builtin_sub_overflow(static_cast<Int>(0), v.as_int(), &r)) too_large();
  return Value::integer(r);
}

Value unary_plus(const Value& v) {
  require_defined(v);
  if (v.is(Kind::kFloat)) return v;
  if (!v.is_integral()) type_error("bad operand type for unary +: '" + std::string(type_name(v)) + "'");
  return Value::integer(v.as_int());
}

}  // namespace barg::text::jinja
