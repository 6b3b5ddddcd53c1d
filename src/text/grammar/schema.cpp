#include "text/grammar/schema.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/schema_emit.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar {
namespace {

using schema::Issue;
using schema::SchemaDocument;

/// Names in it are the client's, and may be long.
std::string pointer_of(const SchemaDocument& document, schema::Place place) {
  constexpr std::size_t kLongest = 400;
  std::string pointer = place == schema::kNoPlace ? "#" : document.pointer(place);
  if (pointer.size() > kLongest) pointer = repair_utf8(std::string_view(pointer).substr(0, kLongest)) + "...";
  return pointer;
}

std::string named(const SchemaDocument& document, schema::Place place, std::string_view keyword) {
  std::string out = "the schema at " + pointer_of(document, place);
  return keyword.empty() ? out : out + ", keyword '" + repair_utf8(keyword.substr(0, 100)) + "'";
}

Error error_of(const SchemaDocument& document, const Issue& issue) {
  const std::string message = named(document, issue.at, issue.keyword);
  const bool unsupported = issue.kind == Issue::Kind::kUnsupported;
  return Error{.code = unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidValue,
               .message = message + (unsupported ? " cannot be enforced: " : ": ") + issue.reason + ".",
               .param = {}};
}

/// Each (pointer, keyword) once, in order.
std::vector<Unenforced> listed(const SchemaDocument& document, const std::vector<Issue>& issues) {
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<Unenforced> out;
  for (const Issue& issue : issues) {
    Unenforced one{pointer_of(document, issue.at), issue.keyword, issue.reason};
    if (seen.emplace(one.pointer, one.keyword).second) out.push_back(std::move(one));
  }
  std::ranges::sort(out, {}, [](const Unenforced& u) { return std::pair(u.pointer, u.keyword); });
  return out;
}

/// Those that count somewhere.
std::vector<std::string> enforced_keywords(const schema::Normaliser& normaliser, const std::vector<Issue>& dropped) {
  std::set<std::pair<schema::Place, std::string>> lost;
  for (const Issue& issue : dropped) lost.emplace(issue.at, issue.keyword);
  std::set<std::string> keywords;
  for (const auto& one : normaliser.enforced()) {
    if (!lost.contains(one)) keywords.insert(one.second);
  }
  return {keywords.begin(), keywords.end()};
}

}  // namespace

Result<Draft> parse_draft(std::string_view name) {
  if (name == "7" || name == "07" || name == "draft-07" || name == "draft7") return Draft::k7;
  if (name == "2019-09") return Draft::k2019;
  if (name == "2020-12") return Draft::k2020;
  return fail(ErrorCode::kInvalidValue, "the drafts are 7, 2019-09 and 2020-12.");
}

Result<CompiledSchema> compile_schema(const Json& json, const SchemaOptions& options) {
  if (dump_json(json).size() > options.max_bytes) {
    return fail(ErrorCode::kTooLarge, "the schema is larger than " + std::to_string(options.max_bytes) + " bytes.");
  }
  SchemaDocument document(json);
  if (auto read = document.read(options); !read) return std::unexpected(error_of(document, read.error()));
  std::int64_t own_work = kCompileWork;
  schema::Normaliser normaliser(document, options.lenient, options.work != nullptr ? *options.work : own_work);
  schema::Emitter emitter(normaliser, options);
  auto grammar = emitter.run(normaliser.terms().schema(document.root()));
  if (!grammar) return std::unexpected(error_of(document, grammar.error()));
  if (!schema::productive(*grammar)[static_cast<std::size_t>(grammar->root)]) {
    return fail(ErrorCode::kInvalidValue, "the schema at #: no value satisfies it.");
  }
  CompiledSchema out;
  out.grammar = std::move(*grammar);
  for (const schema::Emitter::Origin& origin : emitter.origins())
    out.grammar.origins.emplace(origin.node, named(document, origin.at, origin.keyword) + " cannot be enforced: ");
  const std::vector<Issue> dropped = emitter.dropped();
  out.unenforced = listed(document, dropped);
  for (const auto& [where, why] : normaliser.without_effect()) {
    out.without_effect.push_back({pointer_of(document, where.first), where.second, why});
  }
  out.enforced_keywords = enforced_keywords(normaliser, dropped);
  out.draft = document.draft();
  return out;
}

Grammar any_object_grammar(Spacing spacing) {
  auto compiled = compile_schema(Json::object({{"type", "object"}}), {.spacing = spacing});
  CHECK(compiled.has_value());
  return std::move(compiled->grammar);
}

}  // namespace barg::text::grammar
