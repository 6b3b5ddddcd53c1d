// Grammar as data: what the front ends (JSON Schema, regular expressions, GBNF, dialects of tool calls, structural
// tags) produce and the machine (machine.h) runs. A tree of nodes in an arena, closed by Ref for recursion.
//
// Meaning: every node is a set of strings over bytes and whole tokens (a kToken node is one given token, which no
// bytes spell). JSON nodes hold their own punctuation and white space:
//
//   white space: where JSON allows it inside Object and Array, as Grammar::spacing says; never before or after them.
//   Object: declared properties in their order, each at most once, then the others in any order; no name twice
//           (names are equal when their decoded text is, however it is escaped).
//   String: with its quotes; content and length are of the decoded text, any escape is as good as its character.
//
// Plain data; built by one thread, then immutable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "barg/types.h"
#include "text/grammar/dfa.h"

namespace barg::text::grammar {

using NodeId = std::int32_t;
inline constexpr NodeId kNoNode = -1;
inline constexpr std::int64_t kUnbounded = -1;

/// Bytes of a regular language, as they are.
struct BytesNode {
  DfaPtr dfa;
};

/// A JSON string. Lengths in code points.
struct StringNode {
  DfaPtr content;  ///< over decoded UTF-8; null: anything
  std::int64_t min_chars = 0;
  std::int64_t max_chars = kUnbounded;
};

struct TokenNode {
  TokenId id = kNoToken;
};

struct SequenceNode {
  std::vector<NodeId> parts;  ///< empty: the empty string
};

struct ChoiceNode {
  std::vector<NodeId> options;  ///< any of them; empty: nothing (no string)
};

/// item (separator item)*, min..max items.
struct RepeatNode {
  NodeId item = kNoNode;
  NodeId separator = kNoNode;  ///< may be kNoNode
  std::int64_t min = 0;
  std::int64_t max = kUnbounded;
};

struct ObjectNode {
  struct Property {
    std::string name;  ///< decoded
    NodeId value = kNoNode;
    bool required = false;
  };
  /// Further names: `names` over decoded text; null: any. Names of properties are excluded by the machine, and
  /// several `others` have disjoint names (the front end has seen to it).
  struct Other {
    DfaPtr names;
    NodeId value = kNoNode;
  };
  std::vector<Property> properties;  ///< distinct names
  std::vector<Other> others;
  std::int64_t min_properties = 0;  ///< of all together
  std::int64_t max_properties = kUnbounded;
};

struct ArrayNode {
  std::vector<NodeId> prefix;  ///< items of the first places
  NodeId items = kNoNode;      ///< of further places; kNoNode: none may follow
  std::int64_t min_items = 0;
  std::int64_t max_items = kUnbounded;
  /// Each option of the ChoiceNode `items` at most once (the front end has made every option one value, pairwise
  /// different; at most 64). REQUIRES an empty prefix.
  bool each_once = false;
  /// min_contains..max_contains items must match `contains`. The machine may read an item either way; with a maximum the
  /// two must be disjoint (not_contains), without one an item that matches may also go uncounted.
  NodeId contains = kNoNode;       ///< an item that counts, already intersected with its place; kNoNode: no such bound
  NodeId not_contains = kNoNode;   ///< an item that does not count; REQUIRED with max_contains, else kNoNode (`items` is used)
  std::int64_t min_contains = 1;
  std::int64_t max_contains = kUnbounded;
};

/// The same strings as `target`, for recursion and sharing.
struct RefNode {
  NodeId target = kNoNode;
};

using Node = std::variant<BytesNode, StringNode, TokenNode, SequenceNode, ChoiceNode, RepeatNode, ObjectNode, ArrayNode,
                          RefNode>;

enum class Spacing : std::uint8_t {
  kNone,      ///< none: compact JSON
  kFlexible,  ///< nothing, one blank, or a line break and at most 60 blanks or tabs
};

struct Grammar {
  std::vector<Node> nodes;
  NodeId root = kNoNode;
  Spacing spacing = Spacing::kFlexible;
  /// What a message begins with if a node is more than the machine can run: who asked for it. Of large nodes alone.
  std::map<NodeId, std::string> origins = {};

  NodeId add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<NodeId>(nodes.size() - 1);
  }
};

}  // namespace barg::text::grammar
