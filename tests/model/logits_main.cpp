// Logits and greedy tokens of a model, for tests/python/generated_models.py. Never installed.
//
//   barg_model_logits MODEL PROMPTS LOGITS [CONTEXT]
//
// PROMPTS: a line "COUNT id id ..." for each prompt. LOGITS gets the rows of float32 of every position, prompt after prompt. To stdout: the width of a
// row, then for each prompt a line of COUNT greedy tokens. A prompt cut into pieces must give the bits of the whole one. CONTEXT: the length
// that ropes which are fixed for one serve; without it, the model's own.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "model/golden_kit.h"

namespace barg::model::test {
namespace {

int run(const char* model, const char* prompts, const char* out, std::int32_t context) {
  Harness h(open_or_throw(model), {.context = context, .cpu = {.threads = 2}});
  std::ifstream in(prompts);
  std::ofstream logits(out, std::ios::binary);
  std::printf("%zu\n", h.vocab());
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::size_t count = 0;
    words >> count;
    const std::vector<std::int32_t> ids{std::istream_iterator<std::int32_t>(words), {}};
    if (ids.empty()) throw std::runtime_error("a prompt without tokens");
    const auto n = static_cast<std::int32_t>(ids.size());
    const auto hidden = h.prefill(h.new_sequence(n), ids, {ids.size()});
    const auto rows = h.logits(hidden);
    logits.write(reinterpret_cast<const char*>(rows.data()),
                 static_cast<std::streamsize>(rows.size() * sizeof(float)));
    h.free_all();
    const auto pieces = h.prefill(h.new_sequence(n), ids, {7, 1, 33, 64, 2, 128, 31});
    if (!same_bits(pieces, hidden)) throw std::runtime_error("a prompt in pieces gives other bits");
    h.free_all();
    if (count > 0) {
      for (const std::int32_t id : h.greedy(ids, count, {ids.size()})) std::printf("%d ", id);
      h.free_all();
    }
    std::printf("\n");
  }
  return logits.flush() ? 0 : 1;
}

}  // namespace
}  // namespace barg::model::test

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5)
    return std::fputs("usage: barg_model_logits MODEL PROMPTS LOGITS [CONTEXT]\n", stderr), 2;
  try {
    return barg::model::test::run(argv[1], argv[2], argv[3], argc == 5 ? std::atoi(argv[4]) : 0);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
