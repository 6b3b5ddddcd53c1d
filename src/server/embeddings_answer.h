// Vectors as the answer of POST /v1/embeddings. Pure functions, any thread; one order of operations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace barg::server {

/// The first `size` numbers of a vector, of length 1 if `normalise` (zeros stay zeros).
void finish_vector(std::vector<float>& vector, std::int32_t size, bool normalise);

/// OpenAI's list of embeddings. Numbers are written so that both formats read back as the same ones.
std::string embeddings_body(std::span<const std::vector<float>> vectors, bool base64, std::string_view model,
                            std::int64_t prompt_tokens);

}  // namespace barg::server
