// Linked where the kernels have no hooks.
#include "emu/emu.h"

namespace barg::emu {

bool hooked() { return false; }

}  // namespace barg::emu
