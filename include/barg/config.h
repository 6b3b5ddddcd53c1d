// Every knob of the process, as plain structs. The schema that names them for YAML, flags, environment and
// --help is src/cli/schema.cpp; a test fails when a field here is not in it. Each module's constructor takes
// its own sub-struct, never the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace barg {

struct ModelOptions {
  std::string path;                            ///< a .gguf file or a Hugging Face directory
  std::vector<std::string> served_model_name;  ///< default: the file's or directory's name
  std::int32_t max_model_len = 0;              ///< tokens of prompt plus output; 0 = the model's own
  std::string numerics = "auto";               ///< f32 | int8 | bf16 | auto (int8 if quantised, else f32)
  std::string chat_template;                   ///< path of a Jinja file that replaces the model's own
  std::string tool_dialect = "auto";           ///< how the model writes tool calls; auto = by its chat template
  std::string generation_config = "auto";      ///< auto = the model's sampling defaults, vllm = OpenAI's
};

struct KvOptions {
  std::int32_t block_size = 16;     ///< tokens per block: 16, 32 or 64
  std::uint64_t memory_bytes = 0;   ///< device pool; 0 = what the machine allows (see runtime/memory_plan.h)
  std::string dtype = "auto";       ///< f32 | f16 | bf16 | auto (f32 in recipe f32, else f16)
  bool enable_prefix_caching = true;
  /// Tiers below the device pool, nearest first: dram:size=BYTES, disk:path=DIR,size=BYTES, redis:url=URL
  /// (store/tier_spec.h). Empty = none.
  std::vector<std::string> tiers;
  std::string restore = "auto";  ///< of blocks found in a tier: auto (planner) | reload | recompute | both
  std::string salt_file;         ///< secret shared by the processes of a pool; empty = one made in the user's state
};

struct SchedulerOptions {
  std::int32_t max_num_seqs = 64;             ///< sequences in one step
  std::int32_t max_num_batched_tokens = 512;  ///< token budget of a step, >= 1
  double itl_target_ms = 100;                 ///< prefill chunks shrink so that a step keeps this
  double watermark = 0.02;                    ///< share of the pool that admission leaves free
  std::int32_t pipeline_depth = 1;            ///< steps launched before results return: 0, 1 or 2
  std::int32_t max_num_queued_reqs = 256;     ///< waiting requests beyond this are refused with 429
  std::int64_t max_num_queued_tokens = 1'000'000;  ///< waiting prompt tokens beyond this are refused
  double ageing_s = 10;                       ///< a waiting request rises one class after this long
};

struct RuntimeOptions {
  std::string device = "auto";  ///< auto | cpu | cuda
  bool invariant = true;        ///< of CUDA: false lets a library multiply more than 64 rows, which depends on their number
  std::int32_t threads = 0;  ///< compute threads; 0 = one per available core
  std::string isa = "auto";  ///< auto | scalar | avx2 | avx512
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::vector<std::string> api_key;        ///< empty = open; otherwise every route but the probes asks for one
  std::int32_t io_threads = 1;
  std::uint64_t max_body_bytes = 8 << 20;
  std::int32_t max_connections = 4096;
  double header_timeout_s = 10;
  double body_timeout_s = 30;
  double keep_alive_timeout_s = 75;
  double write_stall_timeout_s = 30;       ///< a reader that takes nothing for this long is cancelled
  double queue_timeout_s = 60;             ///< waiting longer than this before the first step ends in 503
  double shutdown_timeout_s = 30;          ///< SIGTERM lets running requests finish for this long
  double sse_ping_s = 15;                  ///< comment line on a silent stream
  std::uint64_t responses_store_bytes = 256 << 20;  ///< answers of /v1/responses kept in memory; 0 = none
  double responses_store_ttl_s = 86'400;   ///< and for how long after they are finished
  bool strip_volatile_lines = true;        ///< agents' counters leave the system prompt (Messages)
  std::uint64_t idempotency_memory_bytes = 64ULL << 20;  ///< answers kept for retries; 0 = the header is ignored
  double idempotency_ttl_s = 600;          ///< how long after their end
  std::uint64_t capture_memory_bytes = 0;  ///< captured requests kept for barg replay; 0 = none are
};

struct LogOptions {
  std::string level = "info";   ///< trace | debug | info | warn | error
  std::string format = "text";  ///< text | json
};

struct Config {
  ModelOptions model;
  KvOptions kv;
  SchedulerOptions scheduler;
  RuntimeOptions runtime;
  ServerOptions server;
  LogOptions log;
};

}  // namespace barg
