// What the tests of the schema front end share: compiled schemas that say whether they take a value, in several
// spellings, by the machine and, written again, by the nodes.
#pragma once

#include <algorithm>
#include <concepts>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "text/grammar/machine.h"
#include "text/grammar/schema.h"

namespace barg::text::grammar::schemas {

inline Json json_of(std::string_view text) {
  auto parsed = parse_json(text, {.max_depth = 200, .max_members = 0});
  if (!parsed) throw std::runtime_error(parsed.error().message + " in " + std::string(text.substr(0, 200)));
  return std::move(*parsed);
}

inline Json json_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return json_of(std::string(std::istreambuf_iterator<char>(in), {}));
}

/// 2.0 as 2, as the texts of models have it.
inline Json plain_integers(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.as_array()) out.push(plain_integers(item));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const Json::Member& m : value.as_object()) out.as_object().emplace_back(m.first, plain_integers(m.second));
    return out;
  }
  if (value.type() != Json::Type::kDouble) return value;
  const double number = value.as_double();
  const bool whole =
      number > -9e15 && number < 9e15 && number == static_cast<double>(static_cast<std::int64_t>(number));
  return whole ? Json(static_cast<long long>(number)) : value;
}

/// The value with the members of its objects in every order; those of large objects only in some.
inline std::vector<Json> orders(const Json& value, std::size_t most = 120) {
  std::vector<Json> out;
  if (value.is_array()) {
    out.push_back(Json::array());
    for (const Json& item : value.as_array()) {
      std::vector<Json> longer;
      for (const Json& way : orders(item, most)) {
        for (const Json& before : out) {
          if (longer.size() >= most) break;
          longer.push_back(before);
          longer.back().push(way);
        }
      }
      out = std::move(longer);
    }
    return out;
  }
  if (!value.is_object()) return {value};
  const Json::Object& members = value.as_object();
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    std::vector<Json> ways{Json::object()};
    for (const std::size_t i : order) {
      std::vector<Json> longer;
      for (const Json& way : orders(members[i].second, 6)) {
        for (const Json& before : ways) {
          if (longer.size() >= most) break;
          longer.push_back(before);
          longer.back().as_object().emplace_back(members[i].first, way);
        }
      }
      ways = std::move(longer);
    }
    out.insert(out.end(), ways.begin(), ways.end());
  } while (out.size() < most && std::next_permutation(order.begin(), order.end()));
  return out;
}

/// The meaning of nodes, on values: written from node.h and not from the machine.
class Denotes {
 public:
  explicit Denotes(const Grammar& grammar) : grammar_(grammar) {}
  bool operator()(const Json& value) const { return at(grammar_.root, value); }

 private:
  bool at(NodeId id, const Json& value) const {
    return std::visit([&](const auto& node) { return is(node, value); }, grammar_.nodes[static_cast<std::size_t>(id)]);
  }
  bool is(const ChoiceNode& n, const Json& v) const {
    return std::ranges::any_of(n.options, [&](NodeId id) { return at(id, v); });
  }
  bool is(const BytesNode& n, const Json& v) const {
    return !v.is_string() && !v.is_array() && !v.is_object() && n.dfa->matches(dump_json(v));
  }
  bool is(const StringNode& n, const Json& v) const {
    if (!v.is_string()) return false;
    const std::string& s = v.as_string();
    const auto chars = std::ranges::count_if(s, [](char c) { return (c & 0xC0) != 0x80; });
    return (!n.content || n.content->matches(s)) && chars >= n.min_chars && (n.max_chars < 0 || chars <= n.max_chars);
  }
  bool is(const ArrayNode& n, const Json& v) const {
    if (!v.is_array()) return false;
    const auto size = static_cast<std::int64_t>(v.size());
    if (size < n.min_items || (n.max_items >= 0 && size > n.max_items)) return false;
    std::int64_t counted = 0;
    std::vector<NodeId> used;
    for (std::size_t i = 0; i < v.as_array().size(); ++i) {
      const Json& item = v.as_array()[i];
      const bool counts = n.contains != kNoNode && at(n.contains, item);
      counted += counts ? 1 : 0;
      const NodeId place = i < n.prefix.size() ? n.prefix[i] : n.not_contains != kNoNode ? n.not_contains : n.items;
      if (!counts && (place == kNoNode || !at(place, item))) return false;
      if (n.each_once) {
        for (const NodeId option : std::get<ChoiceNode>(grammar_.nodes[static_cast<std::size_t>(n.items)]).options) {
          if (!at(option, item)) continue;
          if (std::ranges::find(used, option) != used.end()) return false;
          used.push_back(option);
        }
      }
    }
    return n.contains == kNoNode || (counted >= n.min_contains && (n.max_contains < 0 || counted <= n.max_contains));
  }
  bool is(const ObjectNode& n, const Json& v) const {
    if (!v.is_object()) return false;
    const auto size = static_cast<std::int64_t>(v.size());
    if (size < n.min_properties || (n.max_properties >= 0 && size > n.max_properties)) return false;
    std::size_t next = 0;  // declared properties come first, in their order
    bool others = false;
    for (const Json::Member& m : v.as_object()) {
      const auto p = std::ranges::find(n.properties, m.first, &ObjectNode::Property::name);
      if (p != n.properties.end()) {
        const auto index = static_cast<std::size_t>(p - n.properties.begin());
        if (others || index < next || !at(p->value, m.second)) return false;
        next = index + 1;
        continue;
      }
      others = true;
      const bool known = std::ranges::any_of(n.others, [&](const ObjectNode::Other& other) {
        return (!other.names || other.names->matches(m.first)) && at(other.value, m.second);
      });
      if (!known) return false;
    }
    return std::ranges::all_of(n.properties,
                               [&](const ObjectNode::Property& p) { return !p.required || v.find(p.name) != nullptr; });
  }
  template <class Other>
  bool is(const Other&, const Json&) const {
    return false;
  }

  const Grammar& grammar_;
};

class Schema {
 public:
  explicit Schema(const Json& schema, SchemaOptions options = {}) {
    auto compiled = compile_schema(schema, options);
    if (!compiled) {
      error = compiled.error();
      return;
    }
    auto made = Machine::compile(compiled->grammar);
    if (!made) {
      error = made.error();
      return;
    }
    enforced = std::move(*compiled);
    machine = std::move(*made);
  }
  template <class Text>
  requires std::convertible_to<const Text&, std::string_view>
  explicit Schema(const Text& schema, SchemaOptions options = {}) : Schema(json_of(schema), options) {}

  bool ok() const { return machine != nullptr; }
  bool text(std::string_view text) const { return !first_failure(*machine, text).has_value(); }

  /// Whether this one value is taken; "?" where spellings or the two readers disagree.
  std::string value(const Json& value) const {
    const bool by_nodes = Denotes(enforced.grammar)(value);
    for (const JsonStyle& style :
         {JsonStyle{}, JsonStyle{.spaces = true}, JsonStyle{.indent = 2}, JsonStyle{.ensure_ascii = true}}) {
      if (text(dump_json(value, style)) != by_nodes) return "? " + dump_json(value, style);
    }
    return by_nodes ? "yes" : "no";
  }
  /// The same in whichever order the members of its objects may stand.
  std::string in_any_order(const Json& instance) const {
    std::string answer = "no";
    for (const Json& way : orders(plain_integers(instance))) {
      const std::string one = value(way);
      if (one == "yes") return one;
      if (one != "no") answer = one;
    }
    return answer;
  }

  CompiledSchema enforced;
  std::shared_ptr<Machine> machine;
  Error error;
};

}  // namespace barg::text::grammar::schemas
