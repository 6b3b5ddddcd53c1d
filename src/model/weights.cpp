#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "math.h"
#include "model/printable.h"
#include "model/quants.h"
#include "model/recurrent.h"
#include "model/weight_rows.h"

namespace barg::model {
namespace {

constexpr std::size_t kAlign = 64;
// Of the file, in memory at one time: enough work for every thread, little beside any model.
constexpr std::size_t kSlabBytes = 2 << 20;

std::size_t aligned(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

class Builder {
 public:
  Builder(const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops, Recipe recipe)
      : spec_(spec), files_(files), ops_(ops), packing_(ops::packing(recipe)) {}

  /// Lays out every tensor. Pointers into `w` stay valid while `w` lives: its vectors get their size here.
  Result<void> plan(Weights& w) {
    orders_ = &w.orders;
    // Nobody multiplies by an embedding of its own.
    w.embedding.packing = spec_.tied ? packing_ : ops::Packing::kStored;
    matrix(w.embedding, {{find("token_embd.weight"), 0, spec_.vocab_rows}}, spec_.vocab_rows, spec_.hidden);
    if (spec_.generates()) output(w.output);
    if (spec_.tables.positions > 0) tables(w);
    if (spec_.final_norm) norm(w.final_norm, "output_norm");
    besides(w);
    w.layers.resize(static_cast<std::size_t>(spec_.num_layers));
    for (std::int32_t i = 0; i < spec_.num_layers; ++i)
      layer(w.layers[static_cast<std::size_t>(i)], spec_.layers[static_cast<std::size_t>(i)],
            "blk." + std::to_string(i) + ".");
    const auto plain = [](const LayerSpec& l) {
      return l.mixer == MixerKind::kAttention && l.feed == FeedKind::kDense;
    };
    if (!w.orders.empty() && !std::all_of(spec_.layers.begin(), spec_.layers.end(), plain)) {
      set_error(ErrorCode::kUnsupported,
                "inputs in another order than their groups are not supported yet with experts or latent attention");
    }
    if (error_) return std::unexpected(*error_);
    return {};
  }

  Result<void> load(Weights& w, ops::Stream& stream, Memory& memory,
                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    w.arena = memory.allocate(size_, "weights", false);
    if (w.arena == nullptr)
      return fail(ErrorCode::kOutOfMemory, "cannot allocate " + std::to_string(size_) + " bytes for weights");
    progress_ = &progress;
    report(0);
    for (const Task& t : tasks_) {
      std::byte* dst = w.arena->data() + t.offset;
      if (t.k > 0) {
        pack(t, dst, stream);
        continue;
      }
      const std::span<const float> vector = read_vector(t);
      if (!memory.write(dst, vector.data(), vector.size_bytes())) return fail(ErrorCode::kInternal, "the device is lost");
      *t.vector = reinterpret_cast<const float*>(dst);
    }
    if (spec_.tied) w.output.parts[0].weight = w.embedding;
    return {};
  }

  std::size_t size() const { return size_; }

 private:
  /// Rows [row, row + n) of a tensor.
  struct Named {
    const char* name;
    std::int32_t n;
    std::int32_t row = 0;
    std::int32_t heads = 0;  ///< > 0: undo the interleaving
  };

  const Tensor* find(const std::string& name) {
    const Tensor* t = files_.find(name);
    if (t == nullptr) set_error(ErrorCode::kBadFile, "tensor " + name + " is missing");
    return t == nullptr ? nullptr : as_wanted(t);
  }

  /// The tensor, or what stands for it where the back end reads the file's own blocks.
  const Tensor* as_wanted(const Tensor* t) {
    if (t->type.convert == nullptr || !t->type.dtype || t->source != nullptr) return t;
    const DType type = ops_.stored_type(t->type.name, *t->type.dtype);
    if (type == *t->type.dtype) return t;
    const auto [at, fresh] = unconverted_.try_emplace(t, *t);
    at->second.type.dtype = type;
    at->second.type.convert = nullptr;
    return &at->second;
  }

  void set_error(ErrorCode code, std::string message) {
    if (!error_) error_ = Error{code, files_.path() + ": " + message, {}, 0};
  }

  /// The dtype of a tensor that a kernel will read, or a refusal by name.
  DType dtype(const Tensor* t, bool floats_only) {
    if (t == nullptr) return DType::kF32;
    const bool known = t->type.dtype.has_value() && (!floats_only || t->plain_floats());
    if (!known) {
      set_error(ErrorCode::kUnsupported, "tensor " + printable(t->name) + ": type " + t->type.name +
                                             " is not supported yet" + (floats_only ? " here" : ""));
      return DType::kF32;
    }
    return *t->type.dtype;
  }

  static const std::vector<std::int32_t>& order_of(const Tensor* t) {
    static const std::vector<std::int32_t> kNone;
    return t == nullptr || t->source == nullptr ? kNone : t->source->order;
  }

  /// Kept once for all parts of a projection.
  const std::int32_t* keep_order(const std::vector<std::int32_t>& order) {
    if (order.empty()) return nullptr;
    if (orders_->empty() || orders_->back() != order) orders_->push_back(order);
    return orders_->back().data();
  }

  /// `to` knows its packing. `any_order`: whoever multiplies by it heeds RowSource::order.
  void matrix(ops::PackedWeight& to, std::vector<Source> sources, std::int32_t n, std::int32_t k,
              bool any_order = false) {
    DType type = dtype(sources[0].tensor, false);
    if (error_) return;
    if (in_blocks_across(sources[0])) type = DType::kF32;
    if (!any_order && !order_of(sources[0].tensor).empty()) {
      return set_error(ErrorCode::kUnsupported, "tensor " + printable(sources[0].tensor->name) +
                                                    ": inputs in another order than their groups are not "
                                                    "supported yet here");
    }
    if (static_cast<std::size_t>(k) % block_elements(type) != 0) {
      return set_error(ErrorCode::kBadFile,
                       "tensor " + printable(sources[0].tensor->name) + ": its rows are not whole blocks");
    }
    to.n = n;
    to.k = k;
    to.dtype = type;
    for (const Source& s : sources) file_bytes_ += s.together() ? s.file_bytes() : 0;
    const std::size_t bytes = ops_.packed_bytes(type, n, k, to.packing);
    if (bytes == 0) {
      return set_error(ErrorCode::kUnsupported, "tensor " + printable(sources[0].tensor->name) + ": " + ops_.name +
                                                    " has no kernel for [" + std::to_string(n) + ", " +
                                                    std::to_string(k) + "] of type " + sources[0].tensor->type.name);
    }
    add({std::move(sources), 0, n, k, &to, nullptr, {}}, bytes);
  }

  void vector(const float*& to, std::vector<Source> sources, std::int32_t n,
              std::function<void(std::span<float>)> change = {}) {
    for (const Source& s : sources) dtype(s.tensor, true);
    if (error_) return;
    for (const Source& s : sources) file_bytes_ += s.together() ? s.bytes(number_bytes(s)).size() : 0;
    add({std::move(sources), 0, n, 0, nullptr, &to, std::move(change)},
        static_cast<std::size_t>(n) * sizeof(float));
  }

  void norm(NormWeights& to, const std::string& name) {
    vector(to.weight, {{find(name + ".weight"), 0, spec_.hidden}}, spec_.hidden);
    if (spec_.norm.bias) vector(to.bias, {{find(name + ".bias"), 0, spec_.hidden}}, spec_.hidden);
  }

  /// Of q or k.
  void head_norm(const float*& to, const std::string& name, std::int32_t heads, std::int32_t dim) {
    const std::int32_t interleaved = spec_.interleaved_qk;
    std::vector<Source> sources;
    switch (spec_.qk_norm) {
      case QkNorm::kNone:
        return;
      case QkNorm::kHeads:
        return vector(to, {{find(name + ".weight"), 0, dim, interleaved > 0 ? 1 : 0, interleaved}}, dim);
      case QkNorm::kOwnHeads:
      case QkNorm::kRow:
        return vector(to,
                      {{find(name + ".weight"), 0, heads * dim, interleaved > 0 ? heads : 0, interleaved}},
                      heads * dim);
      case QkNorm::kOwnHeadsApart:
        for (std::int32_t h = 0; h < heads; ++h)
          sources.push_back({find(name + "." + std::to_string(h) + ".weight"), 0, dim,
                             interleaved > 0 ? 1 : 0, interleaved});
        return vector(to, std::move(sources), heads * dim);
    }
  }

  void add(Task task, std::size_t bytes) {
    task.offset = size_;
    size_ += aligned(bytes);
    tasks_.push_back(std::move(task));
  }

  /// Parts that are stored alike become one matrix, if `join`.
  void projection(Projection& p, const std::string& blk, const std::vector<Named>& parts, std::int32_t k,
                  bool bias, bool join = true) {
    p.k = k;
    std::vector<std::vector<Named>> runs;
    for (const Named& part : parts) {
      const Tensor* const t = find(blk + part.name + ".weight");
      const DType type = dtype(t, false);
      const Tensor* const last = runs.empty() ? nullptr : find(blk + runs.back()[0].name + ".weight");
      if (join && last != nullptr && dtype(last, false) == type && order_of(last) == order_of(t))
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
        const auto source = [&](const char* kind) {
          return Source{find(blk + part.name + kind), part.row, part.n, part.heads, spec_.interleaved_qk};
        };
        weights.push_back(source(".weight"));
        if (bias) biases.push_back(source(".bias"));
        n += part.n;
      }
      p.parts[i].out_offset = p.n;
      p.parts[i].weight.packing = packing_;
      p.n += n;
      p.parts[i].order = keep_order(order_of(weights[0].tensor));
      matrix(p.parts[i].weight, std::move(weights), n, k, true);
      if (bias) vector(p.parts[i].bias, std::move(biases), n);
    }
  }

  void tables(Weights& w) {
    matrix(w.positions, {{find("position_embd.weight"), 0, spec_.tables.positions}}, spec_.tables.positions, spec_.hidden);
    matrix(w.types, {{find("token_types.weight"), 0, spec_.tables.types}}, spec_.tables.types, spec_.hidden);
    norm(w.table_norm, "token_embd_norm");
  }

  void output(Projection& p) {
    p.n = spec_.vocab_rows;
    p.k = spec_.hidden;
    p.parts.resize(1);
    p.parts[0].weight.packing = packing_;
    if (!spec_.tied)
      matrix(p.parts[0].weight, {{find("output.weight"), 0, spec_.vocab_rows}}, spec_.vocab_rows, spec_.hidden);
  }

  void attention(LayerWeights& l, const LayerSpec& layer, const std::string& blk) {
    const LayerShape shape = shape_of(spec_, layer);
    const auto q = static_cast<std::int32_t>(shape.q_width), kv = static_cast<std::int32_t>(shape.kv_width);
    const bool interleaved = spec_.interleaved_qk > 0;
    const std::int32_t q_heads = interleaved ? spec_.num_q_heads : 0,
                       kv_heads = interleaved ? shape.num_kv_heads : 0;
    const bool one = spec_.fused_qkv;
    std::vector<Named> rows = {{one ? "attn_qkv" : "attn_q", q, 0, q_heads},
                               {one ? "attn_qkv" : "attn_k", kv, one ? q : 0, kv_heads},
                               {one ? "attn_qkv" : "attn_v", kv, one ? q + kv : 0}};
    if (spec_.attention_gate) {  // [q of a head | its gate] each; the gates go behind v
      const std::int32_t d = shape.head_dim;
      rows.erase(rows.begin());
      for (std::int32_t h = spec_.num_q_heads; h-- > 0;) rows.insert(rows.begin(), {"attn_q", d, 2 * h * d});
      for (std::int32_t h = 0; h < spec_.num_q_heads; ++h) rows.push_back({"attn_q", d, (2 * h + 1) * d});
    }
    if (layer.v_is_k) rows.pop_back();
    if (layer.kv_of >= 0) rows.resize(1);
    projection(l.qkv, blk, rows, spec_.hidden, spec_.qkv_bias);
    head_norm(l.q_norm, blk + "attn_q_norm", spec_.num_q_heads, shape.head_dim);
    if (layer.kv_of < 0) head_norm(l.k_norm, blk + "attn_k_norm", shape.num_kv_heads, shape.head_dim);
    if (spec_.sinks)
      vector(l.sinks, {{find(blk + "attn_sinks.weight"), 0, spec_.num_q_heads}}, spec_.num_q_heads);
    projection(l.attn_out, blk, {{"attn_output", spec_.hidden}}, q, spec_.o_bias);
  }

  void dense(LayerWeights& l, const std::string& blk, std::int32_t ffn) {
    const bool one = spec_.fused_gate_up;
    std::vector<Named> rows = {{one ? "ffn_up" : "ffn_gate", ffn}, {"ffn_up", ffn, one ? ffn : 0}};
    if (!spec_.gated) rows.erase(rows.begin());
    projection(l.gate_up, blk, rows, spec_.hidden, spec_.mlp_bias, false);
    projection(l.down, blk, {{"ffn_down", spec_.hidden}}, ffn, spec_.mlp_bias);
  }

  /// What stands beside the layers, for all of them.
  void besides(Weights& w) {
    const PerLayerSpec& inputs = spec_.per_layer;
    const std::int32_t width = spec_.num_layers * inputs.width, h = spec_.hidden;
    if (inputs.width > 0) {
      w.per_layer_table.packing = ops::Packing::kStored;
      matrix(w.per_layer_table, {{find("per_layer_token_embd.weight"), 0, inputs.rows}}, inputs.rows, width);
      projection(w.per_layer_in, "", {{"per_layer_model_proj", width}}, h, false);
      vector(w.per_layer_norm, {{find("per_layer_proj_norm.weight"), 0, inputs.width}}, inputs.width);
    }
    const auto others = [&](std::vector<Projection>& to, const std::string& name) {
      const bool stacked = spec_.streams.stacked;
      to.resize(static_cast<std::size_t>(spec_.streams.count - 1));
      for (std::int32_t i = 0; i < spec_.streams.count - 1; ++i) {
        const std::string of = stacked ? name : name + "." + std::to_string(i);
        projection(to[static_cast<std::size_t>(i)], "", {{of.c_str(), h, stacked ? i * h : 0}}, h, false);
      }
    };
    others(w.to_streams, "altup_proj");
    others(w.from_streams, "altup_unembd_proj");
    if (!spec_.v_norm && spec_.streams.count == 1) return;
    std::int32_t most = h;
    for (const LayerSpec& l : spec_.layers) most = std::max(most, shape_of(spec_, l).head_dim);
    vector(w.ones, {}, most, [](std::span<float> v) { std::fill(v.begin(), v.end(), 1.0f); });
  }

  /// And of one layer.
  void besides(LayerWeights& l, const std::string& blk) {
    const std::int32_t h = spec_.hidden, width = spec_.per_layer.width, streams = spec_.streams.count;
    if (width > 0) {
      projection(l.per_layer.gate, blk, {{"inp_gate", width}}, h, false);
      projection(l.per_layer.out, blk, {{"proj", h}}, width, false);
      norm(l.per_layer.post_norm, blk + "post_norm");
    }
    if (spec_.layer_scale) {
      vector(spare_, {{find(blk + "layer_output_scale.weight"), 0, 1}}, 1,
             [&l](std::span<float> v) { l.scale = v[0]; });
    }
    if (streams > 1) {
      StreamWeights& s = l.streams;
      const auto small = [&](ops::PackedWeight& to, const char* name, std::int32_t n, std::int32_t k) {
        matrix(to, {{find(blk + name + std::string(".weight")), 0, n}}, n, k);
      };
      small(s.router, "altup_router", streams, h);
      small(s.predict, "altup_predict_coef", streams * streams, streams);
      small(s.correct, "altup_correct_coef", streams, streams);
      divided(s.router_norm, blk + "altup_router_norm.weight", static_cast<float>(h));
      if (spec_.streams.scaled) vector(s.scale, {{find(blk + "altup_correct_scale.weight"), 0, h}}, h);
    }
    if (spec_.streams.laurel_rank > 0) {
      projection(l.streams.laurel_left, blk, {{"laurel_l", spec_.streams.laurel_rank}}, h, false);
      projection(l.streams.laurel_right, blk, {{"laurel_r", h}}, spec_.streams.laurel_rank, false);
      norm(l.streams.laurel_norm, blk + "laurel_post_norm");
    }
  }

  /// [hidden] numbers, each divided.
  void divided(const float*& to, const std::string& name, float by) {
    vector(to, {{find(name), 0, spec_.hidden}}, spec_.hidden, [by](std::span<float> v) {
      for (float& x : v) x = x / by;
    });
  }

  /// `sources` one behind the other, a matrix each, all stored alike.
  void stack(ops::PackedStack& to, const std::vector<Source>& sources, std::int32_t n, std::int32_t k) {
    to.count = static_cast<std::int32_t>(sources.size());
    to.first.packing = packing_;
    for (std::size_t i = 0; i < sources.size() && !error_; ++i) {
      const Tensor &first = *sources[0].tensor, &t = *sources[i].tensor;
      ops::PackedWeight& held = i == 0 ? to.first : more_.emplace_back(ops::PackedWeight{.packing = packing_});
      matrix(held, {sources[i]}, n, k);
      // Of one name in the file they may still be held in several types: by how their scales lie, say.
      if (!error_ && held.dtype != to.first.dtype) {
        set_error(ErrorCode::kUnsupported, "tensors " + printable(first.name) + " and " + printable(t.name) +
                                               " are stored in different types, which is not supported yet");
      }
    }
    to.stride = static_cast<std::int64_t>(aligned(ops_.packed_bytes(to.first.dtype, n, k, packing_)));
  }

  /// The matrices [n, k] of all experts: `name` says which of the three. `turn`: of two in one tensor, which.
  std::vector<Source> expert_sources(const std::string& blk, const char* name, std::int32_t n, std::int32_t k,
                                     bool fused, std::int32_t turn) {
    const ExpertSpec& e = spec_.experts;
    const bool transposed = e.layout == ExpertLayout::kFusedTransposed;
    const bool by_turns = fused && e.layout == ExpertLayout::kFusedTurns;
    const std::int32_t turns = fused ? 2 : 1;
    std::vector<Source> out;
    for (std::int32_t i = 0; i < e.count; ++i) {
      if (e.layout == ExpertLayout::kEach) {
        out.push_back({find(blk + name + "." + std::to_string(i) + ".weight"), 0, n});
        continue;
      }
      Source s{find(blk + (fused ? "ffn_gate_up" : name) + "_exps.weight"), fused ? (2 * i + turn) * n : i * n, n};
      if (by_turns) {
        s.row = i * 2 * n + turn;
        s.step = 2;
      }
      if (transposed)
        s.across = Across{std::int64_t{i} * k * n * turns + turn, turns, std::int64_t{n} * turns};
      out.push_back(s);
    }
    return out;
  }

  /// [E, n] numbers; of two in one tensor half of each run of 2n, or every second one.
  void expert_bias(const float*& to, const std::string& blk, const char* name, std::int32_t n, bool fused,
                   std::int32_t turn) {
    const ExpertSpec& e = spec_.experts;
    if (!e.bias) return;
    std::vector<Source> sources;
    const Tensor* t = find(blk + (fused ? "ffn_gate_up" : name) + "_exps.bias");
    for (std::int32_t i = 0; i < e.count; ++i) {
      const bool by_turns = e.layout != ExpertLayout::kFused && fused;
      Source s{t, fused ? i * 2 * n + (by_turns ? turn : turn * n) : i * n, n};
      if (by_turns) s.step = 2;
      sources.push_back(s);
    }
    vector(to, std::move(sources), e.count * n);
  }

  void experts(ExpertWeights& w, const std::string& blk) {
    const ExpertSpec& e = spec_.experts;
    const std::int32_t h = spec_.hidden;
    w.router.packing = ops::Packing::kStored;
    matrix(w.router, {{find(blk + "ffn_gate_inp.weight"), 0, e.count}}, e.count, h);
    if (e.router_bias) vector(w.router_bias, {{find(blk + "ffn_gate_inp.bias"), 0, e.count}}, e.count);
    if (e.choice_bias) vector(w.choice_bias, {{find(blk + "exp_probs_b.bias"), 0, e.count}}, e.count);
    if (e.router_norm)
      divided(w.router_norm, blk + "ffn_gate_inp.scale",
              static_cast<float>(std::sqrt(static_cast<double>(h))));
    if (e.expert_scales) vector(w.scales, {{find(blk + "ffn_down_exps.scale"), 0, e.count}}, e.count);
    const bool fused = e.layout != ExpertLayout::kStacks && e.layout != ExpertLayout::kEach;
    stack(w.gate, expert_sources(blk, "ffn_gate", e.ffn, h, fused, 0), e.ffn, h);
    stack(w.up, expert_sources(blk, "ffn_up", e.ffn, h, fused, 1), e.ffn, h);
    stack(w.down, expert_sources(blk, "ffn_down", h, e.ffn, false, 0), h, e.ffn);
    expert_bias(w.gate_bias, blk, "ffn_gate", e.ffn, fused, 0);
    expert_bias(w.up_bias, blk, "ffn_up", e.ffn, fused, 1);
    expert_bias(w.down_bias, blk, "ffn_down", h, false, 0);
    if (e.shared_ffn == 0) return;
    const bool one = e.shared_fused;
    projection(w.shared_gate_up, blk,
               {{one ? "ffn_up" : "ffn_gate_shexp", e.shared_ffn},
                {one ? "ffn_up" : "ffn_up_shexp", e.shared_ffn, one ? e.shared_ffn : 0}},
               h, false, false);
    projection(w.shared_down, blk, {{one ? "ffn_down" : "ffn_down_shexp", h}}, e.shared_ffn, false);
    if (e.shared_gate != SharedGate::kNone)
      vector(w.shared_gate, {{find(blk + "ffn_gate_inp_shexp.weight"), 0, h}}, h);
  }

  void latent(LayerWeights& w, const std::string& blk) {
    const LatentSpec& l = spec_.latent;
    const std::int32_t heads = spec_.num_q_heads, query = heads * (l.nope_dim + l.rope_dim);
    const bool low_rank = l.q_rank > 0;
    projection(w.latent.in, blk,
               {{low_rank ? "attn_q_a" : "attn_q", low_rank ? l.q_rank : query},
                {"attn_kv_a_mqa", l.kv_rank + l.rope_dim}},
               spec_.hidden, false);
    if (low_rank) {
      vector(w.latent.q_norm, {{find(blk + "attn_q_a_norm.weight"), 0, l.q_rank}}, l.q_rank);
      projection(w.latent.q_up, blk, {{"attn_q_b", query}}, l.q_rank, false);
    }
    vector(w.latent.kv_norm, {{find(blk + "attn_kv_a_norm.weight"), 0, l.kv_rank}}, l.kv_rank);
    std::vector<Source> absorb, expand;
    for (std::int32_t h = 0; h < heads; ++h) {
      if (l.split_kv_b) {
        absorb.push_back({find(blk + "attn_k_b.weight"), h * l.kv_rank, l.kv_rank});
        expand.push_back({find(blk + "attn_v_b.weight"), h * l.value_dim, l.value_dim});
        continue;
      }
      const std::int32_t row = h * (l.nope_dim + l.value_dim);  // of [nope_dim | value_dim] rows of kv_rank
      Source s{find(blk + "attn_kv_b.weight"), row, l.kv_rank};
      s.across = Across{std::int64_t{row} * l.kv_rank, 1, l.kv_rank};
      absorb.push_back(s);
      expand.push_back({find(blk + "attn_kv_b.weight"), row + l.nope_dim, l.value_dim});
    }
    stack(w.latent.absorb, absorb, l.kv_rank, l.nope_dim);
    stack(w.latent.expand, expand, l.value_dim, l.kv_rank);
    projection(w.attn_out, blk, {{"attn_output", spec_.hidden}}, heads * l.value_dim, false);
  }

  void layer(LayerWeights& l, const LayerSpec& s, const std::string& blk) {
    const NormPlace place = s.feed == FeedKind::kNone ? NormPlace::kParallel : spec_.norm_place;  // one norm
    if (place != NormPlace::kAfter && place != NormPlace::kBehind) norm(l.attn_norm, blk + "attn_norm");
    if (place == NormPlace::kBefore || place == NormPlace::kAround) 
      norm(l.ffn_norm, blk + (spec_.ffn_norm_is_post ? "post_attention_norm" : "ffn_norm"));
    if (place == NormPlace::kAfter || place == NormPlace::kAround) {
      norm(l.attn_post_norm, blk + "post_attention_norm");
      norm(l.ffn_post_norm, blk + "post_ffw_norm");
    }
    if (place == NormPlace::kBehind) {
      norm(l.attn_post_norm, blk + "attn_output_norm");
      norm(l.ffn_post_norm, blk + "layer_output_norm");
    }
    if (has_attention(s.mixer)) attention(l, s, blk);
    if (s.mixer == MixerKind::kLatent) latent(l, blk);
    if (has_state(s.mixer)) recurrent(l.recurrent, s.mixer, blk);
    if (has_dense(s.feed)) dense(l, blk, shape_of(spec_, s).ffn);
    if (has_experts(s.feed)) experts(l.experts, blk);
    if (s.feed == FeedKind::kDenseAndExperts) {
      norm(l.experts_norm, blk + "pre_ffw_norm_2");
      norm(l.experts_post_norm, blk + "post_ffw_norm_2");
      norm(l.dense_post_norm, blk + "post_ffw_norm_1");
    }
    besides(l, blk);
  }

  /// The rows of a recurrent mixer's input in the order of recurrent.h, from where the file has them.
  std::vector<Named> recurrent_rows(MixerKind kind) const {
    const RecurrentSpec& r = spec_.recurrent;
    const std::int32_t inner = r.inner();
    std::vector<Named> rows;
    switch (r.in_rows) {
      case InRows::kOne:
        return {{recurrent_names(kind).in, static_cast<std::int32_t>(recurrent_in_width(kind, r))}};
      case InRows::kApart:
        return {{"attn_qkv", r.channels}, {"attn_gate", inner}, {"ssm_beta", r.heads}, {"ssm_alpha", r.heads}};
      case InRows::kByGroup: {
        const std::int32_t keys = r.state_size, values = r.heads / r.groups * r.head_dim;
        const auto part = [&](std::int32_t n, std::int32_t at) {
          for (std::int32_t g = 0; g < r.groups; ++g)
            rows.push_back({"ssm_in", n, g * 2 * (keys + values) + at});
        };
        part(keys, 0);
        part(keys, keys);
        part(values, 2 * keys);
        part(values, 2 * keys + values);
        break;
      }
      case InRows::kGatesByGroup:
        rows = {{"attn_qkv", r.channels}, {"attn_gate", inner}};
        break;
    }
    const std::int32_t heads = r.heads / r.groups;
    for (const std::int32_t at : {0, heads}) {
      for (std::int32_t g = 0; g < r.groups; ++g) rows.push_back({"ssm_ba", heads, g * 2 * heads + at});
    }
    return rows;
  }

  void recurrent(RecurrentWeights& w, MixerKind kind, const std::string& blk) {
    const RecurrentSpec& r = spec_.recurrent;
    projection(w.in, blk, recurrent_rows(kind), spec_.hidden, r.in_bias);
    const RecurrentNames names = recurrent_names(kind);
    projection(w.out, blk, {{names.out, spec_.hidden}}, r.inner(), r.out_bias);
    const std::string conv = blk + names.conv;
    vector(w.conv, {{find(conv + ".weight"), 0, r.channels * r.kernel}}, r.channels * r.kernel,
           [r](std::span<float> v) { transpose_taps(r, v); });
    if (r.conv_bias) vector(w.conv_bias, {{find(conv + ".bias"), 0, r.channels}}, r.channels);
    if (r.heads == 0) return;
    vector(w.decay, {{find(blk + "ssm_a"), 0, r.heads}}, r.heads, [r](std::span<float> v) {
      for (float& x : v) x = r.converted ? x : -ops::exp(x);
    });
    vector(w.dt_bias, {{find(blk + "ssm_dt.bias"), 0, r.heads}}, r.heads);
    if (kind != MixerKind::kDeltaNet) vector(w.skip, {{find(blk + "ssm_d"), 0, r.heads}}, r.heads);
    const std::int32_t width = r.shared_norm ? r.inner() / r.norm_groups : r.inner();
    std::vector<Source> norm;
    if (r.norm) norm.push_back({find(blk + "ssm_norm.weight"), 0, width});
    vector(w.norm, std::move(norm), width, [r](std::span<float> v) {
      for (float& x : v) x = (r.norm ? x : 1.0f) * r.out_scale;
    });
  }

  /// [channels][kernel] to [kernel][channels], times what the channels' input is to be multiplied with: x, B
  /// and C of Mamba-2, while other mixers have ones there.
  static void transpose_taps(const RecurrentSpec& r, std::span<float> v) {
    const std::vector<float> taps(v.begin(), v.end());
    for (std::int32_t c = 0; c < r.channels; ++c) {
      const std::size_t scale = c < r.inner() ? 1 : c < r.inner() + r.group_width() ? 2 : 3;
      for (std::int32_t t = 0; t < r.kernel; ++t) {
        const std::int64_t from = std::int64_t{c} * r.kernel + t, to = std::int64_t{t} * r.channels + c;
        v[static_cast<std::size_t>(to)] = taps[static_cast<std::size_t>(from)] * r.in_scales[scale];
      }
    }
  }

  static std::size_t number_bytes(const Source& s) { return s.tensor->type.block_bytes; }

  void report(std::size_t bytes) {
    file_done_ += bytes;
    if (*progress_) (*progress_)(file_done_, file_bytes_);
  }

  /// A part of a tensor has been read.
  void let_go(const Tensor& tensor, std::span<const std::byte> part) {
    files_.drop(tensor, part);
    report(part.size());
  }

  static bool in_blocks_across(const Source& s) { return s.across && !s.tensor->plain_floats(); }

  /// The numbers of a task that lies across blocks, from its first one on; empty for other tasks. A matrix is small:
  /// that of a head.
  std::vector<float> spelt_out(const Task& t, ops::Stream& stream) {
    const Source& s = t.sources[0];
    if (!in_blocks_across(s)) return {};
    const std::int64_t width = s.tensor->shape.back(), row = s.across->first / width;
    CHECK(s.across->k_step == width && row * width + (t.n - 1) * s.across->row_step < (row + 1) * width);
    const DType type = *s.tensor->type.dtype;
    const auto k = static_cast<std::int32_t>(width);
    std::vector<std::byte> rows(static_cast<std::size_t>(t.k) * read_row_bytes(*s.tensor));
    read_rows(*s.tensor, row, t.k, rows.data());
    std::vector<std::byte> storage(ops_.packed_bytes(type, t.k, k, ops::Packing::kStored) + kAlign);
    void* packed = storage.data();
    std::size_t space = storage.size();
    std::align(kAlign, storage.size() - kAlign, packed, space);
    ops_.pack(stream, {.src = rows.data(), .n = t.k, .k = k, .dtype = type, .dst = packed});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(t.k));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> out(ids.size() * static_cast<std::size_t>(width));
    ops_.embed(stream, {.table = {t.k, k, type, packed},
                        .ids = ids.data(),
                        .rows = t.k,
                        .scale = 1,
                        .out = out.data()});
    out.erase(out.begin(), out.begin() + (s.across->first - row * width));
    return out;
  }

  /// Packs slab by slab: what lies in the file as it shall lie in memory straight from the mapping, the rest
  /// through a small buffer.
  void pack(const Task& t, std::byte* dst, ops::Stream& stream) {
    const DType type = t.matrix->dtype;
    const ops::Packing packing = t.matrix->packing;
    RowsOf rows(t, spelt_out(t, stream));
    const std::int32_t slab =
        std::max(static_cast<std::int32_t>(kSlabBytes / rows.row_bytes()) / kPackRows, 1) * kPackRows;
    for (std::int32_t row = 0; row < t.n;) {
      const auto run = rows.run(row, slab);
      if (run.src == nullptr) {
        scratch_.resize(static_cast<std::size_t>(run.rows) * rows.row_bytes());
        rows.copy(row, run.rows, scratch_.data());
      }
      ops_.pack(stream, {.src = run.src != nullptr ? run.src : scratch_.data(),
                         .n = run.rows,
                         .k = t.k,
                         .dtype = type,
                         .dst = dst + ops_.packed_bytes(type, row, t.k, packing),
                         .packing = packing});
      row += run.rows;
      rows.finished(row, [this](const Tensor& tensor, auto part) { let_go(tensor, part); });
    }
    t.matrix->data = dst;
  }

  /// Valid until the next call.
  std::span<const float> read_vector(const Task& t) {
    numbers_.assign(static_cast<std::size_t>(t.n), 0.0f);
    float* dst = numbers_.data();
    for (const Source& s : t.sources) {
      for (std::int32_t i = 0; i < s.rows; ++i)
        *dst++ = element(*s.tensor->type.dtype, s.tensor->bytes.data(),
                         static_cast<std::size_t>(s.row) + static_cast<std::size_t>(stored_row(s, i)));
      if (s.together()) let_go(*s.tensor, s.bytes(number_bytes(s)));
    }
    if (t.change) t.change(numbers_);
    return numbers_;
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
  const ops::Packing packing_;  ///< of what is multiplied
  std::vector<Task> tasks_;
  std::deque<ops::PackedWeight> more_;  ///< targets of the matrices of a stack behind the first
  std::deque<std::vector<std::int32_t>>* orders_ = nullptr;  ///< of the Weights under construction
  const float* spare_ = nullptr;                             ///< where a number lies that nobody reads there
  std::unordered_map<const Tensor*, Tensor> unconverted_;  // of as_wanted()
  std::vector<std::byte> scratch_;
  std::vector<float> numbers_;  ///< of read_vector()
  std::size_t size_ = 0;
  std::uint64_t file_bytes_ = 0, file_done_ = 0;
  const std::function<void(std::uint64_t, std::uint64_t)>* progress_ = nullptr;
  std::optional<Error> error_;
};

}  // namespace

Result<std::uint64_t> plan_weights(const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops,
                                   Recipe recipe) {
  Weights w;
  Builder b(spec, files, ops, recipe);
  if (auto ok = b.plan(w); !ok) return std::unexpected(ok.error());
  return b.size();
}

Result<std::unique_ptr<Weights>> load_weights(
    const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops, ops::Stream& stream,
    Recipe recipe, const std::function<void(std::uint64_t, std::uint64_t)>& progress, Memory& memory) {
  auto w = std::make_unique<Weights>();
  Builder b(spec, files, ops, recipe);
  if (auto ok = b.plan(*w); !ok) return std::unexpected(ok.error());
  if (auto ok = b.load(*w, stream, memory, progress); !ok) return std::unexpected(ok.error());
  return w;
}

}  // namespace barg::model
