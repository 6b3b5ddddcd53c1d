// bench_step [LOGITS]: what a step costs outside of the forward pass.
//
//   sampler   microseconds for one row, for vocabularies of 49,152 and 151,936 and common sampling
//   parameters, with
//             the instruction set of this machine and with the scalar table. Rows are synthetic (a few likely
//             tokens over a normal background), or taken from LOGITS: f32, rows of 49,152.
//   engine    microseconds of the engine thread for one step, for 1 to 64 sequences that decode, over a
//   runner that
//             computes nothing: scheduler, block manager, ledger, metrics and sinks.
//
// Each figure is the best of many short windows, so it holds also on a busy machine.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"
#include "cpu/cpu.h"
#include "engine/engine_impl.h"
#include "runtime/sampler.h"

namespace {

using namespace barg;

// ---- sampler

std::vector<float> synthetic_row(Rng& rng, std::size_t vocab) {
  std::vector<float> x(vocab);
  for (float& v : x) {
    double sum = 0;
    for (int k = 0; k < 12; ++k) sum += rng.uniform();
    v = static_cast<float>(2.5 * (sum - 6));
  }
  for (int i = 0; i < 40; ++i) x[rng.below(vocab)] = static_cast<float>(16 - 8 * std::sqrt(rng.uniform()));
  return x;
}

std::vector<std::vector<float>> rows_of(const char* file, std::size_t vocab) {
  std::vector<std::vector<float>> rows;
  if (file != nullptr && vocab == 49'152) {
    std::ifstream in(file, std::ios::binary);
    std::vector<float> row(vocab);
    while (in.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(vocab * sizeof(float))))
      rows.push_back(row);
  }
  Rng rng(7);
  while (rows.size() < 16) rows.push_back(synthetic_row(rng, vocab));
  return rows;
}

struct Setting {
  const char* name;
  std::function<void(SamplingParams&)> set;
};

const Setting kSettings[] = {
    {"greedy", [](auto& p) { p.temperature = 0; }},
    {"temperature 1", [](auto& p) { p.temperature = 1; }},
    {"temperature 0.7", [](auto& p) { p.temperature = 0.7F; }},
    {"top_k 50", [](auto& p) { p.top_k = 50; }},
    {"top_p 0.95", [](auto& p) { p.top_p = 0.95F; }},
    {"top_p 0.95, temperature 0.7", [](auto& p) { p.top_p = 0.95F, p.temperature = 0.7F; }},
    {"top_p 0.9, top_k 40, temperature 0.8",
     [](auto& p) { p.top_p = 0.9F, p.top_k = 40, p.temperature = 0.8F; }},
    {"min_p 0.05", [](auto& p) { p.min_p = 0.05F; }},
    {"temperature 1, penalties", [](auto& p) { p.frequency_penalty = 0.5F, p.presence_penalty = 0.5F; }},
};

/// Mean over the rows of the best time of each; every call gets a fresh copy of the row, which is not
/// counted.
double sampler_us(const Setting& setting, const std::vector<std::vector<float>>& rows, ops::Isa isa) {
  const ops::CpuDevice device({.threads = 1, .isa = isa});
  const auto vocab = static_cast<std::int32_t>(rows[0].size());
  runtime::SampleScratch scratch(device.ops(), vocab);
  auto request = std::make_shared<Request>();
  request->prompt = {1, 2, 3};
  request->sampling.seed = 1;
  setting.set(request->sampling);
  runtime::Sampler sampler(request, 0, vocab, {});
  sampler.reserve(4096);
  const SteadyClock clock;
  std::int32_t index = 0;
  double total = 0;
  for (const auto& row : rows) {
    double best = 1e300;
    for (int window = 0; window < 25; ++window) {
      auto logits = row;
      std::vector<float> maxima;
      for (std::size_t b = 0; b * ops::kBlockMax < row.size(); ++b)
        maxima.push_back(runtime::block_maximum(logits, b));
      const double start = clock.now();
      const auto token = sampler.sample({.logits = logits, .block_max = maxima}, index, scratch);
      best = std::min(best, clock.now() - start);
      index += token && index < 1000 ? 1 : 0;
    }
    total += best;
  }
  return total / static_cast<double>(rows.size()) * 1e6;
}

void bench_sampler(const char* file) {
  for (const std::size_t vocab : {std::size_t{49'152}, std::size_t{151'936}}) {
    const auto rows = rows_of(file, vocab);
    std::printf("sampler, %zu ids: microseconds a row (%s | scalar)\n", vocab,
                ops::CpuDevice({.threads = 1, .isa = ops::Isa::kAuto}).isa_name());
    for (const Setting& s : kSettings) {
      std::printf("  %-40s %8.2f %8.2f\n", s.name, sampler_us(s, rows, ops::Isa::kAuto),
                  sampler_us(s, rows, ops::Isa::kScalar));
    }
  }
}

// ---- engine

/// Answers every plan at once, with the token 7; keeps its buffers.
class InstantRunner final : public runtime::Runner {
 public:
  InstantRunner() {
    model::LayerGroup group;
    group.num_kv_heads = 1;
    group.head_dim = 64;
    group.layers = {0};
    info_.groups = {group};
    info_.num_blocks = {65'536};
    info_.block_bytes = {1024};
    info_.max_model_len = 8192;
    info_.max_rows = 512;
    info_.vocab_size = 1000;
    info_.numerics_id = "none";
    info_.key_root = std::string(32, 'k');
  }
  const runtime::RunnerInfo& info() const override { return info_; }
  void add_sequence(SeqId, std::shared_ptr<const Request>, std::int32_t) override {}
  void remove_sequence(SeqId) override {}
  void launch(sched::StepPlan plan) override {
    sched::StepResult result;
    result.id = plan.id;
    result.seconds = 0.01;
    result.items.resize(plan.items.size());
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      const auto& item = plan.items[i];
      result.items[i].seq = item.seq;
      result.items[i].epoch = item.epoch;
      result.items[i].position = item.start + item.count;
      if (item.sample) result.items[i].tokens.push_back({.id = 7, .logprobs = {}});
    }
    results_.push_back(std::move(result));
  }
  std::optional<sched::StepResult> collect(bool) override {
    if (results_.empty()) return std::nullopt;
    auto result = std::move(results_.front());
    results_.erase(results_.begin());
    return result;
  }

 private:
  runtime::RunnerInfo info_;
  std::vector<sched::StepResult> results_;
};

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// CPU time of the engine thread from one step's last event to the next one's, the best of windows of 64
/// steps.
double step_us(int streams, int depth) {
  Config config;
  config.scheduler.pipeline_depth = depth;
  const SteadyClock clock;
  auto engine = engine::make_engine(config, std::make_unique<InstantRunner>(), clock);
  if (!engine) return -1;
  std::mutex mutex;
  std::condition_variable done;
  int finished = 0;
  double best = 1e300, window = 0;
  std::int64_t events = 0;
  constexpr int kSteps = 64;
  for (int i = 0; i < streams; ++i) {
    Request r;
    r.id = (*engine)->next_request_id();
    for (int t = 0; t < 40; ++t) r.prompt.push_back(static_cast<TokenId>((i * 31 + t * 7) % 999));
    r.sampling.temperature = 0;
    r.sampling.max_tokens = 4000;
    const auto ok = (*engine)->submit(std::move(r), [&](TokenEvent&& e) {
      if (++events % (kSteps * streams) == 0) {  // the engine thread alone calls sinks
        const double now = thread_seconds();
        if (events >= 4 * kSteps * streams) best = std::min(best, (now - window) / kSteps);
        window = now;
      }
      if (e.finish == FinishReason::kNone) return;
      std::lock_guard lock(mutex);
      ++finished;
      done.notify_one();
    });
    if (!ok) return -1;
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished == streams; });
  return best * 1e6;
}

void bench_engine() {
  std::printf("engine thread: microseconds a step over a runner that computes nothing (depth 0 | depth 1)\n");
  for (const int streams : {1, 8, 32, 64}) {
    std::printf("  %2d sequences %36.2f %8.2f\n", streams, step_us(streams, 0), step_us(streams, 1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench_sampler(argc > 1 ? argv[1] : nullptr);
  bench_engine();
  return 0;
}
