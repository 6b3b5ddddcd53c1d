// Patterns are refused in one sentence, or become automata of valid UTF-8 that accept what they say is
// shortest. The first byte chooses the options.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/grammar/regex.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace barg::text::grammar;
  if (size == 0) return 0;
  const RegexOptions options{.search = (data[0] & 1) != 0, .limits = {.states = 500}};
  const auto dfa = regex_dfa({reinterpret_cast<const char*>(data) + 1, size - 1}, options);
  if (!dfa) {
    CHECK(!dfa.error().message.empty());
    return 0;
  }
  if (dfa->empty()) return 0;
  std::string word;
  for (Dfa::State s = dfa->start(); !dfa->accepting(s);) {
    int byte = 0;
    const auto nearer = [&](int b) {
      const Dfa::State t = dfa->next(s, static_cast<std::uint8_t>(b));
      return t != Dfa::kDead && dfa->min_bytes(t) + 1 == dfa->min_bytes(s);
    };
    while (!nearer(byte)) CHECK(++byte < 256);
    word.push_back(static_cast<char>(byte));
    s = dfa->next(s, static_cast<std::uint8_t>(byte));
  }
  CHECK(word.size() == dfa->min_bytes(dfa->start()));
  CHECK(dfa->matches(word));
  CHECK(barg::is_valid_utf8(word));
  return 0;
}
