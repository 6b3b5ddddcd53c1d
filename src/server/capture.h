// Capture: everything needed to compute one answer again, byte for byte: the request, the answer's id and time, the
// seeds, which tokens came in which step, and the bytes that were sent. A capture becomes a capsule, one JSON document
// (object "barg.capture"), kept in a ring that forgets the oldest; `barg replay` runs it again (replay.h).
//
// A client asks for one with X-Capture: 1, gets its id in x-barg-capture, and fetches it with GET /v1/captures/{id}
// under the same API key. A capsule holds the whole conversation in clear: the ring is off unless server.capture_memory
// gives it bytes.
//
// Threads: a Capture belongs to its generation's io thread; a CaptureRing does its own locking.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/engine.h"
#include "barg/request.h"
#include "server/answer_writer.h"
#include "server/http.h"

namespace barg::server {

class Capture {
 public:
  /// `owner`: whose it is, as key_owner() says. More than `max_bytes`, roughly: it is given up, and capsule() has nothing.
  Capture(HttpRequest request, std::string owner, std::uint64_t max_bytes);

  void begin(const ResponseMeta& meta, const EngineInfo& info, std::string_view build);
  /// Every event that the answer is made of, in order.
  void event(std::size_t prompt, const TokenEvent& event);
  void write(std::string_view bytes) { add(answer_, bytes); }

  const std::string& id() const { return id_; }
  const std::string& owner() const { return owner_; }
  std::optional<std::string> capsule(int status) const;

 private:
  struct Sequence {
    std::size_t prompt = 0;
    std::int32_t choice = 0;
    std::uint64_t seed = 0;
    std::vector<TokenId> ids;
  };
  void add(std::string& to, std::string_view bytes);
  Sequence& sequence(std::size_t prompt, std::int32_t choice);

  HttpRequest request_;
  const std::string owner_;
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::string id_;
  Json head_;
  Json::Array events_;
  std::vector<Sequence> sequences_;
  std::string answer_;
};

class CaptureRing {
 public:
  explicit CaptureRing(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  bool on() const { return max_bytes_ > 0; }
  std::uint64_t max_bytes() const { return max_bytes_; }
  void put(std::string id, std::string owner, std::string capsule);
  /// nullopt: unknown, forgotten, or somebody else's.
  std::optional<std::string> find(std::string_view id, std::string_view owner) const;

 private:
  struct Entry {
    std::string id, owner, capsule;
  };
  const std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // guarded by mutex_, oldest first
  std::uint64_t bytes_ = 0;    // guarded by mutex_
};

}  // namespace barg::server
