#include "server/embeddings_answer.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/base64url.h"
#include "base/json.h"

namespace barg::server {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 is of little-endian floats");

/// The usual alphabet, padded.
std::string base64_of(const std::vector<float>& vector) {
  std::string out =
      to_base64url({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
  for (char& c : out) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (out.size() % 4 != 0) out += '=';
  return out;
}

void append_numbers(const std::vector<float>& vector, std::string& out) {
  char digits[32];
  for (std::size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) out += ',';
    // As a double: whoever reads the digits as one has exactly the float.
    const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(vector[i])).ptr;
    out.append(digits, end);
  }
}

}  // namespace

void finish_vector(std::vector<float>& vector, std::int32_t size, bool normalise) {
  vector.resize(static_cast<std::size_t>(size));
  if (!normalise) return;
  double square = 0;
  for (const float x : vector) square += static_cast<double>(x) * x;
  if (square == 0) return;
  const double length = std::sqrt(square);
  for (float& x : vector) x = static_cast<float>(x / length);
}

std::string embeddings_body(std::span<const std::vector<float>> vectors, bool base64, std::string_view model,
                            std::int64_t prompt_tokens) {
  std::string out = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    out += R"({"object":"embedding","index":)" + std::to_string(i) + R"(,"embedding":)";
    if (base64) {
      out += '"' + base64_of(vectors[i]) + '"';
    } else {
      out += '[';
      append_numbers(vectors[i], out);
      out += ']';
    }
    out += '}';
  }
  const std::string tokens = std::to_string(prompt_tokens);
  return out + R"(],"model":)" + json_quote(model) + R"(,"usage":{"prompt_tokens":)" + tokens + R"(,"total_tokens":)" + tokens + "}}";
}

}  // namespace barg::server
