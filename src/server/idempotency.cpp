#include "server/idempotency.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "server/api_error.h"

namespace barg::server {
namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr std::string_view kHeader = "idempotency-key";
constexpr std::size_t kMaxKeyBytes = 255;
constexpr std::uint64_t kEntryBytes = 1024;           // what an entry takes beside its log, roughly
constexpr std::size_t kPumpBytes = 64 * 1024;         // of a log in one write
constexpr std::size_t kCutBytes = 64 * 1024;          // a log is cut when so much of it has been read
constexpr double kBusyRetrySeconds = 1;
constexpr ErrorShape kReused = {409, "invalid_request_error", "idempotency_key_reused"};
constexpr ErrorShape kBusy = {409, "invalid_request_error", "idempotency_key_in_use"};

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

/// A client that is sent the log. `client` and what it is told belong to its io thread.
struct Reader {
  std::shared_ptr<Responder> client;
  bool replay = false;     ///< it did not start the generation
  bool begun = false;      ///< client's thread: the head is out
  std::size_t at = 0;      ///< guarded: bytes of the log that are out, from its very beginning
  bool behind = false;     ///< guarded
  bool scheduled = false;  ///< guarded: a pump is on its way
  bool left = false;       ///< guarded
};

class Recorder;
struct Entry;
using EntryPtr = std::shared_ptr<Entry>;
using EntryList = std::list<EntryPtr>;

/// What a key stands for. Guarded by Impl::mutex; `head`, `keep_alive` and `note` change no more once they are there.
struct Entry {
  std::string name;  ///< in the table
  Digest body{};
  std::weak_ptr<Recorder> recorder;
  std::shared_ptr<Responder> owner;  ///< its io thread runs the recorder; null once the recorder has gone

  bool headed = false, streaming = false, ended = false;
  bool forgotten = false;  ///< not in the table any more
  bool cut = false;        ///< the beginning of the log is gone, or may go
  HttpResponse head;       ///< of an unstreamed answer with its body
  std::string_view keep_alive;
  std::string log;
  std::size_t log_start = 0;  ///< bytes of the answer before log[0]
  AccessNote note;
  std::uint64_t counted = 0;  ///< bytes that it stands for in Impl::bytes
  std::vector<std::shared_ptr<Reader>> readers;
  bool paused = false;
  EntryList* list = nullptr;      ///< that it is in
  EntryList::iterator place{};    ///< in it
  Time deadline{};                ///< while it is in a list

  std::size_t log_end() const { return log_start + log.size(); }
};

}  // namespace

struct Idempotency::Impl : std::enable_shared_from_this<Idempotency::Impl> {
  explicit Impl(Options o) : options(o), stopped(o.memory_bytes == 0) {}

  std::shared_ptr<Responder> admit(const HttpRequest& request, std::string_view api_key,
                                   std::shared_ptr<Responder> client, const std::optional<Digest>& digest);
  void listen(const EntryPtr& entry, const std::shared_ptr<Reader>& reader);
  void pump(const EntryPtr& entry, const std::shared_ptr<Reader>& reader);
  void reader_left(const EntryPtr& entry, const std::shared_ptr<Reader>& reader, Interrupt cause);
  void reader_behind(const EntryPtr& entry, const std::shared_ptr<Reader>& reader, bool behind);
  void last_words(const EntryPtr& entry, const std::shared_ptr<Reader>& reader);

  // From the recorder, on its thread.
  void set_head(const EntryPtr& entry, HttpResponse head, bool streaming, std::string_view keep_alive);
  void append(const EntryPtr& entry, std::string_view bytes);
  void end(const EntryPtr& entry, const AccessNote& note);
  void recorder_gone(const EntryPtr& entry);

  void watch();
  void stop();

  // REQUIRES the mutex.
  std::vector<std::shared_ptr<Reader>> to_wake(Entry& entry);
  void count(Entry& entry, std::uint64_t bytes);
  void make_room();
  void cut_log(Entry& entry);
  void forget(EntryPtr entry);
  void enlist(const EntryPtr& entry, EntryList& list, double life_s);
  static void delist(Entry& entry);
  void update_pause(const EntryPtr& entry);

  void wake(const EntryPtr& entry, std::vector<std::shared_ptr<Reader>> readers);
  void interrupt(const EntryPtr& entry, std::shared_ptr<Responder> owner, Interrupt cause);

  const Options options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, EntryPtr, std::less<>> table;  // guarded, like all below
  EntryList finished;  // oldest first, which is the order of their deadlines
  EntryList detached;  // running without a client, oldest first
  std::uint64_t bytes = 0, attached = 0;
  bool stopped;
  std::jthread watcher;  // started by the first key
};

namespace {

using Impl = Idempotency::Impl;

/// What the generation answers. Lives as long as the generation holds it; its owner's io thread.
class Recorder final : public Responder {
 public:
  Recorder(std::shared_ptr<Impl> impl, EntryPtr entry, std::shared_ptr<Responder> owner)
      : impl_(std::move(impl)), entry_(std::move(entry)), owner_(std::move(owner)) {}
  ~Recorder() override { impl_->recorder_gone(entry_); }

  void respond(HttpResponse response) override {
    if (headed_) return;
    headed_ = over_ = true;
    impl_->set_head(entry_, std::move(response), false, {});
    finish();
  }
  void begin_stream(HttpResponse head, std::string_view keep_alive) override {
    if (std::exchange(headed_, true)) return;
    impl_->set_head(entry_, std::move(head), true, keep_alive);
  }
  void write(std::string_view bytes) override {
    if (headed_ && !over_ && !bytes.empty()) impl_->append(entry_, bytes);
  }
  void end() override {
    if (headed_ && !std::exchange(over_, true)) finish();
  }
  bool gone() const override { return over_; }
  AccessNote& note() override { return note_; }
  void set_route(std::string_view pattern) override { owner_->set_route(pattern); }
  void on_interrupt(std::function<void(Interrupt)> callback) override { on_interrupt_ = std::move(callback); }
  void on_backlog(std::function<void(bool)> callback) override { on_backlog_ = std::move(callback); }
  void post(std::move_only_function<void()> function) override { owner_->post(std::move(function)); }

  /// Nobody listens any more, or the process ends.
  void interrupt(Interrupt cause) {
    const auto callback = std::exchange(on_interrupt_, nullptr);
    if (!over_ && callback) callback(cause);
    if (cause == Interrupt::kShutdown || over_) return;
    over_ = true;
    finish();
  }
  void pause(bool paused) {
    if (!over_ && on_backlog_ && std::exchange(paused_, paused) != paused) on_backlog_(paused);
  }

 private:
  void finish() {
    on_interrupt_ = nullptr;  // they hold the generation, which holds us
    on_backlog_ = nullptr;
    impl_->end(entry_, note_);
  }

  const std::shared_ptr<Impl> impl_;
  const EntryPtr entry_;
  const std::shared_ptr<Responder> owner_;
  bool headed_ = false, over_ = false, paused_ = false;
  AccessNote note_;
  std::function<void(Interrupt)> on_interrupt_;
  std::function<void(bool)> on_backlog_;
};

/// Failures are not what a retry asks for.
bool worth_keeping(const Entry& entry) {
  return entry.headed && entry.head.status < 400 && entry.note.finish_reason != "error" &&
         entry.note.finish_reason != "abort";
}

/// Whoever did not start the generation has used no tokens.
void tell(AccessNote& client, const AccessNote& generation, bool replay) {
  if (!replay) {
    client = generation;
    return;
  }
  client.model = generation.model;
  client.finish_reason = generation.finish_reason;
  client.error_code = generation.error_code;
}

std::string table_name(const HttpRequest& request, std::string_view api_key, std::string_view key) {
  std::string_view path = request.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  const Digest who = sha256(api_key.data(), api_key.size());
  std::string name = hex(who);
  name.append(" ").append(path).append(" ").append(key);
  return name;
}

}  // namespace

// ---- clients
// ------------------------------------------------------------------------------------------------------

std::shared_ptr<Responder> Idempotency::Impl::admit(const HttpRequest& request, std::string_view api_key,
                                                    std::shared_ptr<Responder> client,
                                                    const std::optional<Digest>& digest) {
  if (!keyed(request)) return client;
  const std::string* key = request.header(kHeader);
  if (key->size() > kMaxKeyBytes || request.header_count(kHeader) > 1) {
    client->respond(error_response({ErrorCode::kInvalidValue,
                                    "there may be one Idempotency-Key of at most " + std::to_string(kMaxKeyBytes) +
                                        " bytes",
                                    "Idempotency-Key", 0}));
    return nullptr;
  }
  std::string name = table_name(request, api_key, *key);
  const Digest body = digest ? *digest : sha256(request.body.data(), request.body.size());
  const auto reader = std::make_shared<Reader>();
  reader->client = client;
  EntryPtr entry;
  std::shared_ptr<Recorder> recorder;
  std::optional<HttpResponse> refusal;
  {
    const std::lock_guard lock(mutex);
    if (stopped) return client;
    if (const auto found = table.find(name); found == table.end()) {
      if (!watcher.joinable()) watcher = std::jthread([this] { watch(); });
      entry = std::make_shared<Entry>();
      entry->name = name;
      entry->body = body;
      entry->owner = client;
      recorder = std::make_shared<Recorder>(shared_from_this(), entry, client);
      entry->recorder = recorder;
      table.emplace(std::move(name), entry);
      count(*entry, kEntryBytes);
      make_room();
    } else if (found->second->body != body) {
      refusal = error_response(kReused, "this Idempotency-Key came with another body before", "Idempotency-Key");
      refusal->headers.emplace_back("x-should-retry", "false");
    } else if (found->second->cut) {
      refusal = error_response(kBusy, "the answer of this Idempotency-Key is still being made and too long to repeat",
                               "Idempotency-Key");
      add_retry_after(*refusal, kBusyRetrySeconds);
    } else {
      entry = found->second;
      reader->replay = true;
      ++attached;
    }
    if (entry) {
      entry->readers.push_back(reader);
      if (!entry->ended) delist(*entry);
      update_pause(entry);
    }
  }
  if (refusal) {
    client->respond(std::move(*refusal));
    return nullptr;
  }
  listen(entry, reader);
  pump(entry, reader);
  return recorder;
}

void Idempotency::Impl::listen(const EntryPtr& entry, const std::shared_ptr<Reader>& reader) {
  // The callbacks live in the client's answer, which `reader` holds: weak, or neither ever went.
  reader->client->on_interrupt([impl = weak_from_this(), entry, weak = std::weak_ptr(reader)](Interrupt cause) {
    const auto self = impl.lock();
    const auto r = weak.lock();
    if (self && r) self->reader_left(entry, r, cause);
  });
  reader->client->on_backlog([impl = weak_from_this(), entry, weak = std::weak_ptr(reader)](bool behind) {
    const auto self = impl.lock();
    const auto r = weak.lock();
    if (self && r) self->reader_behind(entry, r, behind);
  });
}

/// Sends `reader` what it has not had. Its client's io thread.
void Idempotency::Impl::pump(const EntryPtr& entry, const std::shared_ptr<Reader>& reader) {
  const std::shared_ptr<Responder> client = reader->client;
  for (;;) {
    std::string piece;
    bool last = false;
    {
      const std::lock_guard lock(mutex);
      reader->scheduled = false;
      if (reader->left || !entry->headed || !(entry->streaming || entry->ended)) return;
      if (reader->begun && !reader->behind) {
        const std::size_t from = reader->at - entry->log_start;
        piece = entry->log.substr(from, kPumpBytes);
        reader->at += piece.size();
      }
      last = entry->ended && (reader->begun ? piece.empty() && !reader->behind : !entry->streaming);
      if (last) {
        reader->left = true;
        std::erase(entry->readers, reader);
      }
      if (entry->cut) cut_log(*entry);
    }
    if (last) tell(client->note(), entry->note, reader->replay);
    if (!reader->begun) {
      reader->begun = true;
      HttpResponse head = entry->head;
      if (reader->replay) head.headers.emplace_back("idempotent-replayed", "true");
      if (entry->streaming) {
        client->begin_stream(std::move(head), entry->keep_alive);
        continue;
      }
      return client->respond(std::move(head));
    }
    if (last) return client->end();
    if (piece.empty()) return;
    client->write(piece);
  }
}

void Idempotency::Impl::reader_left(const EntryPtr& entry, const std::shared_ptr<Reader>& reader, Interrupt cause) {
  if (cause == Interrupt::kShutdown) return last_words(entry, reader);
  const std::lock_guard lock(mutex);
  if (std::exchange(reader->left, true)) return;
  std::erase(entry->readers, reader);
  reader->client->note().finish_reason = "detached";
  if (!entry->ended && entry->readers.empty() && !entry->forgotten) enlist(entry, detached, options.grace_s);
  update_pause(entry);
}

/// The process ends, and the generation says so to all that read it. It does on its owner's thread: at once where that
/// is this one's, else soon, and this connection waits. Its client's io thread.
void Idempotency::Impl::last_words(const EntryPtr& entry, const std::shared_ptr<Reader>& reader) {
  std::shared_ptr<Responder> owner;
  {
    const std::lock_guard lock(mutex);
    if (reader->left) return;
    if (!entry->ended) owner = entry->owner;
  }
  if (owner == reader->client) {
    if (const auto recorder = entry->recorder.lock()) recorder->interrupt(Interrupt::kShutdown);
  } else if (owner) {
    listen(entry, reader);
    interrupt(entry, std::move(owner), Interrupt::kShutdown);
  }
  pump(entry, reader);
}

void Idempotency::Impl::reader_behind(const EntryPtr& entry, const std::shared_ptr<Reader>& reader, bool behind) {
  {
    const std::lock_guard lock(mutex);
    reader->behind = behind;
    update_pause(entry);
  }
  // Not at once: this may be in the middle of a write.
  if (!behind) reader->client->post([self = shared_from_this(), entry, reader] { self->pump(entry, reader); });
}

// ---- the recorder
// -------------------------------------------------------------------------------------------------

void Idempotency::Impl::set_head(const EntryPtr& entry, HttpResponse head, bool streaming,
                                 std::string_view keep_alive) {
  std::vector<std::shared_ptr<Reader>> readers;
  {
    const std::lock_guard lock(mutex);
    count(*entry, head.body.size());
    entry->head = std::move(head);
    entry->streaming = streaming;
    entry->keep_alive = keep_alive;
    entry->headed = true;
    if (!streaming) return;  // end() follows
    readers = to_wake(*entry);
  }
  wake(entry, std::move(readers));
}

void Idempotency::Impl::append(const EntryPtr& entry, std::string_view piece) {
  std::vector<std::shared_ptr<Reader>> readers;
  {
    const std::lock_guard lock(mutex);
    entry->log += piece;
    count(*entry, piece.size());
    if (entry->cut) cut_log(*entry);
    make_room();
    readers = to_wake(*entry);
  }
  wake(entry, std::move(readers));
}

void Idempotency::Impl::end(const EntryPtr& entry, const AccessNote& note) {
  std::vector<std::shared_ptr<Reader>> readers;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(entry->ended, true)) return;
    entry->note = note;
    delist(*entry);
    if (stopped || entry->forgotten || entry->cut || !worth_keeping(*entry)) {
      forget(entry);
    } else {
      enlist(entry, finished, options.ttl_s);
      make_room();
    }
    readers = to_wake(*entry);
  }
  wake(entry, std::move(readers));
}

/// The generation has let go. Without an answer its clients are let go too, which tells them.
void Idempotency::Impl::recorder_gone(const EntryPtr& entry) {
  std::vector<std::shared_ptr<Reader>> readers;
  std::shared_ptr<Responder> owner;
  {
    const std::lock_guard lock(mutex);
    owner = std::move(entry->owner);
    if (entry->ended) return;
    entry->ended = true;
    forget(entry);
    readers.swap(entry->readers);
    for (const auto& reader : readers) reader->left = true;
  }
}

// ---- inside
// ------------------------------------------------------------------------------------------------------

std::vector<std::shared_ptr<Reader>> Idempotency::Impl::to_wake(Entry& entry) {
  std::vector<std::shared_ptr<Reader>> out;
  for (const auto& reader : entry.readers) {
    if (reader->scheduled || reader->behind) continue;
    reader->scheduled = reader->replay;  // the owner is sent it at once
    out.push_back(reader);
  }
  return out;
}

/// The recorder's thread: its owner is on it, everybody else is somewhere.
void Idempotency::Impl::wake(const EntryPtr& entry, std::vector<std::shared_ptr<Reader>> readers) {
  const std::shared_ptr<Reader>* own = nullptr;
  for (const auto& reader : readers) {
    if (!reader->replay) {
      own = &reader;
      continue;
    }
    reader->client->post([self = shared_from_this(), entry, reader] { self->pump(entry, reader); });
  }
  if (own) pump(entry, *own);
}

void Idempotency::Impl::count(Entry& entry, std::uint64_t more) {
  if (entry.forgotten) return;
  entry.counted += more;
  bytes += more;
}

void Idempotency::Impl::make_room() {
  while (bytes > options.memory_bytes && !finished.empty()) forget(finished.front());
  while (bytes > options.memory_bytes) {
    EntryPtr largest;
    for (auto& [name, entry] : table) {
      const bool may = !entry->ended && entry->streaming && !entry->cut;
      if (may && (!largest || entry->counted > largest->counted)) largest = entry;
    }
    if (!largest) return;
    largest->cut = true;
    cut_log(*largest);
    update_pause(largest);
  }
}

/// Drops what every reader has had. REQUIRES entry.cut.
void Idempotency::Impl::cut_log(Entry& entry) {
  std::size_t read = entry.log_end();
  for (const auto& reader : entry.readers) read = std::min(read, reader->at);
  const std::size_t gone = read - entry.log_start;
  if (gone < kCutBytes && gone < entry.log.size()) return;
  entry.log.erase(0, gone);
  entry.log_start = read;
  const std::uint64_t counted = std::min<std::uint64_t>(gone, entry.counted);
  entry.counted -= counted;
  bytes -= counted;
}

/// The key is free, and what is kept of it belongs to those who still read it.
void Idempotency::Impl::forget(EntryPtr entry) {
  delist(*entry);
  if (std::exchange(entry->forgotten, true)) return;
  bytes -= std::exchange(entry->counted, 0);
  table.erase(entry->name);
}

void Idempotency::Impl::enlist(const EntryPtr& entry, EntryList& list, double life_s) {
  delist(*entry);
  entry->deadline = std::chrono::steady_clock::now() + seconds(life_s);
  entry->list = &list;
  entry->place = list.insert(list.end(), entry);
  changed.notify_all();
}

void Idempotency::Impl::delist(Entry& entry) {
  if (EntryList* list = std::exchange(entry.list, nullptr)) list->erase(entry.place);
}

/// Tells the generation to wait while every client is behind; where the log is not kept, while one is.
void Idempotency::Impl::update_pause(const EntryPtr& entry) {
  const auto& readers = entry->readers;
  const auto behind = [](const std::shared_ptr<Reader>& r) { return r->behind; };
  const bool pause = !readers.empty() && (entry->cut ? std::any_of(readers.begin(), readers.end(), behind)
                                                     : std::all_of(readers.begin(), readers.end(), behind));
  if (std::exchange(entry->paused, pause) == pause || entry->ended || !entry->owner) return;
  entry->owner->post([entry, pause] {
    if (const auto recorder = entry->recorder.lock()) recorder->pause(pause);
  });
}

void Idempotency::Impl::interrupt(const EntryPtr& entry, std::shared_ptr<Responder> owner, Interrupt cause) {
  if (!owner) return;
  owner->post([entry, cause] {
    if (const auto recorder = entry->recorder.lock()) recorder->interrupt(cause);
  });
}

/// Ends graces and lives. Both lists are in the order of their deadlines.
void Idempotency::Impl::watch() {
  pthread_setname_np(pthread_self(), "barg-keys");
  std::unique_lock lock(mutex);
  while (!stopped) {
    const Time now = std::chrono::steady_clock::now();
    while (!finished.empty() && finished.front()->deadline <= now) forget(finished.front());
    std::vector<std::pair<EntryPtr, std::shared_ptr<Responder>>> abandoned;
    while (!detached.empty() && detached.front()->deadline <= now) {
      const EntryPtr entry = detached.front();
      forget(entry);
      abandoned.emplace_back(entry, entry->owner);
    }
    if (!abandoned.empty()) {
      lock.unlock();
      for (auto& [entry, owner] : abandoned) interrupt(entry, std::move(owner), Interrupt::kDisconnected);
      abandoned.clear();
      lock.lock();
      continue;
    }
    std::optional<Time> next;
    if (!finished.empty()) next = finished.front()->deadline;
    if (!detached.empty() && (!next || detached.front()->deadline < *next)) next = detached.front()->deadline;
    if (next) {
      changed.wait_until(lock, *next);
    } else {
      changed.wait(lock);
    }
  }
}

void Idempotency::Impl::stop() {
  std::vector<std::pair<EntryPtr, std::shared_ptr<Responder>>> abandoned;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(stopped, true)) return;
    while (!detached.empty()) {
      abandoned.emplace_back(detached.front(), detached.front()->owner);
      forget(detached.front());
    }
    while (!finished.empty()) forget(finished.front());
  }
  changed.notify_all();
  if (watcher.joinable()) watcher.join();
  for (auto& [entry, owner] : abandoned) interrupt(entry, std::move(owner), Interrupt::kDisconnected);
}

Idempotency::Idempotency(Options options) : impl_(std::make_shared<Impl>(options)) {}
Idempotency::~Idempotency() { stop(); }

std::shared_ptr<Responder> Idempotency::admit(const HttpRequest& request, std::string_view api_key,
                                              std::shared_ptr<Responder> client, const std::optional<Digest>& body) {
  return impl_->admit(request, api_key, std::move(client), body);
}

bool Idempotency::keyed(const HttpRequest& request) {
  const std::string* key = request.header(kHeader);
  return key != nullptr && !key->empty();
}

void Idempotency::stop() { impl_->stop(); }

Idempotency::Gauges Idempotency::gauges() const {
  const std::lock_guard lock(impl_->mutex);
  return {.keys = static_cast<std::int64_t>(impl_->table.size()), .bytes = impl_->bytes, .attached = impl_->attached};
}

}  // namespace barg::server
