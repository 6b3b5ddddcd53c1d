// Emitter: from Terms to the nodes of a Grammar. One node per Term, so recursion and sharing stay as small as the
// schema. Arrays whose rules one ArrayNode cannot say are written out as alternatives where they are few. One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/node.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar::schema {

class Emitter {
 public:
  Emitter(Normaliser& normaliser, const SchemaOptions& options);

  /// `root` and all that it needs. Call once.
  Checked<Grammar> run(Term root);
  /// A node with bounds, and the keyword of the schema that it is of.
  struct Origin {
    NodeId node;
    Place at;
    const char* keyword;
  };
  const std::vector<Origin>& origins() const { return origins_; }
  /// What `lenient` has left out of what was written.
  std::vector<Issue> dropped() { return normaliser_.algebra().drops().issues(dropped_); }

 private:
  /// One JSON value: a name that is equal for equal values, and a node that says just it.
  struct Value {
    std::string key;
    NodeId node = kNoNode;
  };
  using Values = std::optional<std::vector<Value>>;  // nullopt: too many

  NodeId node_of(Term term);
  NodeId add(Node node) { return grammar_.add(std::move(node)); }
  void drop(Issue issue) { dropped_.push_back(normaliser_.algebra().drops().with(kNoneDropped, std::move(issue))); }
  Checked<void> write(Term term, NodeId place);
  Checked<void> write_scalars(const Norm& norm, std::vector<NodeId>& options);
  NodeId object(const ObjectShape& shape);
  void note_origin(NodeId node, Term term);

  // schema_emit_arrays.cpp
  Checked<void> arrays(ArrayShape shape, std::vector<NodeId>& options);
  Checked<void> counted(const ArrayShape& shape, std::vector<NodeId>& options);
  Checked<void> counted_by_place(const ArrayShape& shape, std::vector<NodeId>& options);
  Checked<void> unique(const ArrayShape& shape, std::vector<NodeId>& options);
  Checked<void> unique_by_place(const ArrayShape& shape, std::vector<NodeId>& options);
  NodeId array(const ArrayShape& shape);
  NodeId not_counting(Term items, Term what);

  // schema_emit_values.cpp
  Checked<Values> values_of(Term term, int depth);
  Checked<std::optional<std::vector<std::vector<Value>>>> combinations(const std::vector<Term>& parts, int depth);
  Checked<bool> scalar_values(const Norm& norm, std::vector<Value>& out);
  Checked<bool> structured_values(const Norm& norm, std::vector<Value>& out, int depth);

  Normaliser& normaliser_;
  const SchemaOptions& options_;
  Grammar grammar_;
  std::map<Term, NodeId> nodes_;
  std::deque<Term> open_;
  std::vector<Dropped> dropped_;
  std::vector<Origin> origins_;
};

/// Which nodes have a string at all. Nodes are those an Emitter makes.
std::vector<bool> productive(const Grammar& grammar);

}  // namespace barg::text::grammar::schema
