// What the tests of exactness share: requests that differ in everything that may not change an answer, and answers as
// strings that are equal iff every bit is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "support/engine_client.h"
#include "support/grammars.h"
#include "support/token_language.h"
#include "text/grammar/token_constraint.h"

namespace barg::test {

/// Every float as its bits: a string that is equal iff the answers are.
inline std::string bits(const TokenLogprobs& p) {
  std::string out = std::to_string(p.id) + ":" + std::to_string(std::bit_cast<std::uint32_t>(p.logprob)) +
                    "#" + std::to_string(p.rank);
  for (const auto& t : p.top) {
    out += "," + std::to_string(t.id) + "=" + std::to_string(std::bit_cast<std::uint32_t>(t.logprob));
  }
  return out;
}

inline std::string bits(const Answer& a, std::size_t tokens = SIZE_MAX) {
  std::string out;
  for (std::size_t i = 0; i < std::min(tokens, a.tokens.size()); ++i) {
    out += std::to_string(a.tokens[i].id) + (a.tokens[i].for_length ? "!" : "") +
           (a.tokens[i].logprobs ? "(" + bits(*a.tokens[i].logprobs) + ")" : "") + " ";
  }
  for (const auto& p : a.prompt_logprobs) out += bits(p) + ";";
  return out;
}

/// A mix of requests: shared prefixes (also cut inside a block and across a split edge), greedy and sampled,
/// with penalties, n > 1, scored prompts.
inline std::vector<Request> make_requests(std::size_t count, std::uint64_t seed, std::int32_t longest,
                                   std::uint64_t ids) {
  Rng rng(seed);
  std::vector<std::vector<TokenId>> prefixes;
  for (const std::size_t length : {static_cast<std::size_t>(longest), std::size_t{64}, std::size_t{33}}) {
    std::vector<TokenId> prefix;
    while (prefix.size() < length) prefix.push_back(static_cast<TokenId>(3 + rng.below(ids)));
    prefixes.push_back(prefix);
  }
  std::vector<Request> out;
  for (std::size_t i = 0; i < count; ++i) {
    Request r;
    const auto& prefix = prefixes[rng.below(prefixes.size())];
    r.prompt.assign(prefix.begin(),
                    prefix.begin() + static_cast<std::ptrdiff_t>(1 + rng.below(prefix.size())));
    if (rng.below(3) == 0) r.prompt = prefix;
    for (std::uint64_t extra = rng.below(20); extra > 0; --extra) {
      r.prompt.push_back(static_cast<TokenId>(3 + rng.below(ids)));
    }
    auto& s = r.sampling;
    s.max_tokens = static_cast<std::int32_t>(1 + rng.below(40));
    s.seed = rng.next();
    s.temperature = rng.below(3) == 0 ? 0.0F : 1.0F;
    if (rng.below(3) == 0) s.top_p = 0.8F;
    if (rng.below(3) == 0) s.top_k = 50;
    if (rng.below(3) == 0) s.repetition_penalty = 1.2F;
    if (rng.below(4) == 0) s.presence_penalty = 0.5F;
    if (rng.below(2) == 0) s.logprobs = static_cast<std::int32_t>(rng.below(4));
    if (rng.below(8) == 0) s.prompt_logprobs = 1;
    if (rng.below(8) == 0) r.n = 3;
    r.priority = static_cast<Priority>(rng.below(3));
    out.push_back(std::move(r));
  }
  return out;
}

/// Ids below 20 and those that end are special, then come the single bytes, then pieces of texts.
inline ListTokenizer list_tokenizer(const EngineInfo& info, Rng& rng) {
  const std::string texts = R"({"name": "abc", "at": [{"x": 12, "y":3,"label":""}]}, "text": "kind": "leaf", positive)";
  std::vector<std::string> tokens(20);
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  while (std::ssize(tokens) < info.vocab_size)
    tokens.push_back(texts.substr(rng.below(texts.size() - 8), 2 + rng.below(6)));
  for (const TokenId id : info.end_ids) tokens[static_cast<std::size_t>(id)].clear();
  return ListTokenizer(std::move(tokens));
}

using IsWhole = std::function<bool(std::vector<TokenId>)>;

/// Every second one must belong to a language, some behind reasoning, most with few tokens to spare. Returns whether the
/// output of each is one; empty: it may be anything.
inline std::vector<IsWhole> constrain(std::vector<Request>& requests, const EngineInfo& info, std::uint64_t seed) {
  Rng rng(seed);
  const auto vocabulary =
      text::grammar::make_vocabulary(list_tokenizer(info, rng), {}, info.vocab_size);
  const auto machines = some_machines();
  std::vector<IsWhole> out(requests.size());
  for (std::size_t i = 0; i < requests.size(); i += 2) {
    auto& s = requests[i].sampling;
    IsWhole whole;
    if (i % 4 == 0) {
      const auto language = TokenLanguage::random(rng, info.vocab_size, 20, 4 + rng.below(12), 1 << rng.below(10),
                                                        info.end_ids);
      s.constraint = language;
      whole = [language](std::vector<TokenId> ids) { return language->whole(std::move(ids)); };
    } else {
      const auto machine = machines[i / 4 % machines.size()].machine;
      const auto made = text::grammar::make_token_constraint(machine, vocabulary, {.end_ids = info.end_ids});
      EXPECT_TRUE(made) << (made ? "" : made.error().message);
      s.constraint = *made;
      whole = [machine, vocabulary, ends = info.end_ids](const std::vector<TokenId>& ids) {
        std::string text;
        for (const TokenId id : ids) {
          if (std::find(ends.begin(), ends.end(), id) == ends.end()) text += vocabulary->bytes(id);
        }
        return !text::grammar::first_failure(*machine, text);
      };
    }
    s.max_tokens = s.constraint->min_tokens() + static_cast<std::int32_t>(4 + rng.below(20));
    if (rng.below(2) == 0) {
      s.reasoning = ReasoningLimit{.budget = 1000, .open = rng.below(2) == 0, .begin = {11}, .close = {12, 13}};
      whole = [whole, open = s.reasoning->open, newlines = i % 4 != 0](std::vector<TokenId> ids) {
        const std::vector<TokenId> close = {12, 13};
        const bool reasoned = open || ids[0] == 11;
        if (reasoned) ids.erase(ids.begin(), std::search(ids.begin(), ids.end(), close.begin(), close.end()) + 2);
        while (reasoned && newlines && !ids.empty() && ids[0] == 20 + '\n') ids.erase(ids.begin());
        return whole(std::move(ids));
      };
    }
    out[i] = whole;
  }
  return out;
}

}  // namespace barg::test
