#include "server/constraints.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/build.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/regex.h"
#include "text/grammar/structural_tag.h"
#include "text/grammar/token_constraint.h"

namespace barg::server {
namespace {

using text::grammar::Grammar;
using text::grammar::SchemaOptions;
using text::grammar::Spacing;
using text::grammar::Unenforced;

constexpr std::size_t kMostShown = 32, kMostShownBytes = 160;

bool has_strict(const ToolOptions& tools) {
  return std::any_of(tools.tools.begin(), tools.tools.end(), [](const ToolSpec& tool) { return tool.strict; });
}

SchemaOptions schema_options(const ConstraintSpec& spec, bool lenient, std::int64_t& work) {
  SchemaOptions options;
  options.work = &work;
  options.lenient = lenient;
  options.spacing = spec.compact ? Spacing::kNone : Spacing::kFlexible;
  return options;
}

/// The error of a front end under the request's own name for it. Whatever it is, it is the request's.
std::unexpected<Error> named(Error error, const std::string& field) {
  if (error.param.empty() || field.empty()) {
    error.param += field;
  } else {
    error.param = field + "." + error.param;
  }
  if (error.code != ErrorCode::kUnsupported) error.code = ErrorCode::kInvalidValue;
  return std::unexpected(std::move(error));
}

/// A language, without what single requests ban.
struct Content {
  Grammar grammar;
  std::vector<Unenforced> unenforced;
};

Grammar of_dfa(text::grammar::Dfa dfa) {
  Grammar grammar;
  grammar.root = text::grammar::add_bytes(grammar, std::move(dfa));
  return grammar;
}

Result<Content> content_of(const ConstraintSpec& spec, const Tokenizer& tokenizer, std::int64_t& work) {
  const SchemaOptions options = schema_options(spec, spec.lenient, work);
  switch (spec.kind) {
    case ConstraintKind::kNone: break;
    case ConstraintKind::kJsonObject: return Content{text::grammar::any_object_grammar(options.spacing), {}};
    case ConstraintKind::kSchema: {
      auto compiled = text::grammar::compile_schema(spec.value, options);
      if (!compiled) return std::unexpected(compiled.error());
      auto& lost = compiled->unenforced;
      lost.insert(lost.end(), compiled->without_effect.begin(), compiled->without_effect.end());
      return Content{std::move(compiled->grammar), std::move(lost)};
    }
    case ConstraintKind::kRegex: {
      auto dfa = text::grammar::regex_dfa(spec.text, {.search = false, .limits = {.work = &work}});
      if (!dfa) return std::unexpected(dfa.error());
      return Content{of_dfa(std::move(*dfa)), {}};
    }
    case ConstraintKind::kChoice: return Content{of_dfa(text::grammar::dfa_literals(spec.choices)), {}};
    case ConstraintKind::kGrammar: {
      auto grammar = text::grammar::parse_gbnf(spec.text, &work);
      if (!grammar) return std::unexpected(grammar.error());
      return Content{std::move(*grammar), {}};
    }
    case ConstraintKind::kTags: {
      auto tags = text::grammar::structural_tag_grammar(spec.value, tokenizer, options);
      if (!tags) return std::unexpected(tags.error());
      return Content{std::move(tags->grammar), std::move(tags->unenforced)};
    }
  }
  return Content{};
}

text::grammar::AnswerTools answer_tools(const ToolOptions& options) {
  text::grammar::AnswerTools out;
  out.must_call = options.must_call();
  out.parallel = options.parallel && options.mode != ToolMode::kNamed;
  for (const ToolSpec& tool : options.tools) {
    out.tools.push_back({.name = tool.name, .parameters = tool.parameters, .custom = tool.custom, .strict = tool.strict,
                         .field = tool.field});
  }
  return out;
}

void digest_count(Sha256& hash, std::size_t count) { hash.update(&count, sizeof count); }

void digest_ids(Sha256& hash, const std::vector<TokenId>& ids) {
  digest_count(hash, ids.size());
  hash.update(ids.data(), ids.size() * sizeof(TokenId));
}

void digest_text(Sha256& hash, std::string_view text) {
  digest_count(hash, text.size());
  hash.update(text.data(), text.size());
}

/// Everything of the tools that a grammar depends on, and what is not enforced is named by.
void digest_tools(Sha256& hash, const ToolOptions& options) {
  digest_count(hash, options.tools.size());
  for (const ToolSpec& tool : options.tools) {
    digest_text(hash, tool.name);
    digest_text(hash, tool.field);
    digest_text(hash, dump_json(tool.parameters));
    const std::uint8_t flags[] = {tool.custom, tool.strict};
    hash.update(flags, sizeof flags);
  }
}

std::string key_of(const ServedModel& model, const ApiRequest& request) {
  const ConstraintSpec& spec = request.constraint;
  Sha256 hash;
  const auto* which = &model;
  hash.update(&which, sizeof which);
  const std::uint8_t flags[] = {request.output.api == Api::kCompletions,
                                static_cast<std::uint8_t>(spec.kind),
                                spec.lenient,
                                spec.lenient_tools,
                                spec.compact,
                                static_cast<std::uint8_t>(request.output.tools.mode),
                                request.output.tools.parallel};
  hash.update(flags, sizeof flags);
  digest_text(hash, dump_json(spec.value));
  digest_text(hash, spec.text);
  digest_count(hash, spec.choices.size());
  for (const std::string& choice : spec.choices) digest_text(hash, choice);
  digest_tools(hash, request.output.tools);
  digest_ids(hash, request.sampling.banned_token_ids);
  digest_ids(hash, request.sampling.allowed_token_ids);
  digest_ids(hash, request.sampling.stop_token_ids);
  const Digest digest = hash.finish();
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

/// The text of a constraint, or calls, in the model's own dialect; of Completions the text alone.
Result<Content> language(const ServedModel& model, const ApiRequest& request) {
  const ConstraintSpec& spec = request.constraint;
  const ToolOptions& tools = request.output.tools;
  std::int64_t work = text::grammar::kCompileWork;  // of all together
  Content content;
  if (spec) {
    auto made = content_of(spec, *model.tokenizer, work);
    if (!made) return named(made.error(), spec.field);
    content = std::move(*made);
  }
  if (request.output.api == Api::kCompletions || (!model.dialect && tools.tools.empty())) return content;
  if (!model.dialect) return fail(ErrorCode::kUnsupported, "this model has no format of calls to enforce", "tools");
  auto answer = text::grammar::answer_grammar(spec ? &content.grammar : nullptr, answer_tools(tools), *model.dialect,
                                              schema_options(spec, spec.lenient_tools, work));
  if (!answer) return named(answer.error(), "");
  content.grammar = std::move(answer->grammar);
  content.unenforced.insert(content.unenforced.end(), answer->unenforced.begin(), answer->unenforced.end());
  return content;
}

/// Whatever ends an answer of the request.
std::vector<TokenId> end_ids(const ServedModel& model, const ApiRequest& request) {
  std::vector<TokenId> out = model.engine->info().end_ids;
  const auto add = [&out](std::span<const TokenId> ids) { out.insert(out.end(), ids.begin(), ids.end()); };
  add(request.sampling.stop_token_ids);
  if (model.dialect && !request.output.tools.tools.empty()) add(model.dialect->call_end_ids());
  return out;
}

/// What an error that nothing satisfies is about.
std::string blamed(const ApiRequest& request) {
  if (!request.sampling.banned_token_ids.empty()) return "banned_token_ids";
  if (!request.sampling.allowed_token_ids.empty()) return "allowed_token_ids";
  return request.constraint ? request.constraint.field : "tools";
}

}  // namespace

std::string unenforced_header(std::span<const Unenforced> unenforced) {
  std::string out;
  for (const Unenforced& lost : unenforced.first(std::min(unenforced.size(), kMostShown))) {
    if (!out.empty()) out += ", ";
    const std::string one = lost.pointer + " " + lost.keyword;
    for (const char c : std::string_view(one).substr(0, kMostShownBytes)) out += c >= 0x20 && c < 0x7F && c != ',' ? c : '?';
  }
  if (unenforced.size() > kMostShown) out += ", and " + std::to_string(unenforced.size() - kMostShown) + " more";
  return out;
}

/// One constraint that is there, or being compiled by whoever holds its mutex.
struct Constraints::Slot {
  std::mutex compiling;
  std::mutex mutex;
  std::shared_ptr<const CompiledConstraint> compiled;  // guarded by mutex

  std::shared_ptr<const CompiledConstraint> get() {
    const std::lock_guard lock(mutex);
    return compiled;
  }
};

bool constrained(const ApiRequest& request) {
  const ToolOptions& tools = request.output.tools;
  return request.constraint || (!tools.tools.empty() && (tools.must_call() || has_strict(tools)));
}

std::shared_ptr<const CompiledConstraint> Constraints::find(const ServedModel& model, const ApiRequest& request) {
  const auto found = slot(key_of(model, request), false);
  auto compiled = found ? found->get() : nullptr;
  if (!compiled) return nullptr;
  const std::lock_guard lock(mutex_);
  ++counts_.found;
  return compiled;
}

Result<std::shared_ptr<const CompiledConstraint>> Constraints::compile(const ServedModel& model,
                                                                       const ApiRequest& request) {
  const std::string key = key_of(model, request);
  const auto held = slot(key, true);
  const std::lock_guard compiling(held->compiling);
  const auto known = held->get();
  auto made = known ? Result<CompiledConstraint>(*known) : make(model, request);
  {
    const std::lock_guard lock(mutex_);
    ++(!made ? counts_.refused : known ? counts_.found : counts_.compiled);
  }
  if (known) return known;
  if (!made) {
    forget(key);
    return std::unexpected(made.error());
  }
  auto shared = std::make_shared<const CompiledConstraint>(std::move(*made));
  const std::lock_guard lock(held->mutex);
  held->compiled = shared;
  return shared;
}

Constraints::Counts Constraints::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Constraints::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = slots_.find(key);
  if (at == slots_.end()) return;
  order_.erase(at->second);
  slots_.erase(at);
}

std::shared_ptr<Constraints::Slot> Constraints::slot(const std::string& key, bool add) {
  const std::lock_guard lock(mutex_);
  if (const auto at = slots_.find(key); at != slots_.end()) {
    order_.splice(order_.begin(), order_, at->second);
    return at->second->second;
  }
  if (!add) return nullptr;
  order_.emplace_front(key, std::make_shared<Slot>());
  slots_[key] = order_.begin();
  while (order_.size() > kKept) {
    slots_.erase(order_.back().first);
    order_.pop_back();
  }
  return order_.front().second;
}

std::shared_ptr<const text::grammar::Vocabulary> Constraints::vocabulary(const ServedModel& model) {
  const std::lock_guard lock(vocabulary_mutex_);
  auto& kept = vocabularies_[&model];
  if (kept) return kept;
  std::vector<TokenId> markers;
  const std::int32_t size = model.tokenizer->size();
  for (TokenId id = 0; model.dialect && id < size; ++id) {
    if (model.dialect->is_marker(id)) markers.push_back(id);
  }
  kept = text::grammar::make_vocabulary(*model.tokenizer, markers, model.engine->info().vocab_size);
  return kept;
}

Result<CompiledConstraint> Constraints::make(const ServedModel& model, const ApiRequest& request) {
  auto content = language(model, request);
  if (!content) return std::unexpected(content.error());
  auto machine = text::grammar::Machine::compile(std::move(content->grammar), {.memory_bytes = kMachineBytes});
  if (!machine) return named(machine.error(), request.constraint ? request.constraint.field : "tools");
  auto constraint = text::grammar::make_token_constraint(std::move(*machine), vocabulary(model),
                                                         {.end_ids = end_ids(model, request),
                                                          .banned = request.sampling.banned_token_ids,
                                                          .allowed = request.sampling.allowed_token_ids});
  if (!constraint) return named(constraint.error(), blamed(request));
  return CompiledConstraint{std::move(*constraint), std::move(content->unenforced)};
}

}  // namespace barg::server
