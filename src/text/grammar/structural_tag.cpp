#include "text/grammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/grammar/build.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxParts = 4096;  ///< of all lists together

class TagReader {
 public:
  TagReader(const Tokenizer& tokenizer, const SchemaOptions& options) : tokenizer_(tokenizer), options_(options) {
    if (options_.work == nullptr) options_.work = &own_work_;
    out_.grammar.spacing = options.spacing;
  }

  Result<TagGrammar> read(const Json& spec) {
    const Json* given = spec.find("format");
    auto root = given ? format(*given, "format", {}) : structures(spec);
    if (!root) return std::unexpected(root.error());
    g_.root = *root;
    return std::move(out_);
  }

 private:
  /// Words that free text directly before something else may not hold.
  using Stops = std::vector<std::string>;
  struct Tag {
    std::string begin;
    NodeId node = kNoNode;      ///< begin, content, end
    NodeId rest = kNoNode;      ///< what follows the trigger
  };

  static std::unexpected<Error> bad(std::string message, std::string path) {
    return fail(ErrorCode::kInvalidValue, std::move(message), std::move(path));
  }
  static Result<std::string> text(const Json& object, const char* name, const std::string& path) {
    const Json* value = object.find(name);
    if (!value || !value->is_string()) return bad(std::string(name) + " must be a string", path + "." + name);
    return value->as_string();
  }
  Result<const Json*> list(const Json& object, const char* name, const std::string& path) {
    const Json* value = object.find(name);
    if (!value || !value->is_array() || value->size() == 0)
      return bad(std::string(name) + " must be a list that is not empty", below(path, name));
    parts_ += value->size();
    if (parts_ > kMaxParts) return bad("more than " + std::to_string(kMaxParts) + " parts", below(path, name));
    return value;
  }
  static Result<bool> flag(const Json& object, const char* name, const std::string& path) {
    const Json* value = object.find(name);
    if (!value || value->is_null()) return false;
    if (!value->is_bool()) return bad(std::string(name) + " must be true or false", path + "." + name);
    return value->as_bool();
  }
  static std::string below(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "." + std::string(name);
  }
  /// Nothing is ignored: a member that is not read changes what is asked for.
  static Result<void> only(const Json& object, std::initializer_list<std::string_view> known, const std::string& path) {
    if (!object.is_object()) return bad("must be an object", path);
    for (const auto& [name, value] : object.as_object()) {
      if (value.is_null() || name == "type" || std::find(known.begin(), known.end(), name) != known.end()) continue;
      return fail(ErrorCode::kUnsupported, "the member " + json_quote(std::string_view(name).substr(0, 64)) + " is not supported",
                  below(path, std::string_view(name).substr(0, 64)));
    }
    return {};
  }
  static std::string at(const std::string& path, std::size_t i) { return path + "[" + std::to_string(i) + "]"; }

  NodeId marked(std::string_view literal) { return add_marked(g_, literal, tokenizer_); }
  /// Words that bytes can spell; one with an added token cannot occur in text at all.
  Stops spelled(const Stops& words) const {
    Stops out;
    for (const std::string& word : words) {
      const Literal literal = bind_literal(word, tokenizer_);
      if (!word.empty() && std::none_of(literal.begin(), literal.end(), is_token)) out.push_back(word);
    }
    return out;
  }

  Result<NodeId> free_text(const Stops& stops, const std::string& path) {
    auto dfa = dfa_without(spelled(stops), {.work = options_.work});
    if (!dfa) return named(dfa.error(), path);
    return add_bytes(g_, std::move(*dfa));
  }
  static std::unexpected<Error> named(Error error, const std::string& path) {
    error.param = error.param.empty() ? path : path + "." + error.param;
    return std::unexpected(std::move(error));
  }

  Result<NodeId> schema(const Json& value, const std::string& path) {
    auto compiled = compile_schema(value, options_);
    if (!compiled) {
      Error error = compiled.error();
      error.param = path;
      return std::unexpected(std::move(error));
    }
    for (auto* list : {&compiled->unenforced, &compiled->without_effect}) {
      for (Unenforced& lost : *list) {
        lost.pointer = path + lost.pointer;
        out_.unenforced.push_back(std::move(lost));
      }
    }
    return splice(g_, compiled->grammar);
  }

  // ---- the older notation

  Result<NodeId> structures(const Json& spec) {
    auto items = list(spec, "structures", "");
    if (!items) return std::unexpected(items.error());
    std::vector<Tag> tags;
    for (std::size_t i = 0; i < (*items)->size(); ++i) {
      const Json& item = (*items)->as_array()[i];
      const std::string path = at("structures", i);
      if (auto ok = only(item, {"begin", "schema", "end"}, path); !ok) return std::unexpected(ok.error());
      auto begin = text(item, "begin", path), end = text(item, "end", path);
      if (!begin || !end) return std::unexpected((begin ? end : begin).error());
      const Json* bound = item.find("schema");
      auto content = schema(bound ? *bound : Json(true), path + ".schema");
      if (!content) return content;
      tags.push_back({*begin, *content, marked(*end)});
    }
    return triggered(spec, std::move(tags), "", false, false);
  }

  // ---- formats

  Result<NodeId> format(const Json& f, const std::string& path, const Stops& stops) {
    if (++depth_ > kMaxDepth) return bad("nested deeper than " + std::to_string(kMaxDepth), path);
    auto made = by_type(f, path, stops);
    --depth_;
    return made;
  }

  Result<NodeId> by_type(const Json& f, const std::string& path, const Stops& stops) {
    auto type = text(f, "type", path);
    if (!type) return std::unexpected(type.error());
    if (auto ok = known_members(f, *type, path); !ok) return std::unexpected(ok.error());
    if (*type == "any_text") return free_text(stops, path);
    if (*type == "const_string") {
      auto value = text(f, "value", path);
      if (!value) return std::unexpected(value.error());
      return marked(*value);
    }
    if (*type == "json_schema") {
      const Json* value = f.find("json_schema");
      if (!value) return bad("json_schema is missing", path + ".json_schema");
      return schema(*value, path + ".json_schema");
    }
    if (*type == "regex" || *type == "grammar") return from_text(f, *type, path);
    if (*type == "sequence" || *type == "or") return elements(f, *type == "or", path, stops);
    if (*type == "tag") {
      auto tag = read_tag(f, path);
      if (!tag) return std::unexpected(tag.error());
      return add_sequence(g_, {marked(tag->begin), tag->node, tag->rest});
    }
    if (*type == "triggered_tags") return triggered_tags(f, path);
    if (*type == "tags_with_separator") return separated_tags(f, path);
    return fail(ErrorCode::kUnsupported, "the format " + json_quote(std::string_view(*type).substr(0, 64)) + " is not supported",
                path + ".type");
  }

  static Result<void> known_members(const Json& f, const std::string& type, const std::string& path) {
    if (type == "any_text") return only(f, {}, path);
    if (type == "const_string") return only(f, {"value"}, path);
    if (type == "json_schema") return only(f, {"json_schema"}, path);
    if (type == "regex") return only(f, {"pattern"}, path);
    if (type == "grammar") return only(f, {"grammar"}, path);
    if (type == "sequence" || type == "or") return only(f, {"elements"}, path);
    if (type == "triggered_tags") return only(f, {"triggers", "tags", "at_least_one", "stop_after_first"}, path);
    if (type == "tags_with_separator") return only(f, {"tags", "separator", "at_least_one", "stop_after_first"}, path);
    return {};  // a tag checks its own; others are refused by their type
  }

  Result<NodeId> from_text(const Json& f, const std::string& type, const std::string& path) {
    const char* member = type == "regex" ? "pattern" : "grammar";
    auto source = text(f, member, path);
    if (!source) return std::unexpected(source.error());
    if (type == "regex") {
      auto dfa = regex_dfa(*source, {.search = false, .limits = {.work = options_.work}});
      if (!dfa) return named(dfa.error(), path + "." + member);
      return add_bytes(g_, std::move(*dfa));
    }
    auto grammar = parse_gbnf(*source, options_.work);
    if (!grammar) return named(grammar.error(), path + "." + member);
    return splice(g_, *grammar);
  }

  /// What the element behind begins with, where that is known: free text may not hold it.
  Stops starts_of(const Json& f, const Stops& after) const {
    const Json* type = f.find("type");
    if (!type || !type->is_string()) return after;
    const char* member = type->as_string() == "const_string" ? "value" : type->as_string() == "tag" ? "begin" : nullptr;
    const Json* word = member ? f.find(member) : nullptr;
    return word && word->is_string() && !word->as_string().empty() ? Stops{word->as_string()} : after;
  }

  Result<NodeId> elements(const Json& f, bool any, const std::string& path, const Stops& stops) {
    auto items = list(f, "elements", path);
    if (!items) return std::unexpected(items.error());
    const Json::Array& all = (*items)->as_array();
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool last = any || i + 1 == all.size();
      auto node = format(all[i], at(path + ".elements", i), last ? stops : starts_of(all[i + 1], stops));
      if (!node) return node;
      nodes.push_back(*node);
    }
    return any ? add_choice(g_, std::move(nodes)) : add_sequence(g_, std::move(nodes));
  }

  /// `end` may be a list: any of them.
  Result<Stops> ends_of(const Json& f, const std::string& path) {
    const Json* end = f.find("end");
    if (end && end->is_string()) return Stops{end->as_string()};
    if (!end || !end->is_array() || end->size() == 0) return bad("end must be a string or a list of them", path + ".end");
    parts_ += end->size();
    Stops out;
    for (const Json& word : end->as_array()) {
      if (!word.is_string() || parts_ > kMaxParts) return bad("end must be a string or a list of them", path + ".end");
      out.push_back(word.as_string());
    }
    return out;
  }

  Result<Tag> read_tag(const Json& f, const std::string& path) {
    if (auto ok = only(f, {"begin", "content", "end"}, path); !ok) return std::unexpected(ok.error());
    auto begin = text(f, "begin", path);
    if (!begin) return std::unexpected(begin.error());
    auto ends = ends_of(f, path);
    if (!ends) return std::unexpected(ends.error());
    const Json* content = f.find("content");
    if (!content) return bad("content is missing", path + ".content");
    auto node = format(*content, path + ".content", *ends);
    if (!node) return std::unexpected(node.error());
    std::vector<NodeId> rest;
    for (const std::string& end : *ends) rest.push_back(marked(end));
    return Tag{*begin, *node, add_choice(g_, std::move(rest))};
  }

  Result<std::vector<Tag>> read_tags(const Json& f, const std::string& path) {
    auto items = list(f, "tags", path);
    if (!items) return std::unexpected(items.error());
    std::vector<Tag> tags;
    for (std::size_t i = 0; i < (*items)->size(); ++i) {
      auto tag = read_tag((*items)->as_array()[i], at(path + ".tags", i));
      if (!tag) return std::unexpected(tag.error());
      tags.push_back(std::move(*tag));
    }
    return tags;
  }

  Result<NodeId> triggered_tags(const Json& f, const std::string& path) {
    auto tags = read_tags(f, path);
    if (!tags) return std::unexpected(tags.error());
    auto at_least_one = flag(f, "at_least_one", path), first = flag(f, "stop_after_first", path);
    if (!at_least_one || !first) return std::unexpected((at_least_one ? first : at_least_one).error());
    return triggered(f, std::move(*tags), path, *at_least_one, *first);
  }

  /// (text TAG)* text, where text holds no trigger and every tag begins with one.
  Result<NodeId> triggered(const Json& f, std::vector<Tag> tags, const std::string& path, bool at_least_one,
                           bool stop_after_first) {
    auto items = list(f, "triggers", path);
    if (!items) return std::unexpected(items.error());
    Stops triggers;
    for (const Json& word : (*items)->as_array()) {
      if (!word.is_string() || word.as_string().empty()) return bad("triggers must be texts", below(path, "triggers"));
      triggers.push_back(word.as_string());
    }
    std::vector<NodeId> bodies;
    for (const Tag& tag : tags) {
      const bool triggered = std::any_of(triggers.begin(), triggers.end(),
                                         [&](const std::string& trigger) { return tag.begin.starts_with(trigger); });
      if (!triggered) return bad("no trigger begins " + json_quote(tag.begin.substr(0, 64)), below(path, "triggers"));
      bodies.push_back(add_sequence(g_, {marked(tag.begin), tag.node, tag.rest}));
    }
    const NodeId any_tag = add_choice(g_, std::move(bodies));
    auto words = free_text(triggers, below(path, "triggers"));
    if (!words) return words;
    if (stop_after_first) {
      const NodeId once = add_sequence(g_, {*words, any_tag});
      return at_least_one ? once : add_choice(g_, {once, *words});
    }
    const NodeId more = g_.add(RepeatNode{add_sequence(g_, {any_tag, *words}), kNoNode, at_least_one ? 1 : 0, kUnbounded});
    return add_sequence(g_, {*words, more});
  }

  Result<NodeId> separated_tags(const Json& f, const std::string& path) {
    auto tags = read_tags(f, path);
    if (!tags) return std::unexpected(tags.error());
    auto separator = text(f, "separator", path);
    auto at_least_one = flag(f, "at_least_one", path), first = flag(f, "stop_after_first", path);
    if (!separator) return std::unexpected(separator.error());
    if (!at_least_one || !first) return std::unexpected((at_least_one ? first : at_least_one).error());
    std::vector<NodeId> bodies;
    for (const Tag& tag : *tags) bodies.push_back(add_sequence(g_, {marked(tag.begin), tag.node, tag.rest}));
    const NodeId between = separator->empty() ? kNoNode : marked(*separator);
    return g_.add(RepeatNode{add_choice(g_, std::move(bodies)), between, *at_least_one ? 1 : 0, *first ? 1 : kUnbounded});
  }

  const Tokenizer& tokenizer_;
  SchemaOptions options_;
  std::int64_t own_work_ = kCompileWork;
  TagGrammar out_;
  Grammar& g_ = out_.grammar;
  std::size_t parts_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<TagGrammar> structural_tag_grammar(const Json& spec, const Tokenizer& tokenizer, const SchemaOptions& options) {
  return TagReader(tokenizer, options).read(spec);
}

}  // namespace barg::text::grammar
