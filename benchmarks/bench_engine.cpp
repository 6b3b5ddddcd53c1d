// bench_engine MODEL [key=value ...]: load time, memory, and tokens per second of the engine without HTTP.
//
//   keys: streams (1), prompt (512 tokens), output (128 tokens), repeat (3), and any of threads, numerics,
//   kv_dtype,
//         isa, budget (tokens per step), depth (pipeline), block
//
// Prefill: `streams` requests of `prompt` random tokens and one output each, prompt tokens / seconds until
// all are answered. Decode: the same with 16-token prompts and `output` tokens each, from the first token of
// the last stream to start until the first stream ends. The best of `repeat` rounds is printed, with all
// rounds.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"
#include "engine/engine_impl.h"
#include "model/model_files.h"
#include "runtime/factory.h"

namespace {

using namespace barg;

struct Options {
  Config config;
  int streams = 1, prompt = 512, output = 128, repeat = 3;
};

bool parse(int argc, char** argv, Options& o) {
  if (argc < 2) return false;
  o.config.model.path = argv[1];
  o.config.scheduler.itl_target_ms = 10000;  // throughput, not latency: chunks are as large as the budget
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto eq = arg.find('=');
    if (eq == std::string::npos) return false;
    const std::string key = arg.substr(0, eq), value = arg.substr(eq + 1);
    const std::map<std::string, int*> numbers = {{"streams", &o.streams},
                                                 {"prompt", &o.prompt},
                                                 {"output", &o.output},
                                                 {"repeat", &o.repeat},
                                                 {"threads", &o.config.runtime.threads},
                                                 {"budget", &o.config.scheduler.max_num_batched_tokens},
                                                 {"depth", &o.config.scheduler.pipeline_depth},
                                                 {"block", &o.config.kv.block_size}};
    const std::map<std::string, std::string*> names = {{"numerics", &o.config.model.numerics},
                                                       {"kv_dtype", &o.config.kv.dtype},
                                                       {"isa", &o.config.runtime.isa}};
    if (const auto n = numbers.find(key); n != numbers.end()) {
      *n->second = std::atoi(value.c_str());
    } else if (const auto s = names.find(key); s != names.end()) {
      *s->second = value;
    } else {
      return false;
    }
  }
  return o.streams > 0 && o.prompt > 0 && o.output > 1 && o.repeat > 0;
}

double rss_mib(const char* field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(field, 0) == 0) return std::atof(line.c_str() + std::strlen(field)) / 1024;
  }
  return 0;
}

/// Runs `streams` equal requests at once; their final statistics.
std::vector<RequestStats> run(Engine& engine, int streams, int prompt, int output, Rng& rng) {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<RequestStats> stats;
  for (int i = 0; i < streams; ++i) {
    Request r;
    r.id = engine.next_request_id();
    while (static_cast<int>(r.prompt.size()) < prompt) {
      r.prompt.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(engine.info().vocab_size))));
    }
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = output;
    const auto ok = engine.submit(std::move(r), [&](TokenEvent&& e) {
      if (e.finish == FinishReason::kNone) return;
      std::lock_guard lock(mutex);
      stats.push_back(e.stats);
      done.notify_one();
    });
    if (!ok) {
      std::fprintf(stderr, "refused: %s\n", ok.error().message.c_str());
      std::exit(1);
    }
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return static_cast<int>(stats.size()) == streams; });
  return stats;
}

void print(const char* name, std::vector<double> rates) {
  std::printf("%-8s %9.1f tok/s   rounds:", name, *std::max_element(rates.begin(), rates.end()));
  for (const double r : rates) std::printf(" %.1f", r);
  std::printf("\n");
}

int bench(const Options& o) {
  const SteadyClock clock;
  const double start = clock.now();
  const auto files = model::ModelFiles::open(o.config.model.path);
  if (!files) {
    std::fprintf(stderr, "%s\n", files.error().message.c_str());
    return 1;
  }
  auto loaded = runtime::load_runner(o.config, *files);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  const auto plan = loaded->plan;
  std::printf("model    %s, %s, %s, %d threads\n", o.config.model.path.c_str(),
              loaded->runner->info().numerics_id.c_str(), loaded->isa.c_str(), loaded->threads);
  std::printf("load     %.0f ms, RSS %.1f MiB (weights %.1f MiB, file %.1f MiB)\n",
              (clock.now() - start) * 1e3, rss_mib("VmRSS:"),
              static_cast<double>(plan.weight_bytes) / (1 << 20),
              static_cast<double>(plan.weight_file_bytes) / (1 << 20));
  auto engine = engine::make_engine(o.config, std::move(loaded->runner), clock);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  Rng rng(1);
  std::vector<double> prefill, decode;
  for (int round = 0; round < o.repeat; ++round) {
    const double t0 = clock.now();
    run(**engine, o.streams, o.prompt, 1, rng);
    prefill.push_back(o.streams * o.prompt / (clock.now() - t0));
    const auto stats = run(**engine, o.streams, 16, o.output, rng);
    double first = 0, last = 1e300;
    for (const auto& s : stats) {
      first = std::max(first, s.first_token_s);
      last = std::min(last, s.last_token_s);
    }
    // Between these moments every stream decodes; each has output - 1 tokens after its first, less its head
    // start.
    double tokens = 0;
    for (const auto& s : stats) {
      tokens += (o.output - 1) * (last - first) / (s.last_token_s - s.first_token_s);
    }
    decode.push_back(tokens / (last - first));
  }
  print("prefill", prefill);
  print("decode", decode);
  const auto m = (*engine)->metrics();
  std::printf("steps    %llu, %.1f ms device time each; peak RSS %.1f MiB\n",
              static_cast<unsigned long long>(m.steps), m.device_seconds / static_cast<double>(m.steps) * 1e3,
              rss_mib("VmHWM:"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: bench_engine MODEL [streams=1 prompt=512 output=128 repeat=3 threads=0 ...]\n");
    return 2;
  }
  return bench(options);
}
