#include "text/grammar/call_values.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "text/grammar/build.h"
#include "text/output_schema.h"

namespace barg::text::grammar {
namespace {

constexpr std::int64_t kMostCountedChars = 2000;  // a text without quotes counts its characters in states
constexpr int kMaxHops = 64;

std::unexpected<Error> cannot(std::string what) { return fail(ErrorCode::kUnsupported, std::move(what)); }

/// Members one after the other, optional ones left out at will; `separator` between those that are there.
class MemberChain {
 public:
  MemberChain(Grammar& g, std::vector<NodeId> items, std::vector<bool> required, std::string separator)
      : g_(g), items_(std::move(items)), required_(std::move(required)), separator_(std::move(separator)) {}

  NodeId build() {
    NodeId first = g_.add(SequenceNode{}), later = first;  // behind the last member
    for (std::size_t i = items_.size(); i-- > 0;) {
      const NodeId with_first = g_.add(SequenceNode{{items_[i], later}});
      const NodeId with_later = separator_.empty()
                                    ? with_first
                                    : g_.add(SequenceNode{{add_literal(g_, separator_), items_[i], later}});
      first = required_[i] ? with_first : g_.add(ChoiceNode{{with_first, first}});
      later = required_[i] ? with_later : g_.add(ChoiceNode{{with_later, later}});
    }
    return first;
  }

 private:
  Grammar& g_;
  std::vector<NodeId> items_;
  std::vector<bool> required_;
  std::string separator_;
};

/// Options of a node by kind, references and choices followed.
struct Options {
  std::vector<NodeId> strings, others;
};

void collect(const Grammar& g, NodeId id, Options& out, int hops) {
  id = resolve(g, id);
  const Node& node = g.nodes[static_cast<std::size_t>(id)];
  if (const auto* choice = std::get_if<ChoiceNode>(&node); choice && hops < kMaxHops) {
    for (const NodeId option : choice->options) collect(g, option, out, hops + 1);
    return;
  }
  (std::holds_alternative<StringNode>(node) ? out.strings : out.others).push_back(id);
}

/// The decoded text of a string node as it stands, none of `words` in it.
Result<Dfa> raw_text(const StringNode& node, const std::vector<std::string>& words) {
  auto text = dfa_without(words);
  if (!text) return text;
  if (node.content) text = dfa_intersect(*text, *node.content);
  if (!text || (node.min_chars <= 0 && node.max_chars == kUnbounded)) return text;
  if (std::max(node.min_chars, node.max_chars) > kMostCountedChars) {
    return cannot("a string of more than " + std::to_string(kMostCountedChars) +
                  " characters cannot be bounded in this model's format of calls");
  }
  auto counted = dfa_repeat(dfa_any_char(), node.min_chars, node.max_chars);
  if (!counted) return counted;
  return dfa_intersect(*text, *counted);
}

/// All bytes of a literal; nullopt where it has tokens, which no bytes spell.
std::optional<std::string> spelled(const Literal& literal) {
  std::string out;
  for (const Symbol s : literal) {
    if (is_token(s)) return std::nullopt;
    out += static_cast<char>(s);
  }
  return out;
}

/// A name that stands without quotes where another byte ends it.
Result<void> check_key(std::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    const auto b = static_cast<unsigned char>(c);
    return b >= 0x80 || std::isalnum(b) != 0 || std::string_view("_-.$/@").find(c) != std::string_view::npos;
  });
  if (plain) return {};
  return cannot("the parameter name " + json_quote(name.substr(0, 64)) + " has no form in this model's format of calls");
}

// ---- tags

class TagWriter {
 public:
  TagWriter(Grammar& g, const BoundTags& tags, const Json& schema) : g_(g), tags_(tags), schema_(schema) {}

  Result<NodeId> member(const ObjectNode::Property& property) {
    if (auto ok = check_key(property.name); !ok) return std::unexpected(ok.error());
    const ValueTypes types = value_types(schema_, property.name);
    Options options;
    collect(g_, property.value, options, 0);
    std::vector<NodeId> forms;
    for (const auto& [key_end, typing] : tags_.key_ends) {
      if (auto ok = add_forms(property, key_end, typing, types, options, forms); !ok) return std::unexpected(ok.error());
    }
    if (forms.empty()) return cannot("values of '" + property.name + "' have no form in this model's format of calls");
    return add_choice(g_, std::move(forms));
  }

 private:
  Result<void> add_forms(const ObjectNode::Property& property, const Literal& key_end, Typing typing,
                         const ValueTypes& types, const Options& options, std::vector<NodeId>& forms) {
    const bool explicit_types = tags_.key_ends.size() > 1;
    if (explicit_types && typing == Typing::kSchema) return {};  // the model says which it is
    const bool text = typing == Typing::kString || (typing == Typing::kSchema && types.string_first());
    if (text) {
      for (const NodeId string : options.strings) {
        auto value = text_value(string, typing == Typing::kSchema && types.has(JsonKind::kNull));
        if (!value) return std::unexpected(value.error());
        if (*value != kNoNode) forms.push_back(wrap(property.name, key_end, *value));
      }
    }
    if (typing == Typing::kJson || (typing == Typing::kSchema && (!text || types.has(JsonKind::kNull)))) {
      for (const NodeId other : options.others) forms.push_back(wrap(property.name, key_end, other));
      if (types.any && typing == Typing::kSchema) {
        for (const NodeId string : options.strings) forms.push_back(wrap(property.name, key_end, string));
      }
    }
    return {};
  }

  /// kNoNode: there is no such text.
  Result<NodeId> text_value(NodeId string, bool may_be_null) {
    std::vector<std::string> words;
    if (const auto close = spelled(tags_.value_close)) words.push_back(*close);
    auto text = raw_text(std::get<StringNode>(g_.nodes[static_cast<std::size_t>(string)]), words);
    if (!text) return std::unexpected(text.error());
    if (may_be_null) {  // what the parser would read as null
      const Dfa space = dfa_literals({" ", "\t", "\r", "\n"});
      auto around = dfa_repeat(space, 0, kUnbounded);
      if (around) around = dfa_concat(*around, dfa_literals({"null", "None"}));
      if (around) around = dfa_concat(*around, *dfa_repeat(space, 0, kUnbounded));
      if (around) text = dfa_subtract(*text, *around);
      if (!around || !text) return cannot("the text is too large to bound");
    }
    if (text->empty()) return kNoNode;
    return add_bytes(g_, std::move(*text));
  }

  NodeId wrap(const std::string& key, const Literal& key_end, NodeId value) {
    std::vector<NodeId> parts = {add_symbols(g_, tags_.key_open), add_literal(g_, key), add_symbols(g_, key_end)};
    if (!tags_.value_open.empty()) parts.push_back(add_symbols(g_, tags_.value_open));
    if (tags_.lines) parts.push_back(add_literal(g_, "\n"));
    parts.push_back(value);
    if (tags_.lines) parts.push_back(add_literal(g_, "\n"));
    parts.push_back(add_symbols(g_, tags_.value_close));
    parts.push_back(add_gap(g_));
    return add_sequence(g_, std::move(parts));
  }

  Grammar& g_;
  const BoundTags& tags_;
  const Json& schema_;
};

// ---- Gemma

/// Nodes of JSON rewritten in Gemma's notation, each once.
class GemmaWriter {
 public:
  GemmaWriter(Grammar& g, const Literal& quote) : g_(g), quote_(quote) {}

  Result<NodeId> value(NodeId id) {
    id = resolve(g_, id);
    if (const auto known = done_.find(id); known != done_.end()) return known->second;
    const NodeId ref = g_.add(RefNode{});  // before what it refers to: schemas refer to themselves
    done_.emplace(id, ref);
    if (++depth_ > kMaxHops) return cannot("the tool's schema is nested too deep for this model's format of calls");
    auto made = std::visit([&](const auto& node) { return write(node); }, Node(g_.nodes[static_cast<std::size_t>(id)]));
    --depth_;
    if (!made) return made;
    std::get<RefNode>(g_.nodes[static_cast<std::size_t>(ref)]).target = *made;
    return ref;
  }

  Result<NodeId> members(const std::vector<ObjectNode::Property>& properties) {
    std::vector<NodeId> items;
    std::vector<bool> required;
    for (const auto& property : properties) {
      if (auto ok = check_key(property.name); !ok) return std::unexpected(ok.error());
      auto node = value(property.value);
      if (!node) return node;
      items.push_back(add_sequence(g_, {add_literal(g_, property.name + ":"), *node}));
      required.push_back(property.required);
    }
    return MemberChain(g_, std::move(items), std::move(required), ",").build();
  }

 private:
  Result<NodeId> write(const BytesNode& node) { return g_.add(node); }
  Result<NodeId> write(const StringNode& node) {
    std::vector<std::string> words;
    if (const auto quote = spelled(quote_)) words.push_back(*quote);
    auto text = raw_text(node, words);
    if (!text) return std::unexpected(text.error());
    const NodeId quote = add_symbols(g_, quote_);
    return add_sequence(g_, {quote, add_bytes(g_, std::move(*text)), quote});
  }
  Result<NodeId> write(const ChoiceNode& node) {
    std::vector<NodeId> options;
    for (const NodeId option : node.options) {
      auto made = value(option);
      if (!made) return made;
      options.push_back(*made);
    }
    return g_.add(ChoiceNode{std::move(options)});
  }
  Result<NodeId> write(const ObjectNode& node) {
    if (node.min_properties > static_cast<std::int64_t>(node.properties.size()) || node.max_properties != kUnbounded)
      return cannot("bounds on the number of properties have no form in this model's format of calls");
    auto inner = members(node.properties);
    if (!inner) return inner;
    return add_sequence(g_, {add_literal(g_, "{"), *inner, add_literal(g_, "}")});
  }
  Result<NodeId> write(const ArrayNode& node) {
    if (node.each_once || node.contains != kNoNode || !node.prefix.empty())
      return cannot("arrays of such items have no form in this model's format of calls");
    std::vector<NodeId> parts = {add_literal(g_, "[")};
    if (node.items != kNoNode) {
      auto item = value(node.items);
      if (!item) return item;
      parts.push_back(g_.add(RepeatNode{*item, add_literal(g_, ","), node.min_items, node.max_items}));
    }
    parts.push_back(add_literal(g_, "]"));
    return add_sequence(g_, std::move(parts));
  }
  Result<NodeId> write(const SequenceNode& node) { return g_.add(node); }  // constants
  Result<NodeId> write(const RepeatNode& node) { return g_.add(node); }
  Result<NodeId> write(const TokenNode& node) { return g_.add(node); }
  Result<NodeId> write(const RefNode& node) { return value(node.target); }

  Grammar& g_;
  const Literal& quote_;
  std::unordered_map<NodeId, NodeId> done_;
  int depth_ = 0;
};

}  // namespace

Result<std::vector<ObjectNode::Property>> members_of(const Grammar& g, NodeId id) {
  const auto* object = std::get_if<ObjectNode>(&g.nodes[static_cast<std::size_t>(resolve(g, id))]);
  if (!object) return cannot("parameters of several shapes have no form in this model's format of calls");
  if (object->min_properties > 0) {
    const auto required = std::count_if(object->properties.begin(), object->properties.end(),
                                        [](const auto& property) { return property.required; });
    if (required < object->min_properties)
      return cannot("minProperties has no form in this model's format of calls");
  }
  if (object->max_properties != kUnbounded &&
      object->max_properties < static_cast<std::int64_t>(object->properties.size()))
    return cannot("maxProperties has no form in this model's format of calls");
  return object->properties;
}

Result<NodeId> tag_arguments(Grammar& g, const BoundTags& tags, NodeId arguments, const Json& schema) {
  auto properties = members_of(g, arguments);
  if (!properties) return std::unexpected(properties.error());
  TagWriter writer(g, tags, schema);
  std::vector<NodeId> items;
  std::vector<bool> required;
  for (const auto& property : *properties) {
    auto item = writer.member(property);
    if (!item) return item;
    items.push_back(*item);
    required.push_back(property.required);
  }
  return MemberChain(g, std::move(items), std::move(required), "").build();
}

Result<NodeId> keyword_arguments(Grammar& g, NodeId arguments) {
  auto properties = members_of(g, arguments);
  if (!properties) return std::unexpected(properties.error());
  std::vector<NodeId> items;
  std::vector<bool> required;
  for (const auto& property : *properties) {
    if (auto ok = check_key(property.name); !ok) return std::unexpected(ok.error());
    items.push_back(add_sequence(g, {add_literal(g, property.name + "="), property.value}));
    required.push_back(property.required);
  }
  return MemberChain(g, std::move(items), std::move(required), ", ").build();
}

Result<NodeId> gemma_arguments(Grammar& g, const Literal& quote, NodeId arguments) {
  auto properties = members_of(g, arguments);
  if (!properties) return std::unexpected(properties.error());
  auto inner = GemmaWriter(g, quote).members(*properties);
  if (!inner) return inner;
  return add_sequence(g, {add_literal(g, "{"), *inner, add_literal(g, "}")});
}

}  // namespace barg::text::grammar
