#include "server/responses_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/responses_seal.h"

namespace barg::server {
namespace {

constexpr std::size_t kEntryBytes = 1024;  ///< of the objects around the texts

}  // namespace

// ---- one answer

void StoredResponse::begin(std::string object) {
  const std::lock_guard lock(mutex_);
  if (!finished_) object_ = std::move(object);
}

bool StoredResponse::append(std::string_view events, std::size_t count) {
  bool grown = false;
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || lost_ || !origin_.streamed) return false;
    if (events_.size() + events.size() > kMaxEventBytes) {
      lose_events();
    } else {
      const std::size_t before = starts_.size();
      for (std::size_t at = 0; starts_.size() < before + count; at = events.find("\n\n", at) + 2)
        starts_.push_back(events_.size() + at);
      events_ += events;
    }
    const std::size_t now = events_.capacity() + starts_.capacity() * sizeof(std::size_t);
    grown = now > charged_events_ + kChargeStep || lost_;
    if (grown) charged_events_ = now;
  }
  wake_followers();
  return grown;
}

void StoredResponse::finish(std::string object, std::string output) {
  decltype(followers_) followers;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    followers.swap(followers_);
    object_ = std::move(object);
    output_ = std::make_shared<const std::string>(std::move(output));
    finisher_ = nullptr;
    cancel_ = nullptr;
    events_.shrink_to_fit();
    starts_.shrink_to_fit();
  }
  for (const auto& [id, wake] : followers) (*wake)();
}

void StoredResponse::finish_empty(std::string object) { finish(std::move(object), "[]"); }

void StoredResponse::set_finisher(std::function<void(std::string&)> finisher) {
  const std::lock_guard lock(mutex_);
  if (!finished_) finisher_ = std::move(finisher);
}

void StoredResponse::set_cancel(std::function<void(std::function<void()>)> cancel) {
  const std::lock_guard lock(mutex_);
  if (!finished_) cancel_ = std::move(cancel);
}

bool StoredResponse::finish_cancelled(std::string& events) {
  std::function<void(std::string&)> finisher;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return false;
    finisher = std::exchange(finisher_, nullptr);
  }
  if (!finisher) return false;
  finisher(events);
  return true;
}

bool StoredResponse::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

std::string StoredResponse::object() const {
  const std::lock_guard lock(mutex_);
  return object_;
}

ItemList StoredResponse::output() const {
  const std::lock_guard lock(mutex_);
  return output_;
}

std::vector<ItemList> StoredResponse::conversation() const {
  std::vector<ItemList> lists = origin_.history;
  lists.push_back(origin_.input);
  const std::lock_guard lock(mutex_);
  CHECK(finished_);
  lists.push_back(output_);
  return lists;
}

void StoredResponse::cancel(std::function<void()> done) {
  std::function<void(std::function<void()>)> cancel;
  {
    const std::lock_guard lock(mutex_);
    if (!finished_) cancel = cancel_;
  }
  if (!cancel) return done();
  cancel(std::move(done));
}

StoredResponse::Read StoredResponse::read(std::size_t& at, std::size_t most, std::string& out) const {
  const std::lock_guard lock(mutex_);
  if (lost_) return {.over = true, .lost = true};
  if (at < events_.size()) {
    // To the start of the first event that would begin beyond `most`; at least one event.
    const auto first = std::upper_bound(starts_.begin(), starts_.end(), at);
    const auto last = std::upper_bound(first, starts_.end(), at + most);
    const std::size_t end = last == starts_.end() ? events_.size() : *last;
    out.append(events_, at, end - at);
    at = end;
  }
  return {.over = finished_ && at >= events_.size(), .lost = false};
}

std::optional<std::size_t> StoredResponse::position_after(std::int64_t after) const {
  const std::lock_guard lock(mutex_);
  if (after < 0 || lost_) return 0;
  const auto next = static_cast<std::uint64_t>(after) + 1;
  if (next > starts_.size()) return std::nullopt;
  return next < starts_.size() ? starts_[next] : events_.size();
}

std::optional<StoredResponse::FollowerId> StoredResponse::follow(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  const FollowerId id = next_follower_++;
  if (finished_) return id;  // all there will ever be is there
  if (followers_.size() >= kMaxFollowers) return std::nullopt;
  followers_.emplace(id, std::make_shared<const std::function<void()>>(std::move(wake)));
  return id;
}

void StoredResponse::unfollow(FollowerId id) {
  std::shared_ptr<const std::function<void()>> gone;  // what it holds goes without the lock
  const std::lock_guard lock(mutex_);
  const auto found = followers_.find(id);
  if (found == followers_.end()) return;
  gone = std::move(found->second);
  followers_.erase(found);
}

void StoredResponse::wake_followers() {
  decltype(followers_) all;
  {
    const std::lock_guard lock(mutex_);
    if (followers_.empty()) return;
    all = followers_;
  }
  for (const auto& [id, wake] : all) (*wake)();
}

std::size_t StoredResponse::bytes() const {
  std::size_t sum = kEntryBytes + origin_.owner.size() + origin_.history.capacity() * sizeof(ItemList);
  for (const ItemList& list : origin_.history) sum += list->size();
  sum += origin_.input->size();
  const std::lock_guard lock(mutex_);
  sum += object_.size() + events_.capacity() + starts_.capacity() * sizeof(std::size_t);
  return sum + (output_ ? output_->size() : 0);
}

void StoredResponse::lose_events() {
  lost_ = true;
  std::string().swap(events_);  // their memory is what is wanted
  std::vector<std::size_t>().swap(starts_);
}

void StoredResponse::drop_events() {
  {
    const std::lock_guard lock(mutex_);
    if (!origin_.streamed || lost_) return;
    lose_events();
    charged_events_ = 0;
  }
  wake_followers();
}

// ---- all answers

ResponseStore::ResponseStore(ResponseStoreLimits limits, const Clock& clock)
    : limits_(limits), clock_(clock), secret_(random_secret()) {}

void ResponseStore::drop(Order::iterator entry) {
  bytes_ -= entry->charge;
  if (entry->finished_at >= 0) {
    const auto [first, last] = by_age_.equal_range(entry->finished_at);
    for (auto it = first; it != last; ++it) {
      if (it->second != entry->id) continue;
      by_age_.erase(it);
      break;
    }
  }
  by_id_.erase(entry->id);
  order_.erase(entry);
}

void ResponseStore::drop_old() {
  const double oldest = clock_.now() - limits_.ttl_s;
  while (!by_age_.empty() && by_age_.begin()->first <= oldest) drop(by_id_.at(by_age_.begin()->second));
}

bool ResponseStore::make_room() {
  auto it = order_.end();
  while (bytes_ > limits_.bytes && it != order_.begin()) {
    --it;
    if (it->finished_at < 0) continue;
    const auto victim = it++;
    drop(victim);
  }
  return bytes_ <= limits_.bytes;
}

bool ResponseStore::insert(const std::string& id, std::shared_ptr<StoredResponse> response) {
  const std::lock_guard lock(mutex_);
  if (!enabled() || by_id_.contains(id)) return false;
  drop_old();
  const std::size_t charge = response->bytes();
  if (charge > limits_.bytes) return false;
  order_.push_front({.id = id, .response = std::move(response), .charge = charge, .finished_at = -1});
  by_id_.emplace(id, order_.begin());
  bytes_ += charge;
  if (!make_room()) {
    drop(order_.begin());
    return false;
  }
  order_.front().response->kept_ = true;
  return true;
}

std::shared_ptr<StoredResponse> ResponseStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  drop_old();
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end() || found->second->response->origin().owner != owner) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view id, std::string_view owner) {
  std::shared_ptr<StoredResponse> response;
  {
    const std::lock_guard lock(mutex_);
    drop_old();
    const auto found = by_id_.find(std::string(id));
    if (found == by_id_.end() || found->second->response->origin().owner != owner) return false;
    response = found->second->response;
    drop(found->second);
  }
  response->cancel([] {});
  return true;
}

void ResponseStore::recharge(const std::string& id) {
  std::shared_ptr<StoredResponse> too_long;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    Entry& entry = *found->second;
    const auto count = [&] {
      const std::size_t charge = entry.response->bytes();
      bytes_ += charge - entry.charge;
      entry.charge = charge;
    };
    count();
    if (entry.finished_at < 0 && entry.response->finished()) {
      entry.finished_at = clock_.now();
      by_age_.emplace(entry.finished_at, id);
    }
    if (make_room() || !by_id_.contains(id)) return;
    too_long = entry.response;  // it runs, and everything else that could go is gone
  }
  too_long->drop_events();
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const std::size_t charge = found->second->response->bytes();
  bytes_ += charge - found->second->charge;
  found->second->charge = charge;
}

void ResponseStore::cancel_all() {
  std::vector<std::shared_ptr<StoredResponse>> running;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : order_) {
      if (entry.finished_at < 0) running.push_back(entry.response);
    }
  }
  for (const auto& response : running) response->cancel([] {});
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

ResponseStore::Held ResponseStore::held() {
  const std::lock_guard lock(mutex_);
  drop_old();
  return {.count = order_.size(), .bytes = bytes_};
}

}  // namespace barg::server
