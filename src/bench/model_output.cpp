#include "bench/model_output.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/json.h"
#include "bench/format.h"

namespace barg::bench {
namespace {

/// Three or four digits that mean something.
std::string rate(double value) { return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

std::vector<std::vector<std::string>> cells(const ModelBenchReport& report) {
  std::vector<std::vector<std::string>> out{
      {"test", "tokens/s", "+-", "ms a step", "of bandwidth", "of arithmetic"}};
  for (const ModelBenchRow& row : report.rows) {
    const double seconds = static_cast<double>(row.tokens) * row.batch / row.median;
    out.push_back({row.test, rate(row.median), rate(row.deviation),
                   fixed(1e3 * seconds / (row.prefill ? 1 : row.tokens), 2), percent(row.bandwidth),
                   percent(row.arithmetic)});
  }
  return out;
}

/// The model, the machine, and a warning where it was not quiet.
std::vector<std::string> heading(const ModelBenchReport& r) {
  const ops::Limits& l = r.limits;
  std::string ceilings = "ceilings with " + std::to_string(r.threads) +
                         (r.threads == 1 ? " thread" : " threads") + " (" + r.isa + "): read " +
                         fixed(l.read_gbytes, 1) + " GB/s, f32 " + rate(l.f32_gflops) + " GFLOP/s, int8 " +
                         rate(l.int8_gops) + " GOP/s, int4 x int8 " + rate(l.int4_gops) + " GOP/s";
  if (l.bf16_gflops > 0) ceilings += ", bf16 " + rate(l.bf16_gflops) + " GFLOP/s";
  std::vector<std::string> out{r.model + ": " + r.architecture + ", " + r.stored + ", " +
                                   fixed(static_cast<double>(r.parameters) * 1e-6, 1) + " M weights in " +
                                   fixed(static_cast<double>(r.weight_bytes) * 1e-6, 1) + " MB, numerics " +
                                   r.numerics,
                               ceilings};
  if (r.limits_agreement < kQuietAgreement)
    out.push_back("note: the ceilings before and after the rows differ by " +
                  fixed(100 * (1 - r.limits_agreement), 0) +
                  " %: something else ran on this machine, and the figures are too low");
  return out;
}

Json row_json(const ModelBenchRow& row) {
  Json rates = Json::array();
  for (const double x : row.tokens_per_second) rates.push(x);
  return Json::object({{"test", row.test},
                       {"kind", row.prefill ? "prefill" : "decode"},
                       {"tokens", row.tokens},
                       {"batch", row.batch},
                       {"depth", row.depth},
                       {"tokens_per_second", row.median},
                       {"deviation", row.deviation},
                       {"repetitions", std::move(rates)},
                       {"bandwidth_share", row.bandwidth},
                       {"arithmetic_share", row.arithmetic},
                       {"weight_bytes", row.work.weight_bytes},
                       {"kv_bytes", row.work.kv_bytes},
                       {"f32_operations", row.work.f32_operations},
                       {"int8_operations", row.work.int8_operations},
                       {"int4_operations", row.work.int4_operations},
                       {"bf16_operations", row.work.bf16_operations}});
}

}  // namespace

std::string model_table(const ModelBenchReport& report) {
  std::string out;
  for (const std::string& line : heading(report)) out += line + "\n";
  out += "\n";
  const auto table = cells(report);
  std::vector<std::size_t> width(table[0].size(), 0);
  for (const auto& row : table) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  for (const auto& row : table) {
    std::string line = row[0] + std::string(width[0] - row[0].size(), ' ');
    for (std::size_t c = 1; c < row.size(); ++c)
      line += "  " + std::string(width[c] - row[c].size(), ' ') + row[c];
    out += line + "\n";
  }
  return out;
}

std::string model_markdown(const ModelBenchReport& report) {
  std::string out;
  for (const std::string& line : heading(report)) out += line + "  \n";
  out += "\n";
  const auto table = cells(report);
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (const std::string& cell : table[i]) out += "| " + cell + " ";
    out += "|\n";
    if (i == 0) out += "|---|---:|---:|---:|---:|---:|\n";
  }
  return out;
}

std::string model_csv(const ModelBenchReport& report) {
  std::string out =
      "model,digest,numerics,isa,threads,test,kind,tokens,batch,depth,tokens_per_second,deviation,"
      "bandwidth_share,arithmetic_share\n";
  std::string name = report.model;
  for (std::size_t i = 0; (i = name.find('"', i)) != std::string::npos; i += 2) name.insert(i, 1, '"');
  for (const ModelBenchRow& row : report.rows) {
    out += '"' + name + "\"," + report.digest + "," + report.numerics + "," + report.isa + "," +
           std::to_string(report.threads) + "," + row.test + "," + (row.prefill ? "prefill" : "decode") +
           "," + std::to_string(row.tokens) + "," + std::to_string(row.batch) + "," +
           std::to_string(row.depth) + "," + fixed(row.median, 3) + "," + fixed(row.deviation, 3) + "," +
           fixed(row.bandwidth, 5) + "," + fixed(row.arithmetic, 5) + "\n";
  }
  return out;
}

std::string model_json(const ModelBenchReport& report) {
  const ops::Limits& l = report.limits;
  Json rows = Json::array();
  for (const ModelBenchRow& row : report.rows) rows.push(row_json(row));
  const Json json = Json::object({{"version", 1},
                                  {"model", report.model},
                                  {"architecture", report.architecture},
                                  {"stored", report.stored},
                                  {"digest", report.digest},
                                  {"numerics", report.numerics},
                                  {"recipe", report.recipe},
                                  {"kv_dtype", report.kv_dtype},
                                  {"isa", report.isa},
                                  {"threads", report.threads},
                                  {"weight_bytes", report.weight_bytes},
                                  {"parameters", report.parameters},
                                  {"limits", Json::object({{"read_gbytes", l.read_gbytes},
                                                           {"f32_gflops", l.f32_gflops},
                                                           {"int8_gops", l.int8_gops},
                                                           {"int4_gops", l.int4_gops},
                                                           {"bf16_gflops", l.bf16_gflops},
                                                           {"agreement", report.limits_agreement}})},
                                  {"rows", std::move(rows)}});
  return dump_json(json, {.indent = 2}) + "\n";
}

}  // namespace barg::bench
