// Joining quantised tensors of a Hugging Face checkpoint: shapes, types and names that do not fit together are refused,
// and of what is joined every row can be read.
//
// The input is config.json on one line, then a tensor a line as "name TYPE size size ...", an empty line, and bytes that
// all of them are filled with.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "model/hf_quants.h"
#include "model/quants.h"
#include "model/safetensors.h"

namespace {

using namespace barg;
using namespace barg::model;

constexpr std::size_t kMaxData = 1 << 20;
constexpr std::size_t kMaxTensors = 64;

std::string_view take(std::string_view& text, char until) {
  const std::string_view part = text.substr(0, text.find(until));
  text.remove_prefix(part.size() < text.size() ? part.size() + 1 : text.size());
  return part;
}

std::size_t bytes_of(std::string_view type) {
  const std::size_t digit = type.find_first_of("0123456789");
  std::size_t bits = 0;
  if (digit != type.npos) std::from_chars(type.data() + digit, type.data() + type.size(), bits);
  return type == "F8_E8M0" || type == "BOOL" ? 1 : bits / 8;
}

/// A safetensors file that holds the tensors named; empty when one of them is too large.
std::string file_of(std::string_view lines, std::string_view filling) {
  Json header = Json::object();
  std::size_t at = 0, count = 0;
  while (!lines.empty() && count++ < kMaxTensors) {
    std::string_view line = take(lines, '\n');
    const std::string name(take(line, ' ')), type(take(line, ' '));
    Json shape = Json::array();
    std::size_t size = bytes_of(type);
    while (!line.empty()) {
      const std::string_view word = take(line, ' ');
      std::int64_t n = 0;
      std::from_chars(word.data(), word.data() + word.size(), n);
      if (n < 0 || n > 1 << 20) return {};
      shape.push(n);
      size *= static_cast<std::size_t>(n);
      if (size > kMaxData) return {};
    }
    if (at + size > kMaxData) return {};
    header.set(name, Json::object({{"dtype", type},
                                   {"shape", shape},
                                   {"data_offsets", Json(Json::Array{static_cast<std::int64_t>(at), static_cast<std::int64_t>(at + size)})}}));
    at += size;
  }
  const std::string text = dump_json(header);
  const std::uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out += text;
  for (std::size_t i = 0; i < at; ++i) out += filling.empty() ? '\0' : filling[i % filling.size()];
  return out;
}

void read_joined(const Tensor& t) {
  CHECK(t.type.dtype && !t.shape.empty());
  const std::int64_t rows = row_count(t);
  CHECK(rows > 0 && t.shape.back() > 0);
  for (const std::int64_t order : t.source->order) CHECK(order >= 0 && order < t.shape.back());
  std::vector<std::byte> out(read_row_bytes(t) * 3);
  for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1}) {
    read_rows(t, row, std::min<std::int64_t>(3, rows - row), out.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_json(take(text, '\n'), {.max_depth = 64, .max_members = 0});
  if (!config || !config->is_object()) return 0;
  const std::size_t gap = std::min(text.find("\n\n"), text.size());
  const std::string file = file_of(text.substr(0, gap), text.substr(std::min(gap + 2, text.size())));
  auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
  if (!tensors) return 0;
  const auto before = tensors->size();
  const auto joined = join_quantised(*config, *tensors);
  if (!joined) {
    CHECK(!joined.error().message.empty() && tensors->size() == before);
    return 0;
  }
  for (const Tensor& t : *tensors) {
    if (t.source) read_joined(t);
  }
  return 0;
}
