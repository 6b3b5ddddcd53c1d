// What /v1/responses remembers: answers under their ids, for previous_response_id, GET, DELETE, cancel and
// the replay of streams. In memory only; bounded in bytes and age; every answer belongs to the API key that
// asked for it, and is not there for any other.
//
//   writer --begin, append*, finish--> StoredResponse <--read, follow, cancel-- routes
//                                            |
//                                      ResponseStore (by id; least recently used goes first)
//
// Invariants:
//  1. What is charged for an answer covers all that it keeps alive, the conversation before it included, so
//  the sum of
//     charges bounds the memory although answers of one conversation share theirs. It never exceeds the
//     limit; a running stream may be up to kChargeStep ahead of its charge.
//  2. A running answer is never dropped for room: it goes at the earliest when it is finished. Its age counts
//  from then.
//  3. finish() happens once; afterwards nothing of a StoredResponse changes.
//
// Threads: both classes lock for themselves and may be used from any thread. The store takes an answer's lock
// under its own, never the other way round. Callbacks (followers, cancel, finisher) are called without any
// lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/env.h"

namespace barg::server {

/// One JSON array of items, as text: the input or the output of a turn. Shared by the answers of a
/// conversation.
using ItemList = std::shared_ptr<const std::string>;

inline constexpr std::size_t kMaxConversationLists = 4096;  ///< two a turn
inline constexpr std::size_t kMaxFollowers = 16;            ///< of one stream
inline constexpr std::size_t kMaxEventBytes = 32 << 20;  ///< of one stream; a longer one cannot be replayed
inline constexpr std::size_t kChargeStep = 32 << 10;

class StoredResponse {
 public:
  struct Origin {
    std::string owner;  ///< who may see it: a digest of the API key, empty where none is asked for
    std::vector<ItemList> history;  ///< the conversation before it, oldest first
    ItemList input;                 ///< its own items
    bool background = false;
    bool streamed = false;  ///< events are kept
  };
  explicit StoredResponse(Origin origin) : origin_(std::move(origin)) {}

  const Origin& origin() const { return origin_; }
  /// A store has it. False before ResponseStore::insert(), and for good where that failed.
  bool kept() const { return kept_; }

  // ---- the writer's side

  /// `object`: the answer as a GET shows it from now on. Where a store has it already, it should be told.
  void begin(std::string object);
  /// `events` complete server-sent events, `count` of them. True: the store should be told of the growth.
  bool append(std::string_view events, std::size_t count);
  /// The last events are in already. `output`: its items, what a next turn continues from.
  void finish(std::string object, std::string output);
  /// How to end it from outside: completes the answer as cancelled (calls finish()), and leaves its last
  /// events in the argument. Called at most once, on the thread on which the writer lives.
  void set_finisher(std::function<void(std::string& events)> finisher);

  // ---- the answer's side: whoever runs it

  /// Ends the running work and then calls the argument, at once or later, on any thread.
  void set_cancel(std::function<void(std::function<void()> done)> cancel);
  /// Runs the finisher, if there still is one. False: nothing to finish.
  bool finish_cancelled(std::string& events);
  /// It ended before, or without, a writer: `object` is all there is to see.
  void finish_empty(std::string object);

  // ---- the routes' side

  bool finished() const;
  std::string object() const;
  /// Items of the conversation up to and with this answer. REQUIRES finished().
  std::vector<ItemList> conversation() const;
  ItemList output() const;
  /// Cancels and calls `done` when that is complete; at once where the answer is finished.
  void cancel(std::function<void()> done);

  struct Read {
    bool over = false;  ///< finished, and nothing is behind what was read
    bool lost = false;  ///< the events are gone
  };
  /// Appends events from byte `at` on, at most about `most` bytes in whole events, and moves `at`.
  Read read(std::size_t& at, std::size_t most, std::string& out) const;
  /// Where the event behind sequence number `after` begins or will begin; nullopt while events before it are
  /// missing, and for good once it is finished.
  std::optional<std::size_t> position_after(std::int64_t after) const;
  using FollowerId = std::uint64_t;
  /// `wake` is called, on any thread, whenever there is more to read, until unfollow() or the end. Nullopt: too
  /// many follow.
  std::optional<FollowerId> follow(std::function<void()> wake);
  /// Its place is free. `wake` may be on its way once more. Idempotent.
  void unfollow(FollowerId id);

  /// All that it keeps alive.
  std::size_t bytes() const;
  /// The stream can no longer be replayed; everything else stays.
  void drop_events();

 private:
  friend class ResponseStore;
  void wake_followers();
  void lose_events();  ///< REQUIRES mutex_

  const Origin origin_;
  std::atomic<bool> kept_{false};
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::string object_, events_;
  std::vector<std::size_t> starts_;  ///< of each event in events_
  ItemList output_;
  bool finished_ = false, lost_ = false;
  std::size_t charged_events_ = 0;
  std::function<void(std::string&)> finisher_;
  std::function<void(std::function<void()>)> cancel_;
  FollowerId next_follower_ = 0;
  std::map<FollowerId, std::shared_ptr<const std::function<void()>>> followers_;
};

struct ResponseStoreLimits {
  std::size_t bytes = 0;  ///< 0: nothing is stored
  double ttl_s = 0;
};

class ResponseStore {
 public:
  /// `clock` outlives it.
  ResponseStore(ResponseStoreLimits limits, const Clock& clock);

  bool enabled() const { return limits_.bytes > 0; }
  /// Of this process: seals what clients keep in place of the store, where no lasting secret is configured.
  const std::string& secret() const { return secret_; }
  /// False: there is no room beside what is running, or the id is taken; the answer is then not stored.
  bool insert(const std::string& id, std::shared_ptr<StoredResponse> response);
  /// Nullptr: never there, dropped, too old, or another's. Counts as a use.
  std::shared_ptr<StoredResponse> find(std::string_view id, std::string_view owner);
  /// False as find() is nullptr. A running answer is cancelled.
  bool erase(std::string_view id, std::string_view owner);
  /// After append() said so, and after finish(): counts anew and makes room.
  void recharge(const std::string& id);
  /// Of all running ones (the server stops).
  void cancel_all();

  std::size_t size() const;
  std::size_t bytes() const;
  struct Held {
    std::size_t count, bytes;
  };
  /// Both at one moment, without what is too old by now.
  Held held();

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<StoredResponse> response;
    std::size_t charge = 0;
    double finished_at = -1;  ///< negative: running
  };
  using Order = std::list<Entry>;

  void drop(Order::iterator entry);
  void drop_old();
  /// False: what is left is running, and too much.
  bool make_room();

  const ResponseStoreLimits limits_;
  const Clock& clock_;
  const std::string secret_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Order order_;  ///< most recently used first
  std::unordered_map<std::string, Order::iterator> by_id_;
  std::multimap<double, std::string> by_age_;  ///< finished_at to id
  std::size_t bytes_ = 0;
};

}  // namespace barg::server
