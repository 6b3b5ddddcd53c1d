// `barg bench`: the table of its subcommands. Each is a file of its own.
#include "cli/command.h"

namespace barg::cli {
namespace {

constexpr const Command* kSubcommands[] = {&kBenchModelCommand, &kBenchServeCommand};

}  // namespace

const Command kBenchCommand{
    .name = "bench",
    .summary = "measure a model in this process, or a running server",
    .arguments = "model|serve",
    .details = "barg bench model --model FILE  prefill and decode speed beside this machine's ceilings\n"
               "barg bench serve --url URL     load any OpenAI-compatible server and report latency and throughput\n"
               "\n`barg bench model --help` and `barg bench serve --help` list their flags.",
    .subcommands = kSubcommands};

}  // namespace barg::cli
