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
#include "runtime/cuda_runner.h"
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
  /// Of numerics_id().
  std::string arithmetic, device_class;

  std::string numerics() const { return numerics_id(arithmetic, kv_dtype, device_class); }
};

/// Who computes, and with what.
struct Plan {
  std::unique_ptr<cuda::Device> device;  ///< nullptr: the CPU
  Choices choices;
  MemoryPlan memory;
};

/// Where a model runs: its operations, and the memory that they work in.
struct BackEnd {
  const ops::OpTable& ops;
  ops::Stream& stream;
  model::Memory& memory;
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
            .isa = *isa,
            .arithmetic = {},
            .device_class = "cpu"};
  c.kv_dtype = dtype->value_or(c.recipe == Recipe::kF32 ? DType::kF32 : DType::kF16);
  c.arithmetic = recipe_name(c.recipe);
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

/// Of this process, without what the tiers take.
Result<std::uint64_t> host_memory_left(const Config& config) {
  const auto tiers = tier_memory(config);
  if (!tiers) return std::unexpected(tiers.error());
  const std::uint64_t available = available_memory();
  return available - std::min(available, *tiers);
}

Result<MemoryPlan> plan_with(const Config& config, const model::ModelFiles& files, const Choices& choices,
                             const ops::OpTable& ops, std::uint64_t available, std::int64_t pool_percent) {
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  const auto weights = model::Decoder::weight_bytes(files, ops, choices.recipe);
  if (!weights) return std::unexpected(weights.error());
  const std::int32_t rows = std::max(config.scheduler.max_num_batched_tokens, 1);
  if (spec->bidirectional && config.model.max_model_len > std::min(spec->max_positions, rows)) {
    return fail(ErrorCode::kInvalidValue,
                "max_model_len is " + std::to_string(config.model.max_model_len) + ", but the model has " +
                    std::to_string(spec->max_positions) + " positions, and a prompt is computed in one step of " +
                    std::to_string(rows) + " tokens (scheduler.max_num_batched_tokens)",
                "model.max_model_len");
  }
  const ModelShape shape{.groups = model::layer_groups(*spec),
                         // What is computed in one step has to fit one.
                         .max_position = spec->bidirectional ? std::min(spec->max_positions, rows) : spec->max_positions,
                         .file_bytes = files.total_bytes(),
                         .weight_bytes = *weights,
                         .workspace_bytes = model::Decoder::workspace_bytes(*spec, ops, choices.recipe, rows),
                         .hidden = spec->hidden,
                         .logits_dim = spec->generates() ? spec->vocab_rows : 0};
  KvPoolSpec pool = pool_spec(config, choices, shape.groups, ops);
  pool.percent = pool_percent;
  return plan_memory(config, choices.recipe, shape, pool, available);
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
                     const std::string& numerics, const char* layout) {
  Sha256 h;
  add_field(h, "barg kv root 3");
  add_field(h, {reinterpret_cast<const char*>(weights.data()), weights.size()});
  add_field(h, numerics);
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
                     const std::string& numerics, std::int32_t vocab_size) {
  RunnerInfo info{.groups = model::layer_groups(spec),
                  .num_blocks = plan.num_blocks,
                  .block_bytes = plan.block_bytes,
                  .block_tokens = plan.block_tokens,
                  .group_tokens = plan.group_tokens,
                  .max_model_len = plan.max_model_len,
                  .max_rows = plan.max_rows,
                  .whole_prompts = spec.bidirectional,
                  .vocab_size = spec.vocab_rows,
                  .end_ids = {},
                  .numerics_id = numerics,
                  .model_digest = {},
                  .embedding = embedding_info(spec),
                  .key_root = {}};
  if (!vocab.tokens.empty())
    info.vocab_size = std::min(info.vocab_size, static_cast<std::int32_t>(vocab.tokens.size()));
  if (vocab_size > 0) info.vocab_size = std::min(info.vocab_size, vocab_size);
  return info;
}

Result<KvMemory> make_kv(const MemoryPlan& plan, const std::vector<model::LayerGroup>& groups, model::Memory& memory) {
  std::vector<KvMemory::GroupSpec> specs;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t heads = static_cast<std::int64_t>(groups[g].layers.size()) * groups[g].num_kv_heads;
    const bool recurrent = groups[g].kind == model::StateKind::kRecurrent;
    specs.push_back({.group = &groups[g],
                     .num_blocks = plan.num_blocks[g],
                     .head_bytes = recurrent ? 0 : plan.block_bytes[g] / heads,
                     .block_tokens = plan.group_tokens[g]});
  }
  return KvMemory::create(specs, plan.kv_dtype, memory);
}

/// What a runner is made of, on whatever back end.
struct Loaded {
  RunnerInfo info;
  MemoryPlan plan;
  std::unique_ptr<model::Decoder> decoder;
  KvMemory kv;
};

Result<Loaded> load_on(const BackEnd& on, const Plan& how, const model::ModelFiles& files, const LoadOptions& options) {
  const Choices& choices = how.choices;
  const MemoryPlan& plan = how.memory;
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  const auto vocab = files.vocab();
  if (!vocab) return std::unexpected(vocab.error());
  Loaded out{.info = make_info(plan, *spec, *vocab, choices.numerics(), options.vocab_size),
             .plan = plan,
             .decoder = nullptr,
             .kv = {}};
  auto ends = end_ids(files, *vocab, spec->vocab_rows, options.end_ids);
  if (!ends) return std::unexpected(ends.error());
  out.info.end_ids = std::move(*ends);

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
    auto decoder = model::Decoder::load(
        files, on.ops, on.stream,
        {.recipe = choices.recipe, .context = plan.max_model_len, .memory = &on.memory}, progress);
    if (!decoder) return std::unexpected(decoder.error());
    out.decoder = std::move(*decoder);
  }
  out.info.model_digest = hex(weights);
  out.info.key_root = key_root(weights, plan, out.decoder->spec(), choices.numerics(), on.ops.layout_id);
  auto kv = make_kv(plan, out.info.groups, on.memory);
  if (!kv) return std::unexpected(kv.error());
  out.kv = std::move(*kv);
  return out;
}

Result<LoadedRunner> load_on_cpu(const Plan& plan, const Config& config, const model::ModelFiles& files,
                                 const LoadOptions& options) {
  auto device = std::make_unique<ops::CpuDevice>(
      ops::CpuOptions{.threads = config.runtime.threads, .isa = plan.choices.isa});
  auto loaded = load_on({device->ops(), device->stream(), model::host_memory()}, plan, files, options);
  if (!loaded) return std::unexpected(loaded.error());
  LoadedRunner out{
      .runner = nullptr, .plan = loaded->plan, .device = device->ops().name, .threads = device->threads()};
  out.runner = std::make_unique<CpuRunner>(CpuRunnerParts{.info = std::move(loaded->info),
                                                          .plan = loaded->plan,
                                                          .device = std::move(device),
                                                          .decoder = std::move(loaded->decoder),
                                                          .kv = std::move(loaded->kv)});
  return out;
}

/// Of the matrices: whether activations are f16 (where the file's 16-bit matrices are), or bf16.
cuda::Half activations_of(const model::ModelFiles& files) {
  bool f16 = false, bf16 = false;
  for (const model::Tensor& t : files.tensors()) {
    if (t.shape.size() < 2) continue;
    f16 = f16 || t.type.dtype == DType::kF16;
    bf16 = bf16 || t.type.dtype == DType::kBF16;
  }
  return f16 && !bf16 ? cuda::Half::kF16 : cuda::Half::kBF16;
}

Result<Choices> choose_for_cuda(const Config& config, const model::ModelFiles& files, const cuda::DeviceInfo& device) {
  const auto recipe = look_up(kRecipes, config.model.numerics, "model.numerics");
  if (!recipe) return std::unexpected(recipe.error());
  if (*recipe && **recipe != Recipe::kBF16) {
    return fail(ErrorCode::kInvalidValue,
                "model.numerics is " + config.model.numerics +
                    ", which the CUDA back end does not compute: its activations have 16 bits (bf16, or auto)",
                "model.numerics");
  }
  const auto dtype = look_up(kKvDtypes, config.kv.dtype, "kv.dtype");
  if (!dtype) return std::unexpected(dtype.error());
  const bool f16 = activations_of(files) == cuda::Half::kF16;
  const std::string sm = "sm" + std::to_string(10 * device.major + device.minor);
  return Choices{.recipe = Recipe::kBF16,
                 .kv_dtype = dtype->value_or(DType::kF16),
                 .isa = ops::Isa::kAuto,
                 .arithmetic = std::string(f16 ? "f16" : "bf16") + (config.runtime.invariant ? "" : "lt"),
                 .device_class = "cuda-" + (device.driver_version == 0 ? "emulated" : sm)};
}

Result<void> check_heads(const model::DecoderSpec& spec, DType kv, const cuda::DeviceInfo& device) {
  for (const model::LayerGroup& g : model::layer_groups(spec)) {
    if (g.kind != model::StateKind::kFullAttention && g.kind != model::StateKind::kSlidingWindow) continue;
    if (const std::string why = cuda::attention_refusal(device, kv, g.head_dim, spec.num_q_heads, g.num_kv_heads); !why.empty())
      return fail(ErrorCode::kUnsupported, spec.architecture + ": " + why);
  }
  return {};
}

std::unexpected<Error> failed(const cuda::Status& status) {
  const bool memory = status.code == cuda::Status::Code::kOutOfMemory;
  return fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal, "the CUDA device: " + status.message);
}

// Nobody else wants the device's memory; a part stays for the scratch of kernels.
constexpr std::int64_t kCudaPoolPercent = 100;
constexpr std::size_t kCudaPlannedPercent = 92;

Result<Plan> plan_on_cuda(const Config& config, const model::ModelFiles& files, cuda::Device& device) {
  auto choices = choose_for_cuda(config, files, device.info());
  if (!choices) return std::unexpected(choices.error());
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  if (!spec->generates()) return fail(ErrorCode::kUnsupported, spec->architecture + ": embedding models run on the CPU");
  if (auto ok = check_heads(*spec, choices->kv_dtype, device.info()); !ok) return std::unexpected(ok.error());
  std::size_t free = 0;
  if (const cuda::Status status = device.free_bytes(free); !status.ok()) return failed(status);
  auto memory = plan_with(config, files, *choices, cuda::cuda_ops(activations_of(files)), free / 100 * kCudaPlannedPercent,
                          kCudaPoolPercent);
  if (!memory) return std::unexpected(memory.error());
  return Plan{nullptr, std::move(*choices), std::move(*memory)};
}

Result<LoadedRunner> load_on_cuda(Plan plan, const Config& config, const model::ModelFiles& files,
                                  const LoadOptions& options) {
  CudaRunnerParts parts;
  parts.device = std::move(plan.device);
  if (const cuda::Status status = cuda::Queue::create(*parts.device, parts.queue); !status.ok()) return failed(status);
  if (!config.runtime.invariant) {
    std::string why;
    auto library = cuda::GemmLt::open(options.cublaslt, &why);
    if (library == nullptr) return fail(ErrorCode::kUnavailable, "runtime.invariant is false: " + why, "runtime.invariant");
    parts.queue->set_library(std::move(library));
  }
  parts.memory = std::make_unique<CudaMemory>(*parts.queue);
  parts.ops = &cuda::cuda_ops(activations_of(files));
  auto loaded = load_on({*parts.ops, parts.queue->stream(), *parts.memory}, plan, files, options);
  if (const cuda::Status status = parts.queue->take_status(); !status.ok()) return failed(status);
  if (!loaded) return std::unexpected(loaded.error());
  parts.info = std::move(loaded->info);
  parts.plan = loaded->plan;
  parts.decoder = std::move(loaded->decoder);
  parts.kv = std::move(loaded->kv);
  parts.graphs = options.cuda_graphs;
  parts.step_limit = options.step_limit;
  parts.batch_bytes = options.cuda_batch_bytes;
  LoadedRunner out{.runner = nullptr, .plan = loaded->plan, .device = parts.device->info().name, .threads = 1};
  auto runner = CudaRunner::create(std::move(parts));
  if (!runner) return std::unexpected(runner.error());
  out.runner = std::move(*runner);
  return out;
}

/// Why `device`, which is there, does not serve this model; a note.
std::string cpu_instead(const cuda::Device& device, const Error& why) {
  return device.info().name + " is there, but the CPU computes: " + why.message;
}

Result<Plan> plan_on_cpu(const Config& config, const model::ModelFiles& files, std::string note) {
  const auto choices = choose(config, files);
  if (!choices) return std::unexpected(choices.error());
  // One thread: the table is wanted, not the workers.
  const ops::CpuDevice device(ops::CpuOptions{.threads = 1, .isa = choices->isa});
  const auto left = host_memory_left(config);
  if (!left) return std::unexpected(left.error());
  auto memory = plan_with(config, files, *choices, device.ops(), *left, KvPoolSpec{}.percent);
  if (!memory) return std::unexpected(memory.error());
  if (!note.empty()) memory->notes.push_back(std::move(note));
  return Plan{nullptr, *choices, std::move(*memory)};
}

Result<Plan> plan_anywhere(const Config& config, const model::ModelFiles& files, const OpenDevice& open) {
  auto chosen = choose_device(config, open);
  if (!chosen) return std::unexpected(chosen.error());
  if (chosen->device == nullptr) return plan_on_cpu(config, files, std::move(chosen->note));
  auto plan = plan_on_cuda(config, files, *chosen->device);
  if (plan) {
    plan->device = std::move(chosen->device);
    return plan;
  }
  if (config.runtime.device != "auto") return std::unexpected(plan.error());
  return plan_on_cpu(config, files, cpu_instead(*chosen->device, plan.error()));
}

Result<LoadedRunner> load_anywhere(const Config& config, const model::ModelFiles& files, const LoadOptions& options) {
  auto plan = plan_anywhere(config, files, options.open_device);
  if (!plan) return std::unexpected(plan.error());
  if (options.planned) options.planned(plan->memory);
  return plan->device != nullptr ? load_on_cuda(std::move(*plan), config, files, options)
                                 : load_on_cpu(*plan, config, files, options);
}

}  // namespace

std::string numerics_id(const std::string& arithmetic, DType kv_dtype, const std::string& device_class) {
  return arithmetic + "-t" + std::to_string(kTileKeys) + "-s" +
         std::to_string(kSplitKeys) + "-k" + std::to_string(kKernelEpoch) + "-kv" + dtype_name(kv_dtype) +
         "-" + device_class;
}

Result<MemoryPlan> plan_memory(const Config& config, const model::ModelFiles& files, const OpenDevice& open) {
  auto plan = plan_anywhere(config, files, open);
  if (!plan) return std::unexpected(plan.error());
  return std::move(plan->memory);
}

Result<LoadedRunner> load_runner(const Config& config, std::shared_ptr<const model::ModelFiles> files,
                                 const LoadOptions& options) {
  try {
    return load_anywhere(config, *files, options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "there is not enough memory to load this model");
  }
}

Result<std::unique_ptr<Runner>> make_runner(const Config& config,
                                            std::shared_ptr<const model::ModelFiles> files,
                                            const ProgressFn& progress) {
  auto loaded = load_runner(config, std::move(files), {.progress = progress, .vocab_size = 0, .end_ids = {}, .open_device = open_cuda});
  if (!loaded) return std::unexpected(loaded.error());
  return std::move(loaded->runner);
}

}  // namespace barg::runtime
