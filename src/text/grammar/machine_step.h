// Stepper: from a state and a byte to the next state.
//
// The configurations step one by one; what they lead to without input (parts begun, composites gone on with
// or finished) is a list of tasks, worked off without recursion. Everything comes in the grammar's order. A
// step that leads to more than the bounds allow is done once more, with the tasks in the order of what they
// cost, and the cheapest configurations are kept: so the shortest way to an end is never lost, and what is
// dropped is the same whatever was remembered.
//
// Work (configurations, tasks, costs of members that were found) is a function of the state and the byte
// alone.
//
// Not thread-safe: the machine's mutex is held.
#pragma once

#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "text/grammar/machine_names.h"
#include "text/grammar/machine_store.h"

namespace barg::text::grammar::pushdown {

/// Keys of one step: forgotten at once.
class StepSet {
 public:
  struct Key {
    const void* frame;
    std::uint64_t local, kind;
    bool operator==(const Key&) const = default;
  };
  void clear();
  /// The value of a key, `fresh` where there was none.
  std::int64_t& at(const Key& key, std::int64_t fresh);
  /// Whether it is new.
  bool insert(const Key& key) {
    std::int64_t& value = at(key, 0);
    return value++ == 0;
  }

 private:
  struct Slot {
    Key key;
    std::int64_t value;
    std::uint64_t epoch;
  };
  void grow();
  std::vector<Slot> slots_;
  std::uint64_t epoch_ = 1;
  std::size_t size_ = 0;
};

class Stepper {
 public:
  explicit Stepper(const Plan& plan) : plan_(plan) {}

  const State* start(Generation& home);
  /// nullptr: dead. Remembered. REQUIRES from->home == &home, as all of these. `work` counts.
  const State* step(Generation& home, const State* from, std::uint8_t byte, std::int64_t& work);
  const State* token(Generation& home, const State* from, TokenId id, std::int64_t& work);
  std::vector<TokenId> tokens(const State& from) const;
  /// As Machine::Walk::like. Remembered.
  const State* like(Generation& home, const State* state);

 private:
  enum Phase : std::uint8_t { kFirst, kBehindName, kBeforeValue, kBehindValue, kBehindComma };
  struct Punctuation {
    Phase phase = kFirst;
    std::uint8_t space = 0;     // 0: none yet, 1: a blank, 2 + n: a line break and n blanks
    std::int32_t selected = 0;  // kBehindName, kBeforeValue: the member; others come behind the declared ones
  };
  static std::uint64_t pack(Punctuation p) {
    return std::uint64_t{p.phase} | std::uint64_t{p.space} << 8 |
           static_cast<std::uint64_t>(p.selected) << 16;
  }
  static Punctuation unpack_punctuation(std::uint64_t local) {
    return {static_cast<Phase>(local & 0xFF), static_cast<std::uint8_t>(local >> 8),
            static_cast<std::int32_t>(local >> 16)};
  }
  struct Task {
    NodeId start;  // kNoNode: go on with the frame
    const Frame* frame;
  };

  void begin(Generation& home);
  template <class Move>
  const State* made(Generation& home, std::size_t moves, Move move);
  const State* finish();
  void describe(State& state) const;
  void add(const Config& config, Cost cost);
  void push_start(NodeId node, const Frame* frame) { tasks_.push_back({node, frame}); }
  void push_resume(const Frame* frame) { tasks_.push_back({kNoNode, frame}); }
  bool take(const Task& task);  ///< false: done before, or no more may be
  void work();
  Cost cost_of(const Task& task) const;
  void work_by_cost();
  void keep_cheapest();

  void start_node(NodeId node, const Frame* frame);
  void start_part(NodeId node, std::size_t part, const Frame* parent);
  void start_item(NodeId node, std::int64_t count, const Frame* parent);
  void start_separator(NodeId node, std::int64_t count, const Frame* parent);
  void start_repeat(NodeId node, const Frame* parent);
  void resume(const Frame* frame);
  void resume_repeat(const Frame& frame);
  bool worse_count(NodeId node, std::int64_t count, bool separator, const Frame* parent);

  void step_config(const Config& config, std::uint8_t byte);
  void step_bytes(const Config& config, std::uint8_t byte);
  void step_string(const Config& config, std::uint8_t byte);
  void step_declared(const Config& config, std::uint8_t byte);
  void step_other(const Config& config, std::uint8_t byte);
  void step_object(const Config& config, std::uint8_t byte);
  void step_array(const Config& config, std::uint8_t byte);
  void add_bytes(NodeId node, std::uint32_t state, const Frame* frame);
  void add_names(NodeId node, const Frame& frame);
  void add_object(NodeId node, Punctuation at, const Frame* frame);
  void add_array(NodeId node, Punctuation at, const Frame* frame);
  NodeId value_of(NodeId object, std::int32_t selected) const;
  bool may_space(std::uint8_t space) const;
  bool take_space(Punctuation& at, std::uint8_t byte) const;

  Cost string_cost(NodeId node, const TextLocal& local);
  Cost object_cost(NodeId node, Punctuation at, const Frame& frame);
  const std::vector<Generation::Target>& targets(const Content& content, const TextLocal& local);
  /// As Machine::plain_run and its worst, of one configuration.
  std::pair<std::int64_t, Cost> plain_run(const Config& config) const;
  std::pair<std::int64_t, Cost> string_run(const Config& config) const;

  const Plan& plan_;
  Generation* home_ = nullptr;
  std::vector<Config> configs_;
  std::vector<Cost> costs_;  // of configs_, in thrift
  std::vector<Task> tasks_;
  std::size_t budget_ = 0;  // tasks left
  StepSet seen_;
  bool accepting_ = false;
  bool overflow_ = false;  // something was dropped
  bool thrift_ = false;    // done once more, by costs
  Cost min_ = kNever;
  std::int64_t work_ = 0;
};

}  // namespace barg::text::grammar::pushdown
