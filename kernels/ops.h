// The one table of operations between model code and a device. Model code calls through OpTable and cannot
// tell back ends apart; cpu/ and cuda/ fill it. The CPU's scalar kernels are the specification.
//
// Rules for every op: it never allocates, synchronises with the host, logs, throws or picks policy. Scratch
// comes in as `workspace`, its size from the sibling *_bytes. Ops on one Stream run in order.
// Results of a row depend on that row only: never on the number of rows, on threads or on the ISA (the
// numerics contract; K is never split across threads, floats are never accumulated by atomics).
//
// Notation: R rows of a batch, H hidden size, N outputs, K inputs, nq/nkv query and kv heads, D head size,
// V vocabulary. All tensors are row-major and dense unless a stride is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "barg/types.h"

namespace barg::ops {

/// Where ops run: the CPU's worker pool or a CUDA stream. Made by the back end.
struct Stream;

/// Which numbers a packed matrix holds: those of the file as they are, or each rounded once to bf16, pairs of
/// k side by side.
enum class Packing : std::uint8_t { kStored, kBF16Pairs };

constexpr Packing packing(Recipe recipe) {
  return recipe == Recipe::kBF16 ? Packing::kBF16Pairs : Packing::kStored;
}

// Converted blocks. What is not stored in a type that the kernels read becomes, when it is loaded, blocks of
// 32 weights of one of these types, which hold every weight exactly: with one rounding for the product and
// one for the sum, all in f32,
//
//   W[e] = scale[h] * code[e]   or   scale[h] * code[e] + minimum[h],   h = 0 or, per 16, e / 16
//
// A block of a row is a run of 32-bit words: its scales, its minima, its codes.
//
//   kS8Per16     scale[2] f32;                codes s8[32]
//   kS8Min       scale f32, minimum f32;      codes s8[32]
//   kU5Min       scale f32, minimum f32;      nibbles, then bits: code = nibble + 16 bit
//   kU4Min       scale f32, minimum f32;      nibbles
//   kU2MinPer16  d f16, m f16, s u8[2], t u8[2]; pairs.  scale[h] = d * s[h], minimum[h] = -(m * t[h])
//   kS3Per16     scale[2] f32;                pairs, then bits: code = pair + 4 bit - 4
//   kIQ4         scale f32;                   nibbles, code = IQ4 table[nibble]
//   kFP4         scale f32;                   nibbles, code = FP4 table[nibble], twice what e2m1 says; no -0
//   kFP4Per16    scale[2] f32;                the same
//   kFP8         scale f32;                   e4m3fn[32]; a NaN among them is not allowed (scale NaN instead)
//
//   nibbles: byte j (0 .. 15) holds element j in its low half and element j + 16 in its high one
//   pairs: bits 2 (e / 4 mod 4) and the one above, of byte e mod 4 of word e / 16
//   bits: bit e / 4 of byte e mod 4
//
// In recipe int8 they are multiplied as Q types are, except kFP8, whose codes are no integers: as in f32.

/// Of kIQ4 and of kFP4.
inline constexpr std::int8_t kIQ4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::int8_t kFP4Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// A weight matrix [n, k] (y = W x) in the back end's own layout. Plain view; whoever called `pack` owns
/// `data`.
struct PackedWeight {
  std::int32_t n = 0;
  std::int32_t k = 0;
  DType dtype = DType::kF32;   ///< as stored in the file
  const void* data = nullptr;  ///< packed_bytes(dtype, n, k, packing) bytes, 64-byte aligned
  Packing packing = Packing::kStored;
};

struct PackParams {
  const void* src;    ///< [n] rows of k/block_elements(dtype) blocks, ggml's bytes or converted; any alignment
  std::int32_t n, k;  ///< k divisible by block_elements(dtype)
  DType dtype;
  void* dst;  ///< packed_bytes(dtype, n, k, packing) bytes, 64-byte aligned
  Packing packing = Packing::kStored;
};

/// out[r, :] = dequantised row ids[r] of `table` (gathered as packed) times `scale`.
struct EmbedParams {
  PackedWeight table;       ///< [V, H]
  const std::int32_t* ids;  ///< [R], each in [0, V)
  std::int32_t rows;
  float scale;  ///< 1 for Llama
  float* out;   ///< [R, H]
};

/// Rows in the form in which `linear` reads them for a recipe and a weight type: prepared_form() names it,
/// prepared_bytes() is its size, the layout is the back end's own. Producers (rms_norm, attention,
/// gated_linear) write it as they compute the rows, so that nobody quantises the same row twice.
enum class Form : std::uint8_t {
  kF32,
  kInt8,
  kHalf,  ///< 16 bits; CUDA's alone
};

/// Of the CPU.

constexpr Form prepared_form(Recipe recipe, DType weight) {
  return recipe == Recipe::kInt8 && block_elements(weight) > 1 && weight != DType::kFP8 ? Form::kInt8
                                                                                        : Form::kF32;
}

/// out[r, i] = x[r, i] / sqrt(mean_j x[r, j]^2 + eps) * (weight[i] + weight_offset).
struct RmsNormParams {
  const float* x;       ///< [R, H]
  const float* weight;  ///< [H]
  float weight_offset;  ///< 0, or 1 for (1 + w) norms
  float eps;
  std::int32_t rows, dim;
  float* out;                ///< [R, H] or nullptr; may not alias x
  void* prepared = nullptr;  ///< [R, H] in Form::kInt8 as well, or nullptr. REQUIRES dim % 32 == 0
};

enum class NormKind : std::uint8_t { kRms, kLayer };

/// The norm of each of `groups` parts of `dim` numbers of a row: of a whole row, or of each head of q or k.
/// kRms: as rms_norm. kLayer: with m the mean and c = x - m,
/// out = c / sqrt(mean c^2 + eps) * (weight + weight_offset) (+ bias).
struct NormParams {
  NormKind kind;
  const float* x;  ///< [R, groups, dim], row stride x_stride floats
  std::int64_t x_stride;
  const float* weight;         ///< [dim] of a group, weight_stride floats from one group to the next
  std::int64_t weight_stride;  ///< 0: all groups have the same
  const float* bias;           ///< [dim] of every group, or nullptr
  float weight_offset, eps;
  std::int32_t rows, groups, dim;
  float* out;  ///< [R, groups, dim], row stride out_stride, or nullptr; may be x where the strides are equal
  std::int64_t out_stride;
  void* prepared = nullptr;  ///< as in RmsNormParams. REQUIRES groups == 1, and that out is not x
};

/// v[r, n] = sum_k x[r, k] W[n, k] (+ bias[n]), recipe-defined accumulation; then out = v, or out += v.
/// Later additions (per-row adapters and experts) are new fields with null defaults.
struct LinearParams {
  PackedWeight weight;  ///< REQUIRES weight.packing == packing(recipe)
  Recipe recipe;        ///< REQUIRES that the table computes in it (cpu.h, recipe_supported)
  const float* x;       ///< [R, K], row stride x_stride floats
  std::int32_t rows;
  std::int64_t x_stride;
  const float* bias;  ///< [N] or nullptr
  float* out;         ///< [R, N], row stride out_stride floats
  std::int64_t out_stride;
  void* workspace;  ///< prepared_bytes(rows, k, recipe), 64-byte aligned; unused with `prepared`
  /// The rows in prepared_form(recipe, weight.dtype) = Form::kInt8, instead of x; nullptr: read x.
  const void* prepared = nullptr;
  bool accumulate = false;  ///< out[r, n] = out[r, n] + v, one more rounding (the residual stream)
  /// [R, ceil(N / kBlockMax)] or nullptr: the largest of each kBlockMax outputs; NaN if one of them is NaN.
  float* block_max = nullptr;
};

/// Logits per entry of LinearParams::block_max.
inline constexpr std::int32_t kBlockMax = 64;

/// What a gate goes through: silu(x) = x / (1 + exp(-x)), or the GELU by tanh or by erf; with our own functions (math.h).
enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGeluErf };

/// out[r, n] = act(g) * u with g, u = x[r] times column n of gate and up (+ biases), as linear and gate_mul
/// define them; in f32, in Form::kInt8, or both.
struct GatedLinearParams {
  PackedWeight gate, up;  ///< [I, K] each, as in LinearParams. REQUIRES the same dtype, n and k
  Recipe recipe;
  const float* x;  ///< [R, K], row stride x_stride floats
  std::int32_t rows;
  std::int64_t x_stride;
  const float* gate_bias;          ///< [I] or nullptr
  const float* up_bias;            ///< [I] or nullptr
  float* out;                      ///< [R, I] dense, or nullptr
  void* prepared_out;              ///< [R, I] in Form::kInt8, or nullptr. REQUIRES n % 32 == 0
  void* workspace;                 ///< prepared_bytes(rows, k, recipe)
  const void* prepared = nullptr;  ///< as in LinearParams
  Activation activation = Activation::kSilu;
};

/// Where the paged KV of one layer lies. A block's part holds, per layer and kv head, K then V of its tokens;
/// the order of elements inside a plane belongs to the back end (layout_id), and so do the scales of fp8 and
/// int8, one for each token, which lie inside the plane too. A token's codes and scale depend on that token's
/// K or V alone; where one of its numbers is NaN or infinite, whatever reads the token becomes NaN. Byte
/// address of head h of block b: base + b * block_stride + h * head_stride (K plane), + v_offset (V plane).
struct KvLayerView {
  std::byte* base;            ///< of this layer in block 0
  std::int64_t block_stride;  ///< bytes
  std::int64_t head_stride;   ///< bytes
  std::int64_t v_offset;      ///< bytes from a head's K plane to its V plane
  DType dtype;                ///< kF32, kF16, kBF16, kF8E4M3 or kI8
  std::int32_t block_tokens;  ///< 16, 32 or 64
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
};

/// A run of rows of one sequence: rows [row_begin, row_begin + row_count) of the batch hold the tokens at
/// positions pos_begin, pos_begin + 1, ... . block_table[i] is the physical block of tokens [i*B, (i+1)*B),
/// or kNoBlock where a sliding window has left it; it covers at least pos_begin + row_count tokens.
struct Segment {
  std::int32_t row_begin;
  std::int32_t row_count;
  std::int32_t pos_begin;
  const BlockId* block_table;
};

/// Rotates q and k in place by halves (pairs i, i + rotary_dim/2), then stores k and v of every row in its
/// block. cos/sin: [R, rotary_dim/2], already scaled by the attention factor. rotary_dim 0 = no rotation;
/// kv.num_kv_heads 0 = q alone (its row reads another layer's K and V).
struct RopeKvParams {
  float* q;        ///< [R, nq, D], row stride q_stride floats
  float* k;        ///< [R, nkv, D], row stride kv_stride
  const float* v;  ///< [R, nkv, D], row stride kv_stride
  std::int64_t q_stride, kv_stride;
  const float* cos;
  const float* sin;
  std::int32_t rotary_dim;
  std::int32_t num_q_heads;
  KvLayerView kv;
  const Segment* segments;
  std::int32_t num_segments;
};

/// out[r, h] = softmax over keys j <= p (and j > p - window if window > 0) of q.k_j * scale, applied to v_j,
/// where p is the row's position, or that of the last row of its segment if not `causal`, and K, V are read as stored,
/// also the row's own chunk. Per (row, head) the
/// order of operations depends on absolute key positions only: tiles of kTileKeys, splits of kSplitKeys,
/// partials folded left.
struct AttentionParams {
  const float* q;  ///< [R, nq, D], row stride q_stride
  std::int64_t q_stride;
  float* out;  ///< [R, nq, D], row stride out_stride, or nullptr
  std::int64_t out_stride;
  float scale;
  std::int32_t window;  ///< keys visible to a query including itself; 0 = all
  std::int32_t num_q_heads;
  KvLayerView kv;
  const Segment* segments;
  std::int32_t num_segments;
  void* workspace;           ///< attention_workspace_bytes(rows, nq, D)
  void* prepared = nullptr;  ///< [R, nq * D] in Form::kInt8 as well, or nullptr. REQUIRES D % 32 == 0
  float softcap = 0;         ///< > 0: a score s is tanh(s * (1 / softcap)) * softcap, before the mask
  /// [nq] or nullptr: a logit of each head that joins its softmax after all keys and has no value.
  const float* sinks = nullptr;
  bool causal = true;  ///< false REQUIRES window == 0
};

/// out[r, i] = act(gate[r, i] * gate_scale) * up[r, i], without the product where `up` is nullptr.
struct GateMulParams {
  const float* gate;  ///< [R, I], row stride in_stride floats
  const float* up;    ///< [R, I], row stride up_stride, or nullptr
  std::int64_t in_stride;
  std::int32_t rows, dim;
  float* out;  ///< [R, I] dense; may be gate or up where that is dense
  Activation activation = Activation::kSilu;
  float gate_scale = 1;
  std::int64_t up_stride = 0;  ///< 0: in_stride
};

/// x[i] = fma(y[i], scale, x[i]): a result on its way to the residual stream.
struct AddScaledParams {
  float* x;
  const float* y;
  float scale;
  std::int64_t count;
};

/// x[r, i] = x[r, i] * scales[r].
struct ScaleRowsParams {
  float* x;  ///< [R, dim], row stride x_stride floats
  std::int64_t x_stride;
  const float* scales;  ///< [R]
  std::int32_t rows, dim;
};

/// What becomes of logits: v = x[r, i] * scale; with softcap > 0 then v = tanh(v * (1 / softcap)) * softcap.
/// In place.
struct ScaleLogitsParams {
  float* x;  ///< [R, V], row stride x_stride
  std::int64_t x_stride;
  std::int32_t rows, dim;
  float scale, softcap;
  float* block_max;  ///< of the new values, as in LinearParams, or nullptr
};

// Mixture of experts ----------------------------------------------------------------------------------------

/// `count` matrices of one shape and type, packed one behind the other (experts, or heads).
struct PackedStack {
  PackedWeight first;
  std::int64_t stride = 0;  ///< bytes from a matrix to the next
  std::int32_t count = 0;

  PackedWeight at(std::int32_t i) const {
    PackedWeight w = first;
    w.data = static_cast<const std::byte*>(first.data) + i * stride;
    return w;
  }
};

/// What router logits become before experts are chosen by them.
enum class RouterScore : std::uint8_t {
  kSoftmax,        ///< over all experts
  kSigmoid,        ///< of each by itself
  kChosenSoftmax,  ///< the logits choose, and the weights are their softmax over the chosen
};

/// Experts a row, and their weights. With key = score + bias: of `groups` equal runs of experts the
/// kept_groups best are kept (by their largest key, or by the sum of the two largest), and of the experts in
/// them the `chosen` with the largest keys, descending; of equal ones the first. weight = score, divided by
/// (sum of the chosen, in that order, + norm_epsilon) if `normalise`, times `scale`, times expert_scales. NaN
/// logits give valid ids and NaN weights.
struct RouteParams {
  const float* logits;  ///< [R, E]
  const float* bias;    ///< [E] or nullptr; it chooses and is no part of the weights
  std::int32_t rows, experts, chosen;
  std::int32_t groups, kept_groups;  ///< 1, 1: no groups. REQUIRES chosen <= experts of the kept groups
  bool group_top2;                   ///< a group's key is the sum of its two largest keys
  RouterScore score;
  bool normalise;
  float norm_epsilon;
  float scale;
  std::int32_t* ids;  ///< [R, chosen]
  float* weights;     ///< [R, chosen]
  const float* expert_scales = nullptr;  ///< [E] or nullptr: at last, a weight times its expert's
};
inline constexpr std::int32_t kMaxExperts = 1024;

/// glu(g, u) = act(g) * u, or of a clamped pair, g = min(g, limit) and u = clamp(u, -limit, limit):
/// (u + 1) * (g / (1 + exp(-alpha g))).
enum class ExpertGlu : std::uint8_t { kActivation, kClampedSilu };

/// v = (weight_0 y_0 + weight_1 y_1) + ..., in the order of ids, each product and sum rounded by itself; then
/// out[r] = v, or out[r] += v. y_j = down glu(gate x[r], up x[r]) of expert ids[r, j] (+ biases), as `linear` and
/// gated_linear define them.
struct ExpertsParams {
  const float* x;  ///< [R, H]
  std::int32_t rows, chosen;
  const std::int32_t* ids;  ///< [R, chosen], each in [0, E); a row names an expert once
  const float* weights;     ///< [R, chosen]
  PackedStack gate, up;     ///< [I, H] each. REQUIRES the same n and k
  PackedStack down;         ///< [H, I]
  const float* gate_bias;   ///< [E, I] or nullptr
  const float* up_bias;     ///< [E, I] or nullptr
  const float* down_bias;   ///< [E, H] or nullptr
  Recipe recipe;
  ExpertGlu glu;
  Activation activation;  ///< of kActivation
  float alpha, limit;     ///< of kClampedSilu
  float* out;             ///< [R, H], may not be x
  bool accumulate;
  void* workspace;  ///< experts_workspace_bytes(rows, chosen, E, H, I, recipe)
};

/// What an expert that every row goes through gives, behind a gate of the row: with the sum by lanes as in
/// rms_norm, s = 1 / (1 + exp(-sum_k x[r, k] weight[k])),  v = y[r, i] * s,  and out[r, i] = v, or += v.
struct RowGateParams {
  const float* x;       ///< [R, K] dense
  const float* weight;  ///< [K]
  std::int32_t width;   ///< K
  const float* y;       ///< [R, N] dense
  std::int32_t rows, dim;
  float* out;  ///< [R, N] dense, or y where it is not added to
  bool accumulate;
};

/// y[r, s] = W_s x[r, s] for every matrix s of a stack: a projection of each head by its own matrix.
struct StackedLinearParams {
  PackedStack weight;
  Recipe recipe;
  const float* x;  ///< [R, S, K], strides in floats
  std::int32_t rows;
  std::int64_t x_stride, x_head_stride;
  float* out;  ///< [R, S, N]
  std::int64_t out_stride, out_head_stride;
  void* workspace;  ///< stacked_workspace_bytes(rows, S, K, recipe)
};

// Latent attention ------------------------------------------------------------------------------------------
// All heads share one vector a token, [c | k_pe]: it is the key of every head, and c is the value. Of a
// KvLayerView, num_kv_heads is 1, head_dim the whole width, and there is no V plane. A block's plane holds its
// tokens one after the other; of fp8 and int8 each token has two scales, one of c and one of k_pe, set by that
// part alone.

inline constexpr std::int32_t kMaxLatentDim = 1024;

/// Rotates k_pe and stores [c | k_pe] of every row; rotates the part of q for it, into the query's tail.
struct LatentWriteParams {
  const float* c;     ///< [R, value_dim], row stride c_stride
  const float* k_pe;  ///< [R, rotary_dim], row stride pe_stride
  std::int64_t c_stride, pe_stride;
  const float* q_pe;  ///< [R, nq, rotary_dim], strides in floats
  std::int64_t q_stride, q_head_stride;
  float* query;  ///< [R, nq, value_dim + rotary_dim] dense; the last rotary_dim of each are written
  const float* cos;
  const float* sin;       ///< [R, rotary_dim/2]
  std::int32_t rotary_dim;
  bool interleaved;       ///< pairs (2i, 2i + 1) instead of (i, i + rotary_dim/2)
  std::int32_t num_q_heads;
  KvLayerView kv;
  const Segment* segments;
  std::int32_t num_segments;
};

/// out[r, h] = softmax over keys j <= p of q.k_j * scale, applied to the first value_dim numbers of k_j; tiles
/// and splits as in AttentionParams. What is stored counts as one rounded product, code times scale.
struct LatentAttentionParams {
  const float* q;  ///< [R, nq, head_dim] dense
  float* out;      ///< [R, nq, value_dim] dense
  float scale;
  std::int32_t num_q_heads;
  std::int32_t value_dim;
  KvLayerView kv;
  const Segment* segments;
  std::int32_t num_segments;
  void* workspace;  ///< latent_workspace_bytes(value_dim)
};

/// Where the fixed-size f32 state of one recurrent layer lies. Entry i of a segment's block table is the block
/// of positions [i*C, (i+1)*C), C = block_tokens: the token at position p reads the state from the block of
/// p - 1 (position 0: from zeros) and writes it to the block of p. So the state is updated in place within C
/// positions, and a block that a sequence has left holds the state behind the last of its positions.
/// A state that is handed to several sequences must not change: nobody writes a block but the sequence whose
/// positions it has.
struct StateView {
  std::byte* base;            ///< of this state in block 0
  std::int64_t block_stride;  ///< bytes
  std::int32_t block_tokens;
};

/// Depthwise causal convolution over the rows of each sequence, in place of a token mixer or before one:
///   u[p, c] = x[p, c] * in_gate[p, c];  v = bias[c] (or 0);
///   v = fma(u[p - kernel + 1 + t, c], weight[t, c], v) for t = 0, 1, ..., kernel - 1  (u before position 0: 0)
///   out[p, c] = (silu ? silu(v) : v) * out_gate[p, c]
/// A gate that is nullptr multiplies nothing. State: [kernel - 1][channels], u of the last positions, oldest
/// first.
struct Conv1dParams {
  const float* x;  ///< [R, channels], row stride x_stride floats, as in_gate and out_gate
  std::int64_t x_stride;
  const float* in_gate = nullptr;
  const float* out_gate = nullptr;
  const float* weight;  ///< [kernel][channels]; the last tap is the row's own token
  const float* bias;    ///< [channels] or nullptr
  std::int32_t channels;
  std::int32_t kernel;  ///< 2 .. kMaxConvKernel
  bool silu;
  float* out;  ///< [R, channels], row stride out_stride; may be x with its stride
  std::int64_t out_stride;
  StateView state;
  const Segment* segments;
  std::int32_t num_segments;
};

inline constexpr std::int32_t kMaxConvKernel = 4;

/// Gated delta rule, token by token. Per row and key head, first: x = x * (1 / sqrt(sum x^2 + 1e-6)) for q and k
/// (the sum by lanes), q = q * (1 / sqrt(key_dim)). Then per value head h, with its key head's q and k,
///   g = exp(decay[h] * softplus(a + dt_bias[h])),  beta = 1 / (1 + exp(-b)),
/// and per column c of the state S [key_dim][value_dim]:
///   m = 0; for i: m = fma(k[i], S[i, c] * g, m);  e = beta * (v[c] - m);  o = 0;
///   for i: S[i, c] = fma(k[i], e, S[i, c] * g), o = fma(q[i], S[i, c], o);  out[c] = o
struct DeltaNetParams {
  float* qkv;  ///< [R, 2 key_heads * key_dim + value_heads * value_dim]: q, k, v; q and k are normalised in place
  std::int64_t qkv_stride;
  const float* a;  ///< [R, value_heads], row stride gate_stride
  const float* b;  ///< the same
  std::int64_t gate_stride;
  const float* decay;    ///< [value_heads], below 0
  const float* dt_bias;  ///< [value_heads]
  std::int32_t key_heads, value_heads, key_dim, value_dim;
  bool tiled;  ///< value head h belongs to key head h % key_heads, else to h / (value_heads / key_heads)
  float* out;  ///< [R, value_heads * value_dim] dense
  StateView state;  ///< [value_heads][key_dim][value_dim]
  const Segment* segments;
  std::int32_t num_segments;
};

/// Mamba-2's selective state space, token by token. Per head h (of group h / (heads / groups)),
///   d = softplus(fma(dt, dt_scale, dt_bias[h])) clamped to [dt_min, dt_max],  g = exp(decay[h] * d),
/// and per column c of the state S [state_size][head_dim]:
///   u = d * x[c]; y = 0; for n: S[n, c] = fma(S[n, c], g, u * B[n]), y = fma(C[n], S[n, c], y);
///   out[c] = fma(skip[h], x[c], y)
struct Mamba2Params {
  const float* xbc;  ///< [R, heads * head_dim + 2 groups * state_size]: x, B, C
  std::int64_t xbc_stride;
  const float* dt;  ///< [R, heads], row stride dt_stride
  std::int64_t dt_stride;
  float dt_scale, dt_min, dt_max;
  const float* decay;    ///< [heads], below 0
  const float* dt_bias;  ///< [heads]
  const float* skip;     ///< [heads]
  std::int32_t heads, groups, head_dim, state_size;
  float* out;  ///< [R, heads * head_dim] dense
  StateView state;  ///< [heads][state_size][head_dim]
  const Segment* segments;
  std::int32_t num_segments;
};

/// Root mean square norm of each of `groups` parts of a row, times silu(gate * gate_scale), before or after:
///   gate_first:  t = x * s;  out = t * (1 / sqrt(mean t^2 + eps)) * weight
///   otherwise:   out = x * (1 / sqrt(mean x^2 + eps)) * weight * s
/// (products from the left; means by lanes). Without a norm: out = x * s * weight.
struct GatedNormParams {
  const float* x;  ///< [R, groups * dim] dense
  const float* gate;  ///< [R, groups * dim], row stride gate_stride
  std::int64_t gate_stride;
  float gate_scale;
  const float* weight;  ///< [groups * dim], or [dim] for all groups (shared)
  bool shared;
  bool norm;
  bool gate_first;
  float eps;
  std::int32_t rows, groups, dim;
  float* out;  ///< [R, groups * dim] dense; may be x
};

/// out[r, i] = x[r, i] * (1 / (1 + exp(-gate[r, i]))).
struct SigmoidMulParams {
  const float* x;  ///< [R, I] dense
  const float* gate;  ///< [R, I], row stride gate_stride
  std::int64_t gate_stride;
  std::int32_t rows, dim;
  float* out;  ///< [R, I] dense; may be x
};

// Streams ---------------------------------------------------------------------------------------------------
// The residual stream may be several, x_0 .. x_(S-1) of [R, H]: a layer predicts all of them from all, works
// on the prediction of one (`active`), and corrects all by what became of that one.

inline constexpr std::int32_t kMaxStreams = 8;

/// x_q[r, i] = the old x_q[r, i], to which by fma, for p = 0, 1, ..., the product coefs[r, q * S + p] * old
/// x_p[r, i] is added. out[r] = the new x_active[r].
struct PredictStreamsParams {
  float* x;                    ///< x_s = x + s * stream_stride: [R, H] dense
  std::int64_t stream_stride;  ///< floats
  std::int32_t streams, active;
  const float* coefs;  ///< [R, S * S]
  std::int32_t rows, dim;
  float* out;  ///< [R, H]
};

/// With e = activated[r, i] - x_active[r, i]: x_q[r, i] = fma(e, coefs[r, q] + 1, x_q[r, i]). Then
/// out[r, i] = x_active[r, i] * scale[i].
struct CorrectStreamsParams {
  float* x;  ///< as in PredictStreamsParams
  std::int64_t stream_stride;
  std::int32_t streams, active;
  const float* activated;  ///< [R, H]
  const float* coefs;      ///< [R, S]
  const float* scale;      ///< [H]
  std::int32_t rows, dim;
  float* out;  ///< [R, H]; may be activated
};

/// x[r, i] = x[r, i] * (sqrt(mean like[r]^2) / sqrt(max(mean x[r]^2, least))); means by lanes.
struct MatchMagnitudeParams {
  float* x;           ///< [R, H] dense
  const float* like;  ///< [R, H] dense
  std::int32_t rows, dim;
  float least;
};

/// Leaves of a gate what is far above its mean m: with d = sqrt(mean (x - m)^2) (means by lanes) and
/// c = fma(d, deviations, m), x[r, i] = x[r, i] - c, or 0 where that is below 0.
struct CutGateParams {
  float* x;  ///< [R, I] dense
  std::int32_t rows, dim;
  float deviations;
};

/// Per row: max logit with its lowest index, and log(sum exp(x - max)) + max over `dim` entries, in the fixed
/// order of the contract. -inf entries are allowed; `finite` is 0 when a row has a NaN, +inf, or no finite
/// entry.
struct RowStatsParams {
  const float* x;  ///< [R, V], row stride x_stride
  std::int64_t x_stride;
  std::int32_t rows, dim;
  float* max;            ///< [R]
  std::int32_t* argmax;  ///< [R]
  float* logsumexp;      ///< [R]
  std::uint8_t* finite;  ///< [R]
};

/// The ids of listed blocks of one row whose Gumbel noise may carry them over a bar. With w the id's
/// Philox4x32 word (10 rounds; key = seed; counter = id / 4, position, choice, 0; word id % 4), an id is a
/// hit when
///   float(bits of float(w >> 8)) <= fma(x[id] - max, slope, offset)        (conversions round to nearest)
/// that is, linear interpolation of the logarithm under the noise: who sets slope and offset
/// (runtime/sampler) loses no winner and evaluates only the hits exactly. Runs on the calling thread; for
/// many rows at once.
struct GumbelFilterParams {
  const float* x;  ///< [dim], no NaN
  std::int32_t dim;
  const std::int32_t* blocks;  ///< [num_blocks]: ids [64 b, 64 b + 64), as far as they are below dim
  std::int32_t num_blocks;
  std::uint64_t seed;
  std::uint32_t position, choice;
  float max, slope, offset;
  std::int32_t* hits;  ///< [64 * num_blocks]: ids, ascending within a block
};

/// out[r, j] = x[r, order[j]]: what a matrix reads whose columns are packed in another order.
struct GatherColumnsParams {
  const float* x;  ///< [R, K], row stride x_stride floats
  std::int64_t x_stride;
  std::int32_t rows, dim;
  const std::int32_t* order;  ///< [K], each in [0, K)
  float* out;                 ///< [R, K] dense; not x
};

/// cos and sin, times `scale`, of position times frequency, as math.h's sin_cos defines them.
struct RopeAnglesParams {
  const float* frequencies;  ///< [count] radians per position
  std::int32_t count;
  float scale;
  const std::int32_t* positions;  ///< [R], each >= 0
  std::int32_t rows;
  float* cos;  ///< [R, count]
  float* sin;  ///< [R, count]
};

/// row i = row wanted[i], the first `width` numbers of each; wanted ascending, so that wanted[i] >= i.
struct KeepRowsParams {
  float* rows;  ///< [.., stride]
  std::int64_t stride, width;
  const std::int32_t* wanted;  ///< [count]
  std::int32_t count;
};

/// Copies whole blocks (every layer, head and plane) inside one group's arena.
struct BlockCopyParams {
  std::byte* base;
  std::int64_t block_stride;
  const BlockId* src;
  const BlockId* dst;
  std::int32_t count;
};

/// Sum of `x` over the ranks of a group, added in rank order. World size 1: nothing to do, still called.
/// x is the residual stream after a row-parallel projection: rank 0 has added its part to it (`accumulate`),
/// the other ranks hold their parts alone.
struct AllReduceParams {
  float* x;
  std::int64_t count;
  std::int32_t rank, world;
};

/// What not every table can do. A model that needs more than its table has is refused by name.
enum Feature : std::uint32_t {
  kFeatureNorms = 1,        ///< norm (kRms), add_scaled
  kFeatureActivations = 2,  ///< other activations than silu
  kFeatureSoftcap = 4,      ///< AttentionParams::softcap, ScaleLogitsParams::softcap
  kFeatureExperts = 8,      ///< route, experts, row_gate
  kFeatureLatent = 16,      ///< stacked_linear, latent_write, latent_attention
  kFeatureSinks = 32,       ///< AttentionParams::sinks
  kFeatureRecurrent = 64,   ///< conv1d, delta_net, mamba2, gated_norm, sigmoid_mul
  kFeatureStreams = 128,    ///< predict_streams, correct_streams, match_magnitude, cut_gate
  kFeatureEncoders = 256,   ///< AttentionParams::causal = false, gate_mul without `up`, Activation::kGeluErf
  kFeatureHostMemory = 512,  ///< a step's buffers lie in memory that whoever calls may read and write too; scale_rows
  kFeatureLayerNorm = 1024,  ///< NormKind::kLayer, NormParams::bias
  kFeatureLogitScale = 2048,  ///< scale_logits
};

struct OpTable {
  const char* name;            ///< "cpu-scalar", "cpu-avx2", "cpu-avx512"
  const char* layout_id;       ///< names the order of elements inside a KV plane
  std::uint32_t features = 0;  ///< of Feature; the operations of the others may be null

  /// In which type this back end wants matrices that a file stores in ggml's blocks of type `name` ("Q4_K"), and which can
  /// be converted to `converted`: that, or the file's own.
  DType (*stored_type)(const char* name, DType converted);
  /// Parts of 64 rows add up, and pack alike. 0: there is no kernel for weights of this type and shape.
  std::size_t (*packed_bytes)(DType, std::int32_t n, std::int32_t k, Packing);
  void (*pack)(Stream&, const PackParams&);

  /// In which linear and gated_linear read the rows that they multiply by a weight of this type.
  Form (*prepared_form)(Recipe, DType weight);
  /// Bytes of [rows, k] in the form linear reads in this recipe, or of what linear makes of them (kBF16).
  std::size_t (*prepared_bytes)(std::int32_t rows, std::int32_t k, Recipe);
  std::size_t (*attention_workspace_bytes)(std::int32_t rows, std::int32_t num_q_heads,
                                           std::int32_t head_dim);
  /// Bytes of one head's K plus V plane in one block.
  std::size_t (*kv_head_bytes)(DType, std::int32_t block_tokens, std::int32_t head_dim);
  /// Bytes of a block's latent vectors of `dim` numbers.
  std::size_t (*latent_bytes)(DType, std::int32_t block_tokens, std::int32_t dim);
  std::size_t (*latent_workspace_bytes)(std::int32_t value_dim);
  std::size_t (*experts_workspace_bytes)(std::int32_t rows, std::int32_t chosen, std::int32_t experts,
                                         std::int32_t hidden, std::int32_t ffn, Recipe);
  std::size_t (*stacked_workspace_bytes)(std::int32_t rows, std::int32_t count, std::int32_t k, Recipe);

  void (*embed)(Stream&, const EmbedParams&);
  void (*rms_norm)(Stream&, const RmsNormParams&);
  void (*linear)(Stream&, const LinearParams&);
  void (*gated_linear)(Stream&, const GatedLinearParams&);
  void (*rope_kv_write)(Stream&, const RopeKvParams&);
  void (*attention)(Stream&, const AttentionParams&);
  void (*gate_mul)(Stream&, const GateMulParams&);
  void (*norm)(Stream&, const NormParams&);
  void (*add_scaled)(Stream&, const AddScaledParams&);
  void (*scale_rows)(Stream&, const ScaleRowsParams&);
  void (*scale_logits)(Stream&, const ScaleLogitsParams&);
  void (*route)(Stream&, const RouteParams&);
  void (*experts)(Stream&, const ExpertsParams&);
  void (*row_gate)(Stream&, const RowGateParams&);
  void (*stacked_linear)(Stream&, const StackedLinearParams&);
  void (*latent_write)(Stream&, const LatentWriteParams&);
  void (*latent_attention)(Stream&, const LatentAttentionParams&);
  void (*sigmoid_mul)(Stream&, const SigmoidMulParams&);
  void (*conv1d)(Stream&, const Conv1dParams&);
  void (*delta_net)(Stream&, const DeltaNetParams&);
  void (*mamba2)(Stream&, const Mamba2Params&);
  void (*gated_norm)(Stream&, const GatedNormParams&);
  void (*predict_streams)(Stream&, const PredictStreamsParams&);
  void (*correct_streams)(Stream&, const CorrectStreamsParams&);
  void (*match_magnitude)(Stream&, const MatchMagnitudeParams&);
  void (*cut_gate)(Stream&, const CutGateParams&);
  void (*row_stats)(Stream&, const RowStatsParams&);
  std::int32_t (*gumbel_filter)(const GumbelFilterParams&);  ///< the number of hits
  void (*gather_columns)(Stream&, const GatherColumnsParams&);
  void (*rope_angles)(Stream&, const RopeAnglesParams&);
  void (*keep_rows)(Stream&, const KeepRowsParams&);
  void (*copy_blocks)(Stream&, const BlockCopyParams&);
  void (*all_reduce)(Stream&, const AllReduceParams&);
};

}  // namespace barg::ops
