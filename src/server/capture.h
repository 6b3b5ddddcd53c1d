// Capture: everything needed to compute one answer again, byte for byte: the request, the answer's id and time, what of
// the server decides an answer (answer_settings.h), the seeds, which tokens came in which step, and the bytes that were
// sent. A capture becomes a capsule, one JSON document (object "barg.capture"), kept in a ring that forgets the oldest;
// `barg replay` runs it again (replay.h). Refusals and failures leave one too, with what is known of them.
//
// A client asks for one with X-Capture: 1, gets its id in x-barg-capture, and fetches it with GET /v1/captures/{id}
// under the same API key. A capsule holds the whole conversation in clear, and no secret of the server: the ring is off
// unless server.capture_memory gives it bytes.
//
// Memory: half of these bytes is for capsules, half for captures that run, of which one takes at most half again. What
// lies in memory is counted, not what is used of it. A capture that meets a bound keeps what it has, and its capsule
// names in `truncated` what is not whole. While a capsule is written it lies beside its capture.
//
// Threads: a Capture belongs to whoever works for its generation, one thread at a time; a CaptureRing does its own
// locking.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/request.h"
#include "base/json.h"
#include "server/http.h"

namespace barg::server {

inline constexpr std::int64_t kCapsuleVersion = 2;

class CaptureRing {
 public:
  /// `max_bytes`: all together; 0: nothing is captured.
  explicit CaptureRing(std::uint64_t max_bytes) : half_(max_bytes / 2) {}

  bool on() const { return half_ > 0; }
  std::uint64_t capsule_bytes() const { return half_; }      ///< most of all capsules
  std::uint64_t capture_bytes() const { return half_ / 2; }  ///< most of one that runs

  /// A running capture wants more. False: all together have what there is.
  bool charge(std::uint64_t bytes);
  void release(std::uint64_t bytes);
  std::uint64_t running_bytes() const;

  void put(std::string id, std::string owner, std::string capsule);
  /// nullopt: unknown, forgotten, or somebody else's.
  std::optional<std::string> find(std::string_view id, std::string_view owner) const;

 private:
  struct Entry {
    std::string id, owner, capsule;
    std::uint64_t bytes() const { return sizeof *this + id.capacity() + owner.capacity() + capsule.capacity(); }
  };
  const std::uint64_t half_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // guarded by mutex_, oldest first
  std::uint64_t bytes_ = 0;    // guarded by mutex_
  std::uint64_t running_ = 0;  // guarded by mutex_
};

class Capture {
 public:
  /// What was known when the answer began.
  struct Facts {
    std::string build;
    std::int64_t created = 0;
    std::int64_t utc_offset = 0;  ///< seconds, of the server's local time then
    Json model;                   ///< null: the request named none
    Json settings;                ///< answer_settings(); null with the model
    std::string fingerprint;
  };
  /// An answer that is none.
  struct Failure {
    std::string_view stage;  ///< kRefused, kFailed
    std::string code, message, param;
  };
  static constexpr std::string_view kRefused = "request";  ///< nothing was computed
  static constexpr std::string_view kFailed = "answer";    ///< it ended before it was complete

  /// `owner`: whose it is, as key_owner() says. `ring` outlives it.
  Capture(std::string answer_id, std::string owner, CaptureRing& ring);
  ~Capture() { ring_.release(bytes_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Moves the body out of `request`.
  void begin(Facts facts, HttpRequest& request);
  /// Every event that the answer is made of, in order.
  void event(std::size_t prompt, const TokenEvent& event);
  void write(std::string_view bytes);
  void end(int status, std::optional<Failure> failure);

  const std::string& id() const { return id_; }
  std::uint64_t bytes() const { return bytes_; }  ///< as counted
  /// At most `max_bytes` where that is possible at all: the largest parts are left out, and named.
  std::string capsule(std::uint64_t max_bytes) const;
  /// Leaves its capsule in the ring.
  void keep() const;

 private:
  struct Event {
    std::uint32_t prompt = 0, tokens = 0, prompt_logprobs = 0;
    std::int32_t choice = 0;
    FinishReason finish = FinishReason::kNone;
    TokenId stop = kNoToken;
    double seconds = 0;
    std::array<std::int32_t, 5> cached{};  ///< all, device, DRAM, disk, remote
  };
  struct Sequence {
    std::uint64_t seed = 0;
    std::vector<TokenId> ids;
  };
  using Place = std::pair<std::size_t, std::int32_t>;  // prompt, choice

  bool charge(std::uint64_t more);
  template <class T>
  bool make_room(T& to, std::size_t more);
  Sequence* sequence(Place place);
  std::string outputs_json() const;
  std::string events_json() const;

  const std::string answer_id_, id_, owner_;
  CaptureRing& ring_;
  std::uint64_t bytes_ = 0;
  bool body_cut_ = false, cut_ = false;  ///< of the request; of all that came later
  Facts facts_;
  std::string path_, body_;
  Json headers_;
  std::vector<Event> events_;
  std::map<Place, Sequence> sequences_;
  std::string answer_;
  int status_ = 0;
  std::optional<Failure> failure_;
};

}  // namespace barg::server
