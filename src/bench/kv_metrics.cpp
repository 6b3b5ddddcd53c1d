#include "bench/kv_metrics.h"

#include <charconv>
#include <cmath>
#include <vector>

namespace barg::bench {
namespace {

struct Sample {
  std::string_view name;
  std::string_view labels;  // between the braces
  double value = 0;
};

// "name{labels} value [timestamp]"; a quoted label value may hold anything, with escaped quotes.
std::optional<Sample> parse_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty() || line[0] == '#') return std::nullopt;
  Sample out;
  const std::size_t name_end = line.find_first_of("{ \t");
  if (name_end == std::string_view::npos) return std::nullopt;
  out.name = line.substr(0, name_end);
  std::size_t at = name_end;
  if (line[at] == '{') {
    bool quoted = false;
    const std::size_t first = ++at;
    for (; at < line.size() && (quoted || line[at] != '}'); ++at) {
      if (quoted && line[at] == '\\')
        ++at;
      else if (line[at] == '"')
        quoted = !quoted;
    }
    if (at >= line.size()) return std::nullopt;
    out.labels = line.substr(first, at - first);
    ++at;
  }
  at = line.find_first_not_of(" \t", at);
  if (at == std::string_view::npos) return std::nullopt;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), out.value);
  if (error != std::errc{} || (end != line.data() + line.size() && *end != ' ' && *end != '\t'))
    return std::nullopt;
  if (!std::isfinite(out.value)) return std::nullopt;
  return out;
}

// The value of a label, as it stands between its quotes.
std::string_view label(const Sample& sample, std::string_view name) {
  const std::string_view l = sample.labels;
  for (std::size_t at = 0; at < l.size();) {
    const std::size_t equals = l.find('=', at);
    if (equals == std::string_view::npos || equals + 1 >= l.size() || l[equals + 1] != '"') return {};
    std::size_t end = equals + 2;
    while (end < l.size() && l[end] != '"') end += l[end] == '\\' ? 2 : 1;
    if (end >= l.size()) return {};
    if (l.substr(at, equals - at) == name) return l.substr(equals + 2, end - equals - 2);
    at = l.find_first_not_of(", ", end + 1);
    if (at == std::string_view::npos) break;
  }
  return {};
}

template <class Owner>
struct Row {
  std::string_view metric;
  std::string_view label, value;  // of samples that count; empty = all
  KvFigure Owner::*figure;
  bool state = false;
};

constexpr Row<KvTierFigures> kTierRows[] = {
    {"barg_prompt_tokens_cached_total", {}, {}, &KvTierFigures::cached_tokens},
    {"barg_kv_tier_queries_total", {}, {}, &KvTierFigures::queries},
    {"barg_kv_tier_hits_total", {}, {}, &KvTierFigures::hits},
    {"barg_kv_tier_bytes_read_total", {}, {}, &KvTierFigures::bytes_read},
    {"barg_kv_tier_bytes_written_total", {}, {}, &KvTierFigures::bytes_written},
    {"barg_kv_tier_evictions_total", {}, {}, &KvTierFigures::evictions},
    {"barg_kv_tier_rereads_total", {}, {}, &KvTierFigures::rereads},
    {"barg_kv_tier_writes_total", {}, {}, &KvTierFigures::writes},
    {"barg_kv_tier_useful_writes_total", {}, {}, &KvTierFigures::useful_writes},
    {"barg_kv_tier_used_bytes", {}, {}, &KvTierFigures::used_bytes, true},
    {"barg_kv_tier_capacity_bytes", {}, {}, &KvTierFigures::capacity_bytes, true},
    {"barg_kv_waste_bytes", {}, {}, &KvTierFigures::duplicate_bytes, true},
};

constexpr Row<KvFigures> kRows[] = {
    {"vllm:prompt_tokens_total", {}, {}, &KvFigures::prompt_tokens},
    {"vllm:prompt_tokens_cached_total", {}, {}, &KvFigures::cached_tokens},
    {"barg_kv_restore_plans_total", "choice", "recompute", &KvFigures::recomputes},
    {"barg_kv_restore_plans_total", "choice", "reload", &KvFigures::reloads},
    {"barg_kv_restore_plans_total", "choice", "both", &KvFigures::both},
    {"barg_kv_restore_predicted_seconds_total", {}, {}, &KvFigures::predicted_s},
    {"barg_kv_restore_actual_seconds_total", {}, {}, &KvFigures::actual_s},
    {"barg_kv_restore_regret_seconds_total", {}, {}, &KvFigures::regret_s},
    {"barg_kv_recompute_avoided_tokens_total", {}, {}, &KvFigures::tokens_restored},
    {"barg_kv_restore_deadlines_total", {}, {}, &KvFigures::deadlines},
    {"barg_kv_late_completions_total", {}, {}, &KvFigures::late},
    {"barg_kv_verify_total", "result", "ok", &KvFigures::verified},
    {"barg_kv_verify_total", "result", "fail", &KvFigures::verify_failed},
    {"barg_kv_waste_ratio", "cause", "tail", &KvFigures::waste_tail, true},
    {"barg_kv_waste_ratio", "cause", "reserved", &KvFigures::waste_reserved, true},
    {"barg_kv_waste_ratio", "cause", "fenced", &KvFigures::waste_fenced, true},
};

void take(const Sample& sample, KvFigures& out) {
  for (const Row<KvFigures>& row : kRows) {
    if (sample.name != row.metric || (!row.label.empty() && label(sample, row.label) != row.value)) continue;
    KvFigure& figure = out.*row.figure;
    figure = figure.value_or(0) + sample.value;
  }
  if (sample.name == "barg_kv_store_dropped_total" && sample.value > 0)
    out.dropped[std::string(label(sample, "reason").substr(0, 64))] += sample.value;
  for (const Row<KvTierFigures>& row : kTierRows) {
    if (sample.name != row.metric) continue;
    const std::string_view tier = label(sample, "tier");
    for (std::size_t p = 0; p < kKvPlaces; ++p) {
      if (tier != kKvPlaceNames[p]) continue;
      KvFigure& figure = out.tiers[p].*row.figure;
      figure = figure.value_or(0) + sample.value;
    }
  }
}

KvFigure added(const KvFigure& before, const KvFigure& after) {
  if (!after) return std::nullopt;
  const double value = *after - before.value_or(0);  // not there before: nothing had been counted
  return value >= 0 ? KvFigure(value) : std::nullopt;
}

}  // namespace

KvFigures parse_kv_metrics(std::string_view text) {
  KvFigures out;
  bool barg = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const std::optional<Sample> sample = parse_line(text.substr(0, end))) {
      take(*sample, out);
      barg = barg || sample->name == "barg_build_info";
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  // Without tiers Barg does not say where cached tokens lay: there is one place.
  if (barg && !out.tiers[0].cached_tokens) out.tiers[0].cached_tokens = out.cached_tokens;
  return out;
}

KvFigures kv_figures_between(const KvFigures& before, const KvFigures& after) {
  KvFigures out = after;
  for (const Row<KvFigures>& row : kRows) {
    if (!row.state) out.*row.figure = added(before.*row.figure, after.*row.figure);
  }
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    for (const Row<KvTierFigures>& row : kTierRows) {
      if (!row.state)
        out.tiers[p].*row.figure = added(before.tiers[p].*row.figure, after.tiers[p].*row.figure);
    }
  }
  for (auto& [reason, count] : out.dropped) {
    const auto had = before.dropped.find(reason);
    if (had != before.dropped.end()) count = std::max(0.0, count - had->second);
  }
  std::erase_if(out.dropped, [](const auto& entry) { return entry.second == 0; });
  return out;
}

}  // namespace barg::bench
