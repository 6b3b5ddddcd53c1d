// What `lenient` has left out, as lists that share their parts: putting two together is one number, however
// long they are and however often a schema is referred to. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/grammar/schema_issue.h"

namespace barg::text::grammar::schema {

using Dropped = std::int32_t;
inline constexpr Dropped kNoneDropped = -1;

class DropLists {
 public:
  Dropped with(Dropped list, Issue issue) {
    issues_.push_back(std::move(issue));
    return add({list, kNoneDropped, static_cast<std::int32_t>(issues_.size() - 1)});
  }
  Dropped both(Dropped a, Dropped b) {
    if (a == b || b == kNoneDropped) return a;
    return a == kNoneDropped ? b : add({a, b, kNoneDropped});
  }
  /// All in any of `lists`, each part once, in the order in which they were left out.
  std::vector<Issue> issues(std::span<const Dropped> lists) const {
    std::vector<bool> seen(parts_.size(), false);
    for (const Dropped list : lists) {
      if (list != kNoneDropped) seen[static_cast<std::size_t>(list)] = true;
    }
    // A part is made after those it is made of.
    std::vector<bool> here(issues_.size(), false);
    for (std::size_t i = parts_.size(); i-- > 0;) {
      if (!seen[i]) continue;
      for (const Dropped of : {parts_[i].first, parts_[i].second}) {
        if (of != kNoneDropped) seen[static_cast<std::size_t>(of)] = true;
      }
      if (parts_[i].issue >= 0) here[static_cast<std::size_t>(parts_[i].issue)] = true;
    }
    std::vector<Issue> out;
    for (std::size_t i = 0; i < issues_.size(); ++i) {
      if (here[i]) out.push_back(issues_[i]);
    }
    return out;
  }

 private:
  struct Part {
    Dropped first, second;
    std::int32_t issue;  // -1: none of its own
  };
  Dropped add(Part part) {
    parts_.push_back(part);
    return static_cast<Dropped>(parts_.size() - 1);
  }

  std::vector<Part> parts_;
  std::vector<Issue> issues_;
};

}  // namespace barg::text::grammar::schema
