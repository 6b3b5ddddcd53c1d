// DecoderSpec: everything that distinguishes one transformer (a decoder, or an encoder of one text) from another, as plain flags. A
// family file turns config.json or GGUF metadata into it; decoder.cpp reads nothing else, so a new family is
// a builder function and a row of the family table, never an `if (architecture == ...)`.
//
// Invariants of a spec that ModelFiles::spec() returned: every size is positive and small enough that
// products fit 63 bits, q heads are a multiple of kv heads, head_dim and rotary_dim are even, layers has
// num_layers rows, each with a rope that is there, and kv_of is an earlier layer with K and V of its own.
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/forward.h"
#include "model/recurrent_spec.h"

namespace barg::model {

struct RopeSpec {
  enum class Kind : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  std::int32_t rotary_dim = 0;        ///< even, <= head_dim; pairs are (i, i + rotary_dim/2)
  double factor = 1;                  ///< linear, dynamic, llama3, yarn, proportional
  double low_freq_factor = 1;         ///< llama3
  double high_freq_factor = 4;        ///< llama3
  double original_max_positions = 0;  ///< dynamic, llama3, yarn, longrope
  double beta_fast = 32;              ///< yarn
  double beta_slow = 1;               ///< yarn
  bool truncate = true;               ///< yarn: the ramp begins and ends at whole frequencies
  double rotated_share = 1;           ///< proportional: of the frequencies; the others stand still
  double attention_factor = 1;        ///< yarn, longrope: cos and sin are multiplied by it
  std::vector<float> divisors;  ///< [rotary_dim/2] of `rope_freqs.weight` or longrope's choice, or empty
  /// longrope: the divisors for contexts up to and above original_max_positions; which of them holds, and
  /// what dynamic makes of theta, is decided once for the context that is served (fix_context, rope.h).
  std::vector<float> short_divisors, long_divisors;
  bool operator==(const RopeSpec&) const = default;
};

/// What lets the tokens of a layer see each other.
enum class MixerKind : std::uint8_t {
  kAttention,
  kLatent,              ///< one vector a token for all heads (mla.h)
  kDeltaNet,            ///< gated delta rule (recurrent.h), as the following
  kMamba2,              ///< selective state space
  kConv,                ///< short convolution
  kAttentionAndMamba2,  ///< both read one norm, their results are added
};
constexpr bool has_attention(MixerKind k) {
  return k == MixerKind::kAttention || k == MixerKind::kAttentionAndMamba2;
}
constexpr bool has_state(MixerKind k) { return k != MixerKind::kAttention && k != MixerKind::kLatent; }

/// What is done to each token alone.
enum class FeedKind : std::uint8_t {
  kDense,
  kExperts,
  kDenseAndExperts,  ///< both read the stream, each through a norm; each result is normed, then they are
                     ///< added
  kNone,
};
constexpr bool has_dense(FeedKind k) { return k == FeedKind::kDense || k == FeedKind::kDenseAndExperts; }
constexpr bool has_experts(FeedKind k) { return k == FeedKind::kExperts || k == FeedKind::kDenseAndExperts; }

struct LayerSpec {
  std::int32_t window = 0;  ///< keys visible to a query including itself; 0 = all
  std::int32_t rope = 0;    ///< index into DecoderSpec::ropes; -1: positions are not encoded
  MixerKind mixer = MixerKind::kAttention;
  FeedKind feed = FeedKind::kDense;
  /// Sizes that are not the model's; 0: they are (shape_of).
  std::int32_t head_dim = 0, num_kv_heads = 0, ffn = 0;
  /// The layer before whose K and V attention reads, of the same sizes and window: this one has none.
  /// -1: its own.
  std::int32_t kv_of = -1;
  bool v_is_k = false;     ///< values are keys before their norm: there is no matrix for them
  bool cuts_gate = false;  ///< of the dense gate only what is far above its mean is left:
  float gate_cut = 0;      ///< so many standard deviations
  bool operator==(const LayerSpec&) const = default;
};

struct NormSpec {
  ops::NormKind kind = ops::NormKind::kRms;
  float eps = 0;
  float offset = 0;   ///< 1 for (1 + w) norms
  bool bias = false;  ///< of the norms of whole rows
  bool operator==(const NormSpec&) const = default;
};

/// Where a half of a layer (mixer or feed-forward, f) is normed: x += f(norm(x)); x += norm(f(x));
/// x += norm(f(norm(x))); or both halves read one norm of the same x; or x = norm(x + f(x)).
enum class NormPlace : std::uint8_t { kBefore, kAfter, kAround, kParallel, kBehind };

/// Norms of q and k before rotation: each head alone, with weights [head_dim] for all or for each head of its
/// own (stored as one tensor, or as one a head), or all heads as one row.
enum class QkNorm : std::uint8_t { kNone, kHeads, kOwnHeads, kOwnHeadsApart, kRow };

/// How a file holds the matrices of a layer's experts.
enum class ExpertLayout : std::uint8_t {
  kStacks,           ///< ffn_gate_exps, ffn_up_exps [E, I, H], ffn_down_exps [E, H, I]
  kEach,             ///< ffn_gate.E, ffn_up.E [I, H], ffn_down.E [H, I]
  kFused,            ///< ffn_gate_up_exps [E, 2I, H], gate first; ffn_down_exps
  kFusedTurns,       ///< the same, but gate and up by turns
  kFusedTransposed,  ///< ffn_gate_up_exps [E, H, 2I], gate and up by turns; ffn_down_exps [E, I, H]
};

/// What a row's result of the shared expert is multiplied by (ops::RowGateParams): ffn_gate_inp_shexp, [1, H]
/// in Hugging Face files, [H] in GGUF.
enum class SharedGate : std::uint8_t { kNone, kRow, kVector };

/// The experts of the layers that have some, and how a row chooses among them (ops::RouteParams).
struct ExpertSpec {
  std::int32_t count = 0;  ///< 0: the model has none
  std::int32_t chosen = 0;
  std::int32_t ffn = 0;         ///< width of one
  std::int32_t shared_ffn = 0;  ///< width of the one that every row goes through besides; 0: there is none
  SharedGate shared_gate = SharedGate::kNone;
  bool shared_fused = false;  ///< its tensors are called as a dense half's, ffn_up with gate, then up
  ops::RouterScore score = ops::RouterScore::kSoftmax;
  bool normalise = false;
  float norm_epsilon = 0;
  float scale = 1;
  std::int32_t groups = 1, kept_groups = 1;
  bool group_top2 = false;
  bool router_bias = false;  ///< a bias of the logits
  bool choice_bias = false;  ///< a bias that chooses and does not weigh
  bool bias = false;         ///< of the experts' matrices
  ops::ExpertGlu glu = ops::ExpertGlu::kActivation;
  float alpha = 0, limit = 0;  ///< of kClampedSilu
  ExpertLayout layout = ExpertLayout::kStacks;
  bool router_norm = false;    ///< the router reads the stream through a norm of its own, ffn_gate_inp.scale
  bool expert_scales = false;  ///< weights are multiplied by a number of the expert's, ffn_down_exps.scale
  bool operator==(const ExpertSpec&) const = default;
};

/// Several residual streams (altup.h).
struct StreamSpec {
  std::int32_t count = 1;
  std::int32_t active = 0;  ///< the one that layers work on
  bool scaled = true;       ///< what is made of it for the per-layer inputs is scaled, altup_correct_scale
  bool stacked = false;     ///< the file holds the matrices to and from the other streams as one tensor
  std::int32_t laurel_rank = 0;  ///< of a low-rank path beside attention; 0: there is none
  bool operator==(const StreamSpec&) const = default;
};

/// What a layer is told of the tokens besides the stream (per_layer.h).
struct PerLayerSpec {
  std::int32_t width = 0;  ///< of a layer's; 0: the model has none
  std::int32_t rows = 0;   ///< of the table, per_layer_token_embd; ids beyond it read row 0
  bool operator==(const PerLayerSpec&) const = default;
};

/// Latent attention: a token's state is [c | k_pe], c of kv_rank numbers; a query has nope_dim numbers that its
/// head's matrix takes to c's space, and rope_dim that are rotated.
struct LatentSpec {
  std::int32_t kv_rank = 0;  ///< 0: the model has none
  std::int32_t q_rank = 0;   ///< 0: queries come straight from the stream
  std::int32_t nope_dim = 0, rope_dim = 0, value_dim = 0;
  float norm_eps = 0;        ///< of the norms of c and of the query's low-rank form
  bool interleaved = true;   ///< rotated pairs are neighbours
  bool split_kv_b = false;   ///< the file has attn_k_b [heads, kv_rank, nope_dim] and attn_v_b instead of attn_kv_b
  bool operator==(const LatentSpec&) const = default;
};

/// Which of the states behind the last norm an embedding model makes its vector from.
enum class Pooling : std::uint8_t { kNone, kFirst, kLast, kMean };

/// How an embedding model answers.
struct PoolingSpec {
  Pooling kind = Pooling::kNone;  ///< kNone: the model generates
  bool normalise = true;          ///< the vector is divided by its length
  /// The first numbers of a vector are one of their own (Matryoshka): `sizes` of them, or any number if that is empty.
  bool matryoshka = false;
  std::vector<std::int32_t> sizes;
  bool operator==(const PoolingSpec&) const = default;
};
/// "last token", "mean"; for people.
const char* pooling_name(Pooling kind);

struct DecoderSpec {
  std::string family;        ///< row of the family table: "llama", "mistral"
  std::string architecture;  ///< as the file spells it: "LlamaForCausalLM", "llama"
  std::int32_t hidden = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_q_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ffn = 0;
  std::int32_t vocab_rows = 0;     ///< rows of the embedding; the tokenizer may know fewer ids
  std::int32_t max_positions = 0;  ///< the model's own context length
  NormSpec norm;
  NormPlace norm_place = NormPlace::kBefore;
  QkNorm qk_norm = QkNorm::kNone;
  ops::Activation activation = ops::Activation::kSilu;
  float attention_scale = 0;    ///< 1/sqrt(head_dim) for Llama
  float attention_softcap = 0;  ///< 0: none
  float logit_softcap = 0;      ///< 0: none
  float logit_scale = 1;
  float embedding_scale = 1;
  float residual_scale = 1;  ///< of what is added to the residual stream
  /// A rotated query at position p is multiplied by 1 + beta ln(1 + floor(p / length)); beta 0: it is not.
  struct QueryScale {
    double beta = 0, length = 1;
    bool operator==(const QueryScale&) const = default;
  } query_scale;
  RecurrentSpec recurrent;  ///< of the layers whose mixer has a state
  /// The file's q has twice the rows, those of a gate behind those of each head: attention's result is
  /// multiplied by its sigmoid.
  bool attention_gate = false;
  float attention_out_scale = 1;  ///< of attention's result where it stands beside another mixer
  float feed_gate_scale = 1;      ///< of the feed-forward half's gate, before its activation
  float feed_out_scale = 1;       ///< of that half's result, beside residual_scale
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool sinks = false;          ///< attention has a learned logit a head, attn_sinks
  bool tied = false;           ///< the output projection is the embedding
  bool fused_qkv = false;      ///< the file has q, k and v as one tensor, attn_qkv
  /// Every token sees its whole prompt, which is computed in one step, and no KV of which can serve another.
  bool bidirectional = false;
  bool gated = true;       ///< the feed-forward half has a gate; else it is down(act(up x))
  bool final_norm = true;  ///< behind the last layer
  /// The stream begins as norm(word + type 0 + position), of tables with so many rows.
  struct EmbeddingTables {
    std::int32_t positions = 0, types = 0;  ///< 0, 0: it begins as the word's embedding alone
    bool operator==(const EmbeddingTables&) const = default;
  } tables;
  bool ffn_norm_is_post = false;  ///< the file calls the norm before the feed-forward half post_attention_norm
  std::int32_t skipped_layers = 0;  ///< behind the last one, for the prediction of further tokens
  bool fused_gate_up = false;  ///< the file's ffn_up holds gate, then up
  bool reordered_inputs =
      false;  ///< some matrices have their columns in another order (ProjectionPart::order)
  /// So many rows at the head of each head of the file's q and k are in interleaved rope order, and are put
  /// in order of halves as they are packed; 0: none. (head_dim in GGUF "llama", rotary_dim where the model
  /// itself rotates neighbours.)
  std::int32_t interleaved_qk = 0;
  std::vector<RopeSpec> ropes;  ///< at most kMaxRopes
  std::vector<LayerSpec> layers;
  ExpertSpec experts;  ///< of layers that have some
  LatentSpec latent;   ///< of layers with MixerKind::kLatent
  bool v_norm = false;  ///< each head of v is normed, without weights
  bool layer_scale =
      false;  ///< the stream is multiplied by a number of the layer's behind it, layer_output_scale
  StreamSpec streams;
  PerLayerSpec per_layer;
  PoolingSpec pooling;

  bool operator==(const DecoderSpec&) const = default;
  /// There is an output matrix, and tokens can be chosen by it.
  bool generates() const { return pooling.kind == Pooling::kNone; }
};

inline constexpr std::size_t kMaxRopes = 2;

/// Sizes of one layer.
struct LayerShape {
  std::int32_t head_dim, num_kv_heads, ffn;
  std::int64_t q_width, kv_width;  ///< of all heads
};
LayerShape shape_of(const DecoderSpec& spec, const LayerSpec& layer);

/// The last layer that keeps a state of its own: behind it only rows are computed whose results are wanted.
std::int32_t last_keeper(const DecoderSpec& spec);

/// Layers with the same state (kind, window, heads, head size) share a group; ordered by first layer. Layers
/// that read another's K and V are in none.
std::vector<LayerGroup> layer_groups(const DecoderSpec& spec);

/// Layers of the group, and those that read their K and V.
std::int32_t group_readers(const DecoderSpec& spec, const LayerGroup& group);

/// Bytes of K and V one token costs in a group (no per-block padding); 0 where the state does not grow with tokens.
std::uint64_t kv_bytes_per_token(const LayerGroup& group, DType kv_dtype);
/// The same in all groups, while every layer still holds the token.
std::uint64_t kv_bytes_per_token(const DecoderSpec& spec, DType kv_dtype);

/// Every field that reaches K and V, as bytes: equal facts and weights mean equal KV.
std::string spec_facts(const DecoderSpec& spec);

/// Weights as numbers, from the spec alone (tied embeddings counted once).
std::uint64_t parameter_count(const DecoderSpec& spec);

}  // namespace barg::model
