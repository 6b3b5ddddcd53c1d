// `barg bench`: the table of its subcommands. Each is a file of its own.
#include "cli/command.h"

namespace barg::cli {
namespace {

constexpr const Command* kSubcommands[] = {&kBenchServeCommand};

}  // namespace

const Command kBenchCommand{
    .name = "bench",
    .summary = "measure a running server",
    .arguments = "serve",
    .details = "barg bench serve --url URL   load any OpenAI-compatible server and report latency and throughput\n"
               "\n`barg bench serve --help` lists its flags.",
    .subcommands = kSubcommands};

}  // namespace barg::cli
