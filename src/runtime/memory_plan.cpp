#include "runtime/memory_plan.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace barg::runtime {
namespace {

using model::LayerGroup;
using model::StateKind;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string mib(std::uint64_t bytes) {
  if (bytes < 1 << 20) return std::to_string(bytes) + " bytes";
  const std::uint64_t tenths = bytes / 1024 * 10 / 1024;  // of a MiB, rounded down
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

/// Sizes of blocks and what sequences of a given length need of them.
struct Layout {
  const std::vector<LayerGroup>& groups;
  std::vector<std::int64_t> block_bytes;
  std::int64_t block_tokens;
  std::int64_t max_rows;
  std::int64_t interval;  ///< tokens of a recurrent group's block

  bool windowed(std::size_t g) const {
    return groups[g].kind == StateKind::kSlidingWindow && groups[g].window > 0;
  }
  bool recurrent(std::size_t g) const { return groups[g].kind == StateKind::kRecurrent; }
  std::int64_t tokens(std::size_t g) const { return recurrent(g) ? interval : block_tokens; }

  /// Blocks of group g that one sequence of `tokens` cannot do without. A window group keeps the window and,
  /// while a chunk is computed, the chunk; either may straddle one more block. A state is read from one block
  /// and written to the next.
  std::int64_t need(std::size_t g, std::int64_t tokens_of_one) const {
    const std::int64_t all = ceil_div(tokens_of_one, tokens(g));
    if (recurrent(g)) return std::min<std::int64_t>(all, 2);
    if (!windowed(g)) return all;
    return std::min(all, ceil_div(groups[g].window + max_rows, block_tokens) + 2);
  }
  /// And what it has a use for.
  std::int64_t wish(std::size_t g, std::int64_t tokens_of_one) const {
    return recurrent(g) ? kStatesPerSequence : need(g, tokens_of_one);
  }

  std::uint64_t bytes(std::int64_t tokens_of_one, bool wished = false) const {
    std::uint64_t sum = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::int64_t blocks = wished ? wish(g, tokens_of_one) : need(g, tokens_of_one);
      sum += static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(block_bytes[g]);
    }
    return sum;
  }
};

/// Rule 2: the longest multiple of the block size, at most `wanted`, that one sequence can have in `pool`
/// bytes.
std::int64_t longest_context(const Layout& layout, std::int64_t wanted, std::uint64_t pool) {
  if (layout.bytes(wanted) <= pool) return wanted;
  std::int64_t low = 0;
  std::int64_t high = wanted / layout.block_tokens;
  while (low < high) {
    const std::int64_t mid = (low + high + 1) / 2;
    if (layout.bytes(mid * layout.block_tokens) <= pool) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return low * layout.block_tokens;
}

bool attends(const std::vector<LayerGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [](const LayerGroup& g) { return g.kind != StateKind::kRecurrent; });
}

/// Rule 4.
std::int64_t snapshot_interval(const std::vector<LayerGroup>& groups,
                               const std::vector<std::int64_t>& block_bytes, std::int64_t block_tokens) {
  std::int64_t state = 0, blocks = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    (groups[g].kind == StateKind::kRecurrent ? state : blocks) += block_bytes[g];
  std::int64_t tokens = std::max(block_tokens, kLeastInterval);
  while (tokens < kMostInterval && state / tokens > blocks / block_tokens) tokens *= 2;
  return tokens;
}

/// Rule 3. Every group holds at least one whole sequence of `tokens`.
std::vector<std::int64_t> divide_pool(const Layout& layout, std::int64_t tokens, std::int64_t max_seqs,
                                      std::uint64_t pool) {
  std::vector<std::int64_t> blocks(layout.groups.size());
  std::uint64_t window_bytes = 0, full_block_bytes = 0, full_need_bytes = 0;
  const bool mixed = attends(layout.groups);
  const auto limited = [&](std::size_t g) { return layout.windowed(g) || (layout.recurrent(g) && mixed); };
  for (std::size_t g = 0; g < blocks.size(); ++g) {
    const auto bytes = static_cast<std::uint64_t>(layout.block_bytes[g]);
    if (limited(g)) {
      window_bytes += static_cast<std::uint64_t>(layout.wish(g, tokens) * max_seqs) * bytes;
    } else {
      full_block_bytes += bytes;
      full_need_bytes += static_cast<std::uint64_t>(layout.need(g, tokens)) * bytes;
    }
  }
  // Half of the pool, or what the full-attention groups leave when they are full; but they keep one sequence.
  const std::uint64_t full_all = std::min(pool, full_need_bytes * static_cast<std::uint64_t>(max_seqs));
  std::uint64_t window_share = pool;
  if (full_block_bytes > 0)
    window_share = std::min(std::max(pool / 2, pool - full_all), pool - full_need_bytes);
  const double scale = window_bytes <= window_share
                           ? 1.0
                           : static_cast<double>(window_share) / static_cast<double>(window_bytes);
  std::uint64_t used = 0;
  for (std::size_t g = 0; g < blocks.size(); ++g) {
    if (!limited(g)) continue;
    const std::int64_t one = layout.need(g, tokens), most = layout.wish(g, tokens) * max_seqs;
    blocks[g] = std::max(one, static_cast<std::int64_t>(static_cast<double>(most) * scale));
    used += static_cast<std::uint64_t>(blocks[g]) * static_cast<std::uint64_t>(layout.block_bytes[g]);
  }
  for (std::size_t g = 0; g < blocks.size(); ++g) {
    if (limited(g)) continue;
    const std::int64_t fit = static_cast<std::int64_t>((pool - std::min(pool, used)) / full_block_bytes);
    blocks[g] = std::max(fit, layout.need(g, tokens));
  }
  return blocks;
}

Result<void> check_options(const Config& c) {
  const auto& kv = c.kv;
  if (kv.block_size != 16 && kv.block_size != 32 && kv.block_size != 64) {
    return fail(ErrorCode::kInvalidValue,
                "block_size is " + std::to_string(kv.block_size) + "; 16, 32 and 64 are possible",
                "kv.block_size");
  }
  if (c.scheduler.max_num_batched_tokens < 1) {
    return fail(ErrorCode::kInvalidValue, "max_num_batched_tokens must be at least 1",
                "scheduler.max_num_batched_tokens");
  }
  if (c.scheduler.max_num_seqs < 1) {
    return fail(ErrorCode::kInvalidValue, "max_num_seqs must be at least 1", "scheduler.max_num_seqs");
  }
  if (c.model.max_model_len < 0) {
    return fail(ErrorCode::kInvalidValue, "max_model_len must not be negative", "model.max_model_len");
  }
  return {};
}

/// Rule 1 for memory_bytes = 0.
Result<std::uint64_t> automatic_pool(const MemoryPlan& plan, const Layout& layout, std::int64_t max_seqs,
                                     std::int64_t percent) {
  const std::uint64_t fixed =
      plan.weight_bytes + plan.activation_bytes + plan.workspace_bytes + plan.logits_bytes;
  const std::uint64_t full = layout.bytes(plan.max_model_len, true) * static_cast<std::uint64_t>(max_seqs);
  const std::uint64_t left = plan.available_bytes > fixed ? plan.available_bytes - fixed : 0;
  const std::uint64_t allowed = std::min(plan.available_bytes / 100 * static_cast<std::uint64_t>(percent), left);
  if (allowed < layout.bytes(2 * layout.block_tokens)) {
    return fail(ErrorCode::kOutOfMemory,
                "the model needs " + mib(fixed) + " and its smallest KV pool " +
                    mib(layout.bytes(2 * layout.block_tokens)) + ", but this process may use only " +
                    mib(plan.available_bytes) + " more",
                "kv.memory_bytes");
  }
  return std::min(full, allowed);
}

}  // namespace

Result<MemoryPlan> plan_memory(const Config& config, Recipe recipe, const ModelShape& shape,
                               const KvPoolSpec& kv, std::uint64_t available_bytes) {
  if (auto ok = check_options(config); !ok) return std::unexpected(ok.error());
  CHECK(kv.head_bytes.size() == shape.groups.size() && !shape.groups.empty());
  std::vector<std::int64_t> block_bytes;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    const LayerGroup& group = shape.groups[g];
    CHECK(group.kind != StateKind::kRecurrent || group.state_bytes > 0);
    const std::int64_t layer = group.kind == StateKind::kRecurrent ? group.state_bytes
                                                                   : kv.head_bytes[g] * group.num_kv_heads;
    block_bytes.push_back(layer * static_cast<std::int64_t>(group.layers.size()));
  }
  const std::int64_t interval = snapshot_interval(shape.groups, block_bytes, kv.block_tokens);
  const std::int64_t block = attends(shape.groups) ? kv.block_tokens : interval;
  const Layout layout{shape.groups, std::move(block_bytes), block, config.scheduler.max_num_batched_tokens,
                      interval};
  MemoryPlan plan;
  plan.recipe = recipe;
  plan.kv_dtype = kv.dtype;
  plan.block_tokens = static_cast<std::int32_t>(block);
  plan.max_rows = config.scheduler.max_num_batched_tokens;
  plan.model_max_len = shape.max_position;
  std::uint64_t token_bytes = 0;
  for (std::size_t g = 0; g < shape.groups.size(); ++g) {
    plan.group_tokens.push_back(static_cast<std::int32_t>(layout.tokens(g)));
    token_bytes += static_cast<std::uint64_t>(ceil_div(layout.block_bytes[g], layout.tokens(g)));
  }
  plan.block_bytes = layout.block_bytes;
  plan.kv_bytes_per_token = token_bytes;
  plan.weight_file_bytes = shape.file_bytes;
  plan.weight_bytes = shape.weight_bytes;
  plan.activation_bytes =
      static_cast<std::uint64_t>(plan.max_rows) * static_cast<std::uint64_t>(shape.hidden) * 4;
  plan.workspace_bytes = shape.workspace_bytes;
  plan.logits_bytes = static_cast<std::uint64_t>(std::min(kLogitsRows, plan.max_rows)) *
                      static_cast<std::uint64_t>(shape.logits_dim) * 4;
  plan.available_bytes = available_bytes;

  const std::int32_t wanted = config.model.max_model_len;
  plan.max_model_len = wanted > 0 ? wanted : shape.max_position;
  if (wanted > shape.max_position) {
    plan.notes.push_back("max_model_len " + std::to_string(wanted) + " is above the model's own " +
                         std::to_string(shape.max_position) + "; answers beyond that length may be poor");
  }
  std::uint64_t pool = config.kv.memory_bytes;
  if (pool == 0) {
    auto automatic = automatic_pool(plan, layout, config.scheduler.max_num_seqs, kv.percent);
    if (!automatic) return std::unexpected(automatic.error());
    pool = *automatic;
  }
  const std::int64_t fits = longest_context(layout, plan.max_model_len, pool);
  if (fits < 2 * block && fits < plan.max_model_len) {
    return fail(
        ErrorCode::kOutOfMemory,
        "a KV pool of " + mib(pool) + " holds fewer than two blocks (" + mib(layout.bytes(2 * block)) + ")",
        "kv.memory_bytes");
  }
  if (fits < plan.max_model_len) {
    plan.notes.push_back("the KV pool of " + mib(pool) + " holds " + std::to_string(fits) +
                         " tokens of one sequence: the context is shortened from " +
                         std::to_string(plan.max_model_len) + " to " + std::to_string(fits));
    plan.max_model_len = static_cast<std::int32_t>(fits);
  }
  plan.num_blocks = divide_pool(layout, plan.max_model_len, config.scheduler.max_num_seqs, pool);
  for (std::size_t g = 0; g < plan.num_blocks.size(); ++g) {
    plan.kv_bytes +=
        static_cast<std::uint64_t>(plan.num_blocks[g]) * static_cast<std::uint64_t>(plan.block_bytes[g]);
  }
  plan.total_bytes =
      plan.weight_bytes + plan.kv_bytes + plan.activation_bytes + plan.workspace_bytes + plan.logits_bytes;
  // Pages are taken as the pool fills, so this is not refused: it may never fill, and other programs may end.
  if (plan.total_bytes > plan.available_bytes) {
    plan.notes.push_back("in all " + mib(plan.total_bytes) + " may be used, but only " +
                         mib(plan.available_bytes) +
                         " are available: the system may end the server when the KV pool fills");
  }
  return plan;
}

}  // namespace barg::runtime
