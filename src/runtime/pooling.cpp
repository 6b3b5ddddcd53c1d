#include "runtime/pooling.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace barg::runtime {

bool pool(model::Pooling kind, std::span<const float> states, std::span<float> out) {
  const std::size_t dim = out.size(), rows = dim == 0 ? 0 : states.size() / dim;
  CHECK(rows > 0 && rows * dim == states.size());
  switch (kind) {
    case model::Pooling::kNone:
      CHECK(false);
      break;
    case model::Pooling::kFirst:
      std::copy_n(states.begin(), dim, out.begin());
      break;
    case model::Pooling::kLast:
      std::copy_n(states.end() - static_cast<std::ptrdiff_t>(dim), dim, out.begin());
      break;
    case model::Pooling::kMean:
      for (std::size_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r) sum += states[r * dim + i];
        out[i] = static_cast<float>(sum / static_cast<double>(rows));
      }
      break;
  }
  return std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace barg::runtime
