// SchemaDocument: the places of one schema document, and what $ref, $id and $anchor mean in it.
//
// A Place is one value of the document with the base URI that holds there; it is made when first asked for, and its
// JSON pointer is written out only for messages. Keeps pointers into the Json it was read from, which must outlive it.
// One thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_issue.h"

namespace barg::text::grammar::schema {

/// Where the keyword's schemas are: in its value, in the members of that object, in the items of that list.
enum class Holds : std::uint8_t { kNothing, kSchema, kMembers, kItems, kSchemaOrItems };
Holds holds_of(std::string_view keyword);

class SchemaDocument {
 public:
  explicit SchemaDocument(const Json& root);
  /// Finds the draft ($schema, else the options'), all $id and anchors. The depth of nesting is bounded by the options.
  /// Call once, before anything but pointer().
  Checked<void> read(const SchemaOptions& options);

  Draft draft() const { return draft_; }
  /// unevaluatedProperties or unevaluatedItems occurs somewhere.
  bool has_unevaluated() const { return has_unevaluated_; }
  Place root() const { return 0; }
  const Json& json(Place place) const { return *places_[static_cast<std::size_t>(place)].json; }
  /// REQUIRES that the member or the item exists.
  Place member(Place parent, std::string_view name);
  Place item(Place parent, std::size_t index);
  /// All members of an object, in its order. REQUIRES an object.
  std::vector<std::pair<std::string_view, Place>> members(Place parent);
  /// What a $ref at `from` refers to.
  Checked<Place> resolve(Place from, const std::string& reference);
  /// The keyword that `place` is a part of, and the schema object that has it: (#/oneOf/1: #, "oneOf"); the root: (#,
  /// "$ref").
  std::pair<Place, std::string> owner(Place place) const;
  /// "#/properties/a"
  std::string pointer(Place place) const;

 private:
  struct Known {
    const Json* json = nullptr;
    Place parent = kNoPlace;
    std::string_view name = {};  ///< of a member
    std::size_t index = 0;       ///< of an item
    bool in_list = false;
    std::int32_t base = 0;
  };

  Place add(Known known);
  Checked<void> find_draft(const SchemaOptions& options);
  Checked<void> walk(Place place, std::int32_t depth_left);
  Checked<void> walk_keyword(Place keyword, Holds holds, std::int32_t depth_left);
  using Names = std::map<std::string, Place, std::less<>>;
  bool name_place(Names& names, const std::string& name, Place place) const;
  Checked<void> note_identity(Place place);
  Checked<Place> follow(Place from, std::string_view pointer, Place at);

  Draft draft_ = Draft::k2020;
  bool has_unevaluated_ = false;
  std::vector<Known> places_;
  std::unordered_map<const Json*, Place> known_;
  std::vector<std::string> bases_;  ///< absolute where any $id is; bases_[0] of the root without $id: ""
  Names resources_;                 ///< by base
  Names anchors_;                   ///< by base + '#' + anchor
};

}  // namespace barg::text::grammar::schema
