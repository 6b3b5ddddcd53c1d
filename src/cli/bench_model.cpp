// `barg bench model`: prefill and decode speed of a model in this process, beside the machine's ceilings. The
// work is in src/bench; here are the flags and the progress line.
#include <charconv>
#include <ostream>

#include "bench/model_bench.h"
#include "bench/model_output.h"
#include "cli/bench_terminal.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/values.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"-m", "FILE", "The same as --model."},
    {"-p", "N,...", "Tokens of prefill rows (pp); 0: none. [512]"},
    {"-n", "N,...", "Tokens of decode rows (tg), greedy; 0: none. [128]"},
    {"-b", "B,...", "Sequences that a decode row runs side by side. [1]"},
    {"--batch", "B,...", "The same as -b."},
    {"-d", "N,...", "Tokens in the context before those that are measured. [0]"},
    {"--depth", "N,...", "The same as -d."},
    {"-r", "N", "Repetitions of each row, after one that does not count. [5]"},
    {"-t", "N", "The same as --threads."},
    {"--recipe", "NAME", "The same as --numerics."},
    {"--kv-dtype", "NAME", "The same as --kv-cache-dtype."},
    {"-o", "FORMAT", "table, md, csv or json. [table]"},
};

/// Short names of options.
constexpr std::pair<const char*, const char*> kAliases[] = {{"-m", "model.path"},
                                                            {"-t", "runtime.threads"},
                                                            {"--recipe", "model.numerics"},
                                                            {"--kv-dtype", "kv.dtype"}};

using Format = std::string (*)(const bench::ModelBenchReport&);
constexpr std::pair<const char*, Format> kFormats[] = {{"table", bench::model_table},
                                                       {"md", bench::model_markdown},
                                                       {"csv", bench::model_csv},
                                                       {"json", bench::model_json}};

Result<std::vector<std::int32_t>> numbers(const std::string& flag, const std::string& text, std::int32_t min,
                                          std::int32_t max) {
  std::vector<std::int32_t> out;
  for (const std::string& item : split_list(text)) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc{} || end != item.data() + item.size() || value < min || value > max) {
      out.clear();
      break;
    }
    out.push_back(value);
  }
  if (!out.empty()) return out;
  return fail(ErrorCode::kInvalidValue,
              flag + " takes whole numbers from " + std::to_string(min) + " to " + std::to_string(max) +
                  ", separated by commas; got '" + text.substr(0, 64) + "'.",
              flag);
}

/// Reads a list flag under either of its names.
Result<void> read_list(const Invocation& invocation, const std::string& name, const std::string& other,
                       std::int32_t min, std::int32_t max, std::vector<std::int32_t>& to) {
  const std::string& used = invocation.has(name) ? name : other;
  if (used.empty() || !invocation.has(used)) return {};
  const auto values = numbers(used, invocation.get(used), min, max);
  if (!values) return std::unexpected(values.error());
  to = *values;
  return {};
}

Result<bench::ModelBenchOptions> options_of(const Invocation& invocation) {
  constexpr std::int32_t kMost = 1 << 24;
  bench::ModelBenchOptions o{.config = invocation.settings.config};
  for (const auto& [flag, key] : kAliases) {
    if (!invocation.has(flag)) continue;
    if (const Problem problem = assign(*find_key(key), invocation.get(flag), o.config))
      return fail(ErrorCode::kInvalidValue, std::string(flag) + ": " + *problem + ".", flag);
  }
  if (auto ok = read_list(invocation, "-p", "", 0, kMost, o.prompts); !ok) return std::unexpected(ok.error());
  if (auto ok = read_list(invocation, "-n", "", 0, kMost, o.generated); !ok)
    return std::unexpected(ok.error());
  if (auto ok = read_list(invocation, "--batch", "-b", 1, 4096, o.batches); !ok)
    return std::unexpected(ok.error());
  if (auto ok = read_list(invocation, "--depth", "-d", 0, kMost, o.depths); !ok)
    return std::unexpected(ok.error());
  std::vector<std::int32_t> repetitions{o.repetitions};
  if (auto ok = read_list(invocation, "-r", "", 1, 1000, repetitions); !ok)
    return std::unexpected(ok.error());
  if (repetitions.size() != 1) return fail(ErrorCode::kInvalidValue, "-r takes one number.", "-r");
  o.repetitions = repetitions[0];
  if (o.config.model.path.empty())
    return fail(ErrorCode::kInvalidValue,
                "which model? Give a .gguf file or a Hugging Face directory with --model.", "--model");
  return o;
}

bench::ModelBenchHooks terminal_hooks(Io& io, std::string& row) {
  if (!io.err_is_terminal) return {};
  const auto draw = [&io](const std::string& text) { io.err << "\r" << text << "\x1b[K" << std::flush; };
  return {
      .loading =
          [draw](double share) { draw("loading " + std::to_string(static_cast<int>(share * 100)) + " %"); },
      .begin =
          [draw, &row](const std::string& what) {
            row = what;
            draw(what);
          },
      .repeated =
          [draw, &row](std::int32_t done, std::int32_t all) {
            draw(row + " " + std::to_string(done) + "/" + std::to_string(all));
          }};
}

int failed(Io& io, const Error& error) {
  const bool usage = error.code == ErrorCode::kInvalidValue && error.param.starts_with('-');
  return bench_failed(io, error.message, usage ? kExitUsage : exit_code_of(error));
}

int run_bench_model(Invocation& invocation) {
  Io& io = invocation.io;
  const auto options = options_of(invocation);
  if (!options) return failed(io, options.error());
  const std::string name = invocation.get("-o", "table");
  Format format = nullptr;
  for (const auto& [known, function] : kFormats) {
    if (name == known) format = function;
  }
  if (format == nullptr)
    return failed(
        io, {ErrorCode::kInvalidValue, "-o is '" + name + "'; possible are table, md, csv, json.", "-o", 0});
  std::string row;
  const auto report = bench::run_model_bench(*options, terminal_hooks(io, row));
  if (io.err_is_terminal) io.err << "\r\x1b[K" << std::flush;
  if (!report) return failed(io, report.error());
  io.out << format(*report) << std::flush;
  return kExitOk;
}

}  // namespace

const Command kBenchModelCommand{
    .name = "bench model",
    .summary = "prefill and decode speed of a model, beside this machine's ceilings",
    .sections = "model.path model.numerics kv.dtype kv.block_size scheduler.max_num_batched_tokens runtime",
    .flags = kFlags,
    .run = run_bench_model,
    .details =
        "Rows: pp512 is the prefill of 512 tokens, tg128 the decode of 128 tokens one by one, tg128@d4096 "
        "the same\n"
        "behind 4096 tokens of context, x8 eight sequences side by side (tokens/s of all together). Median "
        "of the\n"
        "repetitions, and their standard deviation. No server, no scheduler: the bare model with its KV "
        "blocks.\n"
        "\n"
        "Shares, against ceilings measured in the same run (best windows of reads from memory, and of the "
        "multiply\n"
        "instruction of each kind of weight):\n"
        "  of bandwidth   = (weight bytes + visible KV bytes, once a step) / read ceiling / time\n"
        "  of arithmetic  = sum over kinds of (2 x weights x rows, 4 x head size x heads x visible keys for\n"
        "                   attention) / ceiling of its instruction / time\n"
        "A decode of one sequence is bounded by the first, a prefill by the second. Caches can lift a small "
        "model\n"
        "over 100 % of bandwidth.\n"
        "\n"
        "Examples:\n"
        "  barg bench model --model model.gguf\n"
        "  barg bench model --model model.gguf -p 0 -n 64 --batch 1,8,32 --depth 0,4096 -o md\n"
        "Exit code: 2 a wrong flag, 1 a bad model file, 75 not enough memory, 78 a bad configuration."};

}  // namespace barg::cli
