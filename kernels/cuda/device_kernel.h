// A kernel as both devices launch it: `kernel<norm_kernel<Half::kBF16>>()`. Its name is the symbol that nvcc gives the
// same instance: both compilers mangle by one ABI, and the host's is asked for its own. Any thread.
#pragma once

#include <string>
#include <typeinfo>

#include "cuda/device.h"

namespace barg::cuda {

template <auto Function>
struct KernelTag {};

/// The symbol of Function, a function of this namespace, from typeid(KernelTag<Function>).name().
std::string kernel_symbol(const std::string& tag);
/// Without parameters and namespaces, for people.
std::string kernel_text(const char* symbol);

template <class Params>
constexpr std::size_t params_bytes(void (*)(Params)) {
  return sizeof(Params);
}
template <auto Function, class Params>
void call_kernel(void (*)(Params), const void* params) {
  Function(*static_cast<const Params*>(params));
}

template <auto Function>
const Kernel& kernel() {
  static const std::string symbol = kernel_symbol(typeid(KernelTag<Function>).name());
  static const Kernel known{symbol.c_str(), params_bytes(Function),
                            [](const void* params) { call_kernel<Function>(Function, params); }};
  return known;
}

}  // namespace barg::cuda
