// The requests that the rules look at, by name. Pure but for what a request takes from earlier answers (the model's
// name, a stop string, an id).
#pragma once

#include <string_view>

#include "conform/session.h"

namespace barg::conform {

struct Probe {
  std::string_view name;
  WireRequest (*make)(Session&) = nullptr;
  /// Leave after so many events: for answers whose beginning is enough. 0 = read all.
  std::size_t leave_after = 0;
};

/// nullptr if there is none.
const Probe* find_probe(std::string_view name);

}  // namespace barg::conform
