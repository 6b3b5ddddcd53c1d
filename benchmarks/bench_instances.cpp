// bench_instances TOKENIZER END_ID: constrained decoding along given outputs, for benchmarks/structured_output.py.
//
// Schemas on stdin, answers on stdout, one JSON object a line:
//
//   {"schema": "...", "draft": "7", "outputs": [[ids], ...]}
//   {"compile_us": 210.5, "outputs": [{"taken": 12, "whole": true, "mask_us": [...], "push_us": [...]}, ...]}
//   {"refused": "..."}
//
// `taken` tokens of an output were allowed, each by the mask before it, of which mask_us has the times and one more of the
// mask behind the last; `whole`: all were, and then the end token was. Compiling is parsing the schema, its machine and its
// constraint; the vocabulary's tries are made once, as for a model. Outputs of a schema share a constraint.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "barg/tokenizer.h"
#include "base/json.h"
#include "text/grammar/schema.h"
#include "text/grammar/token_constraint.h"

namespace {

using namespace barg;
namespace grammar = text::grammar;

constexpr std::int32_t kBudget = 1 << 20;  // the length bends nothing

/// Processor time of this thread: what else the machine does prolongs nothing.
double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

Result<std::shared_ptr<const Constraint>> compile(const Json& request, std::shared_ptr<const grammar::Vocabulary> vocabulary,
                                                  TokenId end) {
  const auto draft = grammar::parse_draft(request.find("draft")->as_string());
  if (!draft) return std::unexpected(draft.error());
  const auto schema = parse_json(request.find("schema")->as_string());
  if (!schema) return std::unexpected(schema.error());
  auto compiled = grammar::compile_schema(*schema, {.draft = *draft});
  if (!compiled) return std::unexpected(compiled.error());
  auto machine = grammar::Machine::compile(std::move(compiled->grammar));
  if (!machine) return std::unexpected(machine.error());
  return grammar::make_token_constraint(*machine, std::move(vocabulary), {.end_ids = {end}});
}

Json follow(const Constraint& constraint, const Json& output, TokenId end) {
  const auto state = constraint.start(false);
  Json mask_us = Json::array(), push_us = Json::array();
  const auto mask = [&] {
    const double begin = now_us();
    const TokenSet fits = state->mask(kBudget).fits;
    mask_us.push(now_us() - begin);
    return fits;
  };
  std::int64_t taken = 0;
  bool whole = true;
  for (const Json& token : output.as_array()) {
    const auto id = static_cast<TokenId>(token.as_int());
    if (!mask().has(id)) {
      whole = false;
      break;
    }
    const double begin = now_us();
    state->push(id);
    push_us.push(now_us() - begin);
    ++taken;
  }
  whole = whole && mask().has(end);
  return Json::object({{"taken", taken}, {"whole", whole}, {"mask_us", mask_us}, {"push_us", push_us}});
}

Json answer(const Json& request, const std::shared_ptr<const grammar::Vocabulary>& vocabulary, TokenId end) {
  const double begin = now_us();
  const auto constraint = compile(request, vocabulary, end);
  const double took = now_us() - begin;
  if (!constraint) return Json::object({{"refused", constraint.error().message}});
  Json outputs = Json::array();
  for (const Json& output : request.find("outputs")->as_array()) outputs.push(follow(**constraint, output, end));
  return Json::object({{"compile_us", took}, {"outputs", outputs}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_instances TOKENIZER END_ID\n");
    return 1;
  }
  std::ifstream file(argv[1], std::ios::binary);
  VocabData data;
  data.tokenizer_json.assign(std::istreambuf_iterator<char>(file), {});
  const auto tokenizer = make_tokenizer(data);
  if (!tokenizer) {
    std::fprintf(stderr, "%s: %s\n", argv[1], tokenizer.error().message.c_str());
    return 1;
  }
  const auto vocabulary = grammar::make_vocabulary(**tokenizer, {}, (*tokenizer)->size());
  const TokenId end = std::atoi(argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = parse_json(line, {.max_depth = 64, .max_members = 0});
    if (!request) {
      std::fprintf(stderr, "stdin: %s\n", request.error().message.c_str());
      return 1;
    }
    std::puts(dump_json(answer(*request, vocabulary, end)).c_str());
    std::fflush(stdout);  // who asks waits for the line
  }
}
