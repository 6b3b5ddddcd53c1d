// FakeDevice: executes StepPlans without a model, and notices every wrong reuse of KV memory.
//
//   token after a prefix = H(seed, choice, prefix)      KV content of position i = H(salt, prefix up to i)
//
// A shadow memory keeps the content of every slot of every block of every group. A step computes the content
// of its rows from what it *reads* through its block tables, and compares everything it reads, every token it
// is fed and every slot it writes with the truth of the sequence computed alone. A stale, foreign, evicted,
// expired or half-written block shows on the step that reads it. Slots are poisoned when their block is
// freed.
//
// Depends on sched/plan.h only. Errors are collected, not thrown.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "barg/request.h"
#include "sched/plan.h"

namespace barg::test {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// A sequence computed alone: the oracle.
class Truth {
 public:
  Truth(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab)
      : request_(std::move(request)), choice_(choice), vocab_(vocab) {}

  const Request& request() const { return *request_; }
  /// Content of position i.
  std::uint64_t content(std::int32_t i) {
    while (static_cast<std::int32_t>(contents_.size()) <= i) {
      const auto n = static_cast<std::int32_t>(contents_.size());
      contents_.push_back(mix(n == 0 ? start() : contents_.back(), static_cast<std::uint64_t>(token(n))));
    }
    return contents_[static_cast<std::size_t>(i)];
  }
  TokenId token(std::int32_t i) {
    const auto prompt = static_cast<std::int32_t>(request_->prompt.size());
    if (i < prompt) return request_->prompt[static_cast<std::size_t>(i)];
    const std::uint64_t draw = request_->sampling.seed.value_or(0) + static_cast<std::uint64_t>(choice_);
    return static_cast<TokenId>(mix(draw, content(i - 1)) % static_cast<std::uint64_t>(vocab_));
  }
  std::uint64_t start() const {
    std::uint64_t h = 1;
    for (char c : request_->cache_salt) h = mix(h, static_cast<unsigned char>(c));
    return h;
  }

  /// What must be delivered: output tokens and the reason of the end.
  std::vector<TokenId> outputs(std::int32_t max_model_len, const std::vector<TokenId>& end_ids,
                               FinishReason& why) {
    const SamplingParams& p = request_->sampling;
    const auto prompt = static_cast<std::int32_t>(request_->prompt.size());
    std::vector<TokenId> out;
    why = FinishReason::kLength;
    while (static_cast<std::int32_t>(out.size()) < p.max_tokens &&
           prompt + static_cast<std::int32_t>(out.size()) < max_model_len) {
      const auto index = static_cast<std::int32_t>(out.size());
      const TokenId t = token(prompt + index);
      out.push_back(t);
      const bool end = std::find(end_ids.begin(), end_ids.end(), t) != end_ids.end() && !p.ignore_eos;
      const bool stop =
          std::find(p.stop_token_ids.begin(), p.stop_token_ids.end(), t) != p.stop_token_ids.end();
      if ((end || stop) && index >= p.min_tokens) {
        why = FinishReason::kStop;
        break;
      }
    }
    return out;
  }

 private:
  std::shared_ptr<const Request> request_;
  std::int32_t choice_, vocab_;
  std::vector<std::uint64_t> contents_;
};

struct FakeGroup {
  std::int32_t window = 0;  ///< 0 = full attention
  std::int64_t num_blocks = 0;
  std::int32_t interval = 0;  ///< above 0: recurrent, a block of states spans so many logical blocks

  std::int32_t span(std::int32_t block_tokens) const { return std::max(interval, 1) * block_tokens; }
};

/// Does the plan name a block, in a table or a copy, for which `is(group, block)`?
template <class Is>
bool names_any(const sched::StepPlan& plan, const Is& is) {
  for (const auto& c : plan.copies) {
    if (is(c.group, c.src) || is(c.group, c.dst)) return true;
  }
  for (const auto& i : plan.items) {
    for (std::int32_t g = 0; g < plan.num_groups; ++g) {
      const auto t = plan.tables[static_cast<std::size_t>(i.table_offset + g)];
      for (std::int32_t k = 0; k < t.length; ++k) {
        if (is(g, plan.block_ids[static_cast<std::size_t>(t.offset + k)])) return true;
      }
    }
  }
  return false;
}

class FakeDevice {
 public:
  FakeDevice(std::vector<FakeGroup> groups, std::int32_t block_tokens, std::int32_t vocab)
      : groups_(std::move(groups)), block_tokens_(block_tokens), vocab_(vocab) {
    for (const FakeGroup& g : groups_) {
      memory_.emplace_back(static_cast<std::size_t>(g.num_blocks * g.span(block_tokens)), kPoison);
      fill_.emplace_back(static_cast<std::size_t>(g.num_blocks), 0);
    }
  }

  void add(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) {
    sequences_.emplace(seq, State{Truth(std::move(request), choice, vocab_), kNoToken});
  }
  void remove(SeqId seq) { sequences_.erase(seq); }
  bool knows(SeqId seq) const { return sequences_.contains(seq); }

  /// A freed block holds nothing any more.
  void poison(std::int32_t group, BlockId b) {
    for (std::int32_t j = 0; j < span(group); ++j) slot(group, b, j) = kPoison;
    fill_[at(group)][at(b)] = 0;
  }

  // -- for tiers; of a block of states, what its last logical block left
  std::vector<std::uint64_t> content(std::int32_t group, BlockId b) const {
    const auto end = memory_[at(group)].begin() + (b + 1) * span(group);
    return {end - block_tokens_, end};
  }
  /// The bytes of a whole block; empty: rubbish that nobody may read.
  void fill(std::int32_t group, BlockId b, const std::vector<std::uint64_t>& content) {
    const auto n = static_cast<std::int32_t>(content.size());
    const std::int32_t before = span(group) - block_tokens_;
    for (std::int32_t j = 0; j < before; ++j) slot(group, b, j) = kRubbish;
    for (std::int32_t j = 0; j < block_tokens_; ++j)
      slot(group, b, before + j) = j < n ? content[at(j)] : kRubbish;
    fill_[at(group)][at(b)] = n == 0 ? 0 : before + n;
  }

  sched::StepResult execute(const sched::StepPlan& plan) {
    sched::StepResult result{.id = plan.id, .items = {}, .seconds = 0, .fatal = {}};
    if (static_cast<std::uint64_t>(plan.id) != ++steps_) error("steps out of order");
    for (const sched::BlockCopy& c : plan.copies) copy(c);
    // All items read before any writes: what one item computes, another may read in the next step, not in
    // this one.
    for (const sched::PlanItem& item : plan.items) {
      for (std::int32_t g = 0; g < plan.num_groups; ++g) check_reads(plan, item, g);
    }
    for (const sched::PlanItem& item : plan.items) result.items.push_back(run(plan, item));
    computed_ += plan.rows();
    return result;
  }

  const std::vector<std::string>& errors() const { return errors_; }
  std::int64_t computed() const { return computed_; }

 private:
  static constexpr std::uint64_t kPoison = 0, kRubbish = 1;
  struct State {
    Truth truth;
    TokenId last_sampled;
  };

  template <class T>
  static std::size_t at(T i) {
    return static_cast<std::size_t>(i);
  }
  std::uint64_t& slot(std::int32_t g, BlockId b, std::int32_t j) {
    return memory_[at(g)][at(b * span(g) + j)];
  }
  std::int32_t span(std::int32_t g) const { return groups_[at(g)].span(block_tokens_); }
  void error(std::string what) {
    if (errors_.size() < 20) errors_.push_back("step " + std::to_string(steps_) + ": " + std::move(what));
  }

  void copy(const sched::BlockCopy& c) {
    poison(c.group, c.dst);
    for (std::int32_t j = 0; j < c.tokens; ++j) slot(c.group, c.dst, j) = slot(c.group, c.src, j);
    fill_[at(c.group)][at(c.dst)] = c.tokens;
  }

  sched::ItemResult run(const sched::StepPlan& plan, const sched::PlanItem& item) {
    sched::ItemResult out{.seq = item.seq,
                          .epoch = item.epoch,
                          .position = item.start + item.count,
                          .tokens = {},
                          .prompt_logprobs = {}};
    const auto it = sequences_.find(item.seq);
    if (it == sequences_.end()) {
      error("unknown sequence");
      return out;
    }
    State& s = it->second;
    const std::int32_t end = item.start + item.count;
    for (std::int32_t g = 0; g < plan.num_groups; ++g) write(plan, item, g, s);
    for (std::int32_t p = item.start; p < end; ++p) {
      TokenId t = plan.tokens[at(item.token_offset + p - item.start)];
      if (t == sched::kPendingToken) t = s.last_sampled;
      if (t != s.truth.token(p)) error("wrong input token at position " + std::to_string(p));
    }
    score_prompt(item, s, out);
    if (item.want == sched::Want::kPooled) out.pooled = {static_cast<float>(s.truth.content(end - 1) % 1000)};
    if (!item.sample) return out;
    const std::int32_t index = end - static_cast<std::int32_t>(s.truth.request().prompt.size());
    if (item.output_index != index) error("wrong output index");
    s.last_sampled = s.truth.token(end);
    OutputToken token{.id = s.last_sampled, .logprobs = {}};
    out.tokens.push_back(token);
    return out;
  }

  void score_prompt(const sched::PlanItem& item, State& s, sched::ItemResult& out) {
    const Request& r = s.truth.request();
    if (!r.sampling.prompt_logprobs || item.want != sched::Want::kLogits) return;
    for (std::int32_t p = item.start + item.logits_begin; p < item.start + item.count; ++p) {
      if (p + 1 >= static_cast<std::int32_t>(r.prompt.size())) break;
      out.prompt_logprobs.push_back(
          {.id = r.prompt[at(p + 1)], .logprob = logprob(s.truth, p), .rank = 1, .top = {}});
    }
  }

 public:
  static float logprob(Truth& truth, std::int32_t position) {
    return -static_cast<float>(truth.content(position) % 1000) / 100;
  }

 private:
  BlockId block(const sched::StepPlan& plan, const sched::PlanItem& item, std::int32_t g,
                std::int32_t p) const {
    return plan.block_ids[at(plan.tables[at(item.table_offset + g)].offset + p / span(g))];
  }

  void check_reads(const sched::StepPlan& plan, const sched::PlanItem& item, std::int32_t g) {
    const auto it = sequences_.find(item.seq);
    if (it == sequences_.end()) return;
    const std::int32_t end = item.start + item.count;
    if (plan.tables[at(item.table_offset + g)].length != (end + span(g) - 1) / span(g)) {
      return error("table of wrong length");
    }
    const bool recurrent = groups_[at(g)].interval > 0;
    const std::int32_t window = recurrent ? 2 : groups_[at(g)].window;
    for (std::int32_t p = window == 0 ? 0 : std::max(0, item.start - window + 1); p < item.start; ++p) {
      const BlockId b = block(plan, item, g, p);
      if (b == kNoBlock) return error("reads a block that left the window");
      if (recurrent && fill_[at(g)][at(b)] != p % span(g) + 1)
        return error("the state is not that of position " + std::to_string(p));
      if (slot(g, b, p % span(g)) != it->second.truth.content(p)) {
        return error("group " + std::to_string(g) + " reads wrong content at position " + std::to_string(p));
      }
    }
  }

  void write(const sched::StepPlan& plan, const sched::PlanItem& item, std::int32_t g, State& s) {
    for (std::int32_t p = item.start; p < item.start + item.count; ++p) {
      const std::int32_t j = p % span(g);
      const BlockId b = block(plan, item, g, p);
      if (b == kNoBlock) return error("writes to no block");
      if (j == 0) poison(g, b);  // a new life: whatever it held is gone
      std::int32_t& fill = fill_[at(g)][at(b)];
      if (fill != j)
        error("writes slot " + std::to_string(j) + " of a block filled to " + std::to_string(fill));
      fill = j + 1;
      slot(g, b, j) = s.truth.content(p);
    }
  }

  std::vector<FakeGroup> groups_;
  std::int32_t block_tokens_, vocab_;
  std::vector<std::vector<std::uint64_t>> memory_;  // [group][block * B + slot]
  std::vector<std::vector<std::int32_t>> fill_;     // [group][block]: slots written in this life
  std::map<SeqId, State> sequences_;
  std::uint64_t steps_ = 0;
  std::int64_t computed_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace barg::test
