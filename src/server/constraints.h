// Constraints: what requests ask of their answers becomes automata, each compiled once. One object per server.
//
// The cache is keyed by everything a compiled constraint depends on: model, kind, schema or text with its order of
// members, options, the tools where they matter. Compiling takes from microseconds to a second and happens on the
// caller's thread, once for callers of the same constraint at the same time; who may not wait asks with find().
// What cannot be compiled is not kept.
//
// Threads: thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "barg/constraint.h"
#include "barg/result.h"
#include "server/openai_json.h"
#include "server/served_model.h"
#include "text/grammar/machine.h"
#include "text/grammar/schema.h"
#include "text/grammar/vocabulary.h"

namespace barg::server {

/// Does the request bind what is sampled: by a constraint, a call that is required, or strict tools?
bool constrained(const ApiRequest& request);

struct CompiledConstraint {
  std::shared_ptr<const Constraint> constraint;
  /// What a lenient schema, or a tool that is not strict, loses; and what has no effect in the schema's draft. Pointers
  /// into tools begin with the tool's field.
  std::vector<text::grammar::Unenforced> unenforced;
};

/// Value of the x-barg-unenforced header: "POINTER KEYWORD, ...", printable, bounded. Empty where everything is enforced.
std::string unenforced_header(std::span<const text::grammar::Unenforced> unenforced);

class Constraints {
 public:
  static constexpr std::size_t kKept = 32;  ///< compiled ones, the most recently used
  static constexpr std::size_t kMachineBytes = std::size_t{8} << 20;  ///< of each one's remembered states
  /// Of requests: found, compiled, refused.
  struct Counts {
    std::uint64_t found = 0, compiled = 0, refused = 0;
  };

  /// REQUIRES constrained(request). What is there already; nullptr: it must be compiled.
  std::shared_ptr<const CompiledConstraint> find(const ServedModel& model, const ApiRequest& request);
  /// The error names the request's field. kInvalidValue: nothing satisfies it, or the request's own token lists leave
  /// nothing of it; kUnsupported: it cannot be enforced.
  Result<std::shared_ptr<const CompiledConstraint>> compile(const ServedModel& model, const ApiRequest& request);
  Counts counts() const;

 private:
  struct Slot;

  std::shared_ptr<const text::grammar::Vocabulary> vocabulary(const ServedModel& model);
  Result<CompiledConstraint> make(const ServedModel& model, const ApiRequest& request);
  std::shared_ptr<Slot> slot(const std::string& key, bool add);
  void forget(const std::string& key);

  mutable std::mutex mutex_;
  Counts counts_;  // guarded by mutex_
  std::list<std::pair<std::string, std::shared_ptr<Slot>>> order_;  // guarded by mutex_; most recent first
  std::unordered_map<std::string, decltype(order_)::iterator> slots_;  // guarded by mutex_
  std::mutex vocabulary_mutex_;
  std::unordered_map<const ServedModel*, std::shared_ptr<const text::grammar::Vocabulary>> vocabularies_;  // guarded by it
};

}  // namespace barg::server
