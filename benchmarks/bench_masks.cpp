// bench_masks TOKENIZER SCHEMAS...: what masks of constrained decoding cost.
//
//   TOKENIZER  a tokenizer.json
//   SCHEMAS    files as in tests/data/schemas: lists of {name, draft, schema, valid}
//
// For each schema: compile time (schema, machine, constraint), then every mask along
//
//   texts      its valid instances, as the tokenizer writes them, up to where a text leaves the language (another order
//              of properties)
//   random     two outputs of at most 300 tokens, drawn from all that are allowed, but every second time a quote or
//              bracket that closes something, where one is allowed
//
// in the order in which one sequence needs them, the caches empty at first. Times are of the thread's processor.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "barg/tokenizer.h"
#include "base/env.h"
#include "base/json.h"
#include "text/grammar/schema.h"
#include "text/grammar/token_constraint.h"

namespace {

using namespace barg;
namespace grammar = text::grammar;

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

TokenId pick(const TokenSet& set, Rng& rng) {
  auto skip = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(set.count)));
  for (std::size_t w = 0;; ++w) {
    std::uint64_t bits = set.words[w];
    if (skip >= std::popcount(bits)) {
      skip -= std::popcount(bits);
      continue;
    }
    for (; skip > 0; --skip) bits &= bits - 1;
    return static_cast<TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }
}

struct Times {
  std::vector<double> us;

  void print(const char* name) {
    if (us.empty()) return;
    std::sort(us.begin(), us.end());
    double sum = 0;
    for (const double t : us) sum += t;
    const auto at = [&](double q) { return us[static_cast<std::size_t>(q * static_cast<double>(us.size() - 1))]; };
    std::printf("%-10s %8zu  mean %9.1f  p50 %9.1f  p99 %9.1f  p99.9 %9.1f  max %9.1f us\n", name, us.size(),
                sum / static_cast<double>(us.size()), at(0.5), at(0.99), at(0.999), us.back());
  }
};

void walk_random(const Constraint& constraint, const std::vector<TokenId>& closers, TokenId end, Rng& rng, Times& times) {
  constexpr std::int32_t kMost = 300;
  const auto state = constraint.start(false);
  for (std::int32_t i = 0; i < kMost; ++i) {
    const double begin = now_us();
    const TokenMask mask = state->mask(1 << 20);
    times.us.push_back(now_us() - begin);
    TokenId id = pick(mask.fits, rng);
    const auto closer = std::find_if(closers.begin(), closers.end(), [&](TokenId c) { return mask.fits.has(c); });
    if (closer != closers.end() && rng.below(2) == 0) id = *closer;
    if (id == end) return;
    state->push(id);
  }
}

/// False: the language has no such text.
bool walk_text(const Constraint& constraint, const std::vector<TokenId>& ids, Times& times) {
  const auto state = constraint.start(false);
  for (const TokenId id : ids) {
    const double begin = now_us();
    const TokenMask mask = state->mask(1 << 20);
    times.us.push_back(now_us() - begin);
    if (!mask.fits.has(id)) return false;
    state->push(id);
  }
  return true;
}

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Bench {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenId end = 0;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  std::vector<TokenId> closers;  // in the order in which they are preferred
  Rng rng{1};
  Times compile, texts, random;
  int refused = 0, left = 0;

  void run(const Json& row) {
    grammar::SchemaOptions options;
    if (const Json* draft = row.find("draft")) options.draft = grammar::parse_draft(draft->as_string()).value_or(options.draft);
    const double begin = now_us();
    auto compiled = grammar::compile_schema(*row.find("schema"), options);
    auto machine = compiled ? grammar::Machine::compile(std::move(compiled->grammar)) : std::unexpected(compiled.error());
    auto constraint = machine ? grammar::make_token_constraint(*machine, vocabulary, {.end_ids = {end}})
                              : std::unexpected(machine.error());
    if (!constraint) {
      ++refused;
      return;
    }
    compile.us.push_back(now_us() - begin);
    for (const Json& text : row.find("valid")->as_array()) {
      left += walk_text(**constraint, tokenizer->encode(dump_json(text), {.add_special_tokens = false}), texts) ? 0 : 1;
    }
    for (int i = 0; i < 2; ++i) walk_random(**constraint, closers, end, rng, random);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_masks TOKENIZER SCHEMAS...\n");
    return 1;
  }
  VocabData data;
  data.tokenizer_json = read(argv[1]);
  const auto tokenizer = make_tokenizer(data);
  if (!tokenizer) {
    std::fprintf(stderr, "%s: %s\n", argv[1], tokenizer.error().message.c_str());
    return 1;
  }
  Bench bench;
  bench.tokenizer = *tokenizer;
  bench.end = (*tokenizer)->size();
  const double begin = now_us();
  bench.vocabulary = grammar::make_vocabulary(**tokenizer, {}, bench.end + 1);
  for (const char c : {'}', ']', '"'}) bench.closers.push_back(bench.vocabulary->single(static_cast<std::uint8_t>(c)));
  std::printf("vocabulary of %d ids: %.1f ms\n", bench.end, (now_us() - begin) / 1e3);
  for (int i = 2; i < argc; ++i) {
    const auto rows = parse_json(read(argv[i]), {.max_members = 0});
    if (!rows) {
      std::fprintf(stderr, "%s: %s\n", argv[i], rows.error().message.c_str());
      return 1;
    }
    for (const Json& row : rows->as_array()) bench.run(row);
  }
  std::printf("%zu schemas, %d refused; %d texts left their language\n", bench.compile.us.size(), bench.refused, bench.left);
  bench.compile.print("compile");
  bench.texts.print("texts");
  bench.random.print("random");
}
