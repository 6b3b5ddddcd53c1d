#include "emu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the emulated device switches stacks on x86-64 and AArch64 only"
#endif

namespace barg::emu {

// What a called function must preserve is pushed, the stack pointers are exchanged, the same is popped.
extern "C" void barg_emu_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl barg_emu_switch
.hidden barg_emu_switch
.type barg_emu_switch,@function
barg_emu_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size barg_emu_switch,.-barg_emu_switch
)");
constexpr std::size_t kSaved = 6;  ///< registers below the return address
#else
asm(R"(
.text
.globl barg_emu_switch
.hidden barg_emu_switch
.type barg_emu_switch,%function
barg_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp d8, d9, [sp, #80]
  stp d10, d11, [sp, #96]
  stp d12, d13, [sp, #112]
  stp d14, d15, [sp, #128]
  stp x29, x30, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp d8, d9, [sp, #80]
  ldp d10, d11, [sp, #96]
  ldp d12, d13, [sp, #112]
  ldp d14, d15, [sp, #128]
  ldp x29, x30, [sp, #144]
  add sp, sp, #160
  ret
.size barg_emu_switch,.-barg_emu_switch
)");
#endif

void switch_context(Context& from, Context& to) { barg_emu_switch(&from.stack_pointer, to.stack_pointer); }

namespace {
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kStride = Stacks::kBytes + kGuard;
}  // namespace

Stacks::Stacks() {
  void* p = ::mmap(nullptr, kMost * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::abort();
  base_ = static_cast<std::byte*>(p);
  for (std::size_t i = 0; i < kMost; ++i) ::mprotect(base_ + i * kStride, kGuard, PROT_NONE);
}

Stacks::~Stacks() { ::munmap(base_, kMost * kStride); }

bool Stacks::contains(const void* p) const {
  return p >= base_ && p < base_ + kMost * kStride;
}

Context Stacks::prepare(std::size_t i, void (*entry)()) {
  std::byte* const top = base_ + (i + 1) * kStride;
#if defined(__x86_64__)
  // entry finds the stack as a call leaves it: 8 below a multiple of 16, a return address of zero on it.
  auto* slots = reinterpret_cast<std::uintptr_t*>(top - 16);
  slots[1] = 0;
  slots[0] = reinterpret_cast<std::uintptr_t>(entry);
  for (std::size_t k = 1; k <= kSaved; ++k) slots[-static_cast<std::ptrdiff_t>(k)] = 0;
  return {slots - kSaved};
#else
  auto* slots = reinterpret_cast<std::uintptr_t*>(top - 160);
  for (std::size_t k = 0; k < 20; ++k) slots[k] = 0;
  slots[19] = reinterpret_cast<std::uintptr_t>(entry);
  return {slots};
#endif
}

}  // namespace barg::emu
