// Emitter: the values of a Term one by one, where they are few.
#include <algorithm>

#include "base/json.h"
#include "text/grammar/schema_emit.h"

namespace barg::text::grammar::schema {
namespace {

constexpr std::size_t kMost = 128;
constexpr int kDeepest = 6;

bool fixed(const ArrayShape& shape) {
  return shape.contains.empty() && shape.unique_at == kNoPlace && shape.min == shape.max &&
         shape.max == static_cast<std::int64_t>(shape.prefix.size());
}

/// All of its properties, and no other.
bool fixed(const ObjectShape& shape) {
  return shape.others.empty() && std::ranges::all_of(shape.properties, [](const ObjectShape::Property& p) {
           return p.required || p.value == kNothing;
         });
}

}  // namespace

Checked<Emitter::Values> Emitter::values_of(Term term, int depth) {
  if (depth > kDeepest) return std::nullopt;
  auto found = normaliser_.norm(term);
  if (!found) return std::unexpected(found.error());
  std::vector<Value> out;
  auto scalars = scalar_values(**found, out);
  if (!scalars) return std::unexpected(scalars.error());
  if (!*scalars) return std::nullopt;
  auto structured = structured_values(**found, out, depth);
  if (!structured) return std::unexpected(structured.error());
  if (!*structured) return std::nullopt;
  // An enum may name a value twice (1 and 1.0).
  std::ranges::sort(out, {}, &Value::key);
  out.erase(std::ranges::unique(out, {}, &Value::key).begin(), out.end());
  dropped_.push_back((*found)->dropped);
  return out;
}

/// false: too many.
Checked<bool> Emitter::scalar_values(const Norm& norm, std::vector<Value>& out) {
  Languages& languages = normaliser_.languages();
  const auto literal = [&](bool there, const char* word) {
    if (there) out.push_back({word, add(BytesNode{languages.words({word})})});
  };
  literal(norm.null, "null");
  literal(norm.no, "false");
  literal(norm.yes, "true");
  auto numbers = schema::values(languages, norm.numbers, kMost);
  if (!numbers) return std::unexpected(numbers.error());
  if (!*numbers) return false;
  for (const std::string& number : **numbers) {
    NumberRange range;
    range.minimum = range.maximum = number;
    auto only = numbers_in(languages, range, false);
    if (!only) return std::unexpected(only.error());
    auto texts = shown(languages, *only);
    if (!texts) return std::unexpected(texts.error());
    out.push_back({number, add(BytesNode{*texts})});
  }
  if (norm.strings.empty()) return true;
  if (std::ranges::any_of(norm.strings, [](const Strings& s) { return !s.content; })) return false;
  auto language = language_of(languages, norm.strings);
  if (!language) return std::unexpected(language.error());
  const auto words = dfa_words(**language, kMost);
  if (!words) return false;
  for (const std::string& word : *words)
    out.push_back({json_quote(word), add(StringNode{.content = languages.words({word})})});
  return true;
}

Checked<bool> Emitter::structured_values(const Norm& norm, std::vector<Value>& out, int depth) {
  for (const ArrayShape& shape : norm.arrays) {
    if (!fixed(shape)) return false;
    auto lists = combinations(shape.prefix, depth + 1);
    if (!lists) return std::unexpected(lists.error());
    if (!*lists) return false;
    for (const std::vector<Value>& list : **lists) {
      std::string key = "[";
      ArrayNode node;
      for (const Value& value : list) {
        key += value.key + ",";
        node.prefix.push_back(value.node);
      }
      node.min_items = node.max_items = static_cast<std::int64_t>(list.size());
      out.push_back({key + "]", add(std::move(node))});
    }
  }
  for (const ObjectShape& shape : norm.objects) {
    if (!fixed(shape)) return false;
    std::vector<Term> parts;
    std::vector<std::string> names;
    for (const ObjectShape::Property& p : shape.properties) {
      if (!p.required) continue;
      parts.push_back(p.value);
      names.push_back(p.name);
    }
    auto lists = combinations(parts, depth + 1);
    if (!lists) return std::unexpected(lists.error());
    if (!*lists) return false;
    for (const std::vector<Value>& list : **lists) {
      ObjectNode node;
      std::vector<std::string> keys;
      for (std::size_t i = 0; i < list.size(); ++i) {
        keys.push_back(json_quote(names[i]) + ":" + list[i].key + ",");
        node.properties.push_back({.name = names[i], .value = list[i].node, .required = true});
      }
      std::ranges::sort(keys);
      std::string key = "{";
      for (const std::string& part : keys) key += part;
      out.push_back({key + "}", add(std::move(node))});
    }
  }
  return out.size() <= kMost;
}

/// All choices of one value for each part.
Checked<std::optional<std::vector<std::vector<Emitter::Value>>>> Emitter::combinations(const std::vector<Term>& parts,
                                                                                       int depth) {
  std::vector<std::vector<Value>> lists{{}};
  for (const Term part : parts) {
    auto values = values_of(part, depth);
    if (!values) return std::unexpected(values.error());
    if (!*values || (*values)->size() * lists.size() > kMost) return std::nullopt;
    std::vector<std::vector<Value>> longer;
    for (const std::vector<Value>& list : lists) {
      for (const Value& value : **values) {
        longer.push_back(list);
        longer.back().push_back(value);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

}  // namespace barg::text::grammar::schema
