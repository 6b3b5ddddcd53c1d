#include "cli/schema.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

namespace barg::cli {
namespace {

template <auto Section, auto Member>
FieldRef at(Config& config) {
  return &((config.*Section).*Member);
}
template <auto Member>
constexpr auto kModel = at<&Config::model, Member>;
template <auto Member>
constexpr auto kKv = at<&Config::kv, Member>;
template <auto Member>
constexpr auto kSched = at<&Config::scheduler, Member>;
template <auto Member>
constexpr auto kRuntime = at<&Config::runtime, Member>;
template <auto Member>
constexpr auto kServer = at<&Config::server, Member>;
template <auto Member>
constexpr auto kLog = at<&Config::log, Member>;

constexpr double kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr double kDay = 86'400;

constexpr Option kSchema[] = {
    {.key = "model.path",
     .flag = "--model",
     .kind = Kind::kPath,
     .field = kModel<&ModelOptions::path>,
     .help = "The model: a .gguf file or a Hugging Face directory."},
    {.key = "model.served_model_name",
     .flag = "--served-model-name",
     .kind = Kind::kList,
     .field = kModel<&ModelOptions::served_model_name>,
     .help = "Names the API answers to; the first one is reported. Empty: the file's or directory's name."},
    {.key = "model.max_model_len",
     .flag = "--max-model-len",
     .kind = Kind::kInteger,
     .field = kModel<&ModelOptions::max_model_len>,
     .help =
         "Tokens of prompt plus output. 0: the model's own length, or what fits the KV pool if that is less.",
     .max = kMaxInt},
    {.key = "model.numerics",
     .flag = "--numerics",
     .kind = Kind::kChoice,
     .field = kModel<&ModelOptions::numerics>,
     .help = "Recipe of matrix products. auto: int8 for weights of 8 bits or fewer, else f32. bf16 needs a "
             "processor with AVX512-BF16.",
     .choices = "auto|f32|int8|bf16"},
    {.key = "model.chat_template",
     .flag = "--chat-template",
     .kind = Kind::kPath,
     .field = kModel<&ModelOptions::chat_template>,
     .help = "A Jinja file that replaces the model's own chat template."},
    {.key = "model.tool_dialect",
     .flag = "--tool-dialect",
     .kind = Kind::kText,
     .field = kModel<&ModelOptions::tool_dialect>,
     .help = "How the model writes tool calls. auto: found from its chat template, see docs/tool-dialects.md."},
    {.key = "model.generation_config",
     .flag = "--generation-config",
     .kind = Kind::kChoice,
     .field = kModel<&ModelOptions::generation_config>,
     .help = "Sampling defaults. auto: the model's own; vllm: those of the OpenAI API.",
     .choices = "auto|vllm"},

    {.key = "kv.block_size",
     .flag = "--block-size",
     .kind = Kind::kInteger,
     .field = kKv<&KvOptions::block_size>,
     .help = "Tokens in one KV block. Small blocks waste less, large ones cost less bookkeeping.",
     .choices = "16|32|64"},
    {.key = "kv.memory_bytes",
     .flag = "--kv-cache-memory-bytes",
     .kind = Kind::kBytes,
     .field = kKv<&KvOptions::memory_bytes>,
     .help = "Size of the KV pool. 0: what the machine allows."},
    {.key = "kv.dtype",
     .flag = "--kv-cache-dtype",
     .kind = Kind::kChoice,
     .field = kKv<&KvOptions::dtype>,
     .help = "How keys and values are stored. auto: f32 in recipe f32, else f16. fp8 (e4m3) and int8, with a scale "
             "for each token and head, take about half of f16: see docs/kv-dtypes.md.",
     .choices = "auto|f32|f16|bf16|fp8|int8"},
    {.key = "kv.enable_prefix_caching",
     .flag = "--enable-prefix-caching",
     .kind = Kind::kBool,
     .field = kKv<&KvOptions::enable_prefix_caching>,
     .help = "Reuse the KV blocks of equal prefixes. Turning it off changes no answer, only the time."},
    {.key = "kv.tiers",
     .flag = "--kv-tier",
     .kind = Kind::kSpecs,
     .field = kKv<&KvOptions::tiers>,
     .help = "Where KV blocks go that leave the pool, nearest first: dram:size=SIZE, "
             "disk:path=DIR,size=SIZE, redis:url=URL. See docs/tiers.md."},
    {.key = "kv.restore",
     .flag = "--kv-restore",
     .kind = Kind::kChoice,
     .field = kKv<&KvOptions::restore>,
     .help = "What becomes of a prefix that is found in a tier: read back, computed again, both ends at once, or "
             "(auto) whichever is quickest by measured speeds. Changes no answer.",
     .choices = "auto|reload|recompute|both"},
    {.key = "kv.salt_file",
     .flag = "--kv-salt-file",
     .kind = Kind::kPath,
     .field = kKv<&KvOptions::salt_file>,
     .help = "A secret of at least 16 bytes that goes into the keys of stored blocks; the processes of a pool share "
             "it. Empty: one that is made once in $XDG_STATE_HOME/barg or ~/.local/state/barg."},

    {.key = "scheduler.max_num_seqs",
     .flag = "--max-num-seqs",
     .kind = Kind::kInteger,
     .field = kSched<&SchedulerOptions::max_num_seqs>,
     .help = "Sequences in one step.",
     .min = 1,
     .max = 65'536},
    {.key = "scheduler.max_num_batched_tokens",
     .flag = "--max-num-batched-tokens",
     .kind = Kind::kInteger,
     .field = kSched<&SchedulerOptions::max_num_batched_tokens>,
     .help = "Token budget of a step; longer prompts are computed in chunks.",
     .min = 1,
     .max = 1'048'576},
    {.key = "scheduler.itl_target",
     .flag = "--itl-target",
     .kind = Kind::kDuration,
     .field = kSched<&SchedulerOptions::itl_target_ms>,
     .help = "Time between tokens that prefill chunks are kept small for while others decode.",
     .min = 0.001,
     .max = 600,
     .unit = 1000},
    {.key = "scheduler.watermark",
     .flag = "--watermark",
     .kind = Kind::kNumber,
     .field = kSched<&SchedulerOptions::watermark>,
     .help = "Share of the KV pool that admission leaves free, so that running sequences can grow.",
     .max = 0.5},
    {.key = "scheduler.pipeline_depth",
     .flag = "--pipeline-depth",
     .kind = Kind::kInteger,
     .field = kSched<&SchedulerOptions::pipeline_depth>,
     .help = "Steps launched before results return. Changes no answer.",
     .choices = "0|1|2"},
    {.key = "scheduler.max_num_queued_reqs",
     .flag = "--max-num-queued-reqs",
     .kind = Kind::kInteger,
     .field = kSched<&SchedulerOptions::max_num_queued_reqs>,
     .help = "Waiting requests beyond this are refused at once with Retry-After.",
     .min = 1,
     .max = 1'000'000},
    {.key = "scheduler.max_num_queued_tokens",
     .flag = "--max-num-queued-tokens",
     .kind = Kind::kInteger,
     .field = kSched<&SchedulerOptions::max_num_queued_tokens>,
     .help = "Waiting prompt tokens beyond this are refused at once with Retry-After.",
     .min = 1,
     .max = 1e12},
    {.key = "scheduler.ageing",
     .flag = "--ageing",
     .kind = Kind::kDuration,
     .field = kSched<&SchedulerOptions::ageing_s>,
     .help = "A request that waited this long rises one priority class.",
     .min = 0.001,
     .max = kDay},

    {.key = "runtime.device",
     .flag = "--device",
     .kind = Kind::kChoice,
     .field = kRuntime<&RuntimeOptions::device>,
     .help = "What computes. auto: a CUDA device that can serve the model, else the CPU.",
     .choices = "auto|cpu|cuda"},
    {.key = "runtime.invariant",
     .flag = "--invariant",
     .kind = Kind::kBool,
     .field = kRuntime<&RuntimeOptions::invariant>,
     .help = "On a CUDA device: one family of kernels for every number of rows, so that an answer depends on nothing beside "
             "its request. false: cuBLASLt multiplies more than 64 rows, faster, and answers may differ with the batch; "
             "cached blocks of the two are kept apart."},
    {.key = "runtime.threads",
     .flag = "--threads",
     .kind = Kind::kInteger,
     .field = kRuntime<&RuntimeOptions::threads>,
     .help = "Compute threads. 0: one per available core. Changes no answer.",
     .max = 1024},
    {.key = "runtime.isa",
     .flag = "--isa",
     .kind = Kind::kChoice,
     .field = kRuntime<&RuntimeOptions::isa>,
     .help = "Instruction set of the CPU kernels. All give equal bits.",
     .choices = "auto|scalar|avx2|avx512"},

    {.key = "server.host",
     .flag = "--host",
     .kind = Kind::kText,
     .field = kServer<&ServerOptions::host>,
     .help = "Address to listen on; 0.0.0.0 for every interface (set an API key then)."},
    {.key = "server.port",
     .flag = "--port",
     .kind = Kind::kInteger,
     .field = kServer<&ServerOptions::port>,
     .help = "Port to listen on. 0: any free one, printed at start.",
     .max = 65'535},
    {.key = "server.api_key",
     .flag = "--api-key",
     .kind = Kind::kList,
     .field = kServer<&ServerOptions::api_key>,
     .help = "Keys that clients may send as a bearer token. Empty: no key is asked for. Prefer the variable: "
             "other users of the machine can read a command line.",
     .secret = true},
    {.key = "server.io_threads",
     .flag = "--io-threads",
     .kind = Kind::kInteger,
     .field = kServer<&ServerOptions::io_threads>,
     .help = "Threads that read and write connections.",
     .min = 1,
     .max = 256},
    {.key = "server.max_body_bytes",
     .flag = "--max-body-bytes",
     .kind = Kind::kBytes,
     .field = kServer<&ServerOptions::max_body_bytes>,
     .help = "Largest request body.",
     .min = 1024,
     .max = 1LL << 32},
    {.key = "server.max_connections",
     .flag = "--max-connections",
     .kind = Kind::kInteger,
     .field = kServer<&ServerOptions::max_connections>,
     .help = "Open connections beyond this are closed at once.",
     .min = 1,
     .max = 1'000'000},
    {.key = "server.header_timeout",
     .flag = "--header-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::header_timeout_s>,
     .help = "Time a client has to send a request's header.",
     .min = 0.001,
     .max = kDay},
    {.key = "server.body_timeout",
     .flag = "--body-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::body_timeout_s>,
     .help = "Time a client has to send a request's body.",
     .min = 0.001,
     .max = kDay},
    {.key = "server.keep_alive_timeout",
     .flag = "--keep-alive-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::keep_alive_timeout_s>,
     .help = "An idle connection is closed after this.",
     .min = 0.001,
     .max = kDay},
    {.key = "server.write_stall_timeout",
     .flag = "--write-stall-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::write_stall_timeout_s>,
     .help = "A client that takes none of its answer for this long is cancelled.",
     .min = 0.001,
     .max = kDay},
    {.key = "server.queue_timeout",
     .flag = "--queue-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::queue_timeout_s>,
     .help = "A request that waited this long before its first step is refused with Retry-After.",
     .min = 0.001,
     .max = kDay},
    {.key = "server.shutdown_timeout",
     .flag = "--shutdown-timeout",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::shutdown_timeout_s>,
     .help = "After SIGTERM running requests may finish for this long; a second signal cuts them.",
     .max = kDay},
    {.key = "server.sse_ping",
     .flag = "--sse-ping",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::sse_ping_s>,
     .help = "A stream that was silent for this long carries a comment line, so that proxies keep it open.",
     .min = 0.1,
     .max = kDay},
    {.key = "server.strip_volatile_lines",
     .flag = "--strip-volatile-lines",
     .kind = Kind::kBool,
     .field = kServer<&ServerOptions::strip_volatile_lines>,
     .help = "/v1/messages: what agents change in the system prompt on every request (a billing header, a count of "
             "tokens left) is taken out, so that prefixes are found again; the answer's x-barg-ignored names it."},
    {.key = "server.idempotency_memory",
     .flag = "--idempotency-memory",
     .kind = Kind::kBytes,
     .field = kServer<&ServerOptions::idempotency_memory_bytes>,
     .help = "Memory for answers to requests with an Idempotency-Key: a retry is sent the same answer. 0: the header "
             "is ignored.",
     .max = 1LL << 40},
    {.key = "server.idempotency_ttl",
     .flag = "--idempotency-ttl",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::idempotency_ttl_s>,
     .help = "How long such an answer is kept after its end.",
     .min = 0.1,
     .max = kDay},
    {.key = "server.capture_memory",
     .flag = "--capture-memory",
     .kind = Kind::kBytes,
     .field = kServer<&ServerOptions::capture_memory_bytes>,
     .help = "Memory for requests captured on X-Capture: 1, with all their text; barg replay computes one again. 0: none.",
     .max = 1LL << 40},
    {.key = "server.responses_store_bytes",
     .flag = "--responses-store-bytes",
     .kind = Kind::kBytes,
     .field = kServer<&ServerOptions::responses_store_bytes>,
     .help = "Memory for stored answers of /v1/responses (previous_response_id, background); the least recently "
             "used go first. 0: none is stored, and answers say so."},
    {.key = "server.responses_store_ttl",
     .flag = "--responses-store-ttl",
     .kind = Kind::kDuration,
     .field = kServer<&ServerOptions::responses_store_ttl_s>,
     .help = "A stored answer is dropped so long after it was finished.",
     .min = 1,
     .max = 365 * kDay},

    {.key = "log.level",
     .flag = "--log-level",
     .kind = Kind::kChoice,
     .field = kLog<&LogOptions::level>,
     .help = "Lines below this level are not written.",
     .choices = "trace|debug|info|warn|error"},
    {.key = "log.format",
     .flag = "--log-format",
     .kind = Kind::kChoice,
     .field = kLog<&LogOptions::format>,
     .help = "text for people, json for machines (one object a line).",
     .choices = "text|json"},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kSections{{
    {"model", "the model and what it is called"},
    {"kv", "memory for keys and values"},
    {"scheduler", "what a step computes"},
    {"runtime", "how it is computed"},
    {"server", "HTTP"},
    {"log", "log lines on stderr"},
}};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Option> schema() { return kSchema; }

std::string_view section_of(const Option& option) { return option.key.substr(0, option.key.find('.')); }

std::string env_name(const Option& option) {
  std::string name = "BARG_";
  for (const char c : option.flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string_view section_title(std::string_view section) {
  for (const auto& [name, title] : kSections) {
    if (name == section) return title;
  }
  return {};
}

const Option* find_key(std::string_view key) {
  for (const Option& option : kSchema) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

const Option* find_flag(std::string_view flag) {
  constexpr std::string_view kNo = "--no-";
  for (const Option& option : kSchema) {
    if (option.flag == flag) return &option;
    const bool negated = flag.starts_with(kNo) && flag.substr(kNo.size()) == option.flag.substr(2);
    if (negated && option.kind == Kind::kBool) return &option;
  }
  return nullptr;
}

const Option* find_env(std::string_view variable) {
  for (const Option& option : kSchema) {
    if (env_name(option) == variable) return &option;
  }
  return nullptr;
}

std::string nearest(std::string_view text, const std::vector<std::string_view>& candidates) {
  text = text.substr(0, 64);  // hostile lengths cost nothing
  std::size_t best = std::max<std::size_t>(2, text.size() / 3) + 1;
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(text, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

}  // namespace barg::cli
