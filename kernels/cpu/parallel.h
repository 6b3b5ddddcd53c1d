// How the vector translation units hand work to the pool.
//
// Everything is in an unnamed namespace, a copy for each translation unit: these templates are compiled for
// the instruction set of whoever includes them, and the linker must not share the result. No standard
// container or algorithm is used for the same reason. Thread rule: called by the thread that owns the stream.
#pragma once

#include "cpu/pool.h"
#include "ops.h"

namespace barg::ops::cpu {
namespace {

template <class T>
inline T min_of(T a, T b) {
  return b < a ? b : a;
}

template <class F>
inline void parallel_for(Stream& s, int items, F&& f) {
  s.pool.run(
      items, [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f);
}

/// On a register of V, a trait of the instruction set.
template <class V, class R>
inline R activate_by(Activation activation, R x) {
  if (activation == Activation::kSilu) return V::silu(x);
  return activation == Activation::kGeluTanh ? V::gelu_tanh(x) : V::gelu_erf(x);
}

/// act(gate) * up.
template <class V, class R>
inline R gate_by(Activation activation, R gate, R up) {
  return V::mul(activate_by<V>(activation, gate), up);
}

/// For items that go by rows: see pool.h.
template <class F>
inline void parallel_for_rows(Stream& s, int items, F&& f) {
  s.pool.run(
      items, [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f, WorkerPool::Claims::kBothEnds);
}

/// f(begin, end) over ranges of [0, rows), all of about one size; one range, on this thread, when the work is
/// small.
template <class F>
inline void parallel_rows(Stream& s, std::int32_t rows, std::int32_t elements_per_row, F&& f) {
  constexpr std::int64_t kElementsPerItem = 8192;  // a microsecond or two: some times what a region costs
  const std::int64_t wanted = std::int64_t{rows} * elements_per_row / kElementsPerItem;
  const auto items = static_cast<std::int32_t>(min_of<std::int64_t>(rows, wanted));
  if (items <= 1) return f(0, rows);
  parallel_for_rows(s, items, [&](int i) {
    f(static_cast<std::int32_t>(std::int64_t{rows} * i / items),
      static_cast<std::int32_t>(std::int64_t{rows} * (i + 1) / items));
  });
}

}  // namespace
}  // namespace barg::ops::cpu
