// What emulated kernels call: the twins of kernels/cuda/prelude.cuh, in terms of the machine that runs them. Kernels
// see this through the prelude only; hosts and tests use emu.h.
//
// Everything here runs on a fiber of the launch at hand, and is compiled without the checker's hooks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace barg::cuda {
struct Stream;
}

namespace barg::emu {

/// A place in a kernel's source: of a wrapper's call, or (pc) of a load or store that only the hooks saw.
struct Site {
  const char* file = nullptr;
  std::uint32_t line = 0, column = 0;
  const void* pc = nullptr;

  Site() = default;
  Site(const std::source_location& at) : file(at.file_name()), line(at.line()), column(at.column()) {}  // NOLINT: meant
  explicit Site(const void* at) : pc(at) {}
  auto operator<=>(const Site&) const = default;
};

struct LaunchInfo {
  const char* name;  ///< contains the kernel's name and template arguments
  int grid_x, grid_y, grid_z, threads;
  std::size_t dynamic_shared;
};
void run(cuda::Stream& stream, const LaunchInfo& info, void (*body)(const void*), const void* params);

// Where the caller is.
struct Place {
  int thread, block_x, block_y, block_z;
  LaunchInfo const* launch;
};
const Place& place();

/// The block's array of this declaration; made and poisoned when its first thread asks.
void* shared_array(const void* declaration, const char* name, std::size_t bytes);
void* dynamic_shared();

/// The number that a test put in place of one that the kernel computed: Fault::Kind::kValue.
bool seeding();
double seeded(const char* name, double x);

void sync_block(const Site& where);
void sync_warp(const Site& where);

enum class Exchange : std::uint8_t { kFrom, kXor, kUp };
std::uint32_t exchange(Exchange how, std::uint32_t value, int operand, const Site& where);
std::uint32_t ballot(bool value, const Site& where);

enum class Space : std::uint8_t { kGlobal, kShared };
enum class Access : std::uint8_t { kRead, kWrite, kAtomic };
/// Checks and counts one access of the calling thread, `bytes` in one instruction. Does not return if it lies outside.
void access(Space space, Access what, const void* address, std::size_t bytes, const Site& where);

void cp_async16(void* shared, const void* from, bool valid, const Site& where);
void cp_commit();
void cp_wait(int left, const Site& where);

void ldmatrix_x4(std::uint32_t* r, const void* shared, bool transposed, const Site& where);
void mma_16816(float* d, const std::uint32_t* a, const std::uint32_t* b, bool bf16, const Site& where);

std::int32_t publish_count(std::int32_t* counter, const Site& where);

}  // namespace barg::emu
