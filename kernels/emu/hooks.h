// Every load and store of kernels that were compiled with the compiler's thread-sanitizer instrumentation, but linked
// with these hooks instead of its library.
#pragma once

#include <string>

#include "emu/machine.h"

namespace barg::emu {

/// Called by the hooks.
void hooked_access(Access what, const void* address, std::size_t bytes, const Site& where);

/// "file:line" of an address of code, by addr2line; "?" without it.
std::string line_of(const void* pc);

}  // namespace barg::emu
