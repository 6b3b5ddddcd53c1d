// Whether an address can be listened on, found out before a model is loaded for nothing. The server binds
// again later and may still fail. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "barg/result.h"

namespace barg::cli {

/// kIo with one sentence if `port` on `host` is taken or `host` is not an address of this machine.
Result<void> probe_listen(const std::string& host, std::uint16_t port);

}  // namespace barg::cli
