// The report of `barg bench model` as text. Pure functions.
#pragma once

#include <string>

#include "bench/model_bench.h"

namespace barg::bench {

/// For a terminal: what was measured on what, then aligned columns.
std::string model_table(const ModelBenchReport& report);
/// The same as Markdown.
std::string model_markdown(const ModelBenchReport& report);
/// One line a row under a line of names.
std::string model_csv(const ModelBenchReport& report);
/// Everything, every repetition too.
std::string model_json(const ModelBenchReport& report);

}  // namespace barg::bench
