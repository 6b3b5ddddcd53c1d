// barg_grammar_batch: schemas and texts on stdin, one JSON object a line, answers on stdout, for tests that generate
// many (tests/python/test_schema_random.py):
//
//   {"schema": ..., "draft": "7", "lenient": false, "texts": ["...", ...]}
//   {"accepted": [true, ...], "unenforced": [{"pointer", "keyword", "reason"}, ...], "ms": 1.5}
//   {"refused": "unsupported" | "invalid", "message": "..."}
#include <chrono>
#include <iostream>
#include <string>

#include "base/json.h"
#include "text/grammar/machine.h"
#include "text/grammar/schema.h"

namespace barg::text::grammar {
namespace {

Json refusal(const Error& error) {
  const bool unsupported = error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kTooLarge;
  return Json::object({{"refused", unsupported ? "unsupported" : "invalid"}, {"message", error.message}});
}

Json answer(const Json& request) {
  SchemaOptions options;
  if (const Json* draft = request.find("draft")) {
    const auto parsed = parse_draft(draft->as_string());
    if (!parsed) return refusal(parsed.error());
    options.draft = *parsed;
  }
  if (const Json* lenient = request.find("lenient")) options.lenient = lenient->as_bool();
  const auto begin = std::chrono::steady_clock::now();
  auto compiled = compile_schema(*request.find("schema"), options);
  if (!compiled) return refusal(compiled.error());
  auto machine = Machine::compile(std::move(compiled->grammar));
  if (!machine) return refusal(machine.error());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  Json unenforced = Json::array(), accepted = Json::array();
  for (const Unenforced& u : compiled->unenforced) {
    unenforced.push(Json::object({{"pointer", u.pointer}, {"keyword", u.keyword}, {"reason", u.reason}}));
  }
  for (const Json& text : request.find("texts")->as_array()) {
    accepted.push(!first_failure(**machine, text.as_string()).has_value());
  }
  return Json::object({{"accepted", accepted}, {"unenforced", unenforced}, {"ms", took.count()}});
}

}  // namespace
}  // namespace barg::text::grammar

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = barg::parse_json(line, {.max_depth = 200, .max_members = 0});
    if (!request || request->find("schema") == nullptr || request->find("texts") == nullptr) {
      std::cout << "{\"refused\":\"invalid\",\"message\":\"no request\"}" << std::endl;
      continue;
    }
    std::cout << barg::dump_json(barg::text::grammar::answer(*request)) << std::endl;
  }
}
