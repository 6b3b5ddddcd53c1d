#include "sched/waiting_queue.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace barg::sched {
namespace {

std::size_t own_class(const Sequence& s) {
  return std::min<std::size_t>(2, static_cast<std::size_t>(s.request->priority));
}

}  // namespace

void WaitingQueue::insert(Sequence& s) {
  CHECK(classes_[own_class(s)].insert(&s).second);
  tokens_ += s.known();
}

void WaitingQueue::erase(Sequence& s) {
  CHECK(classes_[own_class(s)].erase(&s) == 1);
  tokens_ -= s.known();
}

std::int64_t WaitingQueue::size() const {
  return static_cast<std::int64_t>(classes_[0].size() + classes_[1].size() + classes_[2].size());
}

int WaitingQueue::effective_class(const Sequence& s, double now) const {
  const double rises = ageing_s_ > 0 ? (now - s.stats.arrived_s) / ageing_s_ : 0;
  return static_cast<int>(own_class(s)) - static_cast<int>(std::clamp(rises, 0.0, 2.0));
}

std::vector<Sequence*> WaitingQueue::front(double now, std::size_t count) const {
  std::array<std::set<Sequence*, Before>::const_iterator, 3> next;
  for (std::size_t c = 0; c < 3; ++c) next[c] = classes_[c].begin();
  std::vector<Sequence*> out;
  while (out.size() < count) {
    std::size_t best = 3;
    std::tuple<int, std::uint64_t> best_key;
    for (std::size_t c = 0; c < 3; ++c) {
      if (next[c] == classes_[c].end()) continue;
      const std::tuple key{std::max(0, effective_class(**next[c], now)), rank(**next[c])};
      if (best == 3 || key < best_key) best = c, best_key = key;
    }
    if (best == 3) break;
    out.push_back(*next[best]++);
  }
  return out;
}

std::vector<Sequence*> WaitingQueue::unadmitted_since(double t) const {
  std::vector<Sequence*> out;
  for (const auto& c : classes_) {
    for (Sequence* s : c) {  // behind the few resumed ones, arrivals only grow
      if (s->first_scheduled != 0) continue;
      if (s->stats.arrived_s >= t) break;
      out.push_back(s);
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
  return out;
}

}  // namespace barg::sched
