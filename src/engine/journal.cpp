#include "engine/journal.h"

#include <type_traits>
#include <utility>

namespace barg::engine {
namespace {

template <class T>
void field(Sha256& h, const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  h.update(&value, sizeof value);
}

template <class T>
void fields(Sha256& h, const std::vector<T>& values) {
  field(h, values.size());
  if (!values.empty()) h.update(values.data(), values.size() * sizeof(T));
}

}  // namespace

void Journal::append(double time_s, decltype(JournalRecord::what) what) {
  std::lock_guard lock(mutex_);
  records_.push_back(JournalRecord{next_++, time_s, std::move(what)});
  while (records_.size() > capacity_) {
    records_.pop_front();
    ++dropped_;
  }
}

std::vector<JournalRecord> Journal::records() const {
  std::lock_guard lock(mutex_);
  return {records_.begin(), records_.end()};
}

std::uint64_t Journal::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

Digest plan_digest(const sched::StepPlan& plan) {
  Sha256 h;
  field(h, plan.id);
  field(h, plan.num_groups);
  field(h, plan.items.size());
  for (const auto& i : plan.items) {
    field(h, i.seq);
    field(h, i.epoch);
    field(h, i.start);
    field(h, i.count);
    field(h, i.token_offset);
    field(h, i.table_offset);
    field(h, i.want);
    field(h, i.logits_begin);
    field(h, static_cast<std::uint8_t>(i.sample));
    field(h, i.output_index);
  }
  fields(h, plan.tokens);
  fields(h, plan.tables);
  fields(h, plan.block_ids);
  fields(h, plan.copies);
  return h.finish();
}

}  // namespace barg::engine
