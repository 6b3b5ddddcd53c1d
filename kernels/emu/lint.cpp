#include "emu/lint.h"

#include <algorithm>
#include <set>

#include "emu/device.h"
#include "emu/hooks.h"

namespace barg::emu {
namespace {

struct Cost {
  std::uint64_t units = 0, ideal = 0;
};

/// 32-byte sectors that the request touches, and those that its bytes would fill. Lanes that read the same count once.
Cost sectors(const std::set<std::uintptr_t>& bytes) {
  std::set<std::uintptr_t> touched;
  for (const std::uintptr_t b : bytes) touched.insert(b / 32);
  return {touched.size(), (bytes.size() + 31) / 32};
}

/// A cycle serves one 4-byte word of each of 32 banks; the same word serves all who want it.
Cost bank_cycles(const std::set<std::uintptr_t>& bytes) {
  std::set<std::uintptr_t> words;
  for (const std::uintptr_t b : bytes) words.insert(b / 4);
  std::array<std::uint64_t, 32> of_bank{};
  for (const std::uintptr_t w : words) ++of_bank[w % 32];
  return {*std::max_element(of_bank.begin(), of_bank.end()), (words.size() + 31) / 32};
}

/// The bytes that lanes [first, last) want.
std::set<std::uintptr_t> wanted(const std::array<std::uintptr_t, 32>& address, const std::array<std::uint8_t, 32>& bytes,
                                std::size_t first, std::size_t last) {
  std::set<std::uintptr_t> out;
  for (std::size_t l = first; l < last; ++l) {
    for (std::uintptr_t i = 0; i < bytes[l]; ++i) out.insert(address[l] + i);
  }
  return out;
}

}  // namespace

void Lint::add(Space space, const Site& where, int thread, const void* address, std::size_t bytes) {
  if (!on_) return;
  Line& line = lines_[{thread / 32, {where, space}}];
  const auto lane = static_cast<std::size_t>(thread % 32);
  const std::size_t n = line.times[lane]++;
  if (line.requests.size() <= n) line.requests.resize(n + 1);
  line.requests[n].address[lane] = reinterpret_cast<std::uintptr_t>(address);
  line.requests[n].bytes[lane] = static_cast<std::uint8_t>(bytes);
}

void Lint::end_block() {
  for (const auto& [key, line] : lines_) {
    const auto& [where, space] = key.second;
    SiteCount& count = counts_[key.second];
    count.shared = space == Space::kShared;
    for (const Request& r : line.requests) {
      ++count.requests;
      // Shared memory serves 128 bytes at a time: of 16-byte requests eight lanes, of 8-byte ones sixteen.
      const std::size_t most = *std::max_element(r.bytes.begin(), r.bytes.end());
      const std::size_t lanes = count.shared ? std::clamp<std::size_t>(128 / most, 8, 32) : 32;
      for (std::size_t first = 0; first < 32; first += lanes) {
        const auto bytes = wanted(r.address, r.bytes, first, first + lanes);
        if (bytes.empty()) continue;
        const Cost cost = count.shared ? bank_cycles(bytes) : sectors(bytes);
        count.units += cost.units;
        count.ideal += cost.ideal;
      }
    }
  }
  lines_.clear();
}

std::vector<SiteCount> Lint::take() {
  std::vector<const void*> pcs;
  for (const auto& [where, count] : counts_) {
    if (where.first.pc != nullptr) pcs.push_back(where.first.pc);
  }
  std::vector<std::string> lines = lines_of(pcs);
  std::vector<SiteCount> out;
  std::size_t next = 0;
  for (auto& [where, count] : counts_) {
    count.where = where.first.pc != nullptr ? std::move(lines[next++]) : show(where.first);
    out.push_back(std::move(count));
  }
  counts_.clear();
  return out;
}

}  // namespace barg::emu
