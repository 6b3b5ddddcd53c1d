// The table of ggml tensor types: id, name, block geometry, and which ones kernels can read, as they
// are or converted (quants.h). Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "model/tensor.h"

namespace barg::model {

/// nullopt for ids that ggml removed or never had. Names are static.
std::optional<StoredType> ggml_type(std::uint32_t id);

}  // namespace barg::model
