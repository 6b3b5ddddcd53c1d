// What a server says about its KV tiers in GET /metrics (the Prometheus text format), before a run and after
// it. A server that has no such metric is a server of which it is not known: every figure may be missing. The
// names are those of server/metrics_text.h. What a server sends is not trusted. Pure functions; any thread.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "bench/kv_policy.h"

namespace barg::bench {

using KvFigure = std::optional<double>;

/// Counters since the start of the server (or of the run), but for the last three, which are states.
struct KvTierFigures {
  KvFigure cached_tokens;  ///< prompt tokens that lay here
  KvFigure queries, hits;  ///< parts of blocks looked up here, and found
  KvFigure bytes_read, bytes_written;
  KvFigure evictions, rereads;
  KvFigure writes, useful_writes;
  KvFigure used_bytes, capacity_bytes, duplicate_bytes;
};

struct KvFigures {
  KvFigure prompt_tokens;  ///< whose KV was computed or found
  KvFigure cached_tokens;  ///< of these, found
  std::array<KvTierFigures, kKvPlaces> tiers{};
  KvFigure recomputes, reloads, both;  ///< restores, by what was chosen
  KvFigure predicted_s, actual_s, regret_s;
  KvFigure tokens_restored, deadlines, late;
  KvFigure verified, verify_failed;
  std::map<std::string, double> dropped;  ///< saves that were not done, by reason; only counts above 0
  KvFigure waste_tail, waste_reserved, waste_fenced;  ///< states: shares of allocated bytes
};

/// Lines that are not samples are skipped. Several models of one server are added up.
KvFigures parse_kv_metrics(std::string_view text);

/// Counters: what was added. A counter that has fallen (the server was started anew) is not known.
KvFigures kv_figures_between(const KvFigures& before, const KvFigures& after);

}  // namespace barg::bench
