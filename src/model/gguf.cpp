#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "model/ggml_types.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint64_t kMaxKeys = 100'000;
constexpr std::uint64_t kMaxDims = 4;
constexpr std::uint64_t kMaxNameBytes = 256;  // ggml writes < 64; HF-style names are longer
constexpr std::uint64_t kMaxKeyBytes = 65'535;
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::uint64_t kMaxArray = 1 << 24;  // elements of an array that is read

/// Encoded size of a scalar; 0 for strings and arrays.
std::size_t scalar_bytes(GgufType t) {
  switch (t) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <class T>
T load_le(const std::byte* p) {
  static_assert(std::endian::native == std::endian::little);
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

std::string_view as_text(std::span<const std::byte> b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

std::unexpected<Error> bad(std::string message) { return fail(ErrorCode::kBadFile, std::move(message)); }

std::unexpected<Error> wrong_type(std::string_view key, const GgufValue& v, const char* wanted) {
  return fail(ErrorCode::kBadFile,
              "metadata key " + printable(key) + " is " + gguf_type_name(v.type) + ", expected " + wanted,
              printable(key));
}

std::unexpected<Error> too_long(std::string_view key, const GgufValue& v) {
  return fail(ErrorCode::kTooLarge,
              "metadata key " + printable(key) + " is an array of " + std::to_string(v.count) +
                  " elements, at most " + std::to_string(kMaxArray) + " are read",
              printable(key));
}

std::optional<std::int64_t> integer_at(GgufType t, const std::byte* p) {
  switch (t) {
    case GgufType::kU8:
      return load_le<std::uint8_t>(p);
    case GgufType::kI8:
      return load_le<std::int8_t>(p);
    case GgufType::kU16:
      return load_le<std::uint16_t>(p);
    case GgufType::kI16:
      return load_le<std::int16_t>(p);
    case GgufType::kU32:
      return load_le<std::uint32_t>(p);
    case GgufType::kI32:
      return load_le<std::int32_t>(p);
    case GgufType::kI64:
      return load_le<std::int64_t>(p);
    case GgufType::kU64: {
      const auto v = load_le<std::uint64_t>(p);
      if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(v);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> real_at(GgufType t, const std::byte* p) {
  if (t == GgufType::kF32) return load_le<float>(p);
  if (t == GgufType::kF64) return load_le<double>(p);
  if (const auto i = integer_at(t, p)) return static_cast<double>(*i);
  return std::nullopt;
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::uint32_t>(type);
  return i < std::size(kNames) ? kNames[i] : "an unknown type";
}

/// Reads forward through the file; every read checks what remains.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> file) : file_(file) {}

  Result<GgufFile> run() {
    if (auto r = header(); !r) return std::unexpected(r.error());
    if (auto r = metadata(); !r) return std::unexpected(r.error());
    if (auto r = tensors(); !r) return std::unexpected(r.error());
    return std::move(out_);
  }

 private:
  std::size_t remaining() const { return file_.size() - at_; }

  template <class T>
  bool read(T& value) {
    if (remaining() < sizeof(T)) return false;
    value = load_le<T>(file_.data() + at_);
    at_ += sizeof(T);
    return true;
  }

  std::optional<std::span<const std::byte>> take(std::uint64_t size) {
    if (size > remaining()) return std::nullopt;
    const auto s = file_.subspan(at_, size);
    at_ += size;
    return s;
  }

  std::optional<std::string_view> text(std::uint64_t max) {
    std::uint64_t size = 0;
    if (!read(size) || size > max) return std::nullopt;
    const auto s = take(size);
    if (!s) return std::nullopt;
    return as_text(*s);
  }

  std::string where() const { return " at byte " + std::to_string(at_); }

  Result<void> header() {
    std::uint32_t magic = 0, version = 0;
    if (!read(magic) || std::memcmp(file_.data(), "GGUF", 4) != 0)
      return bad("not a GGUF file: it does not start with \"GGUF\"");
    if (!read(version)) return bad("the file ends inside the GGUF header");
    if (version != 0 && (version & 0xffff) == 0)
      return bad("the GGUF file is big-endian, which is not supported");
    if (version != 2 && version != 3) {
      return bad("GGUF version " + std::to_string(version) + " is not supported (known: 2, 3)");
    }
    if (!read(tensor_count_) || !read(kv_count_)) return bad("the file ends inside the GGUF header");
    // A key costs at least 8 + 4 + 1 bytes, a tensor entry 8 + 4 + 4 + 8.
    if (kv_count_ > kMaxKeys || kv_count_ > remaining() / 13) {
      return bad("the header promises " + std::to_string(kv_count_) +
                 " metadata keys, more than the file can hold");
    }
    if (tensor_count_ > kMaxTensors || tensor_count_ > remaining() / 24) {
      return bad("the header promises " + std::to_string(tensor_count_) +
                 " tensors, more than the file can hold");
    }
    return {};
  }

  Result<void> metadata() {
    for (std::uint64_t i = 0; i < kv_count_; ++i) {
      const auto key = text(kMaxKeyBytes);
      std::uint32_t type = 0;
      if (!key || key->empty())
        return bad("metadata key " + std::to_string(i) + " is empty or does not fit the file" + where());
      if (!read(type)) return bad("the file ends inside metadata key " + printable(*key));
      auto value = read_value(*key, type);
      if (!value) return std::unexpected(value.error());
      if (!out_.metadata_.emplace(*key, *value).second)
        return bad("metadata key " + printable(*key) + " appears twice");
      out_.keys_.push_back(*key);
    }
    auto alignment = out_.integer("general.alignment");
    if (!alignment) return std::unexpected(alignment.error());
    if (*alignment) {
      const std::int64_t a = **alignment;
      if (a <= 0 || a > static_cast<std::int64_t>(kMaxAlignment) || (a & (a - 1)) != 0) {
        return bad("general.alignment is " + std::to_string(a) +
                   ", expected a power of two of at most 1048576");
      }
      alignment_ = static_cast<std::uint64_t>(a);
    }
    return {};
  }

  Result<GgufValue> read_value(std::string_view key, std::uint32_t type) {
    if (type > static_cast<std::uint32_t>(GgufType::kF64)) {
      return bad("metadata key " + printable(key) + " has the unknown type " + std::to_string(type));
    }
    GgufValue v;
    v.type = static_cast<GgufType>(type);
    if (v.type == GgufType::kArray) return read_array(key);
    const auto s = v.type == GgufType::kString ? string_body() : take(scalar_bytes(v.type));
    if (!s) return bad("the value of metadata key " + printable(key) + " does not fit the file");
    v.bytes = *s;
    if (v.type == GgufType::kBool && std::to_integer<int>(v.bytes[0]) > 1) {
      return bad("metadata key " + printable(key) + " is a bool that is neither 0 nor 1");
    }
    return v;
  }

  std::optional<std::span<const std::byte>> string_body() {
    std::uint64_t size = 0;
    if (!read(size)) return std::nullopt;
    return take(size);
  }

  Result<GgufValue> read_array(std::string_view key) {
    std::uint32_t element = 0;
    std::uint64_t count = 0;
    if (!read(element) || !read(count)) return bad("the file ends inside metadata key " + printable(key));
    if (element > static_cast<std::uint32_t>(GgufType::kF64)) {
      return bad("metadata key " + printable(key) + " is an array of the unknown type " +
                 std::to_string(element));
    }
    GgufValue v{GgufType::kArray, static_cast<GgufType>(element), count, {}};
    if (v.element == GgufType::kArray)
      return bad("metadata key " + printable(key) + " is a nested array, which is not supported");
    const std::size_t begin = at_;
    const std::size_t least = v.element == GgufType::kString ? 8 : scalar_bytes(v.element);
    if (count > remaining() / least)
      return bad("the array of metadata key " + printable(key) + " does not fit the file");
    if (v.element != GgufType::kString) {
      at_ += count * least;
    } else {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (!string_body())
          return bad("string " + std::to_string(i) + " of metadata key " + printable(key) +
                     " does not fit the file");
      }
    }
    v.bytes = file_.subspan(begin, at_ - begin);
    return v;
  }

  struct Placed {
    std::uint64_t offset, bytes;
    std::size_t index;
  };

  Result<void> tensors() {
    std::set<std::string_view> names;
    std::vector<Placed> placed;
    placed.reserve(tensor_count_);
    out_.tensors_.reserve(tensor_count_);
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      const auto name = text(kMaxNameBytes);
      if (!name || name->empty())
        return bad("the name of tensor " + std::to_string(i) +
                   " is empty, too long or does not fit the file" + where());
      if (!names.insert(*name).second) return bad("tensor " + printable(*name) + " appears twice");
      auto p = tensor_info(*name);
      if (!p) return std::unexpected(p.error());
      placed.push_back(*p);
    }
    return place(std::move(placed));
  }

  Result<Placed> tensor_info(std::string_view name) {
    std::uint32_t n_dims = 0, type = 0;
    std::uint64_t offset = 0;
    const std::string who = "tensor " + printable(name);
    if (!read(n_dims)) return bad("the file ends inside " + who);
    if (n_dims > kMaxDims)
      return bad(who + " has " + std::to_string(n_dims) + " dimensions, expected at most 4");
    Tensor t;
    t.name = std::string(name);
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < n_dims; ++d) {
      std::uint64_t size = 0;
      if (!read(size)) return bad("the file ends inside " + who);
      if (size == 0) return bad(who + " has a dimension of zero");
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          __builtin_mul_overflow(elements, size, &elements)) {
        return bad("the dimensions of " + who + " overflow");
      }
      t.shape.push_back(static_cast<std::int64_t>(size));
    }
    if (!read(type) || !read(offset)) return bad("the file ends inside " + who);
    const auto stored = ggml_type(type);
    if (!stored) return bad(who + " has the unknown type id " + std::to_string(type));
    t.type = *stored;
    const std::uint64_t row = t.shape.empty() ? 1 : static_cast<std::uint64_t>(t.shape[0]);
    if (row % stored->block_elements != 0) {
      return bad(who + ": a row of " + std::to_string(row) + " elements is not a multiple of the block of " +
                 stored->name);
    }
    std::reverse(t.shape.begin(), t.shape.end());  // ggml lists the fastest dimension first
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements / stored->block_elements, stored->block_bytes, &bytes)) {
      return bad("the size of " + who + " overflows");
    }
    if (offset % alignment_ != 0)
      return bad("the offset of " + who + " is not a multiple of the alignment " +
                 std::to_string(alignment_));
    out_.tensors_.push_back(std::move(t));
    return Placed{offset, bytes, out_.tensors_.size() - 1};
  }

  /// Tensors must lie inside the data section and apart from each other.
  Result<void> place(std::vector<Placed> placed) {
    const std::uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (!placed.empty() && data > file_.size()) return bad("the file ends before the tensor data");
    const std::uint64_t size = placed.empty() ? 0 : file_.size() - data;
    for (const Placed& p : placed) {
      Tensor& t = out_.tensors_[p.index];
      if (p.offset > size || p.bytes > size - p.offset) {
        return bad("tensor " + printable(t.name) + " reaches beyond the end of the file (truncated?)");
      }
      t.bytes = file_.subspan(data + p.offset, p.bytes);
    }
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < placed.size(); ++i) {
      if (placed[i - 1].offset + placed[i - 1].bytes > placed[i].offset) {
        return bad("tensors " + printable(out_.tensors_[placed[i - 1].index].name) + " and " +
                   printable(out_.tensors_[placed[i].index].name) + " overlap");
      }
    }
    return {};
  }

  std::span<const std::byte> file_;
  std::size_t at_ = 0;
  std::uint64_t tensor_count_ = 0, kv_count_ = 0, alignment_ = 32;
  GgufFile out_;
};

Result<GgufFile> GgufFile::parse(std::span<const std::byte> file) { return GgufParser(file).run(); }

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

std::vector<std::string_view> GgufFile::keys_with_prefix(std::string_view prefix) const {
  std::vector<std::string_view> out;
  for (const std::string_view key : keys_) {
    if (key.starts_with(prefix)) out.push_back(key);
  }
  return out;
}

Result<std::optional<std::int64_t>> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  const auto i = v->bytes.empty() ? std::nullopt : integer_at(v->type, v->bytes.data());
  if (!i) return wrong_type(key, *v, "an integer");
  return i;
}

Result<std::optional<double>> GgufFile::real(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  const auto r = v->bytes.empty() ? std::nullopt : real_at(v->type, v->bytes.data());
  if (!r) return wrong_type(key, *v, "a number");
  return r;
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::kBool) return wrong_type(key, *v, "a bool");
  return std::optional<bool>(v->bytes[0] != std::byte{0});
}

Result<std::optional<std::string_view>> GgufFile::string(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::kString) return wrong_type(key, *v, "a string");
  return std::optional<std::string_view>(as_text(v->bytes));
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::integers(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  const GgufType t = v->type == GgufType::kArray ? v->element : v->type;
  const std::size_t step = scalar_bytes(t);
  std::vector<std::int64_t> out;
  if (step == 0) return wrong_type(key, *v, "an array of integers");
  if (v->count > kMaxArray) return too_long(key, *v);
  out.reserve(v->count);
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto n = t == GgufType::kBool ? std::optional<std::int64_t>(v->bytes[i] != std::byte{0})
                                        : integer_at(t, v->bytes.data() + i * step);
    if (!n) return wrong_type(key, *v, "an array of integers");
    out.push_back(*n);
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<float>>> GgufFile::reals(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  const GgufType t = v->type == GgufType::kArray ? v->element : v->type;
  const std::size_t step = scalar_bytes(t);
  std::vector<float> out;
  if (step == 0) return wrong_type(key, *v, "an array of numbers");
  if (v->count > kMaxArray) return too_long(key, *v);
  out.reserve(v->count);
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto n = real_at(t, v->bytes.data() + i * step);
    if (!n) return wrong_type(key, *v, "an array of numbers");
    out.push_back(static_cast<float>(*n));
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<std::string>>> GgufFile::strings(std::string_view key) const {
  const GgufValue* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::kArray || v->element != GgufType::kString)
    return wrong_type(key, *v, "an array of strings");
  if (v->count > kMaxArray) return too_long(key, *v);
  std::vector<std::string> out;
  out.reserve(v->count);
  const std::byte* p = v->bytes.data();
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto size = load_le<std::uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p) + 8, size);
    p += 8 + size;
  }
  return std::optional(std::move(out));
}

}  // namespace barg::model
