#include "runtime/factory.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "cpu/cpu.h"
#include "model/decoder.h"
#include "runtime/cpu_runner.h"
#include "runtime/kv_memory.h"
#include "store/tier_spec.h"

namespace barg::runtime {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

constexpr std::array<Named<std::optional<Recipe>>, 4> kRecipes{
    {{"auto", std::nullopt}, {"f32", Recipe::kF32}, {"int8", Recipe::kInt8}, {"bf16", Recipe::kBF16}}};
constexpr std::array<Named<std::optional<DType>>, 6> kKvDtypes{{{"auto", std::nullopt},
                                                                {"f32", DType::kF32},
                                                                {"f16", DType::kF16},
                                                                {"bf16", DType::kBF16},
                                                                {"fp8", DType::kF8E4M3},
                                                                {"int8", DType::kI8}}};
constexpr std::array<Named<ops::Isa>, 4> kIsas{{{"auto", ops::Isa::kAuto},
                                                {"scalar", ops::Isa::kScalar},
                                                {"avx2", ops::Isa::kAvx2},
                                                {"avx512", ops::Isa::kAvx512}}};

template <class T, std::size_t N>
Result<T> look_up(const std::array<Named<T>, N>& table, const std::string& name, const char* key) {
  std::string known;
  for (const auto& row : table) {
    if (row.name == name) return row.value;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return fail(ErrorCode::kInvalidValue, std::string(key) + " is \"" + name + "\"; possible are " + known,
              key);
}

/// The choices that configuration leaves to the model and the machine.
struct Choices {
  Recipe recipe;
  DType kv_dtype;
  ops::Isa isa;
};

Result<Choices> choose(const Config& config, const model::ModelFiles& files) {
  const auto recipe = look_up(kRecipes, config.model.numerics, "model.numerics");
  if (!recipe) return std::unexpected(recipe.error());
  const auto dtype = look_up(kKvDtypes, config.kv.dtype, "kv.dtype");
  if (!dtype) return std::unexpected(dtype.error());
  const auto isa = look_up(kIsas, config.runtime.isa, "runtime.isa");
  if (!isa) return std::unexpected(isa.error());
  if (!ops::isa_supported(*isa)) {
    return fail(ErrorCode::kInvalidValue,
                "runtime.isa is " + config.runtime.isa + ", which this machine cannot run; its best is " +
                    ops::isa_name(ops::best_isa()),
                "runtime.isa");
  }
  if (*recipe && !ops::recipe_supported(*isa, **recipe)) {
    const bool asked = *isa != ops::Isa::kAuto && *isa != ops::Isa::kAvx512;
    return fail(ErrorCode::kInvalidValue,
                "model.numerics is " + config.model.numerics + ", which needs AVX512-BF16, and " +
                    (asked ? "runtime.isa is " + config.runtime.isa : "this machine has none") +
                    "; f32 and int8 are possible",
                "model.numerics");
  }
  if (config.runtime.threads < 0 || config.runtime.threads > 1024) {
    return fail(ErrorCode::kInvalidValue, "threads must be between 0 and 1024", "runtime.threads");
  }
  Choices c{.recipe = recipe->value_or(files.is_quantised() ? Recipe::kInt8 : Recipe::kF32),
            .kv_dtype = DType::kF32,
            .isa = *isa};
  c.kv_dtype = dtype->value_or(c.recipe == Recipe::kF32 ? DType::kF32 : DType::kF16);
  return c;
}

KvPoolSpec pool_spec(const Config& config, const Choices& choices,
                     const std::vector<model::LayerGroup>& groups, const ops::OpTable& ops) {
  KvPoolSpec spec{.dtype = choices.kv_dtype, .block_tokens = config.kv.block_size, .head_bytes = {}};
  for (const auto& g : groups) {
    const bool recurrent = g.kind == model::StateKind::kRecurrent;
    spec.head_bytes.push_back(recurrent ? 0
                                        : static_cast<std::int64_t>(model::head_bytes(
                                              g, ops, choices.kv_dtype, config.kv.block_size)));
  }
  return spec;
}

/// Host memory that the tiers below the pool take.
Result<std::uint64_t> tier_memory(const Config& config) {
  if (config.kv.tiers.empty() || !config.kv.enable_prefix_caching) return 0;
  const auto tiers = store::parse_tiers(config.kv.tiers);
  if (!tiers) return std::unexpected(tiers.error());
  std::uint64_t dram = 0;
  for (const auto& tier : *tiers) {
    if (tier.kind == store::TierKind::kDram) dram += tier.size_bytes;
  }
  return dram > 0 ? dram : store::StackOptions{}.staging_bytes;
}

Result<MemoryPlan> plan_with(const Config& config, const model::ModelFiles& files, const Choices& choices,
                             const ops::OpTable& ops) {
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  const auto weights = model::Decoder::weight_bytes(files, ops, choices.recipe);
  if (!weights) return std::unexpected(weights.error());
  const auto tiers = tier_memory(config);
  if (!tiers) return std::unexpected(tiers.error());
  const std::uint64_t available = available_memory();
  const std::int32_t rows = std::max(config.scheduler.max_num_batched_tokens, 1);
  const ModelShape shape{.groups = model::layer_groups(*spec),
                         .max_position = spec->max_positions,
                         .file_bytes = files.total_bytes(),
                         .weight_bytes = *weights,
                         .workspace_bytes = model::Decoder::workspace_bytes(*spec, ops, choices.recipe, rows),
                         .hidden = spec->hidden,
                         .logits_dim = spec->generates() ? spec->vocab_rows : 0};
  return plan_memory(config, choices.recipe, shape, pool_spec(config, choices, shape.groups, ops),
                     available - std::min(available, *tiers));
}

void add_field(Sha256& h, std::string_view value) {
  const std::uint64_t size = value.size();
  h.update(&size, sizeof size);
  h.update(value);
}

template <class T>
void add_number(Sha256& h, T value) {
  add_field(h, {reinterpret_cast<const char*>(&value), sizeof value});
}

/// Everything a KV block's bytes depend on but the tokens: equal roots mean exchangeable blocks.
std::string key_root(const Digest& weights, const MemoryPlan& plan, const model::DecoderSpec& spec,
                     const char* layout) {
  Sha256 h;
  add_field(h, "barg kv root 3");
  add_field(h, {reinterpret_cast<const char*>(weights.data()), weights.size()});
  add_field(h, numerics_id(plan.recipe, plan.kv_dtype));
  add_field(h, layout);
  add_field(h, dtype_name(plan.kv_dtype));
  add_number(h, plan.block_tokens);
  add_field(h, model::spec_facts(spec));
  add_field(h, "");                // adapter
  add_number(h, std::int32_t{0});  // rank
  add_number(h, std::int32_t{1});  // world size
  const Digest d = h.finish();
  return {d.begin(), d.end()};
}

Result<std::vector<TokenId>> end_ids(const model::ModelFiles& files, const VocabData& vocab,
                                     std::int32_t vocab_rows, const std::vector<TokenId>& more) {
  const auto defaults = files.generation_defaults();
  if (!defaults) return std::unexpected(defaults.error());
  std::vector<TokenId> ids = defaults->eos_ids;
  ids.insert(ids.end(), more.begin(), more.end());
  ids.insert(ids.end(), vocab.eos_ids.begin(), vocab.eos_ids.end());
  for (const auto& id : {vocab.eos, vocab.eot, vocab.eom}) {
    if (id) ids.push_back(*id);
  }
  std::erase_if(ids, [&](TokenId id) { return id < 0 || id >= vocab_rows; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

EmbeddingInfo embedding_info(const model::DecoderSpec& spec) {
  if (spec.generates()) return {};
  const model::PoolingSpec& p = spec.pooling;
  return {.size = spec.hidden, .normalise = p.normalise, .matryoshka = p.matryoshka, .sizes = p.sizes};
}

RunnerInfo make_info(const MemoryPlan& plan, const model::DecoderSpec& spec, const VocabData& vocab,
                     std::int32_t vocab_size) {
  RunnerInfo info{.groups = model::layer_groups(spec),
                  .num_blocks = plan.num_blocks,
                  .block_bytes = plan.block_bytes,
                  .block_tokens = plan.block_tokens,
                  .group_tokens = plan.group_tokens,
                  .max_model_len = plan.max_model_len,
                  .max_rows = plan.max_rows,
                  .vocab_size = spec.vocab_rows,
                  .end_ids = {},
                  .numerics_id = numerics_id(plan.recipe, plan.kv_dtype),
                  .model_digest = {},
                  .embedding = embedding_info(spec),
                  .key_root = {}};
  if (!vocab.tokens.empty())
    info.vocab_size = std::min(info.vocab_size, static_cast<std::int32_t>(vocab.tokens.size()));
  if (vocab_size > 0) info.vocab_size = std::min(info.vocab_size, vocab_size);
  return info;
}

Result<KvMemory> make_kv(const MemoryPlan& plan, const std::vector<model::LayerGroup>& groups) {
  std::vector<KvMemory::GroupSpec> specs;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t heads = static_cast<std::int64_t>(groups[g].layers.size()) * groups[g].num_kv_heads;
    const bool recurrent = groups[g].kind == model::StateKind::kRecurrent;
    specs.push_back({.group = &groups[g],
                     .num_blocks = plan.num_blocks[g],
                     .head_bytes = recurrent ? 0 : plan.block_bytes[g] / heads,
                     .block_tokens = plan.group_tokens[g]});
  }
  return KvMemory::create(specs, plan.kv_dtype);
}

Result<LoadedRunner> load(const Config& config, const model::ModelFiles& files, const LoadOptions& options) {
  const auto choices = choose(config, files);
  if (!choices) return std::unexpected(choices.error());
  auto device = std::make_unique<ops::CpuDevice>(
      ops::CpuOptions{.threads = config.runtime.threads, .isa = choices->isa});
  auto plan = plan_with(config, files, *choices, device->ops());
  if (!plan) return std::unexpected(plan.error());
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  const auto vocab = files.vocab();
  if (!vocab) return std::unexpected(vocab.error());

  CpuRunnerParts parts{.info = make_info(*plan, *spec, *vocab, options.vocab_size),
                       .plan = *plan,
                       .device = std::move(device),
                       .decoder = nullptr,
                       .kv = {}};
  auto ends = end_ids(files, *vocab, spec->vocab_rows, options.end_ids);
  if (!ends) return std::unexpected(ends.error());
  parts.info.end_ids = std::move(*ends);

  Digest weights{};
  {
    // Reading every byte once more costs as much as packing; the two overlap.
    const std::jthread hashing([&] { weights = files.weights_digest(); });
    model::Decoder::Progress progress;
    if (options.progress) {
      progress = [&](std::uint64_t done, std::uint64_t total) {
        options.progress(total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
      };
    }
    auto decoder =
        model::Decoder::load(files, parts.device->ops(), parts.device->stream(),
                             {.recipe = choices->recipe, .context = plan->max_model_len}, progress);
    if (!decoder) return std::unexpected(decoder.error());
    parts.decoder = std::move(*decoder);
  }
  parts.info.model_digest = hex(weights);
  parts.info.key_root = key_root(weights, *plan, parts.decoder->spec(), parts.device->ops().layout_id);
  auto kv = make_kv(*plan, parts.info.groups);
  if (!kv) return std::unexpected(kv.error());
  parts.kv = std::move(*kv);

  LoadedRunner out{
      .runner = nullptr, .plan = *plan, .isa = parts.device->ops().name, .threads = parts.device->threads()};
  out.runner = std::make_unique<CpuRunner>(std::move(parts));
  return out;
}

}  // namespace

std::string numerics_id(Recipe recipe, DType kv_dtype) {
  return std::string(recipe_name(recipe)) + "-t" + std::to_string(kTileKeys) + "-s" +
         std::to_string(kSplitKeys) + "-k" + std::to_string(kKernelEpoch) + "-kv" + dtype_name(kv_dtype) +
         "-cpu";
}

Result<MemoryPlan> plan_memory(const Config& config, const model::ModelFiles& files) {
  const auto choices = choose(config, files);
  if (!choices) return std::unexpected(choices.error());
  // One thread: the table is wanted, not the workers.
  const ops::CpuDevice device(ops::CpuOptions{.threads = 1, .isa = choices->isa});
  return plan_with(config, files, *choices, device.ops());
}

Result<LoadedRunner> load_runner(const Config& config, std::shared_ptr<const model::ModelFiles> files,
                                 const LoadOptions& options) {
  try {
    return load(config, *files, options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "there is not enough memory to load this model");
  }
}

Result<std::unique_ptr<Runner>> make_runner(const Config& config,
                                            std::shared_ptr<const model::ModelFiles> files,
                                            const ProgressFn& progress) {
  auto loaded = load_runner(config, std::move(files), {.progress = progress, .vocab_size = 0, .end_ids = {}});
  if (!loaded) return std::unexpected(loaded.error());
  return std::move(loaded->runner);
}

}  // namespace barg::runtime
