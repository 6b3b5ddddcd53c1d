// Attention launches on the emulated device: what a test wants computed, and what came of it. Numbers of q, k and v are
// a function of (sequence, position, head, dimension), so that one sequence can be cut in any way. Used by one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cuda/kv_layout.h"
#include "emu/emu.h"

namespace barg::cuda {

/// Rows of a sequence at positions position, position + 1, ...
struct Rows {
  int sequence, position, count = 1;
};

struct AttentionCase {
  KvType kv = KvType::kF16;
  int dim = 64, group = 4, kv_heads = 1, block_tokens = 16, window = 0;
  bool wide = false;
  std::vector<Rows> rows;
  int workers = 3;
  std::size_t block_shared_bytes = std::size_t{227} << 10;
  bool shared_out = true;  ///< slots for all splits; false: none, so that one block takes all of a query
  bool bad_numbers = false;  ///< an infinity in V at kBadPosition of each sequence, as rope_kv writes it
  emu::Schedule schedule{};
  emu::Fault fault{};
  bool count_sites = false;
};
inline constexpr int kBadPosition = 140;

struct AttentionResult {
  std::vector<float> out;           ///< [rows, nq, D]
  std::vector<std::uint16_t> half;  ///< the same, in bf16
  std::set<emu::Finding::Kind> kinds;
  std::string text;  ///< of the findings
  bool counters_are_zero = false;
  int parts = 0;     ///< most parts of an item
  int shared_bytes = 0;  ///< of a block
  std::uint64_t kv_read = 0, kv_ideal = 0;  ///< bytes
  std::vector<emu::SiteCount> sites;
};
AttentionResult run_attention(const AttentionCase& c);

/// The largest error of a (row, head), relative to the size of what it should be, in float64 over what is stored.
double worst_error(const AttentionCase& c, const std::vector<float>& out);
/// What worst_error() may be.
double tolerance(KvType kv);

inline std::string name_of(KvType kv) { return kv == KvType::kF16 ? "f16" : kv == KvType::kBF16 ? "bf16" : "fp8"; }

}  // namespace barg::cuda
