// GGUF versions 2 and 3: parses a file that is already in memory (mapped) into metadata and tensor views.
//
// The bytes are hostile. Before anything is allocated, every count and length is compared with the bytes that
// remain; products are checked in 64 bits; names and keys are unique; tensors lie aligned, inside the file
// and apart from each other. Nested arrays are refused, so nothing recurses. Strings and arrays are views
// into the bytes: memory is bounded by the number of keys and tensors, each of which costs at least 12 bytes
// of file.
//
// Immutable after parse; any thread. The bytes must outlive the object. It knows nothing of models.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "model/tensor.h"

namespace barg::model {

enum class GgufType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
const char* gguf_type_name(GgufType type);

/// One metadata value. For a scalar `bytes` is its encoding (a string's without the length); for an array the
/// elements (strings with their lengths, validated).
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  ///< arrays
  std::uint64_t count = 1;           ///< arrays
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  /// Errors are kBadFile without the path (the caller knows it).
  static Result<GgufFile> parse(std::span<const std::byte> file);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::size_t metadata_count() const { return metadata_.size(); }
  const GgufValue* find(std::string_view key) const;
  /// Every key that starts with `prefix`, in file order.
  std::vector<std::string_view> keys_with_prefix(std::string_view prefix) const;

  // Typed reads. Absent: nullopt. Present with another type: an error that names the key. Integers of any
  // width are accepted where an integer is wanted (and must fit), f32 or f64 (or an integer) for a real.
  Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> real(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string_view>> string(std::string_view key) const;
  /// Arrays of at most 16 million elements; a scalar where an array of numbers is wanted is an array of one.
  Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;
  Result<std::optional<std::vector<float>>> reals(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> strings(std::string_view key) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::string_view> keys_;
  std::map<std::string_view, GgufValue> metadata_;  // not hashed: names may be made to collide
  friend class GgufParser;
};

}  // namespace barg::model
