// LoadGauge: how many requests a server computes, as it says itself: in Prometheus' text (the names of vLLM, which Barg
// uses too, SGLang and llama.cpp), or in llama-server's /slots. One thread; each reading is a request.
#pragma once

#include <optional>
#include <string_view>

#include "conform/session.h"

namespace barg::conform {

struct Load {
  double requests = 0;             ///< running and waiting
  std::optional<double> kv_usage;  ///< share of the KV pool that they hold
};

/// Nothing if none of the names is in it.
std::optional<Load> read_prometheus(std::string_view text);

class LoadGauge {
 public:
  /// Finds out which way works; nothing if none does.
  static std::optional<LoadGauge> find(Session& session);
  std::optional<Load> read() const;

 private:
  explicit LoadGauge(Session& session) : session_(&session) {}
  Session* session_;
  bool slots_ = false;
};

}  // namespace barg::conform
