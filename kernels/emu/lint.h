// How well a kernel's accesses use the memory's width: of each line, how many sectors or bank cycles its warps' requests
// take, against the least that could carry the same bytes. Lanes do not run together here, so the n-th time a lane comes
// to a line is taken to be the same instruction as the n-th time of its neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emu/emu.h"

namespace barg::emu {

class Lint {
 public:
  void enable(bool on) { on_ = on; }
  bool enabled() const { return on_; }
  void add(Space space, const Site& where, int thread, const void* address, std::size_t bytes);
  /// The block has ended: its requests are complete.
  void end_block();
  std::vector<SiteCount> take();

 private:
  struct Request {
    std::array<std::uintptr_t, 32> address{};
    std::array<std::uint8_t, 32> bytes{};  ///< 0: the lane did not take part
  };
  struct Line {
    std::array<std::uint32_t, 32> times{};
    std::vector<Request> requests;
  };
  using Where = std::pair<Site, Space>;

  bool on_ = false;
  std::map<std::pair<int, Where>, Line> lines_;  // of this block, by warp
  std::map<Where, SiteCount> counts_;
};

}  // namespace barg::emu
