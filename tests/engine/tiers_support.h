// What the tests of an engine with tiers share: engines on tiny models whose pool holds a prompt or two, prompts with
// the places where they are cut, and answers as bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "engine/engine_impl.h"
#include "engine/metrics.h"
#include "kv/keys.h"
#include "runtime/tier_service.h"
#include "store/tier_spec.h"
#include "support/engine_client.h"
#include "support/tiny_model.h"

namespace barg::test {

inline const SteadyClock& real_clock() {
  static const SteadyClock clock;
  return clock;
}

/// An engine, its tiers and a client. Goes in the right order, and may be stopped and started again.
class TieredEngine {
 public:
  using MakeStack = std::function<std::shared_ptr<store::TierStack>(const store::Domain&)>;
  TieredEngine(const Config& config, MakeStack make) : config(config), make_stack(std::move(make)) { start(); }
  /// Without tiers.
  explicit TieredEngine(const Config& config) : config(config) { start(); }
  TieredEngine(const Config& config, std::vector<std::string> specs) : config(config), specs(std::move(specs)) {
    start();
  }
  void start() {
    auto loaded = load_tiny(config);
    root = loaded.runner->info().key_root;
    if (!specs.empty()) {
      auto opened = store::open_stack(specs, runtime::domain_of(loaded.runner->info(), "test"), real_clock());
      ASSERT_TRUE(opened) << opened.error().message;
      for (const auto& warning : opened->warnings) ADD_FAILURE() << warning;
      stack = std::move(opened->stack);
      throttles = std::move(opened->throttles);
    }
    if (make_stack) stack = make_stack(runtime::domain_of(loaded.runner->info(), "test"));
    auto made = engine::make_engine(config, std::move(loaded.runner), real_clock(), {.tiers = stack});
    ASSERT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    client = std::make_unique<EngineClient>(*engine);
  }
  /// As at the end of a process.
  void stop() {
    client.reset();
    engine.reset();
    stack.reset();
  }

  /// All at once; choice 0 of each.
  std::vector<Answer> run(const std::vector<Request>& requests) {
    std::vector<RequestId> ids;
    for (const Request& r : requests) ids.push_back(client->submit(r));
    std::vector<Answer> out;
    for (const RequestId id : ids) out.push_back(client->wait(id)[0]);
    return out;
  }

  /// Everything that is to be written has been.
  bool flush() { return stack->flush(real_clock().now() + 60); }

  /// Every tier answers (a remote one connects in its own time), and the stack has noticed. False after a minute.
  bool wait_up() {
    const double until = real_clock().now() + 60;
    const auto up = [](const store::StackStats::Named& t) { return t.stats.up; };
    while (real_clock().now() < until) {
      const auto stats = stack->stats();
      const bool noticed = !stack->has(store::TierKind::kRemote) ||
                           stats.kinds[static_cast<std::size_t>(store::TierKind::kRemote)].speed.up;
      if (noticed && std::all_of(stats.tiers.begin(), stats.tiers.end(), up)) return true;
      std::this_thread::yield();
    }
    return false;
  }

  /// The tiers know every full block of this prompt by now, or of those that end at a multiple of `interval`. False after
  /// a minute.
  bool wait_stored(const std::vector<TokenId>& prompt, std::int32_t interval = 0) {
    std::vector<store::Key> keys;
    Digest parent = kv::root_key(root, "");
    const kv::TokenView log{prompt, {}, {}};
    for (std::int32_t b = 0; b < log.size() / config.kv.block_size; ++b) {
      parent = kv::block_key(parent, log, b, config.kv.block_size);
      if (interval > 0 && (b + 1) * config.kv.block_size % interval != 0) continue;
      for (std::uint32_t g = 0; g < stack->domain().part_bytes.size(); ++g) keys.push_back({parent, g});
    }
    const double until = real_clock().now() + 60;
    do {
      std::vector<std::uint8_t> kinds(keys.size());
      bool unknown = false;
      stack->find(keys, kinds, &unknown);
      const auto there = [](std::uint8_t k) { return k < store::kNumTierKinds; };
      if (std::all_of(kinds.begin(), kinds.end(), there)) return true;
      std::this_thread::yield();
    } while (real_clock().now() < until);
    return false;
  }

  Config config;
  std::vector<std::string> specs;
  MakeStack make_stack;
  std::string root;
  std::shared_ptr<store::TierStack> stack;
  std::vector<std::shared_ptr<store::ThrottleControl>> throttles;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineClient> client;
};

/// Every float as its bits: equal iff the answers are.
inline std::string answer_bits(const Answer& a) {
  std::string out = std::to_string(static_cast<int>(a.finish)) + "|";
  for (const auto& t : a.tokens) {
    out += std::to_string(t.id);
    if (!t.logprobs) continue;
    out += "(" + std::to_string(std::bit_cast<std::uint32_t>(t.logprobs->logprob));
    for (const auto& top : t.logprobs->top) {
      out += "," + std::to_string(top.id) + "=" + std::to_string(std::bit_cast<std::uint32_t>(top.logprob));
    }
    out += ") ";
  }
  return out;
}

inline std::vector<TokenId> random_prompt(Rng& rng, std::size_t tokens) {
  std::vector<TokenId> out;
  while (out.size() < tokens) out.push_back(static_cast<TokenId>(3 + rng.below(200)));
  return out;
}

inline Request request_for(std::vector<TokenId> prompt, std::int32_t max_tokens = 3) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 20;  // over all of the vocabulary: a changed logit shows
  r.sampling.seed = 1;
  return r;
}

/// Tokens by place of all answers.
inline std::array<std::int64_t, 4> places_of(const std::vector<Answer>& answers) {
  std::array<std::int64_t, 4> out{};
  for (const Answer& a : answers) {
    for (std::size_t p = 0; p < out.size(); ++p) out[p] += a.stats.cached_by_place[p];
  }
  return out;
}

}  // namespace barg::test
