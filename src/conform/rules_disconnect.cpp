// A client that went away must cost nothing. What a server computes is seen through its gauges; where it has none, a
// latency probe tells, if load shows in latency at all.
#include <algorithm>

#include "conform/load_gauge.h"
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr double kPoll = 0.005;
constexpr double kLoadWait = 10;     // for a request to appear, or for what ran before to end
constexpr double kStreamsStart = 0.2;
constexpr double kLeastCost = 0.01;  // less cannot be told from noise
constexpr std::size_t kStreams = 6;  // of the latency probe

/// Polls until `good` of the load, at most `most` seconds; the seconds it took, -1 if it did not come.
template <class Good>
double wait_for(const LoadGauge& gauge, double most, Good good) {
  const double start = now_s();
  while (true) {
    const std::optional<Load> load = gauge.read();
    if (load && good(*load)) return now_s() - start;
    if (now_s() - start > most) return -1;
    pause_s(kPoll);
  }
}

bool idle(const Load& load) { return load.requests == 0; }

// After the connection of a long generation was closed.
void watch_end(const LoadGauge& gauge, Session& s, Abandonment& out) {
  out.waited_s = s.options().disconnect_s + 2;  // longer than allowed, to say by how much
  out.idle_after_s = wait_for(gauge, out.waited_s, idle);
  if (const auto after = gauge.read(); after && after->kv_usage) out.kv_after = *after->kv_usage;
}

bool quiet_before(const LoadGauge& gauge, Abandonment& out) {
  if (wait_for(gauge, kLoadWait, idle) < 0) {
    out.why = "the server is busy with other requests";
    return false;
  }
  if (const auto before = gauge.read(); before && before->kv_usage) out.kv_before = *before->kv_usage;
  return true;
}

Abandonment abandon_stream(const LoadGauge& gauge, Session& s) {
  Abandonment out;
  if (!quiet_before(gauge, out)) return out;
  std::size_t reads = 0;
  const Exchange e = exchange_once(s.options().target, s.request("chat.endless.stream"), s.options().timeout_s,
                                   [&](const Exchange& so_far) {
                                     if (so_far.body.find("\n\n") == std::string::npos || ++reads < 4) return false;
                                     if (const auto load = gauge.read()) {
                                       out.observed = load->requests > 0;
                                       out.kv_during = load->kv_usage.value_or(-1);
                                     }
                                     return out.observed || reads > 40;
                                   });
  if (!out.observed) {
    out.why = e.status == 200 ? "the gauges do not show a running stream"
                              : "the long request is refused: " + error_sentence(e);
    return out;
  }
  watch_end(gauge, s, out);
  return out;
}

Abandonment abandon_whole(const LoadGauge& gauge, Session& s) {
  Abandonment out;
  if (!quiet_before(gauge, out)) return out;
  Result<Connection> connection = Connection::open(s.options().target, s.options().timeout_s);
  if (!connection || !connection->send(s.request("chat.endless"), s.options().timeout_s)) {
    out.why = "no connection";
    return out;
  }
  out.observed =
      wait_for(gauge, kLoadWait, [](const Load& load) { return load.requests > 0; }) >= 0 && !connection->peer_closed();
  connection->close();
  if (!out.observed) {
    out.why = "the gauges do not show a running request";
    return out;
  }
  watch_end(gauge, s, out);
  return out;
}

Verdict verdict_of(const Abandonment& a, Session& s) {
  if (!a.observed) return not_applicable(a.why);
  const auto ms = [](double seconds) { return std::to_string(static_cast<long>(seconds * 1000)) + " ms"; };
  if (a.idle_after_s < 0) return failed("the request still runs " + ms(a.waited_s) + " after its client went away");
  if (a.idle_after_s > s.options().disconnect_s)
    return failed("the request ran on for " + ms(a.idle_after_s) + ", allowed are " + ms(s.options().disconnect_s));
  return pass("idle after " + ms(a.idle_after_s));
}

// ---- without gauges

// The best of five: what else the machine does only adds.
double short_latency(Session& s) {
  double best = s.options().timeout_s;
  for (int i = 0; i < 5; ++i)
    best = std::min(best, exchange_once(s.options().target, s.request("chat.length"), s.options().timeout_s).seconds);
  return best;
}

Verdict latency_probe(Session& s) {
  const double before = short_latency(s);
  std::vector<Connection> streams;
  for (std::size_t i = 0; i < kStreams; ++i) {
    Result<Connection> connection = Connection::open(s.options().target, s.options().timeout_s);
    if (connection && connection->send(s.request("chat.endless.stream"), s.options().timeout_s))
      streams.push_back(std::move(*connection));
  }
  pause_s(kStreamsStart);
  const double during = short_latency(s);
  streams.clear();
  pause_s(s.options().disconnect_s);
  const double after = short_latency(s);
  const auto ms = [](double seconds) { return std::to_string(static_cast<long>(seconds * 1000)) + " ms"; };
  const std::string seen = ms(before) + " alone, " + ms(during) + " beside " + std::to_string(kStreams) + " streams, " +
                           ms(after) + " after them";
  if (during < 1.5 * before || during < before + kLeastCost) return not_applicable("no gauges, and load does not show in latency: " + seen);
  return after < (before + during) / 2 ? pass(seen)
                                       : failed("streams whose clients went away still cost time: " + seen);
}

// ---- rules

Verdict stream(Session& s) {
  if (auto verdict = blocked(s, {"chat.stream", "chat.length"})) return *verdict;
  const std::optional<LoadGauge> gauge = LoadGauge::find(s);
  if (!gauge) return latency_probe(s);
  if (!s.streamed_abandonment) s.streamed_abandonment = abandon_stream(*gauge, s);
  return verdict_of(*s.streamed_abandonment, s);
}

Verdict whole(Session& s) {
  if (auto verdict = blocked(s, {"chat"})) return *verdict;
  const std::optional<LoadGauge> gauge = LoadGauge::find(s);
  if (!gauge) return not_applicable("the server has no gauges of running requests");
  return verdict_of(abandon_whole(*gauge, s), s);
}

Verdict memory(Session& s) {
  if (auto verdict = blocked(s, {"chat.stream"})) return *verdict;
  const std::optional<LoadGauge> gauge = LoadGauge::find(s);
  if (!gauge) return not_applicable("the server has no gauges");
  if (!s.streamed_abandonment) s.streamed_abandonment = abandon_stream(*gauge, s);
  const Abandonment& a = *s.streamed_abandonment;
  if (!a.observed) return not_applicable(a.why);
  if (a.kv_before < 0 || a.kv_during <= a.kv_before)
    return not_applicable("no gauge shows the memory that a request holds");
  const std::string seen = std::to_string(a.kv_before) + " before, " + std::to_string(a.kv_during) + " during, " +
                           std::to_string(a.kv_after) + " after";
  return a.kv_after <= a.kv_before + 1e-6 ? pass(seen) : failed("KV memory is not given back: " + seen);
}

Verdict serves_on(Session& s) {
  if (auto verdict = blocked(s, {"chat.stream", "chat.length"})) return *verdict;
  for (int i = 0; i < 4; ++i) {
    Result<Connection> connection = Connection::open(s.options().target, s.options().timeout_s);
    if (connection) connection->send(s.request("chat.endless.stream"), s.options().timeout_s);
    if (connection && i % 2 == 1) pause_s(kPoll);
  }
  const Exchange e = exchange_once(s.options().target, s.request("chat.length"), s.options().timeout_s);
  return e.complete() && e.status == 200
             ? pass()
             : failed("after four abandoned requests: " + std::to_string(e.status) + " " + e.problem, e.body);
}

constexpr Rule kRules[] = {
    {"disconnect.stream", "A stream whose client goes away is off the device within the limit (--disconnect-within).",
     "vLLM 54947, SGLang 3520: generation goes on for nobody.", stream},
    {"disconnect.whole", "So is a request without a stream.", "vLLM 9428: only streams were watched.", whole},
    {"disconnect.memory", "Its KV memory is given back.", "mini-sglang 15: leaks until a restart.", memory},
    {"disconnect.serves_on", "After several abandoned requests others are answered.", "A dead slot each is an outage.",
     serves_on},
};

}  // namespace

const RuleGroup kDisconnectRules{"disconnect", "Disconnects", kRules};

}  // namespace barg::conform
