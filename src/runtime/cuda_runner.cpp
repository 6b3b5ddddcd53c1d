#include "runtime/cuda_runner.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "cuda/device_kernel.h"
#include "cuda/sample_kernels.h"
#include "runtime/batch.h"
#include "runtime/cuda_batch.h"
#include "runtime/device_sampler.h"
#include "runtime/runner_link.h"

namespace barg::runtime {
namespace {

using namespace std::chrono_literals;

using cuda::Status;

constexpr std::size_t kFlights = 3;
/// Rows of decode steps that have a graph of their own; others are rounded up.
constexpr std::array<std::int32_t, 9> kBuckets{1, 2, 4, 8, 16, 24, 32, 48, 64};
/// Sequences that have a place for their newest token.
constexpr std::int32_t kPlaces = 1 << 16;

/// The bytes of a block's part, out or in.
struct MovePart {
  std::byte* device;
  store::Memory host;
  bool out;
  std::promise<bool> done;
};
using Link = RunnerLink<MovePart>;

struct SequenceState {
  DeviceSampler sampler;
  std::int32_t place = 0;            ///< of its newest token
  std::uint32_t* counts = nullptr;   ///< [vocab] of the device's; only with penalties, once it was needed
  bool bad = false;                  ///< a choice failed: what later steps compute is not used
};

/// Where what a step chooses lies, on the device and in a slot: [rows] each.
struct OutLayout {
  explicit OutLayout(std::size_t rows)
      : top_ids(rows * sizeof(cuda::SampledToken)),
        top_logprobs(top_ids + rows * cuda::kMaxTopLogprobs * sizeof(TokenId)),
        bytes(top_logprobs + rows * cuda::kMaxTopLogprobs * sizeof(float)) {}
  std::size_t top_ids, top_logprobs, bytes;
};

/// Of one row of logits, on its way back.
struct Returned {
  SequenceState* state;
  LogitsRow row;
  std::int32_t output_index = 0;
  bool used = false;  ///< chosen, or scored
  bool forced_for_length = false;

  /// How many of the best tokens it tells beside its own; nothing: no log-probabilities at all.
  std::optional<std::int32_t> top() const {
    const SamplingParams& p = state->sampler.request().sampling;
    return row.sample ? p.logprobs : p.prompt_logprobs;
  }
};

struct Flight {
  sched::StepPlan plan;
  sched::StepResult result;
  std::vector<Returned> rows;
  OutLayout out = OutLayout(0);
  std::size_t slot = 0;
  double issued = 0;
};

/// Pinned memory of a step in flight.
struct Slot {
  cuda::PinnedBuffer batch, out;
  cuda::EventId done{};
};

Error lost(const Status& status) {
  return Error{ErrorCode::kInternal, "the CUDA device failed: " + status.message, {}, 0};
}

/// Threads as in kv_access.h: whoever asks waits for the device thread, at most as long as a step.
class PartsOnDevice final : public KvAccess {
 public:
  PartsOnDevice(const KvMemory& memory, Link& link) : memory_(memory), link_(link) {
    for (std::size_t g = 0; g < memory.num_groups(); ++g)
      part_bytes_.push_back(static_cast<std::uint64_t>(memory.block_stride(g)));
  }
  const std::vector<std::uint64_t>& part_bytes() const override { return part_bytes_; }
  bool copy_out(std::int32_t group, BlockId block, store::Memory to) override { return move(group, block, to, true); }
  bool copy_in(std::int32_t group, BlockId block, store::Memory from) override { return move(group, block, from, false); }

 private:
  bool move(std::int32_t group, BlockId block, const store::Memory& host, bool out) {
    const auto g = static_cast<std::size_t>(group);
    CHECK(group >= 0 && g < memory_.num_groups() && block >= 0 && block < memory_.num_blocks(g));
    CHECK(host.kind == store::MemoryKind::kHost && host.address != nullptr && host.length == part_bytes_[g]);
    MovePart command{memory_.base(g) + block * memory_.block_stride(g), host, out, {}};
    std::future<bool> done = command.done.get_future();
    return link_.commands.push(std::move(command)) && done.get();
  }

  const KvMemory& memory_;
  Link& link_;
  std::vector<std::uint64_t> part_bytes_;
};

}  // namespace

struct CudaRunner::Impl {
  explicit Impl(CudaRunnerParts p)
      : parts(std::move(p)),
        device(*parts.device),
        queue(*parts.queue),
        hidden_size(parts.decoder->spec().hidden),
        logits_stride((std::int64_t{parts.decoder->spec().vocab_rows} + 3) / 4 * 4),
        logits_rows(std::min(kLogitsRows, parts.plan.max_rows)),
        most_out(static_cast<std::size_t>(parts.plan.max_rows)),
        batch({.kv_dtype = parts.plan.kv_dtype,
               .num_q_heads = parts.decoder->spec().num_q_heads,
               .workers = parts.device->info().multiprocessors,
               .slot_floats = parts.queue->slot_floats(),
               .groups = parts.info.groups}) {}

  Status allocate();
  Status allocate_batches(std::size_t bytes);
  Status measure();
  void measure_rows(std::int32_t rows);

  void run();
  std::optional<sched::StepResult> collect(bool wait);

  void execute(AddSequence&& command);
  void execute(RemoveSequence&& command);
  void execute(LaunchStep&& launch);
  void execute(MovePart&& command);

  bool needs_outputs(const sched::StepPlan& plan);
  void begin_items(const sched::StepPlan& plan, sched::StepResult& result);
  const model::ForwardBatch* stage(const sched::StepPlan& plan, StagedMemory& memory, std::int32_t bucket);
  void fill_samples(const sched::StepPlan& plan, StagedMemory& memory, std::vector<Returned>& rows);
  void fill_row(const sched::StepPlan& plan, Returned& row, cuda::SampleRow& out, StagedMemory& memory);
  void recount(SequenceState& state, std::int32_t output_index, StagedMemory& memory);
  void issue(Flight& flight);
  void issue_in_larger();
  void compute(const model::ForwardBatch& batch, const cuda::SampleRow* samples);
  void replay(std::int32_t bucket, const model::ForwardBatch& staged, const cuda::SampleRow* samples);
  Status await(const Flight& flight);
  bool happened(const Flight& flight);
  void finish_oldest();
  void finish_all() {
    while (!flights.empty()) finish_oldest();
  }
  void read(Flight& flight);
  void read_row(const Flight& flight, std::size_t index, const Returned& row, sched::ItemResult& out);

  CudaRunnerParts parts;
  cuda::Device& device;
  cuda::Queue& queue;
  const std::int64_t hidden_size, logits_stride;
  const std::int32_t logits_rows;
  const OutLayout most_out;

  // The device's memory.
  cuda::DeviceArena scratch, batch_memory;
  std::byte *workspace = nullptr, *out = nullptr;
  float *hidden = nullptr, *logits = nullptr, *adjusted = nullptr;
  TokenId* places = nullptr;
  std::byte* staged = nullptr;
  std::size_t staged_bytes = 0;
  std::vector<std::uint32_t*> spare_counts;

  cuda::StreamId copies{};
  cuda::PinnedBuffer part;  // the largest of a block

  std::array<Slot, kFlights> slots;
  std::size_t next_slot = 0;
  std::unordered_map<std::int32_t, cuda::GraphId> graphs;  // by bucket
  std::deque<Flight> flights;
  std::optional<Status> failure;

  BatchBuilder builder;
  CudaBatch batch;
  std::vector<TokenId> last_tokens;       // [items]
  std::vector<SequenceState*> states;     // [items]
  std::vector<cuda::SampleCounts> counts; // to be made anew before this step
  std::unordered_map<SeqId, SequenceState> sequences;
  std::vector<std::int32_t> free_places;
  std::int32_t next_place = 0;
  SteadyClock clock;

  std::atomic<std::int64_t> steps{0}, graph_steps{0}, captures{0}, ahead{0};

  // Of the engine's thread.
  std::deque<StepId> outstanding;
  std::chrono::steady_clock::time_point heard;  // from the device thread, or when it had nothing to do
  bool hung = false;

  Link link;
  PartsOnDevice kv_access{parts.kv, link};
  std::jthread thread;                           // last: joins before the rest goes
};

// ---- memory

Status CudaRunner::Impl::allocate() {
  const auto rows = static_cast<std::size_t>(parts.plan.max_rows);
  const std::size_t work = parts.decoder->workspace_bytes(parts.plan.max_rows);
  const std::size_t states_bytes = rows * static_cast<std::size_t>(hidden_size) * sizeof(float);
  const std::size_t logits_bytes = static_cast<std::size_t>(logits_rows) * static_cast<std::size_t>(logits_stride) * sizeof(float);
  const std::size_t places_bytes = kPlaces * sizeof(TokenId);
  std::size_t all = 0;
  for (const std::size_t n : {work, states_bytes, logits_bytes, logits_bytes, places_bytes, most_out.bytes})
    all += cuda::DeviceArena::part_bytes(n);
  Status status = cuda::DeviceArena::create(device, all, "activations", scratch);
  if (!status.ok()) return status;
  std::byte* const begin = workspace = scratch.take(work);
  hidden = reinterpret_cast<float*>(scratch.take(states_bytes));
  logits = reinterpret_cast<float*>(scratch.take(logits_bytes));
  adjusted = reinterpret_cast<float*>(scratch.take(logits_bytes));
  places = reinterpret_cast<TokenId*>(scratch.take(places_bytes));
  out = scratch.take(most_out.bytes);
  // Rows that fill up a bucket are computed from what happens to lie there.
  status = device.fill(queue.id(), begin, 0, all);
  queue.set_previous_ids(places);
  const auto largest = std::max_element(parts.info.block_bytes.begin(), parts.info.block_bytes.end());
  if (status.ok()) status = cuda::PinnedBuffer::create(device, static_cast<std::size_t>(*largest), part);
  if (status.ok()) status = device.create_stream(copies);
  for (Slot& slot : slots) {
    if (status.ok()) status = cuda::PinnedBuffer::create(device, most_out.bytes, slot.out);
    if (status.ok()) status = device.create_event(slot.done);
  }
  return status.ok() ? allocate_batches(parts.batch_bytes) : status;
}

/// REQUIRES that nothing is in flight. Graphs have the old addresses.
Status CudaRunner::Impl::allocate_batches(std::size_t bytes) {
  graphs.clear();
  Status status = cuda::DeviceArena::create(device, bytes, "batch", batch_memory);
  for (Slot& slot : slots) {
    if (status.ok()) status = cuda::PinnedBuffer::create(device, bytes, slot.batch);
  }
  if (!status.ok()) return status;
  staged = batch_memory.take(bytes);
  staged_bytes = bytes;
  return {};
}

/// What kernels need for so many rows, or fewer. Nothing is launched, so the batch's contents are nobody's.
void CudaRunner::Impl::measure_rows(std::int32_t rows) {
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows), 0);
  std::vector<std::int32_t> wanted(zeros);
  for (std::int32_t i = 0; i < rows; ++i) wanted[static_cast<std::size_t>(i)] = i;
  const ops::Segment segment{.row_begin = 0, .row_count = rows, .pos_begin = 0, .block_table = nullptr};
  model::ForwardBatch all;
  all.rows = rows;
  all.tokens = all.positions = zeros.data();
  all.wanted = wanted;
  for (std::size_t g = 0; g < parts.kv.num_groups(); ++g)
    all.groups.push_back({.layers = parts.kv.layers(g), .states = {}, .segments = {&segment, 1}, .wanted_segments = {&segment, 1}});
  model::Workspace space(workspace, parts.decoder->workspace_bytes(parts.plan.max_rows));
  parts.decoder->forward(all, space, hidden);
  parts.decoder->logits(hidden, std::min(rows, logits_rows), space, logits, nullptr, logits_stride);
}

Status CudaRunner::Impl::measure() {
  queue.begin_measure();
  // A library's products are those of more than kOwnRows rows.
  for (const std::int32_t rows : {std::min(cuda::Queue::kOwnRows, parts.plan.max_rows), parts.plan.max_rows}) measure_rows(rows);
  return queue.reserve();
}

// ---- commands

void CudaRunner::Impl::run() {
  pthread_setname_np(pthread_self(), "barg-device");
  constexpr int kAwake = 64;  // looks before it sleeps between them
  constexpr auto kPause = 20us;
  int idle = 0;
  for (;;) {
    auto command = flights.empty() ? link.commands.pop(/*wait=*/true) : link.commands.pop_within(idle < kAwake ? 0us : kPause);
    if (command) {
      idle = 0;
      std::visit([this](auto&& c) { execute(std::forward<decltype(c)>(c)); }, std::move(*command));
      continue;
    }
    if (flights.empty()) return;  // closed
    if (failure || happened(flights.front())) {
      idle = 0;
      finish_oldest();
    } else if (++idle < kAwake) {
      std::this_thread::yield();
    }
  }
}

void CudaRunner::Impl::execute(AddSequence&& command) {
  const auto prompt = static_cast<std::int32_t>(command.request->prompt.size());
  const std::int32_t most = std::clamp(parts.info.max_model_len - prompt, 0, command.request->sampling.max_tokens);
  SequenceState state{.sampler = DeviceSampler(std::move(command.request), command.choice, parts.info.vocab_size,
                                               parts.info.end_ids, most)};
  if (free_places.empty()) {
    CHECK(next_place < kPlaces);
    state.place = next_place++;
  } else {
    state.place = free_places.back();
    free_places.pop_back();
  }
  const bool added = sequences.try_emplace(command.seq, std::move(state)).second;
  CHECK(added);
}

void CudaRunner::Impl::execute(RemoveSequence&& command) {
  const auto found = sequences.find(command.seq);
  if (found == sequences.end()) return;
  if (found->second.counts != nullptr) spare_counts.push_back(found->second.counts);
  free_places.push_back(found->second.place);
  sequences.erase(found);
}

void CudaRunner::Impl::execute(MovePart&& command) {
  const store::Memory& host = command.host;
  Status status;
  if (!failure && command.out) {
    status = device.download(copies, part.data(), command.device, host.length);
  } else if (!failure) {
    std::memcpy(part.data(), host.address, host.length);
    status = device.upload(copies, command.device, part.data(), host.length);
  }
  if (!failure && status.ok()) status = device.synchronize(copies);
  if (!failure && status.ok() && command.out) std::memcpy(host.address, part.data(), host.length);
  if (!status.ok()) failure = std::move(status);
  command.done.set_value(!failure);
}

/// Looks up every item's sequence and starts its result. A token that is not known here yet is named by its place.
void CudaRunner::Impl::begin_items(const sched::StepPlan& plan, sched::StepResult& result) {
  last_tokens.assign(plan.items.size(), 0);
  states.assign(plan.items.size(), nullptr);
  start_result(plan, result);
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    const auto found = sequences.find(item.seq);
    CHECK(found != sequences.end());
    states[i] = &found->second;
    last_tokens[i] = -1 - states[i]->place;
  }
}

/// Whether an item has to know what a step in flight chooses.
bool CudaRunner::Impl::needs_outputs(const sched::StepPlan& plan) {
  for (const auto& item : plan.items) {
    if (!item.sample) continue;
    const SequenceState& s = sequences.at(item.seq);
    const bool behind = std::cmp_less(s.sampler.outputs().size(), item.output_index);
    if (behind && (s.sampler.needs_outputs() || (s.sampler.has_penalties() && s.sampler.counted != item.output_index)))
      return true;
  }
  return false;
}

void CudaRunner::Impl::execute(LaunchStep&& launch) {
  CHECK(launch.plan.rows() > 0 && launch.plan.rows() <= parts.plan.max_rows);
  if (flights.size() == kFlights || needs_outputs(launch.plan)) finish_all();
  flights.push_back({.plan = std::move(launch.plan),
                     .result = std::move(launch.result),
                     .rows = {},
                     .slot = next_slot,
                     .issued = clock.now()});
  next_slot = (next_slot + 1) % kFlights;
  ++steps;
  if (flights.size() > 1) ++ahead;
  if (failure) return;
  try {
    issue(flights.back());
  } catch (const std::exception& e) {
    queue.note({Status::Code::kOutOfMemory, e.what()});
  }
  if (Status status = queue.take_status(); !status.ok()) failure = std::move(status);
}

// ---- a step

/// The counts of a sequence from scratch, before this step's kernels.
void CudaRunner::Impl::recount(SequenceState& state, std::int32_t output_index, StagedMemory& memory) {
  const auto vocab = static_cast<std::size_t>(parts.info.vocab_size);
  if (state.counts == nullptr && !spare_counts.empty()) {
    state.counts = spare_counts.back();
    spare_counts.pop_back();
  }
  if (state.counts == nullptr) {
    std::byte* p = nullptr;
    queue.note(device.allocate(vocab * sizeof(std::uint32_t), "counts", p));
    state.counts = reinterpret_cast<std::uint32_t*>(p);
  }
  const std::span<const TokenId> prompt = state.sampler.prompt_ids();
  const std::span<const TokenId> outputs = std::span(state.sampler.outputs()).first(static_cast<std::size_t>(output_index));
  counts.push_back({.counts = state.counts,
                    .prompt = memory.put(prompt),
                    .outputs = memory.put(outputs),
                    .num_prompt = static_cast<std::int32_t>(prompt.size()),
                    .num_outputs = static_cast<std::int32_t>(outputs.size())});
}

void CudaRunner::Impl::fill_row(const sched::StepPlan& plan, Returned& row, cuda::SampleRow& to, StagedMemory& memory) {
  const auto& item = plan.items[static_cast<std::size_t>(row.row.item)];
  const Request& request = row.state->sampler.request();
  const auto next = static_cast<std::size_t>(row.row.position) + 1;
  if (!row.row.sample) {
    // Of the prompt: how likely its next token was.
    row.used = request.sampling.prompt_logprobs.has_value() && next < request.prompt.size();
    to.forced = row.used ? request.prompt[next] : 0;
    to.top_logprobs = row.used ? *request.sampling.prompt_logprobs : -1;
    return;
  }
  row.used = true;
  row.output_index = item.output_index;
  DeviceSampler& sampler = row.state->sampler;
  const DeviceSampler::Wish& wish = sampler.wish(item.output_index);
  to = wish.row;
  to.mask = memory.put(std::span<const std::uint32_t>(wish.mask));
  to.fits = memory.put(std::span<const std::uint32_t>(wish.fits));
  to.biases = memory.put(std::span<const cuda::SampleBias>(wish.biases));
  to.chosen = places + row.state->place;
  row.forced_for_length = wish.forced_for_length;
  if (!sampler.has_penalties()) return;
  if (sampler.counted != item.output_index) recount(*row.state, item.output_index, memory);
  to.counts = row.state->counts;
  sampler.counted = item.output_index + 1;
}

/// The memory may be full then. A row that only fills up a bucket takes token 0.
void CudaRunner::Impl::fill_samples(const sched::StepPlan& plan, StagedMemory& memory, std::vector<Returned>& rows) {
  const std::span<cuda::SampleRow> samples = batch.samples();
  const std::span<const LogitsRow> wanted = builder.logits_rows();
  counts.clear();
  rows.clear();
  cuda::SampleRow none{};  // and forced: token 0
  none.top_p = none.repetition = 1;
  none.top_logprobs = -1;
  std::fill(samples.begin(), samples.end(), none);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    rows.push_back({.state = states[static_cast<std::size_t>(wanted[i].item)], .row = wanted[i]});
    fill_row(plan, rows.back(), samples[i], memory);
  }
}

/// The forward pass and what is chosen of its logits; `samples` on the device, one for each wanted row.
void CudaRunner::Impl::compute(const model::ForwardBatch& staged_batch, const cuda::SampleRow* samples) {
  model::Workspace space(workspace, parts.decoder->workspace_bytes(parts.plan.max_rows));
  parts.decoder->forward(staged_batch, space, hidden);
  const auto wanted = static_cast<std::int32_t>(staged_batch.wanted.size());
  const OutLayout layout(staged_batch.wanted.size());
  for (std::int32_t first = 0; first < wanted; first += logits_rows) {
    const std::int32_t rows = std::min(wanted - first, logits_rows);
    parts.decoder->logits(hidden + first * hidden_size, rows, space, logits, nullptr, logits_stride);
    const cuda::SampleArgs args{
        .logits = logits,
        .stride = logits_stride,
        .vocab = parts.info.vocab_size,
        .scratch = adjusted,
        .rows = samples + first,
        .out = reinterpret_cast<cuda::SampledToken*>(out) + first,
        .top_ids = reinterpret_cast<TokenId*>(out + layout.top_ids) + std::int64_t{first} * cuda::kMaxTopLogprobs,
        .top_logprobs =
            reinterpret_cast<float*>(out + layout.top_logprobs) + std::int64_t{first} * cuda::kMaxTopLogprobs};
    cuda::launch_sample(queue, rows, args);
  }
  queue.flush();
}

/// The bucket's graph, captured now if it is not there yet.
void CudaRunner::Impl::replay(std::int32_t bucket, const model::ForwardBatch& staged_batch, const cuda::SampleRow* samples) {
  auto found = graphs.find(bucket);
  if (found == graphs.end()) {
    queue.note(device.begin_capture(queue.id()));
    compute(staged_batch, samples);
    cuda::GraphId graph{};
    queue.note(device.end_capture(queue.id(), graph));
    found = graphs.emplace(bucket, graph).first;
    ++captures;
  }
  if (!queue.stopped()) queue.note(device.launch(queue.id(), found->second));
  ++graph_steps;
}

void CudaRunner::Impl::issue(Flight& flight) {
  const sched::StepPlan& plan = flight.plan;
  begin_items(plan, flight.result);
  const model::ForwardBatch& built = builder.build(plan, last_tokens, parts.kv);
  const auto at = std::find_if(kBuckets.begin(), kBuckets.end(), [&](std::int32_t b) { return b >= built.rows; });
  const bool in_bucket = parts.graphs && at != kBuckets.end() && *at <= std::min(parts.plan.max_rows, logits_rows) &&
                         CudaBatch::decodes(built, plan);
  const std::int32_t bucket = in_bucket ? *at : 0;
  Slot& slot = slots[flight.slot];
  StagedMemory memory(slot.batch.data(), staged, staged_bytes);
  const model::ForwardBatch& step = batch.stage(built, plan, bucket, memory);
  if (!memory.full()) fill_samples(plan, memory, flight.rows);
  const auto fresh = memory.full() ? nullptr : memory.put(std::span<const cuda::SampleCounts>(counts));
  if (memory.full()) return issue_in_larger();
  queue.note(device.upload(queue.id(), staged, slot.batch.data(), memory.used()));
  queue.bind(slot.batch.data(), staged_bytes, staged);
  queue.set_attention(batch.attention());
  if (!counts.empty()) cuda::launch_counts(queue, static_cast<std::int32_t>(counts.size()), {fresh, parts.info.vocab_size});
  copy_blocks(plan, parts.kv, *parts.ops, queue.stream());
  const cuda::SampleRow* const samples = memory.on_device(batch.samples().data());
  if (in_bucket)
    replay(bucket, step, samples);
  else
    compute(step, samples);
  if (queue.stopped()) return;
  flight.out = OutLayout(step.wanted.size());
  const bool tops = std::any_of(flight.rows.begin(), flight.rows.end(), [](const Returned& r) { return r.top().value_or(0) > 0; });
  const std::size_t bytes = tops ? flight.out.bytes : flight.out.top_ids;
  if (!flight.rows.empty()) queue.note(device.download(queue.id(), slot.out.data(), out, bytes));
  queue.note(device.record(queue.id(), slot.done));
}

/// The newest step did not fit the memory of batches. Those before it may still read theirs.
void CudaRunner::Impl::issue_in_larger() {
  Flight newest = std::move(flights.back());
  flights.pop_back();
  finish_all();
  flights.push_back(std::move(newest));
  if (failure) return;
  for (SequenceState* s : states) s->sampler.counted = -1;
  if (Status status = allocate_batches(2 * staged_bytes); !status.ok()) return queue.note(std::move(status));
  issue(flights.back());
}

// ---- results

bool CudaRunner::Impl::happened(const Flight& flight) {
  bool yes = false;
  if (Status status = device.query(slots[flight.slot].done, yes); !status.ok()) {
    failure = std::move(status);
    return true;
  }
  if (yes || clock.now() - flight.issued < std::chrono::duration<double>(parts.step_limit).count()) return yes;
  failure = Status{Status::Code::kLost,
                   "a step has not ended for " + std::to_string(parts.step_limit.count() / 1000) + " s"};
  return true;
}

void CudaRunner::Impl::finish_oldest() {
  while (!failure && !happened(flights.front())) std::this_thread::yield();
  Flight flight = std::move(flights.front());
  flights.pop_front();
  flight.result.fatal.reset();
  if (failure) {
    flight.result.fatal = lost(*failure);
  } else {
    read(flight);
  }
  flight.result.seconds = clock.now() - flight.issued;
  flight.result.spent = std::move(flight.plan);
  link.results.push(std::move(flight.result));
}

void CudaRunner::Impl::read_row(const Flight& flight, std::size_t index, const Returned& row, sched::ItemResult& to) {
  const std::byte* const data = slots[flight.slot].out.data();
  const auto& token = reinterpret_cast<const cuda::SampledToken*>(data)[index];
  if (token.status != cuda::SampleStatus::kChosen) {
    to.status = sched::ItemStatus::kBadLogits;
    row.state->bad = true;
    return;
  }
  const std::optional<std::int32_t> top = row.top();
  std::optional<TokenLogprobs> logprobs;
  if (top) {
    logprobs = TokenLogprobs{.id = token.id, .logprob = token.logprob, .rank = token.rank, .top = {}};
    const std::size_t at = index * cuda::kMaxTopLogprobs;
    const auto* const ids = reinterpret_cast<const TokenId*>(data + flight.out.top_ids) + at;
    const auto* const values = reinterpret_cast<const float*>(data + flight.out.top_logprobs) + at;
    for (std::int32_t t = 0; t < std::min(*top, parts.info.vocab_size); ++t) logprobs->top.push_back({ids[t], values[t]});
  }
  if (!row.row.sample) return to.prompt_logprobs.push_back(std::move(*logprobs));
  row.state->sampler.remember(row.output_index, token.id);
  to.tokens.push_back({.id = token.id,
                       .logprobs = std::move(logprobs),
                       .for_length = row.forced_for_length || token.for_length != 0});
}

void CudaRunner::Impl::read(Flight& flight) {
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    const Returned& row = flight.rows[i];
    auto& to = flight.result.items[static_cast<std::size_t>(row.row.item)];
    if (row.state->bad) to.status = sched::ItemStatus::kBadLogits;
    if (row.used && to.status == sched::ItemStatus::kOk) read_row(flight, i, row, to);
  }
}

// ---- the interface

/// The device thread has a limit of its own; this one is for when it does not come back from the driver.
std::optional<sched::StepResult> CudaRunner::Impl::collect(bool wait) {
  if (hung) return std::nullopt;  // nothing is expected any more
  std::optional<sched::StepResult> result;
  if (wait) {
    const auto limit = std::max(parts.step_limit, 0ms) * 5 / 4 + 1s;
    const auto left = heard + limit - std::chrono::steady_clock::now();
    result = link.collect_within(std::chrono::duration_cast<std::chrono::microseconds>(std::max(left, decltype(left){0})));
  } else {
    result = link.collect(false);
  }
  if (!result && (!wait || outstanding.empty())) return result;
  if (!result) {
    hung = true;
    result.emplace();
    result->id = outstanding.front();
    result->fatal = lost({Status::Code::kLost, "its driver does not answer"});
  }
  outstanding.pop_front();
  heard = std::chrono::steady_clock::now();
  return result;
}

Result<std::unique_ptr<CudaRunner>> CudaRunner::create(CudaRunnerParts parts) {
  auto impl = std::make_unique<Impl>(std::move(parts));
  Status status = impl->queue.uploader().finish();
  if (status.ok()) status = impl->allocate();
  if (status.ok()) status = impl->measure();
  if (status.ok()) status = impl->queue.take_status();
  if (!status.ok()) {
    const bool memory = status.code == Status::Code::kOutOfMemory;
    return fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal, status.message);
  }
  impl->thread = std::jthread([i = impl.get()] { i->run(); });
  return std::unique_ptr<CudaRunner>(new CudaRunner(std::move(impl)));
}

CudaRunner::CudaRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaRunner::~CudaRunner() { impl_->link.commands.close(); }

const RunnerInfo& CudaRunner::info() const { return impl_->parts.info; }
void CudaRunner::add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
  impl_->link.add(seq, std::move(request), choice);
}
void CudaRunner::remove_sequence(SeqId seq) { impl_->link.remove(seq); }
void CudaRunner::launch(sched::StepPlan plan) {
  if (impl_->outstanding.empty()) impl_->heard = std::chrono::steady_clock::now();
  impl_->outstanding.push_back(plan.id);
  impl_->link.launch(std::move(plan));
}
std::optional<sched::StepResult> CudaRunner::collect(bool wait) { return impl_->collect(wait); }
void CudaRunner::recycle(sched::StepResult&& result) { impl_->link.recycle(std::move(result)); }
KvAccess* CudaRunner::kv_access() { return &impl_->kv_access; }

CudaRunner::Counts CudaRunner::counts() const {
  return {.steps = impl_->steps, .graph_steps = impl_->graph_steps, .captures = impl_->captures, .ahead = impl_->ahead};
}

}  // namespace barg::runtime
