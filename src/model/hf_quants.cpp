#include "model/hf_quants.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "math.h"
#include "model/field_reader.h"
#include "model/printable.h"
#include "model/quant_runs.h"
#include "model/quants.h"

namespace barg::model {
namespace {

constexpr std::int64_t kMaxDim = 1 << 30;

// --- numbers beside the codes ----------------------------------------------------------------------------

/// Floats stored in one of three types.
struct Floats {
  const std::byte* data = nullptr;
  DType type = DType::kF32;

  float at(std::int64_t i) const {
    if (type == DType::kF32) return ops::bits_float(load_u32(data + 4 * i));
    const std::uint16_t h = load_u16(data + 2 * i);
    return type == DType::kF16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h);
  }
};

/// One number for `row_per` rows by `k_per` columns.
struct Scales {
  Floats floats;
  std::int64_t row_per = 1, row_stride = 0, k_per = 1, k_stride = 0;

  float at(std::int64_t row, std::int64_t group) const {
    return floats.at(row / row_per * row_stride + group * k_stride);
  }
  /// So few bits that products with small integers, and their differences, are exact.
  bool short_floats() const { return floats.type != DType::kF32; }
};

/// Unsigned integers in 32-bit words: along k (k_per a word) or along n, where AWQ has an order of its own.
struct Packed {
  const std::byte* words = nullptr;
  int bits = 4;
  std::int64_t k_per = 1, k_stride = 0, n_per = 1, n_stride = 0;
  bool awq = false;

  int at(std::int64_t n, std::int64_t k) const {
    static constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const std::uint32_t word = load_u32(words + 4 * (k / k_per * k_stride + n / n_per * n_stride));
    const auto place = static_cast<int>(k_per > 1 ? k % k_per : n % n_per);
    return static_cast<int>(word >> (bits * (awq ? kAwqPlace[place] : place)) & ((1u << bits) - 1));
  }
  /// Elements k .. k + 31, k a multiple of 32.
  void run(std::int64_t n, std::int64_t k, std::uint8_t* out) const {
    if (k_per == 1) {
      for (int e = 0; e < kRun; ++e) out[e] = static_cast<std::uint8_t>(at(n, k + e));
      return;
    }
    const std::byte* word = words + 4 * (k / k_per * k_stride + n * n_stride);
    for (int e = 0; e < kRun; word += 4 * k_stride) {
      std::uint32_t v = load_u32(word);
      for (std::int64_t i = 0; i < k_per; ++i, v >>= bits)
        out[e++] = static_cast<std::uint8_t>(v & ((1u << bits) - 1));
    }
  }
};

// --- matrices --------------------------------------------------------------------------------------------

/// Rows made run by run, or number by number where rows are no whole runs.
class Matrix : public RowSource {
 public:
  Matrix(std::int64_t k, DType type) : k_(k), type_(type) {}

  void read(std::int64_t row, std::int64_t count, std::byte* out) const final {
    const std::size_t unit = block_bytes(type_);
    if (type_ == DType::kF32) {
      for (std::int64_t r = row; r < row + count; ++r) {
        for (std::int64_t k = 0; k < k_; ++k, out += unit) {
          const float v = value(r, k);
          std::memcpy(out, &v, sizeof v);
        }
      }
      return;
    }
    const std::int64_t runs = k_ / kRun;
    const auto one = [&](std::int64_t r, std::int64_t b) {
      run(row + r, b * kRun, out + static_cast<std::size_t>(r * runs + b) * unit);
    };
    if (in_order) {
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t b = 0; b < runs; ++b) one(r, b);
    } else {  // neighbours of a column share cache lines
      for (std::int64_t b = 0; b < runs; ++b)
        for (std::int64_t r = 0; r < count; ++r) one(r, b);
    }
  }

 protected:
  virtual float value(std::int64_t row, std::int64_t k) const = 0;
  virtual void run(std::int64_t row, std::int64_t k, std::byte* out) const = 0;

 private:
  const std::int64_t k_;
  const DType type_;
};

/// Codes of a byte, fp8 or int8, times a scale.
class Bytes final : public Matrix {
 public:
  Bytes(std::int64_t k, DType type, const std::byte* codes, bool fp8, const Scales& scales,
        const std::byte* zeros)
      : Matrix(k, type), k_(k), type_(type), codes_(codes), fp8_(fp8), scales_(scales), zeros_(zeros) {}

 private:
  float value(std::int64_t row, std::int64_t k) const override {
    const auto code = static_cast<std::uint8_t>(codes_[row * k_ + k]);
    const float scale = scales_.at(row, k / scales_.k_per);
    if (!fp8_) return static_cast<float>(static_cast<std::int8_t>(code) - zero(row)) * scale;
    if ((code & 0x7f) == 0x7f) return ops::bits_float(0x7fc00000u);
    return ops::f8_to_f32_256th(code) * 256.0f * scale;
  }
  void run(std::int64_t row, std::int64_t k, std::byte* out) const override {
    const std::byte* codes = codes_ + row * k_ + k;
    float scale = scales_.at(row, k / scales_.k_per);
    const auto is_nan = [](std::byte c) { return (c & std::byte{0x7f}) == std::byte{0x7f}; };
    if (fp8_ && std::any_of(codes, codes + kRun, is_nan)) scale = ops::bits_float(0x7fc00000u);
    Run to(out);
    to.put_float(scale);
    if (type_ == DType::kS8Per16) to.put_float(scale);
    if (type_ == DType::kS8Min) to.put_float(-(static_cast<float>(zero(row)) * scale));
    to.put(codes, kRun);
  }
  int zero(std::int64_t row) const { return zeros_ != nullptr ? static_cast<std::int8_t>(zeros_[row]) : 0; }

  const std::int64_t k_;
  const DType type_;
  const std::byte* codes_;
  const bool fp8_;
  const Scales scales_;
  const std::byte* zeros_;  ///< one a row, or nullptr
};

/// (code - zero) * scale, codes of 4 or 8 bits packed into words.
class Integers final : public Matrix {
 public:
  struct Parts {
    Packed codes;
    std::optional<Packed> zeros;           ///< [rows, groups]
    int zero = 0;                          ///< without them; with them, what is added to each
    Scales scales;                         ///< [rows, groups]
    std::int64_t group = 0;                ///< columns
    const std::byte* g_idx = nullptr;      ///< the group of each column instead, s32
    std::vector<std::int32_t> order;       ///< with g_idx: columns by group, as rows have them
    std::vector<std::int32_t> run_groups;  ///< the group of each run of those
  };
  Integers(std::int64_t k, DType type, Parts parts) : Matrix(k, type), type_(type), p_(std::move(parts)) {
    if (type != DType::kF32) order = p_.order;  // single numbers stand where they belong
  }

  /// What holds the values exactly; the scales decide. `runs`: those of 32 are in one group each.
  static DType type_for(const Parts& p, bool runs) {
    if (!runs) return DType::kF32;
    const bool exact = p.scales.short_floats();
    if (p.codes.bits == 8) {
      if (!p.zeros) return DType::kS8Per16;
      return exact ? DType::kS8Min : DType::kF32;
    }
    if (!p.zeros && p.scales.floats.type == DType::kF16) return DType::kQ4_0;
    return exact ? DType::kU4Min : DType::kS8Per16;
  }

 private:
  std::int64_t group_of(std::int64_t k) const {
    return p_.g_idx != nullptr ? static_cast<std::int64_t>(load_u32(p_.g_idx + 4 * k)) : k / p_.group;
  }
  int zero_of(std::int64_t row, std::int64_t group) const {
    return p_.zero + (p_.zeros ? p_.zeros->at(row, group) : 0);
  }
  float value(std::int64_t row, std::int64_t k) const override {
    const std::int64_t group = group_of(k);
    return static_cast<float>(p_.codes.at(row, k) - zero_of(row, group)) * p_.scales.at(row, group);
  }
  void run(std::int64_t row, std::int64_t k, std::byte* out) const override {
    const std::int64_t group =
        p_.order.empty() ? k / p_.group : p_.run_groups[static_cast<std::size_t>(k / kRun)];
    const float scale = p_.scales.at(row, group);
    const int zero = zero_of(row, group);
    std::uint8_t codes[kRun];
    if (p_.order.empty()) {
      p_.codes.run(row, k, codes);
    } else {
      const std::int32_t* columns = p_.order.data() + k;
      for (int e = 0; e < kRun; ++e) codes[e] = static_cast<std::uint8_t>(p_.codes.at(row, columns[e]));
    }
    Run to(out);
    if (type_ == DType::kQ4_0) {
      const std::uint16_t half = ops::f32_to_f16(scale);
      to.put(&half, 2);
      to.put_nibbles(codes);
    } else if (type_ == DType::kU4Min) {
      to.put_float(scale);
      to.put_float(-(static_cast<float>(zero) * scale));
      to.put_nibbles(codes);
    } else {
      // Of kS8Min the codes move into the range of a byte, and the minimum takes it back.
      const int less = type_ == DType::kS8Min ? 128 : zero;
      std::int8_t bytes[kRun];
      for (int e = 0; e < kRun; ++e) bytes[e] = static_cast<std::int8_t>(codes[e] - less);
      to.put_float(scale);
      to.put_float(type_ == DType::kS8Min ? static_cast<float>(less - zero) * scale : scale);
      to.put_bytes(bytes);
    }
  }

  const DType type_;
  const Parts p_;
};

/// e2m1 codes, low nibble first, with a scale for 32 (E8M0) or 16 (E4M3 over a common one).
class Fp4 final : public Matrix {
 public:
  Fp4(std::int64_t k, const std::byte* codes, const std::byte* scales, std::optional<float> global)
      : Matrix(k, global ? DType::kFP4Per16 : DType::kFP4),
        k_(k),
        codes_(codes),
        scales_(scales),
        global_(global) {}

 private:
  /// Half of what the format says: codes count halves.
  float scale(std::int64_t i) const {
    const auto byte = static_cast<std::uint8_t>(scales_[i]);
    if (!global_) return half_power_of_two(byte);
    if ((byte & 0x7f) == 0x7f) return ops::bits_float(0x7fc00000u);
    return ops::f8_to_f32_256th(byte) * 256.0f / *global_ * 0.5f;
  }
  float value(std::int64_t, std::int64_t) const override { return 0; }  // rows are whole runs
  void run(std::int64_t row, std::int64_t k, std::byte* out) const override {
    const std::byte* from = codes_ + (row * k_ + k) / 2;
    std::uint8_t codes[kRun];
    for (int j = 0; j < kRun / 2; ++j) {
      codes[2 * j] = static_cast<std::uint8_t>(from[j]) & 15;
      codes[2 * j + 1] = static_cast<std::uint8_t>(from[j]) >> 4;
    }
    Run to(out);
    if (global_) {
      to.put_float(scale((row * k_ + k) / 16));
      to.put_float(scale((row * k_ + k) / 16 + 1));
    } else {
      to.put_float(scale((row * k_ + k) / kRun));
    }
    to.put_nibbles(codes);
  }

  const std::int64_t k_;
  const std::byte* codes_;
  const std::byte* scales_;
  const std::optional<float> global_;
};

// --- what a file says ------------------------------------------------------------------------------------

struct Settings {
  std::string method;
  bool v1_zeros = false;  ///< gptq: stored less one
  std::int64_t bits = 4;  ///< awq, gptq
  std::int64_t block_rows = 128, block_columns = 128;
};

void refuse_value(FieldReader& f, std::string_view key, const std::string& value, const char* known) {
  f.refuse(ErrorCode::kUnsupported,
           f.full_name(key) + ": " + value + " is not supported yet (known: " + known + ")", key);
}

void read_block(const Json* block, FieldReader& f, Settings& s) {
  if (block == nullptr || block->is_null()) return;
  const auto size = [&](std::size_t i) {
    const Json& v = block->as_array()[i];
    return v.type() == Json::Type::kInt && v.as_int() > 0 && v.as_int() <= kMaxDim ? v.as_int() : 0;
  };
  if (!block->is_array() || block->size() != 2 || size(0) == 0 || size(1) == 0)
    return f.refuse(ErrorCode::kBadFile, "the block size of the weights is not a pair of sizes",
                    "weight_block_size");
  s.block_rows = size(0);
  s.block_columns = size(1);
}

bool one_of(std::string_view v, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

bool is_empty(const Json* v) {
  return v == nullptr || v->is_null() || (v->is_object() && v->size() == 0) ||
         (v->is_array() && v->size() == 0);
}

void read_compressed(const Json& quant, FieldReader& f, Settings& s) {
  const auto check_format = [&](const std::string& format) {
    if (!one_of(format, {"dense", "int-quantized", "float-quantized", "naive-quantized", "pack-quantized",
                         "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"}))
      refuse_value(f, "format", '"' + printable(format) + '"',
                   "int-quantized, float-quantized, naive-quantized, pack-quantized, nvfp4-pack-quantized, "
                   "mxfp4-pack-quantized");
  };
  check_format(f.text("format", "dense"));
  if (!is_empty(quant.find("transform_config"))) refuse_value(f, "transform_config", "an object", "none");
  if (const Json* sparsity = quant.find("sparsity_config"); !is_empty(sparsity)) {
    const Json* format = sparsity->find("format");
    if (format == nullptr || !format->is_string() || format->as_string() != "dense")
      refuse_value(f, "sparsity_config", "a sparse format", "dense");
  }
  const Json* groups = quant.find("config_groups");
  if (groups == nullptr || !groups->is_object()) return;
  for (const auto& [name, group] : groups->as_object()) {
    const Json* format = group.find("format");
    if (format != nullptr && format->is_string()) check_format(format->as_string());
    const Json* weights = group.find("weights");
    if (weights != nullptr && weights->is_object()) read_block(weights->find("block_structure"), f, s);
  }
}

Result<Settings> read_settings(const Json& quant) {
  if (!quant.is_object())
    return fail(ErrorCode::kBadFile, "quantization_config is not an object", "quantization_config");
  JsonFieldReader f(quant, "quantization_config");
  Settings s;
  const Json* method = quant.find("quant_method");
  s.method = method != nullptr && method->is_string() ? method->as_string() : "";
  if (!one_of(s.method, {"awq", "gptq", "compressed-tensors", "fp8", "mxfp4"})) {
    refuse_value(f, "quant_method", s.method.empty() ? "null" : '"' + printable(s.method) + '"',
                 "awq, compressed-tensors, fp8, gptq, mxfp4");
  }
  if (s.method == "awq") {
    s.bits = f.integer(f.has("w_bit") ? "w_bit" : "bits", 1, 16, 4);
    if (s.bits != 4) refuse_value(f, "bits", std::to_string(s.bits), "4");
    std::string version = f.text("version", "gemm");
    std::transform(version.begin(), version.end(), version.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (version != "gemm") refuse_value(f, "version", '"' + printable(version) + '"', "gemm");
  } else if (s.method == "gptq") {
    s.bits = f.integer("bits", 1, 16, 4);
    if (s.bits != 4 && s.bits != 8) refuse_value(f, "bits", std::to_string(s.bits), "4, 8");
    const std::string format = f.text("checkpoint_format", "gptq");
    if (format != "gptq" && format != "gptq_v2")
      refuse_value(f, "checkpoint_format", '"' + printable(format) + '"', "gptq, gptq_v2");
    s.v1_zeros = format == "gptq";
  } else if (s.method == "fp8") {
    read_block(quant.find("weight_block_size"), f, s);
  } else if (s.method == "compressed-tensors") {
    read_compressed(quant, f, s);
  }
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

// --- joining ---------------------------------------------------------------------------------------------

constexpr StoredType kInt8Type = {"INT8", 1, 1, {}};
/// The name tells apart what the same bytes may mean: it is part of the weights' digest.
StoredType integer_type(const Settings& s, int bits) {
  const bool four = bits == 4;
  const char* name = four ? "INT4" : "INT8";
  if (s.method == "awq") name = "AWQ_INT4";
  if (s.method == "gptq" && s.v1_zeros) name = four ? "GPTQ_INT4" : "GPTQ_INT8";
  if (s.method == "gptq" && !s.v1_zeros) name = four ? "GPTQ_V2_INT4" : "GPTQ_V2_INT8";
  return {name, four ? 2u : 1u, 1, {}};
}

constexpr StoredType kFp8Type = {"FP8", 1, 1, {}};
constexpr StoredType kFp4Type = {"FP4", 2, 1, {}};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class Joiner {
 public:
  Joiner(const Settings& settings, std::vector<Tensor>& tensors) : settings_(settings), tensors_(tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) by_name_.emplace(tensors[i].name, i);
  }

  Result<void> run() {
    std::vector<std::pair<std::size_t, Tensor>> joined;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      auto matrix = join(tensors_[i]);
      if (!matrix) return std::unexpected(matrix.error());
      if (*matrix) joined.emplace_back(i, std::move(**matrix));
    }
    for (auto& [i, matrix] : joined) tensors_[i] = std::move(matrix);
    return {};
  }

 private:
  using Joined = Result<std::optional<Tensor>>;

  /// The matrix whose main tensor this is, if it is one.
  Joined join(const Tensor& t) {
    const std::string_view name = t.name;
    const auto base = [&](std::string_view suffix) -> std::optional<std::string> {
      if (!name.ends_with(suffix)) return std::nullopt;
      return std::string(name.substr(0, name.size() - suffix.size()));
    };
    const std::string_view type = t.type.name;
    if (settings_.method == "awq" || settings_.method == "gptq") {
      if (const auto x = base(".qweight")) return column_integers(t, *x);
    } else if (settings_.method == "mxfp4") {
      if (const auto x = base("_blocks")) return expert_blocks(t, *x);
    } else {
      if (const auto x = base(".weight_packed"))
        return type == "U8" ? packed_fp4(t, *x) : row_integers(t, *x);
      if (const auto x = base(".weight"); x && (type == "F8_E4M3" || type == "I8"))
        return scaled_bytes(t, *x);
    }
    return std::nullopt;
  }

  static std::unexpected<Error> bad(const Tensor& t, const std::string& what) {
    return fail(ErrorCode::kBadFile, "tensor " + printable(t.name) + ": " + what);
  }
  static std::unexpected<Error> unsupported(const Tensor& t, const std::string& what) {
    return fail(ErrorCode::kUnsupported,
                "tensor " + printable(t.name) + ": " + what + " is not supported yet");
  }

  const Tensor* find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  Result<const Tensor*> need(const std::string& name, std::initializer_list<std::string_view> types) const {
    const Tensor* t = find(name);
    if (t == nullptr) return fail(ErrorCode::kBadFile, "tensor " + printable(name) + " is missing");
    if (!one_of(t->type.name, types))
      return unsupported(*t, std::string("the type ") + t->type.name + " here");
    return t;
  }
  static Result<Floats> floats(const Tensor& t) {
    if (!t.type.dtype) return unsupported(t, std::string("the type ") + t.type.name + " here");
    return Floats{t.bytes.data(), *t.type.dtype};
  }
  /// [rows, columns], each at most kMaxDim, neither empty.
  static Result<void> check_matrix(const Tensor& t) {
    if (t.shape.size() != 2)
      return unsupported(t, "a quantised weight of " + std::to_string(t.shape.size()) + " dimensions");
    for (const std::int64_t d : t.shape) {
      if (d < 1 || d > kMaxDim) return bad(t, "its shape has a size out of range");
    }
    return {};
  }
  static Result<void> check_shape(const Tensor& t, const std::vector<std::int64_t>& shape) {
    if (t.shape == shape) return {};
    return bad(t, "its shape does not fit that of the weight");
  }

  static Tensor finish(const Tensor& main, std::string name, StoredType type, std::vector<std::int64_t> shape,
                       DType dtype, std::shared_ptr<RowSource> source,
                       std::initializer_list<const Tensor*> parts) {
    for (const Tensor* part : parts) {
      if (part != nullptr) source->parts.push_back(*part);
    }
    Tensor out;
    out.name = std::move(name);
    out.type = type;
    out.type.dtype = dtype;
    out.shape = std::move(shape);
    out.bytes = main.bytes;
    out.file = main.file;
    out.source = std::move(source);
    return out;
  }

  /// A matrix [n, k] of integers with `groups` scales a row.
  Joined integers(const Tensor& main, const std::string& base, std::int64_t n, std::int64_t k,
                  std::int64_t groups, Integers::Parts p, bool in_order,
                  std::initializer_list<const Tensor*> parts) {
    if (p.g_idx != nullptr) sort_columns(k, groups, p);
    const bool runs = p.g_idx != nullptr ? !p.order.empty()
                                         : k % kRun == 0 && (p.group % kRun == 0 || p.group >= k);
    const DType type = Integers::type_for(p, runs);
    const StoredType stored = integer_type(settings_, p.codes.bits);
    auto source = std::make_shared<Integers>(k, type, std::move(p));
    source->in_order = in_order;
    return finish(main, base + ".weight", stored, {n, k}, type, std::move(source), parts);
  }

  /// Columns by group, if every group is whole runs.
  static void sort_columns(std::int64_t k, std::int64_t groups, Integers::Parts& p) {
    std::vector<std::vector<std::int32_t>> columns(static_cast<std::size_t>(groups));
    for (std::int64_t i = 0; i < k; ++i)
      columns[load_u32(p.g_idx + 4 * i)].push_back(static_cast<std::int32_t>(i));
    const auto whole = [](const auto& c) { return c.size() % kRun == 0; };
    if (!std::all_of(columns.begin(), columns.end(), whole)) return;
    for (std::size_t g = 0; g < columns.size(); ++g) {
      p.order.insert(p.order.end(), columns[g].begin(), columns[g].end());
      p.run_groups.insert(p.run_groups.end(), columns[g].size() / kRun, static_cast<std::int32_t>(g));
    }
  }

  /// The group of every column, where it is not simply column / group; validated.
  static Result<const std::byte*> group_index(const Tensor* t, std::int64_t k, std::int64_t groups,
                                              std::int64_t group) {
    if (t == nullptr) return nullptr;
    if (std::string_view(t->type.name) != "I32" || t->shape != std::vector{k})
      return bad(*t, "it is not one I32 for each input");
    bool plain = true;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint32_t g = load_u32(t->bytes.data() + 4 * i);
      if (g >= static_cast<std::uint64_t>(groups)) return bad(*t, "it names a group that is not there");
      plain = plain && g == static_cast<std::uint64_t>(i / group);
    }
    return plain ? nullptr : t->bytes.data();
  }

  /// AWQ and GPTQ: everything is [in, out].
  Joined column_integers(const Tensor& main, const std::string& base) {
    const bool awq = settings_.method == "awq";
    const auto bits = static_cast<int>(settings_.bits);
    const std::int64_t per = 32 / bits;
    if (std::string_view(main.type.name) != "I32") return unsupported(main, "a type other than I32");
    if (auto ok = check_matrix(main); !ok) return std::unexpected(ok.error());
    const std::int64_t k = main.shape[0] * (awq ? 1 : per), n = main.shape[1] * (awq ? per : 1);
    if (k > kMaxDim || n > kMaxDim) return bad(main, "its shape has a size out of range");
    auto zeros = need(base + ".qzeros", {"I32"}), scales = need(base + ".scales", {"F16", "BF16", "F32"});
    if (!zeros) return std::unexpected(zeros.error());
    if (!scales) return std::unexpected(scales.error());
    if (auto ok = check_matrix(**scales); !ok) return std::unexpected(ok.error());
    const std::int64_t groups = (*scales)->shape[0];
    if (groups > k || n % per != 0) return bad(**scales, "its shape does not fit that of the weight");
    if (auto ok = check_shape(**scales, {groups, n}); !ok) return std::unexpected(ok.error());
    if (auto ok = check_shape(**zeros, {groups, n / per}); !ok) return std::unexpected(ok.error());
    if (k % groups != 0) return unsupported(main, "a last group that is smaller");
    const std::int64_t group = k / groups;
    const Tensor* g_idx = awq ? nullptr : find(base + ".g_idx");
    auto index = group_index(g_idx, k, groups, group);
    if (!index) return std::unexpected(index.error());
    auto values = floats(**scales);
    if (!values) return std::unexpected(values.error());
    Integers::Parts p;
    p.codes = {.words = main.bytes.data(),
               .bits = bits,
               .k_per = awq ? 1 : per,
               .k_stride = main.shape[1],
               .n_per = awq ? per : 1,
               .n_stride = 1,
               .awq = awq};
    p.zeros = Packed{.words = (*zeros)->bytes.data(),
                     .bits = bits,
                     .k_per = 1,
                     .k_stride = n / per,
                     .n_per = per,
                     .n_stride = 1,
                     .awq = awq};
    p.zero = settings_.v1_zeros ? 1 : 0;
    p.scales = {*values, 1, 1, group, n};
    p.group = group;
    p.g_idx = *index;
    return integers(main, base, n, k, groups, std::move(p), false, {*zeros, *scales, g_idx});
  }

  /// compressed-tensors: rows are outputs; weight_shape says where a row of words ends.
  Joined row_integers(const Tensor& main, const std::string& base) {
    if (std::string_view(main.type.name) != "I32") return unsupported(main, "a type other than I32 and U8");
    if (auto ok = check_matrix(main); !ok) return std::unexpected(ok.error());
    auto shape = need(base + ".weight_shape", {"I64", "I32"});
    auto scales = need(base + ".weight_scale", {"F16", "BF16", "F32"});
    if (!shape) return std::unexpected(shape.error());
    if (!scales) return std::unexpected(scales.error());
    if ((*shape)->elements() != 2) return bad(**shape, "it does not have two sizes");
    const std::size_t width = (*shape)->type.block_bytes;
    const auto size = [&](std::size_t i) {
      std::int64_t v = 0;
      std::memcpy(&v, (*shape)->bytes.data() + i * width, width);
      return v;
    };
    const std::int64_t n = size(0), k = size(1), words = main.shape[1];
    if (n != main.shape[0] || k < 1 || k > kMaxDim) return bad(**shape, "it does not fit the weight");
    const int bits = ceil_div(k, 8) == words ? 4 : ceil_div(k, 4) == words ? 8 : 0;
    if (bits == 0) return unsupported(main, "a number of bits other than 4 and 8");
    const std::int64_t per = 32 / bits;
    if (auto ok = check_matrix(**scales); !ok) return std::unexpected(ok.error());
    const std::int64_t groups = (*scales)->shape[1];
    if (groups > k) return bad(**scales, "its shape does not fit that of the weight");
    if (auto ok = check_shape(**scales, {n, groups}); !ok) return std::unexpected(ok.error());
    if (k % groups != 0) return unsupported(main, "a last group that is smaller");
    const std::int64_t group = k / groups;
    auto values = floats(**scales);
    if (!values) return std::unexpected(values.error());
    Integers::Parts p;
    p.codes = {
        .words = main.bytes.data(), .bits = bits, .k_per = per, .k_stride = 1, .n_per = 1, .n_stride = words};
    const Tensor* zeros = find(base + ".weight_zero_point");
    if (zeros != nullptr) {
      if (std::string_view(zeros->type.name) != "I32") return unsupported(*zeros, "a type other than I32");
      if (auto ok = check_shape(*zeros, {ceil_div(n, per), groups}); !ok) return std::unexpected(ok.error());
      p.zeros = Packed{.words = zeros->bytes.data(),
                       .bits = bits,
                       .k_per = 1,
                       .k_stride = 1,
                       .n_per = per,
                       .n_stride = groups};
    } else {
      p.zero = 1 << (bits - 1);
    }
    const Tensor* g_idx = find(base + ".weight_g_idx");
    auto index = group_index(g_idx, k, groups, group);
    if (!index) return std::unexpected(index.error());
    p.scales = {*values, 1, groups, group, 1};
    p.group = group;
    p.g_idx = *index;
    return integers(main, base, n, k, groups, std::move(p), true, {*scales, zeros, g_idx});
  }

  /// What `t` gives for a weight [n, k]: one number, one a row, one for so many of a row, or one a block.
  Result<Scales> scale_grid(const Tensor& t, std::int64_t n, std::int64_t k) const {
    auto values = floats(t);
    if (!values) return std::unexpected(values.error());
    if (t.elements() == 1) return Scales{*values, n, 0, k, 0};
    const std::int64_t rows = t.shape[0], columns = t.shape.size() == 2 ? t.shape[1] : 1;
    const std::int64_t row_per = rows == n                                   ? 1
                                 : rows == ceil_div(n, settings_.block_rows) ? settings_.block_rows
                                                                             : 0;
    const std::int64_t k_per = columns == 1                                      ? k
                               : columns == ceil_div(k, settings_.block_columns) ? settings_.block_columns
                               : columns > 0 && columns <= k && k % columns == 0 ? k / columns
                                                                                 : 0;
    if (t.shape.size() > 2 || row_per == 0 || k_per == 0)
      return bad(t, "its shape does not fit that of the weight");
    return Scales{*values, row_per, columns, k_per, 1};
  }

  Joined scaled_bytes(const Tensor& main, const std::string& base) {
    if (auto ok = check_matrix(main); !ok) return std::unexpected(ok.error());
    const bool fp8 = std::string_view(main.type.name) == "F8_E4M3";
    const std::int64_t n = main.shape[0], k = main.shape[1];
    const Tensor* inverse = find(base + ".weight_scale_inv");  // despite its name it multiplies
    auto scales = inverse != nullptr ? Result<const Tensor*>(inverse)
                                     : need(base + ".weight_scale", {"F16", "BF16", "F32"});
    if (!scales) return std::unexpected(scales.error());
    auto grid = scale_grid(**scales, n, k);
    if (!grid) return std::unexpected(grid.error());
    const Tensor* zeros = fp8 ? nullptr : find(base + ".weight_zero_point");
    if (zeros != nullptr) {
      if (std::string_view(zeros->type.name) != "I8" || zeros->elements() != static_cast<std::uint64_t>(n))
        return unsupported(*zeros, "anything but one I8 for each output");
    }
    const bool runs = k % kRun == 0 && (grid->k_per % kRun == 0 || grid->k_per >= k);
    const bool inexact = zeros != nullptr && !grid->short_floats();
    const DType type = !runs || inexact   ? DType::kF32
                       : fp8              ? DType::kFP8
                       : zeros != nullptr ? DType::kS8Min
                                          : DType::kS8Per16;
    auto source = std::make_shared<Bytes>(k, type, main.bytes.data(), fp8, *grid,
                                          zeros != nullptr ? zeros->bytes.data() : nullptr);
    return finish(main, base + ".weight", fp8 ? kFp8Type : kInt8Type, main.shape, type, std::move(source),
                  {*scales, zeros});
  }

  /// compressed-tensors: NVFP4 (with a global scale) and MXFP4.
  Joined packed_fp4(const Tensor& main, const std::string& base) {
    if (auto ok = check_matrix(main); !ok) return std::unexpected(ok.error());
    const std::int64_t n = main.shape[0], k = main.shape[1] * 2;
    if (k % kRun != 0) return unsupported(main, "a row of " + std::to_string(k) + " weights");
    const Tensor* global = find(base + ".weight_global_scale");
    auto scales = global != nullptr ? need(base + ".weight_scale", {"F8_E4M3"})
                                    : need(base + ".weight_scale", {"U8", "F8_E8M0"});
    if (!scales) return std::unexpected(scales.error());
    if (auto ok = check_shape(**scales, {n, k / (global != nullptr ? 16 : kRun)}); !ok)
      return std::unexpected(ok.error());
    std::optional<float> divisor;
    if (global != nullptr) {
      if (std::string_view(global->type.name) != "F32" || global->elements() != 1)
        return unsupported(*global, "anything but one F32");
      divisor = ops::bits_float(load_u32(global->bytes.data()));
    }
    auto source = std::make_shared<Fp4>(k, main.bytes.data(), (*scales)->bytes.data(), divisor);
    return finish(main, base + ".weight", kFp4Type, {n, k}, divisor ? DType::kFP4Per16 : DType::kFP4,
                  std::move(source), {*scales, global});
  }

  /// X_blocks [experts, rows, in / 32, 16] and X_scales [experts, rows, in / 32].
  Joined expert_blocks(const Tensor& main, const std::string& base) {
    if (std::string_view(main.type.name) != "U8" || main.shape.size() != 4 || main.shape[3] != kRun / 2)
      return unsupported(main, "anything but U8 [experts, rows, blocks, 16]");
    for (const std::int64_t d : main.shape) {
      if (d < 1 || d > kMaxDim / kRun) return bad(main, "its shape has a size out of range");
    }
    auto scales = need(base + "_scales", {"U8", "F8_E8M0"});
    if (!scales) return std::unexpected(scales.error());
    if (auto ok = check_shape(**scales, {main.shape[0], main.shape[1], main.shape[2]}); !ok)
      return std::unexpected(ok.error());
    const std::int64_t k = main.shape[2] * kRun;
    auto source = std::make_shared<Fp4>(k, main.bytes.data(), (*scales)->bytes.data(), std::nullopt);
    return finish(main, base, kFp4Type, {main.shape[0], main.shape[1], k}, DType::kFP4, std::move(source),
                  {*scales});
  }

  const Settings& settings_;
  std::vector<Tensor>& tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace

Result<void> join_quantised(const Json& config, std::vector<Tensor>& tensors) {
  const Json* quant = config.find("quantization_config");
  if (quant == nullptr || quant->is_null()) return {};
  auto settings = read_settings(*quant);
  if (!settings) return std::unexpected(settings.error());
  return Joiner(*settings, tensors).run();
}

}  // namespace barg::model
