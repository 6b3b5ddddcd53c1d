// Sequence: one generation (choice k of a request), as the scheduler sees it. Six lengths, always in this
// order:
//
//     processed <= scheduled <= expected       processed <= known <= expected
//
//   processed  tokens whose KV a retired step has computed (in the current epoch)
//   scheduled  tokens whose KV launched steps compute: computed chases known, this is "computed"
//   known      prompt + output tokens on the host
//   expected   known + tokens that launched steps of this epoch will sample
//   prompt     <= known;  limit: no token is sampled at or beyond it (prompt + max_tokens, model length)
//
// expected - scheduled is what is left to compute: 1 = decode, more = prefill, resume or chunk; 0 = all in
// flight. Preemption sets processed = scheduled = 0, expected = known and raises the epoch. Results in flight
// then still bring tokens: one is accepted iff its position equals `known` (recomputation gives the same
// bits), else dropped.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "barg/request.h"
#include "barg/types.h"
#include "base/check.h"
#include "kv/manager.h"
#include "sched/restore.h"

namespace barg::sched {

enum class SeqState : std::uint8_t {
  kWaiting,   // in a queue; holds no blocks
  kPaused,    // in no queue until its reader has caught up; holds no blocks
  kRunning,   // holds blocks
  kFinished,  // last event sent; kept while steps in flight name it
};

struct Sequence {
  SeqId id{};
  std::shared_ptr<const Request> request;
  std::int32_t choice = 0;
  SeqState state = SeqState::kWaiting;
  kv::KvSeq kv{};

  // -- the lengths
  std::int32_t processed = 0;
  std::int32_t scheduled = 0;
  std::int32_t expected = 0;
  std::int32_t limit = 0;
  std::vector<TokenId> outputs;

  // -- steps in flight
  std::uint32_t epoch = 0;
  std::int32_t in_flight = 0;  ///< launched steps that name this sequence
  StepId last_step{};          ///< the youngest of them (0 = none ever)

  std::int32_t drafted = 0;  ///< rows in the plan being built

  // -- order
  std::uint64_t arrival = 0;          ///< order of add()
  std::uint64_t first_scheduled = 0;  ///< order of first admission, kept across preemption; 0 = never
  std::uint64_t served = 0;           ///< tick at which a plan last contained it
  std::int32_t bypassed = 0;          ///< sequences that overtook it while it waited for blocks

  // -- what was delivered
  std::vector<TokenLogprobs> prompt_logprobs;  ///< collected so far (choice 0 with prompt_logprobs)
  bool prompt_logprobs_sent = false;
  std::int32_t emitted = 0;     ///< output tokens in events so far
  std::int32_t high_water = 0;  ///< most tokens ever scheduled; below it is recomputation
  RequestStats stats;

  std::unique_ptr<Restore> restore;  ///< blocks that come back from the tiers (restore.h); usually none

  std::int32_t prompt() const { return static_cast<std::int32_t>(request->prompt.size()); }
  std::int32_t known() const { return prompt() + static_cast<std::int32_t>(outputs.size()); }
  /// Holds blocks and is not served: the first block it needs is being read from a tier.
  bool reloading() const { return restore != nullptr && restore->state == RestoreState::kReloading; }
  /// Rows still to be computed. Nothing follows the last token that may be sampled.
  std::int32_t outstanding() const {
    if (reloading()) return 0;
    return expected > prompt() && expected >= limit ? 0 : expected - scheduled;
  }
  bool decoding() const { return outstanding() == 1; }
  bool scores_prompt() const { return choice == 0 && request->sampling.prompt_logprobs.has_value(); }
  kv::TokenView log() const { return {request->prompt, outputs, request->spans}; }
  TokenId token(std::int32_t position) const { return log()[position]; }

  void check() const {
    CHECK(0 <= processed && processed <= scheduled && scheduled <= expected);
    CHECK(processed <= known() && known() <= expected && expected <= limit);
    CHECK(state == SeqState::kRunning || state == SeqState::kFinished || scheduled == 0);
  }
};

}  // namespace barg::sched
