// The report of a replay with a model: table, the document of docs/bench.md, plots. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/kv_replay.h"

namespace barg::bench {

std::string kv_replay_table(const KvReplay& replay);
std::string kv_replay_json(const KvReplay& replay);
/// File names with SVG documents.
std::vector<std::pair<std::string, std::string>> kv_replay_plots(const KvReplay& replay);

}  // namespace barg::bench
