// Session: one server under test. Exchanges are named (probes.cpp says what each sends), made when the first rule asks
// for one and shared by all, so that a run is short and rules speak of the same bytes.
//
// One thread. References stay valid as long as the session.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conform/rule.h"
#include "conform/stream_view.h"
#include "conform/wire.h"

namespace barg::conform {

struct Options {
  Target target;
  std::string model;              ///< empty: the first of /v1/models
  double timeout_s = 60;          ///< of one answer
  double disconnect_s = 1;        ///< until an abandoned request must be off the device
  double keep_alive_s = 20;       ///< the longest silence of a stream
  std::optional<Target> metrics;  ///< its prefix is the whole path; empty: /metrics of the target
};

/// What the server's gauges said about a long generation whose client went away.
struct Abandonment {
  bool observed = false;     ///< the gauges showed it running
  std::string why;           ///< one sentence if not
  double idle_after_s = -1;  ///< from the close until no request ran; -1: not in the time that was waited
  double waited_s = 0;
  double kv_before = -1, kv_during = -1, kv_after = -1;  ///< share of the KV pool; -1: no such gauge
};

class Session {
 public:
  explicit Session(Options options) : options_(std::move(options)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Options& options() const { return options_; }
  const std::string& model() const { return options_.model; }
  void set_model(std::string name) { options_.model = std::move(name); }

  /// REQUIRES a name of the table of probes (checked).
  const Exchange& exchange(std::string_view probe);
  const StreamView& stream(std::string_view probe);
  /// The answer as JSON; null if it is none.
  const Json& json(std::string_view probe);
  /// Requests one after the other on one connection, as far as it lasts; made once under this name.
  const std::vector<Exchange>& sequence(std::string_view name, std::initializer_list<std::string_view> probes);
  /// The request of a probe, to be sent otherwise.
  WireRequest request(std::string_view probe);

  /// How many tokens the model takes, as far as the server says; 0 if it does not.
  std::int64_t context_length();
  /// A part of the answer to the plain question that a stop string can be, with the text before it.
  struct StopString {
    std::string stop, before;
  };
  /// Nothing when there is no such answer, or it is too short.
  std::optional<StopString> stop_string();
  /// Two equal greedy requests were answered with the same text.
  bool deterministic();

  /// Filled by the rules of disconnects, which share what they saw.
  std::optional<Abandonment> streamed_abandonment;

  /// Exchanges that were made, in no order.
  const std::map<std::string, Exchange, std::less<>>& exchanges() const { return exchanges_; }

 private:
  Options options_;
  std::map<std::string, Exchange, std::less<>> exchanges_;
  std::map<std::string, StreamView, std::less<>> streams_;
  std::map<std::string, Json, std::less<>> bodies_;
  std::map<std::string, std::vector<Exchange>, std::less<>> sequences_;
};

/// Why a rule cannot look at these probes: nothing if all were answered with 2xx. A missing endpoint and a clear
/// refusal make the rule not applicable; no answer, or a 5xx, breaks it.
std::optional<Verdict> blocked(Session& session, std::initializer_list<std::string_view> probes);
/// The same for streams, which must also hold at least one JSON event.
std::optional<Verdict> blocked_stream(Session& session, std::initializer_list<std::string_view> probes);

/// The sentence of an error body, "" if there is none.
std::string error_sentence(const Exchange& exchange);

}  // namespace barg::conform
