// What the tests of single kernels share: memory of the emulated device, schedules, what a launch has done. Used by one
// thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "emu/emu.h"

namespace barg::cuda::test {

using Kind = emu::Finding::Kind;

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
