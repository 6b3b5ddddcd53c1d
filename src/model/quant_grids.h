// The points of the lattices that ggml's IQ types choose from: data of the format, like its type numbers. A
// point is 8 levels of two bits (IQ1, IQ2) or 4 of three (IQ3), the first in the lowest bits. What a level is
// worth: IQ1: -1, 0, 1; IQ2: 8, 25, 43; IQ3_XXS: 4, 12, 20, 28, 36, 44, 52, 62; IQ3_S: 1, 3, 5, ... 15.
#pragma once

#include <cstdint>

namespace barg::model {

extern const std::uint16_t kIq2XxsGrid[256];
extern const std::uint16_t kIq2XsGrid[512];
extern const std::uint16_t kIq2SGrid[1024];
extern const std::uint16_t kIq3XxsGrid[256];
extern const std::uint16_t kIq3SGrid[512];
extern const std::uint16_t kIq1Grid[2048];  ///< of IQ1_S and IQ1_M

}  // namespace barg::model
