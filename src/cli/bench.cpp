// `barg bench`: the table of its subcommands. Each is a file of its own.
#include "cli/command.h"

namespace barg::cli {
namespace {

constexpr const Command* kSubcommands[] = {&kBenchModelCommand, &kBenchServeCommand, &kBenchKvCommand};

}  // namespace

const Command kBenchCommand{
    .name = "bench",
    .summary = "measure a model in this process, a running server, or the KV tiers",
    .arguments = "model|serve|kv",
    .details = "barg bench model --model FILE  prefill and decode speed beside this machine's ceilings\n"
               "barg bench serve --url URL     load any OpenAI-compatible server and report latency and throughput\n"
               "barg bench kv --trace FILE     replay a trace through the KV tiers: --policy, --url or --model\n"
               "\n`barg bench model --help` and the like list their flags.",
    .subcommands = kSubcommands};

}  // namespace barg::cli
