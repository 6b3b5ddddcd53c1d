// The calls that -fsanitize=thread puts before loads and stores, and what is known of them: whose they are is found by
// the address of the call, turned into a line when somebody asks (addr2line).
#include "emu/hooks.h"

#include <cstring>

#include "emu/emu.h"

namespace barg::emu {

bool hooked() { return true; }

}  // namespace barg::emu

using barg::emu::Access;

namespace {
void seen(Access what, const void* p, std::size_t bytes, const void* pc) {
  barg::emu::hooked_access(what, p, bytes, barg::emu::Site(pc));
}
}  // namespace

#define BARG_CALLER __builtin_return_address(0)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define BARG_HOOK(n)                                                        \
  void __tsan_read##n(void* p) { seen(Access::kRead, p, n, BARG_CALLER); }               \
  void __tsan_write##n(void* p) { seen(Access::kWrite, p, n, BARG_CALLER); }             \
  void __tsan_unaligned_read##n(void* p) { seen(Access::kRead, p, n, BARG_CALLER); }     \
  void __tsan_unaligned_write##n(void* p) { seen(Access::kWrite, p, n, BARG_CALLER); }   \
  void __tsan_volatile_read##n(void* p) { seen(Access::kRead, p, n, BARG_CALLER); }      \
  void __tsan_volatile_write##n(void* p) { seen(Access::kWrite, p, n, BARG_CALLER); }
BARG_HOOK(1)
BARG_HOOK(2)
BARG_HOOK(4)
BARG_HOOK(8)
BARG_HOOK(16)
#undef BARG_HOOK
void __tsan_read_range(void* p, std::size_t n) { seen(Access::kRead, p, n, BARG_CALLER); }
void __tsan_write_range(void* p, std::size_t n) { seen(Access::kWrite, p, n, BARG_CALLER); }
void* __tsan_memset(void* p, int c, std::size_t n) {
  seen(Access::kWrite, p, n, BARG_CALLER);
  return std::memset(p, c, n);
}
void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
  seen(Access::kRead, from, n, BARG_CALLER);
  seen(Access::kWrite, to, n, BARG_CALLER);
  return std::memcpy(to, from, n);
}
// Reference counts and guards of statics of the host's code that is compiled beside the kernels.
std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* p, std::uint32_t v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
}
