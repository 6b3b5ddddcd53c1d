// Random outputs of a machine: bytes and tokens that it allows, and after a while the shortest way to an end.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "text/dialect_support.h"
#include "text/grammar/machine.h"

namespace barg::test {

/// One whole output, or nothing if the machine has led to a dead end. `steps`: so many free choices before the end.
inline std::optional<Pieces> random_output(text::grammar::Machine& machine, const MarkerTokenizer& tokenizer,
                                           std::mt19937_64& rng, int steps) {
  using text::grammar::Machine;
  Pieces out;
  std::string bytes;
  const auto flush = [&] {
    append_characters(bytes, out);
    bytes.clear();
  };
  struct Step {
    Machine::StatePtr state;
    int byte = -1;
    TokenId token = kNoToken;
  };
  auto state = machine.start();
  for (int i = 0; state; ++i) {
    const bool accepting = Machine::accepting(*state);
    if (accepting && (i >= steps || rng() % 8 == 0)) break;
    std::vector<Step> next;
    for (int b = 0; b < 256; ++b) {
      if (auto to = machine.next(state, static_cast<std::uint8_t>(b))) next.push_back({to, b, kNoToken});
    }
    for (const TokenId id : machine.tokens(state)) {
      if (auto to = machine.next_token(state, id)) next.push_back({to, -1, id});
    }
    if (next.empty()) {
      if (accepting) break;
      return std::nullopt;
    }
    std::size_t pick = rng() % next.size();
    if (i >= steps) {
      for (std::size_t k = 0; k < next.size(); ++k) {
        if (Machine::min_bytes(*next[k].state) < Machine::min_bytes(*next[pick].state)) pick = k;
      }
    }
    if (next[pick].byte >= 0) {
      bytes += static_cast<char>(next[pick].byte);
    } else {
      flush();
      out.push_back({std::string(tokenizer.token_bytes(next[pick].token)), next[pick].token});
    }
    state = next[pick].state;
  }
  flush();
  return out;
}

}  // namespace barg::test
