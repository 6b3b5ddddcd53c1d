#include "model/weights.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "math.h"
#include "model/printable.h"

namespace barg::model {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kHugePage = 2 << 20;

std::size_t aligned(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

/// One tensor of a matrix. `heads` > 0: rows are interleaved inside each head and go back to halves order.
struct Source {
  const Tensor* tensor;
  std::int32_t heads = 0;
};

/// One packed matrix or f32 vector to be made. Targets live in the Weights under construction.
struct Task {
  std::vector<Source> sources;
  std::size_t offset = 0;
  std::int32_t n = 0, k = 0;  ///< k = 0: a vector of n floats
  ops::PackedWeight* matrix = nullptr;
  const float** vector = nullptr;
};

class Builder {
 public:
  Builder(const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops)
      : spec_(spec), files_(files), ops_(ops) {}

  /// Lays out every tensor. Pointers into `w` stay valid while `w` lives: its vectors get their size here.
  Result<void> plan(Weights& w) {
    matrix(w.embedding, {{find("token_embd.weight")}}, spec_.vocab_rows, spec_.hidden);
    w.output.n = spec_.vocab_rows;
    w.output.k = spec_.hidden;
    w.output.parts.resize(1);
    if (!spec_.tied)
      matrix(w.output.parts[0].weight, {{find("output.weight")}}, spec_.vocab_rows, spec_.hidden);
    vector(w.final_norm, {{find("output_norm.weight")}}, spec_.hidden);
    w.layers.resize(static_cast<std::size_t>(spec_.num_layers));
    for (std::int32_t i = 0; i < spec_.num_layers; ++i)
      layer(w.layers[static_cast<std::size_t>(i)], "blk." + std::to_string(i) + ".");
    if (error_) return std::unexpected(*error_);
    return {};
  }

  Result<void> load(Weights& w, ops::Stream& stream,
                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    auto arena = Arena::create(size_);
    if (!arena) return std::unexpected(arena.error());
    w.arena = std::move(*arena);
    std::uint64_t done = 0;
    if (progress) progress(0, file_bytes_);
    for (const Task& t : tasks_) {
      std::byte* dst = w.arena.data() + t.offset;
      if (t.k > 0) {
        pack(t, dst, stream);
      } else {
        read_vector(t, reinterpret_cast<float*>(dst));
      }
      for (const Source& s : t.sources) {
        files_.drop(*s.tensor);
        done += s.tensor->bytes.size();
      }
      if (progress) progress(done, file_bytes_);
    }
    if (spec_.tied) w.output.parts[0].weight = w.embedding;
    return {};
  }

  std::size_t size() const { return size_; }

 private:
  struct Named {
    const char* name;
    std::int32_t n;
    std::int32_t heads;  ///< > 0: undo the interleaving
  };

  const Tensor* find(const std::string& name) {
    const Tensor* t = files_.find(name);
    if (t == nullptr) set_error(ErrorCode::kBadFile, "tensor " + name + " is missing");
    return t;
  }

  void set_error(ErrorCode code, std::string message) {
    if (!error_) error_ = Error{code, files_.path() + ": " + message, {}, 0};
  }

  /// The dtype of a tensor that a kernel will read, or a refusal by name.
  DType dtype(const Tensor* t, bool floats_only) {
    if (t == nullptr) return DType::kF32;
    const bool known = t->type.dtype.has_value() && (!floats_only || t->type.block_elements == 1);
    if (!known) {
      set_error(ErrorCode::kUnsupported, "tensor " + printable(t->name) + ": type " + t->type.name +
                                             " is not supported yet" + (floats_only ? " here" : ""));
      return DType::kF32;
    }
    return *t->type.dtype;
  }

  void matrix(ops::PackedWeight& to, std::vector<Source> sources, std::int32_t n, std::int32_t k) {
    const DType type = dtype(sources[0].tensor, false);
    if (error_) return;
    if (static_cast<std::size_t>(k) % block_elements(type) != 0) {
      return set_error(ErrorCode::kBadFile,
                       "tensor " + printable(sources[0].tensor->name) + ": its rows are not whole blocks");
    }
    to.n = n;
    to.k = k;
    to.dtype = type;
    add({std::move(sources), 0, n, k, &to, nullptr}, ops_.packed_bytes(type, n, k));
  }

  void vector(const float*& to, std::vector<Source> sources, std::int32_t n) {
    for (const Source& s : sources) dtype(s.tensor, true);
    if (error_) return;
    add({std::move(sources), 0, n, 0, nullptr, &to}, static_cast<std::size_t>(n) * sizeof(float));
  }

  void add(Task task, std::size_t bytes) {
    task.offset = size_;
    size_ += aligned(bytes);
    for (const Source& s : task.sources) file_bytes_ += s.tensor->bytes.size();
    tasks_.push_back(std::move(task));
  }

  /// Parts that are stored alike become one matrix, if `join`.
  void projection(Projection& p, const std::string& blk, const std::vector<Named>& parts, std::int32_t k,
                  bool bias, bool join = true) {
    p.k = k;
    std::vector<std::vector<Named>> runs;
    for (const Named& part : parts) {
      const DType type = dtype(find(blk + part.name + ".weight"), false);
      if (join && !runs.empty() && dtype(files_.find(blk + runs.back()[0].name + ".weight"), false) == type)
        runs.back().push_back(part);
      else
        runs.push_back({part});
    }
    if (error_) return;
    p.parts.resize(runs.size());
    for (std::size_t i = 0; i < runs.size(); ++i) {
      std::vector<Source> weights, biases;
      std::int32_t n = 0;
      for (const Named& part : runs[i]) {
        weights.push_back({find(blk + part.name + ".weight"), part.heads});
        if (bias) biases.push_back({find(blk + part.name + ".bias"), part.heads});
        n += part.n;
      }
      p.parts[i].out_offset = p.n;
      p.n += n;
      matrix(p.parts[i].weight, std::move(weights), n, k);
      if (bias) vector(p.parts[i].bias, std::move(biases), n);
    }
  }

  void layer(LayerWeights& l, const std::string& blk) {
    const std::int32_t q = spec_.num_q_heads * spec_.head_dim, kv = spec_.num_kv_heads * spec_.head_dim;
    const bool interleaved = spec_.permuted_qk;
    vector(l.attn_norm, {{find(blk + "attn_norm.weight")}}, spec_.hidden);
    projection(l.qkv, blk,
               {{"attn_q", q, interleaved ? spec_.num_q_heads : 0},
                {"attn_k", kv, interleaved ? spec_.num_kv_heads : 0},
                {"attn_v", kv, 0}},
               spec_.hidden, spec_.qkv_bias);
    projection(l.attn_out, blk, {{"attn_output", spec_.hidden, 0}}, q, spec_.o_bias);
    vector(l.ffn_norm, {{find(blk + "ffn_norm.weight")}}, spec_.hidden);
    projection(l.gate_up, blk, {{"ffn_gate", spec_.ffn, 0}, {"ffn_up", spec_.ffn, 0}}, spec_.hidden,
               spec_.mlp_bias, false);
    projection(l.down, blk, {{"ffn_down", spec_.hidden, 0}}, spec_.ffn, spec_.mlp_bias);
  }

  /// Copies rows of `s` to `dst`, from interleaved to halves order inside each head: row j*d/2 + i (j = 0, 1)
  /// of a head is stored as row 2i + j.
  static void copy_rows(const Source& s, std::size_t rows, std::byte* dst) {
    const std::byte* src = s.tensor->bytes.data();
    const std::size_t row_bytes = s.tensor->bytes.size() / rows;
    if (s.heads == 0) {
      std::memcpy(dst, src, s.tensor->bytes.size());
      return;
    }
    const std::size_t head_rows = rows / static_cast<std::size_t>(s.heads), half = head_rows / 2;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t head = r / head_rows, in_head = r % head_rows;
      const std::size_t stored = head * head_rows + 2 * (in_head % half) + in_head / half;
      std::memcpy(dst + r * row_bytes, src + stored * row_bytes, row_bytes);
    }
  }

  void pack(const Task& t, std::byte* dst, ops::Stream& stream) {
    const std::byte* src = t.sources[0].tensor->bytes.data();
    if (t.sources.size() > 1 || t.sources[0].heads > 0) {
      std::size_t total = 0;
      for (const Source& s : t.sources) total += s.tensor->bytes.size();
      scratch_.resize(total);
      std::size_t at = 0;
      for (const Source& s : t.sources) {
        copy_rows(s, static_cast<std::size_t>(s.tensor->shape[0]), scratch_.data() + at);
        at += s.tensor->bytes.size();
      }
      src = scratch_.data();
    }
    ops_.pack(stream, {.src = src, .n = t.n, .k = t.k, .dtype = t.matrix->dtype, .dst = dst});
    t.matrix->data = dst;
  }

  void read_vector(const Task& t, float* dst) {
    float* at = dst;
    for (const Source& s : t.sources) {
      const std::size_t n = s.tensor->elements();
      scratch_.resize(s.tensor->bytes.size());
      copy_rows(s, n, scratch_.data());
      for (std::size_t i = 0; i < n; ++i) at[i] = element(*s.tensor->type.dtype, scratch_.data(), i);
      at += n;
    }
    *t.vector = dst;
  }

  static float element(DType type, const std::byte* p, std::size_t i) {
    if (type == DType::kF32) {
      float f;
      std::memcpy(&f, p + 4 * i, 4);
      return f;
    }
    std::uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    return type == DType::kF16 ? ops::f16_to_f32(h) : ops::bf16_to_f32(h);
  }

  const DecoderSpec& spec_;
  const ModelFiles& files_;
  const ops::OpTable& ops_;
  std::vector<Task> tasks_;
  std::vector<std::byte> scratch_;
  std::size_t size_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Arena> Arena::create(std::size_t bytes) {
  Arena a;
  a.size_ = (bytes + kAlign - 1) / kAlign * kAlign + (bytes == 0 ? kAlign : 0);
  void* p = ::mmap(nullptr, a.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    a.size_ = 0;
    return fail(ErrorCode::kOutOfMemory, "cannot allocate " + std::to_string(bytes) + " bytes for weights");
  }
  a.data_ = static_cast<std::byte*>(p);
  if (a.size_ >= kHugePage) ::madvise(p, a.size_, MADV_HUGEPAGE);
  return a;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Arena::Arena(Arena&& o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Arena& Arena::operator=(Arena&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

Result<std::uint64_t> plan_weights(const DecoderSpec& spec, const ModelFiles& files,
                                   const ops::OpTable& ops) {
  Weights w;
  Builder b(spec, files, ops);
  if (auto ok = b.plan(w); !ok) return std::unexpected(ok.error());
  return b.size();
}

Result<std::unique_ptr<Weights>> load_weights(
    const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops, ops::Stream& stream,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  auto w = std::make_unique<Weights>();
  Builder b(spec, files, ops);
  if (auto ok = b.plan(*w); !ok) return std::unexpected(ok.error());
  if (auto ok = b.load(*w, stream, progress); !ok) return std::unexpected(ok.error());
  return w;
}

}  // namespace barg::model
