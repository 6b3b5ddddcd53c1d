#include "text/grammar/schema_document.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/utf8.h"
#include "text/grammar/schema_uri.h"

namespace barg::text::grammar::schema {
namespace {

struct HoldsRow {
  std::string_view keyword;
  Holds holds;
};

constexpr HoldsRow kHolds[] = {
    {"properties", Holds::kMembers},
    {"patternProperties", Holds::kMembers},
    {"$defs", Holds::kMembers},
    {"definitions", Holds::kMembers},
    {"dependentSchemas", Holds::kMembers},
    {"dependencies", Holds::kMembers},
    {"allOf", Holds::kItems},
    {"anyOf", Holds::kItems},
    {"oneOf", Holds::kItems},
    {"prefixItems", Holds::kItems},
    {"items", Holds::kSchemaOrItems},
    {"additionalProperties", Holds::kSchema},
    {"additionalItems", Holds::kSchema},
    {"propertyNames", Holds::kSchema},
    {"contains", Holds::kSchema},
    {"not", Holds::kSchema},
    {"if", Holds::kSchema},
    {"then", Holds::kSchema},
    {"else", Holds::kSchema},
    {"unevaluatedProperties", Holds::kSchema},
    {"unevaluatedItems", Holds::kSchema},
};

/// The drafts by the URI of their meta schema, without fragment and scheme.
std::optional<Draft> draft_of_uri(std::string_view uri) {
  uri = split_fragment(uri).first;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  }
  if (uri == "json-schema.org/draft-07/schema") return Draft::k7;
  if (uri == "json-schema.org/draft/2019-09/schema") return Draft::k2019;
  if (uri == "json-schema.org/draft/2020-12/schema") return Draft::k2020;
  return std::nullopt;
}

const std::string* string_member(const Json& json, std::string_view name) {
  const Json* value = json.find(name);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

/// One token of a JSON pointer.
std::string unescaped(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool escape = token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
    out += escape ? (token[++i] == '0' ? '~' : '/') : token[i];
  }
  return out;
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

/// Anywhere, also where no keyword leads to a schema: a $ref may.
bool mentions_unevaluated(const Json& json) {
  if (json.is_array()) return std::ranges::any_of(json.as_array(), mentions_unevaluated);
  return json.is_object() && std::ranges::any_of(json.as_object(), [](const Json::Member& m) {
           return m.first.starts_with("unevaluated") || mentions_unevaluated(m.second);
         });
}

}  // namespace

Holds holds_of(std::string_view keyword) {
  const auto row =
      std::find_if(std::begin(kHolds), std::end(kHolds), [&](const HoldsRow& r) { return r.keyword == keyword; });
  return row == std::end(kHolds) ? Holds::kNothing : row->holds;
}

SchemaDocument::SchemaDocument(const Json& root) {
  bases_.emplace_back();
  places_.push_back({.json = &root});
  known_.emplace(&root, 0);
}

Checked<void> SchemaDocument::read(const SchemaOptions& options) {
  const Json& root = json(0);
  if (auto found = find_draft(options); !found) return found;
  if (const std::string* id = string_member(root, "$id"); id != nullptr && !id->starts_with('#')) {
    bases_[0] = std::string(split_fragment(*id).first);
  }
  resources_.emplace(bases_[0], 0);
  has_unevaluated_ = mentions_unevaluated(root);
  return walk(0, options.max_depth);
}

Checked<void> SchemaDocument::find_draft(const SchemaOptions& options) {
  draft_ = options.draft;
  const Json* named = json(0).find("$schema");
  if (named == nullptr) return {};
  if (!named->is_string()) return invalid(0, "$schema", "it must be a string");
  const std::optional<Draft> draft = draft_of_uri(named->as_string());
  if (!draft) return unsupported(0, "$schema", "drafts 7, 2019-09 and 2020-12 are known, and no other meta schema");
  draft_ = *draft;
  return {};
}

Place SchemaDocument::add(Known known) {
  const auto [it, added] = known_.emplace(known.json, static_cast<Place>(places_.size()));
  if (!added) return it->second;
  known.base = places_[static_cast<std::size_t>(known.parent)].base;
  const std::string* id = string_member(*known.json, "$id");
  // In draft 7 a $ref hides all of its siblings, $id included.
  const bool hidden = draft_ == Draft::k7 && known.json->find("$ref") != nullptr;
  if (id != nullptr && !hidden && !id->starts_with('#')) {
    const std::string base = resolve_uri(bases_[static_cast<std::size_t>(known.base)], *id);
    known.base = static_cast<std::int32_t>(bases_.size());
    bases_.emplace_back(split_fragment(base).first);
  }
  places_.push_back(known);
  return it->second;
}

Place SchemaDocument::member(Place parent, std::string_view name) {
  for (const Json::Member& m : json(parent).as_object()) {
    if (m.first == name) return add({.json = &m.second, .parent = parent, .name = m.first});
  }
  CHECK(false);
}

Place SchemaDocument::item(Place parent, std::size_t index) {
  const Json::Array& list = json(parent).as_array();
  CHECK(index < list.size());
  return add({.json = &list[index], .parent = parent, .index = index, .in_list = true});
}

std::vector<std::pair<std::string_view, Place>> SchemaDocument::members(Place parent) {
  std::vector<std::pair<std::string_view, Place>> out;
  for (const Json::Member& m : json(parent).as_object()) {
    out.emplace_back(m.first, add({.json = &m.second, .parent = parent, .name = m.first}));
  }
  return out;
}

std::pair<Place, std::string> SchemaDocument::owner(Place place) const {
  for (Place p = place; p > 0;) {
    const Known& known = places_[static_cast<std::size_t>(p)];
    p = known.parent;
    // A property may be called as a keyword is; what holds it then is the keyword above.
    const Known& above = places_[static_cast<std::size_t>(p)];
    const bool in_members = p > 0 && !above.in_list && holds_of(above.name) == Holds::kMembers;
    if (!known.in_list && !in_members && holds_of(known.name) != Holds::kNothing) return {p, std::string(known.name)};
  }
  return {0, "$ref"};
}

std::string SchemaDocument::pointer(Place place) const {
  std::vector<Place> way;
  for (Place p = place; p > 0; p = places_[static_cast<std::size_t>(p)].parent) way.push_back(p);
  std::string out = "#";
  for (auto p = way.rbegin(); p != way.rend(); ++p) {
    const Known& known = places_[static_cast<std::size_t>(*p)];
    out += "/" + (known.in_list ? std::to_string(known.index) : escaped(known.name));
  }
  return out;
}

/// false: the name is that of a schema that says something else.
bool SchemaDocument::name_place(Names& names, const std::string& name, Place place) const {
  const auto [it, added] = names.emplace(name, place);
  return added || it->second == place || json(it->second) == json(place);
}

Checked<void> SchemaDocument::note_identity(Place place) {
  const Json& schema = json(place);
  if (draft_ == Draft::k7 && schema.find("$ref") != nullptr) return {};
  const std::string& base = bases_[static_cast<std::size_t>(places_[static_cast<std::size_t>(place)].base)];
  if (const Json* named = schema.find("$schema"); named != nullptr && place != 0) {
    if (!named->is_string() || draft_of_uri(named->as_string()) != draft_) {
      return unsupported(place, "$schema", "a part of the schema is of another draft");
    }
  }
  if (const std::string* id = string_member(schema, "$id")) {
    if (!id->starts_with('#')) {
      if (!name_place(resources_, base, place)) return invalid(place, "$id", "another schema has the same");
    } else if (draft_ == Draft::k7) {
      if (!name_place(anchors_, base + *id, place)) return invalid(place, "$id", "another schema has the same");
    } else {
      return invalid(place, "$id", "it must not be a fragment; $anchor names a place since 2019-09");
    }
  }
  if (draft_ == Draft::k7) return {};
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const std::string* anchor = string_member(schema, keyword);
    if (anchor != nullptr && !name_place(anchors_, base + "#" + *anchor, place)) {
      return invalid(place, std::string(keyword), "another schema has the same");
    }
  }
  return {};
}

Checked<void> SchemaDocument::walk(Place place, std::int32_t depth_left) {
  if (!json(place).is_object()) return {};
  if (depth_left <= 0) return unsupported(place, "", "the schema is nested too deeply");
  if (auto noted = note_identity(place); !noted) return noted;
  for (const Json::Member& m : json(place).as_object()) {
    const Holds holds = holds_of(m.first);
    if (holds == Holds::kNothing) continue;
    if (auto walked = walk_keyword(member(place, m.first), holds, depth_left - 1); !walked) return walked;
  }
  return {};
}

Checked<void> SchemaDocument::walk_keyword(Place keyword, Holds holds, std::int32_t depth_left) {
  const Json& value = json(keyword);
  if (holds == Holds::kSchema || (holds == Holds::kSchemaOrItems && !value.is_array()))
    return walk(keyword, depth_left);
  if (value.is_array() && holds != Holds::kMembers) {
    for (std::size_t i = 0; i < value.as_array().size(); ++i) {
      if (auto walked = walk(item(keyword, i), depth_left); !walked) return walked;
    }
  }
  if (value.is_object() && holds == Holds::kMembers) {
    for (const auto& [name, place] : members(keyword)) {
      if (auto walked = walk(place, depth_left); !walked) return walked;
    }
  }
  return {};
}

Checked<Place> SchemaDocument::resolve(Place from, const std::string& reference) {
  const std::string& base = bases_[static_cast<std::size_t>(places_[static_cast<std::size_t>(from)].base)];
  const std::string target = resolve_uri(base, reference);
  const auto [uri, raw_fragment] = split_fragment(target);
  const auto resource = resources_.find(uri);
  if (resource == resources_.end()) {
    return unsupported(from, "$ref",
                       "it refers to '" + repair_utf8(uri.substr(0, 200)) + "', which is outside of this schema");
  }
  const std::string fragment = percent_decoded(raw_fragment);
  if (fragment.empty()) return resource->second;
  if (fragment.starts_with('/')) return follow(resource->second, fragment, from);
  const auto anchor = anchors_.find(std::string(uri) + "#" + fragment);
  if (anchor == anchors_.end()) {
    return invalid(from, "$ref", "there is no anchor '" + repair_utf8(std::string_view(fragment).substr(0, 100)) + "'");
  }
  return anchor->second;
}

Checked<Place> SchemaDocument::follow(Place from, std::string_view pointer, Place at) {
  Place place = from;
  while (!pointer.empty()) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string token = unescaped(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    const Json& here = json(place);
    std::size_t index = 0;
    const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), index);
    const bool number = error == std::errc() && stop == token.data() + token.size();
    if (here.is_object() && here.find(token) != nullptr) {
      place = member(place, token);
    } else if (here.is_array() && number && index < here.as_array().size()) {
      place = item(place, index);
    } else {
      return invalid(
          at, "$ref",
          "it refers to nothing: there is no '" + repair_utf8(std::string_view(token).substr(0, 100)) + "' on its way");
    }
  }
  return place;
}

}  // namespace barg::text::grammar::schema
