// Every load and store of kernels that were compiled with the compiler's thread-sanitizer instrumentation, but linked
// with these hooks instead of its library.
#pragma once

#include <string>
#include <vector>

#include "emu/machine.h"

namespace barg::emu {

/// Called by the hooks.
void hooked_access(Access what, const void* address, std::size_t bytes, const Site& where);

/// "file:line" of addresses of this program's code, by one addr2line, which takes its time; "?" without it.
std::vector<std::string> lines_of(const std::vector<const void*>& pcs);

}  // namespace barg::emu
