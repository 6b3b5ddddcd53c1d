// What the tests of single kernels share: memory of the emulated device, schedules, what a launch has done. Used by one
// thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emu/emu.h"

namespace barg::cuda::test {

using Kind = emu::Finding::Kind;

/// About normal, the same for the same place.
inline float normal_of(std::uint64_t place) {
  float sum = 0;
  for (int i = 0; i < 2; ++i) {
    place += 0x9e3779b97f4a7c15u;
    std::uint64_t z = (place ^ place >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    sum += static_cast<float>(z >> 40) * 0x1p-24f + static_cast<float>(z & 0xffffffu) * 0x1p-24f;
  }
  return (sum - 2) * 1.7f;
}

template <class T>
T* room(emu::Device& device, std::size_t count, const char* name) {
  return static_cast<T*>(device.allocate(std::max<std::size_t>(count * sizeof(T), 1), name));
}
template <class T>
T* uploaded(emu::Device& device, const std::vector<T>& data, const char* name) {
  T* const p = room<T>(device, data.size(), name);
  device.upload(p, data.data(), data.size() * sizeof(T));
  return p;
}
template <class T>
std::vector<T> downloaded(emu::Device& device, const T* p, std::size_t count) {
  std::vector<T> data(count);
  device.download(data.data(), p, count * sizeof(T));
  return data;
}

/// Every order of threads and blocks as `turn` goes on.
inline emu::Schedule schedule(int turn) {
  return {static_cast<emu::Order>(turn % 3), static_cast<emu::Order>(turn / 3 % 3), {}, static_cast<std::uint64_t>(turn + 1)};
}

/// The number of the first line of kernels/cuda/`file` from the one that contains `marker` on that is `call`, or that
/// contains it.
inline std::uint32_t line_after(const std::string& file, const std::string& marker, const std::string& call) {
  std::ifstream in("kernels/cuda/" + file);
  bool marked = false;
  std::uint32_t n = 0;
  for (std::string line; std::getline(in, line);) {
    ++n;
    marked = marked || line.find(marker) != std::string::npos;
    if (marked && line.find(call) != std::string::npos) return n;
  }
  ADD_FAILURE() << file << " has no " << call << " after: " << marker;
  return 0;
}

inline emu::Fault value(const char* name, std::function<double(double)> f) {
  return {.kind = emu::Fault::Kind::kValue, .name = name, .value = std::move(f)};
}
/// Of the first `call` after the line with `marker`.
inline emu::Fault fault_at(emu::Fault::Kind kind, const char* file, const char* marker, const char* call) {
  return {.kind = kind, .file_ends_with = file, .line = line_after(file, marker, call)};
}

/// What the checker and the lint found in one launch.
struct Findings {
  std::set<Kind> kinds;
  std::string text;
  std::vector<emu::SiteCount> sites;
};
inline Findings findings(emu::Device& device) {
  Findings out;
  for (const emu::Finding& f : device.take_findings()) {
    out.kinds.insert(f.kind);
    out.text += std::string(emu::kind_name(f.kind)) + " at " + f.where + " in " + f.kernel + ": " + f.what + "\n";
  }
  out.sites = device.take_sites();
  return out;
}

/// Who sees a seeded error of a kernel that computes by tiles.
enum class Detector : std::uint8_t {
  kRace,           ///< the checker: two accesses that nothing orders
  kPending,        ///< the checker: use of what a copy has not brought
  kUninitialised,  ///< the checker: a byte that nobody wrote
  kOutside,        ///< the checker or the device: no such memory
  kReference,      ///< the result is not that of float64
  kBits,           ///< the result depends on how the work is cut
  kLint,           ///< shared memory is served slower than it can be
};

/// Chunks of a tile of 8 a row back to where they would lie without the swizzle.
inline double without_swizzle(double place) {
  const int p = static_cast<int>(place);
  return static_cast<double>(p ^ (p / 8 % 8));
}

inline bool serves_banks_well(const std::vector<emu::SiteCount>& sites) {
  return std::all_of(sites.begin(), sites.end(),
                     [](const emu::SiteCount& s) { return !s.shared || s.units <= 2 * s.ideal; });
}

/// What the checker or the device found, of a detector before kReference.
inline bool reported(Detector detector, const std::set<Kind>& kinds) {
  constexpr Kind kKinds[] = {Kind::kRace, Kind::kPending, Kind::kUninitialised, Kind::kOutside};
  return kinds.contains(kKinds[static_cast<std::size_t>(detector)]);
}

/// Sectors of global memory within 1.1 of what the bytes need, cycles of the shared banks within 2; `exceptions` are
/// places "file:line".
inline void expect_wide(const Findings& f, const std::set<std::string>& exceptions = {}) {
  EXPECT_FALSE(f.sites.empty());
  for (const emu::SiteCount& s : f.sites) {
    if (exceptions.contains(s.where)) continue;
    EXPECT_LE(10 * s.units, (s.shared ? 20 : 11) * s.ideal) << s.where << (s.shared ? " shared" : " global");
  }
}

}  // namespace barg::cuda::test
