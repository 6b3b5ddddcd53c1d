// What the machine knows about one automaton before it runs: Bytes as they are, and Content, the text inside
// a JSON string, with lengths (TextPlan). Made at compile, once per Dfa; immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "barg/result.h"
#include "text/grammar/dfa.h"
#include "text/grammar/machine_text.h"

namespace barg::text::grammar::pushdown {

/// States from which every string of plain characters (machine.h, plain_run) stays within the set: the
/// greatest such set. `accepting_only`: of accepting states. Empty where finding out would take too long.
std::vector<std::uint8_t> plain_closed(const Dfa& dfa, bool accepting_only);

struct Bytes {
  DfaPtr dfa;
  std::vector<std::uint8_t> more;   ///< a byte may follow
  std::vector<std::uint8_t> plain;  ///< plain_closed
  Cost plain_worst = 0;             ///< largest min_bytes of those
};
Bytes make_bytes(DfaPtr dfa);

/// A language of valid UTF-8, with what its words cost to spell inside quotes.
struct Content {
  struct Edge {
    std::uint32_t to;
    std::uint32_t bytes;  ///< so many of them lead there
    std::uint8_t weight;  ///< each is spelled in so many
  };
  DfaPtr dfa;
  std::vector<std::uint8_t> phase;   ///< continuation bytes that the state waits for; 0: between characters
  std::vector<std::uint32_t> first;  ///< edges of state q: first[q] .. first[q + 1]
  std::vector<Edge> edges;
  std::vector<Cost> distance;                        ///< cheapest spelling of a way to acceptance
  std::vector<std::uint8_t> plain, plain_accepting;  ///< plain_closed
  Cost plain_worst = 0;                              ///< largest distance in `plain`

  std::span<const Edge> from(std::uint32_t q) const {
    return {edges.data() + first[q], edges.data() + first[q + 1]};
  }
  bool boundary(std::uint32_t q) const { return phase[q] == 0; }
};
/// What is no valid UTF-8 is taken out. kUnsupported: too large. An empty language has no states.
Result<Content> make_content(const DfaPtr& dfa);

/// Words of a Content by what they cost to spell: counts[c], saturating; whole where the language ends there.
/// Goes on until `enough` are counted. kUnsupported: that takes too long.
Result<std::vector<std::int64_t>> words_by_cost(const Content& content, std::int64_t enough);

/// A Content of min..max characters. `count` below is the number of whole characters behind one.
class TextPlan {
 public:
  static Result<TextPlan> make(std::shared_ptr<const Content> content, std::int64_t min, std::int64_t max);

  const Content& content() const { return *content_; }
  bool empty() const { return content_->dfa->empty(); }
  bool bounded() const { return min_ > 0 || max_ >= 0; }
  /// Cheapest spelling of the rest, the closing quote not counted.
  Cost cost(std::uint32_t q, std::uint32_t count) const;
  bool may_close(std::uint32_t q, std::uint32_t count) const {
    return content_->dfa->accepting(q) && content_->boundary(q) && count >= min_;
  }
  /// `count` behind one more character; it stops where no bound looks at it.
  std::uint32_t count_behind(std::uint32_t count) const {
    return max_ < 0 && count >= min_ ? count : count + 1;
  }
  /// As Machine::plain_run, of a state between characters, and the largest cost() on the way.
  std::int64_t plain_run(std::uint32_t q, std::uint32_t count) const;
  Cost plain_worst(std::uint32_t count) const;
  std::size_t cells() const { return (head_.size() + tail_.size()) * content_->dfa->num_states(); }

 private:
  using Row = std::vector<std::int32_t>;
  Result<void> make_rows();
  Row row_before(const Row& next, bool may_end) const;

  std::shared_ptr<const Content> content_;
  std::int64_t min_ = 0, max_ = -1;
  /// Costs by state: head_[n] of n < min characters; tail_[r] where r more may follow, the last one for all
  /// larger r (without a maximum: the only one).
  std::vector<Row> head_, tail_;
};

}  // namespace barg::text::grammar::pushdown
