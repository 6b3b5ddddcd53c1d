// Figures from samples, and the documents made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/env.h"
#include "base/json.h"
#include "bench/serve_energy.h"
#include "bench/serve_output.h"
#include "bench/serve_plots.h"
#include "bench/serve_report.h"
#include "bench/svg_chart.h"
#include "support/temp_dir.h"

namespace barg::bench::serve_report_test {
namespace {

// Piece k at 100 + 10 k ms; sent 4 ms late.
RequestSample sample(int pieces, std::int64_t tokens) {
  RequestSample s;
  s.intended = 0;
  s.sent = 4'000'000;
  s.status = 200;
  for (int k = 0; k < pieces; ++k) s.stamps.push_back(100'000'000 + k * 10'000'000LL);
  s.done = s.stamps.empty() ? 0 : s.stamps.back() + 1'000'000;
  s.prompt_tokens = 5;
  s.completion_tokens = tokens;
  s.input_asked = 4;
  s.output_asked = static_cast<int>(tokens);
  return s;
}

TEST(ServeReport, PercentilesAgreeWithANaiveReference) {
  Rng rng(7);
  for (const std::size_t n : {1U, 2U, 3U, 10U, 101U, 1000U}) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(std::floor(rng.uniform() * 50));
    std::sort(values.begin(), values.end());
    for (const double p : {0.0, 1.0, 37.5, 50.0, 90.0, 95.0, 99.0, 100.0}) {
      // The definition, spelled out: a piecewise linear curve through (i / (n - 1), value i).
      double expected = values.back();
      for (std::size_t i = 0; i + 1 < n; ++i) {
        const double a = static_cast<double>(i) / static_cast<double>(n - 1);
        const double b = static_cast<double>(i + 1) / static_cast<double>(n - 1);
        if (p / 100 >= a && p / 100 < b) expected = values[i] + (values[i + 1] - values[i]) * (p / 100 - a) / (b - a);
      }
      EXPECT_NEAR(percentile(values, p), expected, 1e-9) << n << " " << p;
    }
  }
  std::vector<double> four{4, 1, 3, 2};  // numpy.percentile([1, 2, 3, 4], 90) = 3.7
  const Distribution d = distribution(four);
  EXPECT_DOUBLE_EQ(d.p90, 3.7);
  EXPECT_DOUBLE_EQ(d.mean, 2.5);
  EXPECT_DOUBLE_EQ(d.max, 4);
}

TEST(ServeReport, TimesCountFromTheIntendedSend) {
  const RequestTimes times = times_of(sample(11, 11));
  EXPECT_DOUBLE_EQ(times.ttft_ms, 100);  // not 96
  EXPECT_DOUBLE_EQ(times.e2e_ms, 201);
  EXPECT_DOUBLE_EQ(*times.tpot_ms, 10);
  ASSERT_EQ(times.gaps_ms.size(), 10U);
  EXPECT_DOUBLE_EQ(times.gaps_ms[3], 10);
  EXPECT_FALSE(times_of(sample(1, 1)).tpot_ms);
}

TEST(ServeReport, GapsAreDividedByTheTokensOfAPiece) {
  // 20 tokens in 10 pieces: unknown which, so two each.
  for (const double gap : times_of(sample(10, 20)).gaps_ms) EXPECT_DOUBLE_EQ(gap, 5);
  // Fewer tokens than pieces (a server that cuts texts) divides nothing.
  for (const double gap : times_of(sample(10, 9)).gaps_ms) EXPECT_DOUBLE_EQ(gap, 10);
  // Counted by the server: 1, then 4 in one piece, then 1.
  RequestSample counted = sample(3, 6);
  counted.counted = {1, 5, 6};
  EXPECT_EQ(times_of(counted).gaps_ms, (std::vector<double>{2.5, 2.5, 2.5, 2.5, 10}));
}

TEST(ServeReport, ObjectivesAndRates) {
  ServeSlo slo;
  const RequestTimes times = times_of(sample(11, 11));
  EXPECT_TRUE(meets(slo, times));
  slo.ttft_ms = 100, slo.itl_ms = 10, slo.tpot_ms = 10, slo.e2e_ms = 201;
  EXPECT_TRUE(meets(slo, times));
  for (std::optional<double>* bound : {&slo.ttft_ms, &slo.itl_ms, &slo.tpot_ms, &slo.e2e_ms}) {
    **bound -= 1;
    EXPECT_FALSE(meets(slo, times));
    **bound += 1;
  }
  ServeOptions options;
  options.slo.ttft_ms = 150;
  options.price_per_hour = 2;
  RunSamples samples;
  samples.requests = {sample(11, 11), sample(11, 11), sample(11, 11)};
  samples.requests[1].intended = -100'000'000;  // TTFT 200: answered, but too late
  samples.requests[2].error = "http_500";
  samples.requests[2].detail = "why";
  samples.pieces = 22;
  samples.cpu_s = 22e-6;
  const RunReport r = summarise(options, {}, samples, {.joules = 44, .source = "test"});
  EXPECT_EQ(r.ok, 2);
  EXPECT_EQ(r.failed, 1);
  EXPECT_EQ(r.errors.at("http_500"), 1);
  EXPECT_EQ(r.output_tokens, 22);
  EXPECT_NEAR(r.duration_s, 0.301, 1e-9);
  EXPECT_NEAR(r.output_tokens_per_s, 22 / 0.301, 1e-6);
  EXPECT_NEAR(*r.goodput_requests_per_s, 1 / 0.301, 1e-6);
  EXPECT_NEAR(*r.tokens_per_dollar, 22 / 0.301 * 1800, 1e-3);
  EXPECT_DOUBLE_EQ(*r.joules_per_token, 2);
  EXPECT_NEAR(r.client_cpu_us_per_piece, 1, 1e-9);
  EXPECT_DOUBLE_EQ(r.send_lag_ms.p50, 4);
}

TEST(ServeReport, DocumentsHoldWhatOthersRead) {
  ServeOptions options;
  options.url = "http://h:1";
  options.body.model = "m\"x";
  options.slo.ttft_ms = 500;
  RunSamples samples;
  samples.requests = {sample(11, 12), sample(0, -1)};
  samples.requests[1].error = "timeout";
  samples.wall_s = 1;
  const ServeLoad load{.concurrency = 32, .requests = 2, .duration_s = {}};
  const std::vector<RunReport> reports{summarise(options, load, samples, {.joules = {}, .source = "no counters"})};
  const Result<Json> json = parse_json(report_json(options, reports));
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->find("version")->as_int(), 1);
  EXPECT_EQ(json->find("model")->as_string(), "m\"x");
  const Json& run = json->find("runs")->as_array().at(0);
  EXPECT_EQ(run.find("load")->find("kind")->as_string(), "closed");
  EXPECT_EQ(run.find("load")->find("concurrency")->as_int(), 32);
  EXPECT_EQ(run.find("requests")->find("errors")->find("timeout")->as_int(), 1);
  for (const char* key : {"ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"}) {
    for (const char* figure : {"mean", "p50", "p90", "p95", "p99", "min", "max"})
      EXPECT_TRUE(run.find(key)->find(figure)->is_number()) << key << figure;
  }
  for (const char* key : {"duration_s", "input_tokens", "output_tokens", "output_tokens_per_s", "requests_per_s"})
    EXPECT_TRUE(run.find(key)->is_number()) << key;
  EXPECT_TRUE(run.find("goodput")->is_object());
  EXPECT_TRUE(run.find("tokens_per_dollar")->is_null());
  EXPECT_TRUE(run.find("joules_per_token")->is_null());
  EXPECT_EQ(run.find("energy_source")->as_string(), "no counters");
  EXPECT_EQ(run.find("answers_with_other_chunk_count")->as_int(), 1);
  const std::string table = report_table(options, reports[0]);
  EXPECT_NE(table.find("another number of chunks than tokens"), std::string::npos) << table;
  EXPECT_EQ(table.find("Another --seed"), std::string::npos) << table;
  RunReport cached = reports[0];
  cached.cached_tokens = cached.input_tokens;
  EXPECT_NE(report_table(options, cached).find("Another --seed"), std::string::npos);
  // Every row of the CSV has the columns of its head.
  std::istringstream csv(report_csv({samples}));
  std::string head, row;
  std::getline(csv, head);
  int rows = 0;
  for (; std::getline(csv, row); ++rows)
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), std::count(head.begin(), head.end(), ',')) << row;
  EXPECT_EQ(rows, 2);
}

// Tags are closed and no coordinate is NaN.
void expect_well_formed(const std::string& svg) {
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 40);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::size_t open = 0;
  for (std::size_t at = 0; (at = svg.find('<', at)) != std::string::npos; ++at) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    if (svg[at + 1] == '/') --open;
    else if (svg[end - 1] != '/') ++open;
  }
  EXPECT_EQ(open, 0U);
}

TEST(ServeReport, PlotsAreWellFormedForAnyRun) {
  const ServeOptions options;
  RunSamples some;
  for (int i = 1; i < 40; ++i) some.requests.push_back(sample(i, 2 * i));
  some.wall_s = 1;
  RunSamples none;
  for (const std::vector<RunSamples>& runs : {std::vector{some}, std::vector{some, none}, std::vector{none}}) {
    std::vector<RunReport> reports;
    for (const RunSamples& run : runs) reports.push_back(summarise(options, {}, run, {}));
    const auto plots = report_plots(reports, runs);
    EXPECT_EQ(plots.size(), runs.size() > 1 ? 5U : 3U);
    for (const auto& [name, svg] : plots) expect_well_formed(svg);
  }
  expect_well_formed(draw_chart({.title = "<&\">", .series = {{.name = "s", .points = {{1, NAN}, {2, 3}}}}}));
}

TEST(ServeReport, TicksAreRoundNumbers) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(log_ticks(1, 100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_FALSE(linear_ticks(3, 3, 5).empty());
}

TEST(ServeReport, EnergyComesFromPackagesAndSurvivesAWrap) {
  const test::TempDir dir;
  const std::filesystem::path root = std::filesystem::path(dir.path()) / "powercap";
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << "\n";
  };
  write("intel-rapl:0/name", "package-0");
  write("intel-rapl:0/energy_uj", "900000");
  write("intel-rapl:0/max_energy_range_uj", "1000000");
  write("intel-rapl:0:0/energy_uj", "5");
  EnergyMeter meter(root.string(), false);
  meter.start();
  write("intel-rapl:0/energy_uj", "400000");  // wrapped: 0.1 J up to the range, 0.4 J after it
  write("intel-rapl:0:0/energy_uj", "99999999");
  const EnergyReading reading = meter.stop();
  ASSERT_TRUE(reading.joules);
  EXPECT_NEAR(*reading.joules, 0.5, 1e-9);
  EXPECT_EQ(reading.source, "RAPL package-0");
  EnergyMeter nothing((root / "absent").string(), false);
  nothing.start();
  const EnergyReading none = nothing.stop();
  EXPECT_FALSE(none.joules);
  EXPECT_NE(none.source.find("no RAPL"), std::string::npos);
}

}  // namespace
}  // namespace barg::bench::serve_report_test
