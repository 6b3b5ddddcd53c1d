// Generation: everything the machine remembers while it runs, in one arena: frames, names, states. Equal
// things are one pointer. It is forgotten as a whole; states of an older generation are copied over when they
// are used again.
//
// Not thread-safe: the machine's mutex is held. Only the fields of a State that its creation sets are read
// without it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/machine_plan.h"

namespace barg::text::grammar::pushdown {

class Arena {
 public:
  template <class T>
  T* allot(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(raw(n * sizeof(T), alignof(T)));
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* raw(std::size_t size, std::size_t align);
  static constexpr std::size_t kChunk = std::size_t{64} << 10;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t used_ = 0, room_ = 0, bytes_ = 0;
};

/// Pointers by hash, for what is interned: T has a member `hash`.
template <class T>
class InternTable {
 public:
  template <class Equal>
  T* find(std::uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      if (!slots_[i]) return nullptr;
      if (slots_[i]->hash == hash && equal(*slots_[i])) return slots_[i];
    }
  }
  void insert(T* item) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    put(item);
    ++size_;
  }
  std::size_t bytes() const { return slots_.size() * sizeof(T*); }

 private:
  void put(T* item) {
    std::size_t i = item->hash & (slots_.size() - 1);
    while (slots_[i]) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = item;
  }
  void grow() {
    std::vector<T*> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (T* item : old) {
      if (item) put(item);
    }
  }
  std::vector<T*> slots_;
  std::size_t size_ = 0;
};

inline std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15U;
  return h ^ h >> 32;
}

/// An open composite. `rest`: bytes to finish it and all around it, once the part in progress is whole.
struct Frame {
  std::uint64_t hash;
  NodeId node;
  std::int32_t depth;  ///< 1: outermost
  std::uint64_t a, b;  ///< the node's own (machine_rest.h)
  const Frame* parent;
  Cost rest;
  Cost own;  ///< of `rest`, what this node's members or items still cost (objects and arrays)
};

/// A set of names that an object has already had (those of its others), as a tree of bytes. Equal sets are
/// one pointer.
struct SeenNames {
  struct Child {
    std::uint8_t byte;
    const SeenNames* to;
    bool operator==(const Child&) const = default;
  };
  std::uint64_t hash;
  std::int64_t total;     ///< names in the set
  bool name;              ///< one ends here
  std::int32_t other;     ///< of `name`: which others it belongs to
  std::int32_t size;      ///< of `children`
  const Child* children;  ///< ascending

  std::span<const Child> all() const { return {children, static_cast<std::size_t>(size)}; }
  const SeenNames* child(std::uint8_t byte) const;
};

/// The beginning of a name that is none of the declared: its bytes, and where it stands among the names it
/// must not be.
struct PartialName {
  std::uint64_t hash;
  const PartialName* parent;  ///< null: empty
  const SeenNames* root;      ///< what the object has seen
  const SeenNames* seen;      ///< the place there; null: off
  std::int32_t declared;      ///< the place in ObjectPlan::names; kNone: off
  NodeId object;
  std::uint32_t id;
  std::int32_t length;
  Cost spelled;
  std::uint8_t byte;
};

/// Which part of a node a configuration is in.
enum Part : std::int32_t {
  kWhole = -4,  ///< leaves: bytes, strings, tokens
  kBegin = -3,  ///< an object or array before its bracket
  kPunctuation = -2,
  kName = kDeclared,  ///< a declared name of an object; 0 and above: a name of that `others`
};

struct Config {
  const Frame* frame;
  std::uint64_t local;
  NodeId node;
  std::int32_t part;
  bool operator==(const Config&) const = default;
};

class Generation;

}  // namespace barg::text::grammar::pushdown

namespace barg::text::grammar {

/// A set of configurations, in the order in which they were found. Behind `plain_worst` only under the
/// machine's mutex.
struct Machine::State {
  std::uint64_t hash;
  pushdown::Generation* home;
  const pushdown::Config* configs;
  std::uint32_t size;
  bool accepting;
  std::int64_t min_bytes;
  std::int64_t plain_run;
  std::int64_t plain_worst;

  // Transitions by byte (pushdown::Taken): most states know one for long.
  using Page = std::array<std::uintptr_t, 16>;
  std::array<Page*, 16>* next;  ///< null: at most `only` is known
  std::uintptr_t only;          ///< by the byte `only_byte`; 0: none
  std::uint8_t only_byte;
  const State* like = nullptr;  ///< Walk::like; null: not asked for

  std::span<const pushdown::Config> all() const { return {configs, size}; }
};

}  // namespace barg::text::grammar

namespace barg::text::grammar::pushdown {

using State = Machine::State;

/// Where a step leads and the work it took, rounded to a power of four (at most 4^7), in one word.
class Taken {
 public:
  Taken(const State* to, std::int64_t work) : word_(reinterpret_cast<std::uintptr_t>(to) | rank_of(work)) {}
  explicit Taken(std::uintptr_t word) : word_(word) {}
  std::uintptr_t word() const { return word_; }  ///< 0: nothing is known
  const State* to() const { return reinterpret_cast<const State*>(word_ & ~std::uintptr_t{7}); }
  std::int64_t work() const { return std::int64_t{1} << (2 * (word_ & 7)); }

 private:
  static std::uintptr_t rank_of(std::int64_t work) {
    const int bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(work, 1)));
    return static_cast<std::uintptr_t>(std::min(7, (bits - 1) / 2));
  }
  std::uintptr_t word_;
};
static_assert(alignof(State) >= 8);

class Generation {
 public:
  explicit Generation(const Plan& plan) : plan_(plan) {}
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// nullptr: it could not be finished.
  const Frame* frame(NodeId node, std::uint64_t a, std::uint64_t b, const Frame* parent);
  /// Null is the empty set.
  const SeenNames* add_name(const SeenNames* names, std::string_view name, std::int32_t other);
  const PartialName* partial(NodeId object, const SeenNames* seen);
  const PartialName* partial(const PartialName* before, std::uint8_t byte);
  const PartialName* partial(std::uint32_t id) const { return partials_[id]; }
  /// The beginning of a name that is none of those to be avoided, whatever its text.
  const PartialName* nameless(NodeId object);
  static bool is_nameless(const PartialName* name);  ///< does it begin so?
  void remember_like(const State* state, const State* like) { const_cast<State*>(state)->like = like; }
  static std::string text_of(const PartialName* name);

  /// The same set, or a new one whose costs `describe` fills in.
  template <class Describe>
  const State* state(std::span<const Config> configs, bool accepting, Describe&& describe) {
    std::uint64_t hash = accepting;
    for (const Config& c : configs) {
      hash = mix(mix(hash, reinterpret_cast<std::uintptr_t>(c.frame)), c.local);
      hash = mix(
          hash, std::uint64_t{static_cast<std::uint32_t>(c.node)} << 32 | static_cast<std::uint32_t>(c.part));
    }
    const auto same = [&](const State& s) {
      return s.accepting == accepting &&
             std::equal(configs.begin(), configs.end(), s.all().begin(), s.all().end());
    };
    if (State* known = states_.find(hash, same)) return known;
    State* made = new_state(configs, accepting, hash);
    describe(*made);
    return made;
  }

  /// What is remembered of a step: word() 0: nothing; dead(): that there is none.
  Taken known(const State* from, std::uint8_t byte) const {
    if (!from->next) return Taken(from->only_byte == byte ? from->only : 0);
    const State::Page* page = (*from->next)[byte >> 4];
    return Taken(page ? (*page)[byte & 15] : 0);
  }
  void remember(const State* from, std::uint8_t byte, Taken taken);
  const State* dead() const { return &dead_; }

  /// A state of another generation, in this one.
  const State* adopt(const State& old);

  /// Of escapes: the states of a content to which one may lead, with the bytes that are missing.
  struct Target {
    std::uint32_t state;
    int missing;
  };
  std::unordered_map<std::uint64_t, std::vector<Target>>& targets(const Content* content) {
    return targets_[content];
  }
  void count_extra(std::size_t bytes) { extra_ += bytes; }

  std::size_t bytes() const {
    return arena_.bytes() + extra_ + frames_.bytes() + seen_.bytes() + partial_table_.bytes() +
           states_.bytes() + partials_.capacity() * sizeof(void*);
  }
  /// Whether it remembers more than `limit` beside what it had to take over, or ids of names run out.
  bool full(std::size_t limit) const {
    return bytes() > limit + 2 * adopted_ || partials_.size() > kMaxTextExtra - (1U << 20);
  }

 private:
  using Copies = std::unordered_map<const void*, const void*>;
  static constexpr std::uint8_t kNameless = 1;  // the byte of nameless(); others that begin a name have 0
  State* new_state(std::span<const Config> configs, bool accepting, std::uint64_t hash);
  const SeenNames* seen_node(bool name, std::int32_t other, std::span<const SeenNames::Child> children);
  const PartialName* new_partial(PartialName made);
  Cost own_cost(NodeId node, std::uint64_t a, std::uint64_t b, std::int32_t depth) const;
  Config copy(const Config& c, const Generation& home, Copies& copies);
  const Frame* copy(const Frame* frame, Copies& copies);
  const SeenNames* copy(const SeenNames* names, Copies& copies);

  const Plan& plan_;
  Arena arena_;
  InternTable<Frame> frames_;
  InternTable<SeenNames> seen_;
  InternTable<PartialName> partial_table_;
  InternTable<State> states_;
  std::vector<const PartialName*> partials_;
  std::unordered_map<const Content*, std::unordered_map<std::uint64_t, std::vector<Target>>> targets_;
  std::size_t extra_ = 0, adopted_ = 0;
  State dead_{};
};

/// The names taken in a set, where costs depend on them.
std::vector<struct TakenName> taken_names(const SeenNames* names);

inline const SeenNames* seen_of(const Frame& f) { return reinterpret_cast<const SeenNames*>(f.b); }
inline Cost rest_of(const Frame* f) { return f ? f->rest : 0; }
inline std::int32_t depth_of(const Frame* f) { return f ? f->depth : 0; }

}  // namespace barg::text::grammar::pushdown
