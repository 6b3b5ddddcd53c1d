#include "store/disk_tier.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "store/disk_catalog.h"
#include "store/disk_reader.h"
#include "store/disk_writer.h"

namespace barg::store {
namespace {

constexpr std::uint64_t kSegmentsAtLeast = 8;  ///< in the capacity
constexpr double kLongestProbePause = 60;
constexpr double kExpiries = 32;  ///< in a TTL: how often parts past their time are looked for

class DiskTier final : public Tier {
 public:
  DiskTier(const DiskOptions& options, const Domain& domain, WriterLock lock, std::uint64_t segment_bytes)
      : state_(options, domain, *options.io, *options.clock),
        lock_(std::move(lock)),
        catalog_(state_),
        name_("disk:" + options.directory) {
    state_.writer = lock_.writer();
    state_.segment_bytes = segment_bytes;
    state_.direct = options.use_direct_io;
    state_.stats.capacity_bytes = options.capacity_bytes;
  }

  Result<void> start() {
    if (auto ok = catalog_.open(); !ok) return ok;
    reader_ = std::make_unique<DiskReader>(state_);
    writer_ = std::make_unique<DiskWriter>(state_);
    janitor_ = std::jthread([this](const std::stop_token& stop) { tidy_up(stop); });
    return {};
  }

  ~DiskTier() override {
    state_.closing = true;
    janitor_.request_stop();
    rest_.notify_all();
    if (janitor_.joinable()) janitor_.join();
    reader_.reset();
    writer_.reset();
    remove_lock_if_unused();
  }

  TierKind kind() const override { return TierKind::kDisk; }
  const std::string& name() const override { return name_; }
  bool up() const override { return state_.up; }

  void find(std::span<const Key> keys, std::span<Presence> out) override {
    const double now = state_.clock.now();
    const bool up = state_.up;
    const std::lock_guard lock(state_.mutex);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Entry* e = up ? state_.index.find(keys[i]) : nullptr;
      out[i] = e != nullptr && !state_.expired(*e, now) ? Presence::kPresent : Presence::kAbsent;
    }
  }

  void probe(std::vector<Key> keys, double, std::function<void(std::vector<Presence>)> done) override {
    std::vector<Presence> out(keys.size());
    find(keys, out);
    done(std::move(out));
  }

  void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) override {
    reader_->get(ticket, std::move(items), deadline, std::move(report));
  }
  void put(Ticket ticket, std::vector<PutItem> items, ReportFn report) override {
    writer_->put(ticket, std::move(items), std::move(report));
  }
  void cancel(Ticket ticket) override {
    reader_->cancel(ticket);
    writer_->cancel(ticket);
  }

  void erase(std::span<const Key> keys) override {
    const std::lock_guard lock(state_.mutex);
    for (const Key& key : keys) state_.index.remove(key);
  }
  void touch(std::span<const Key> keys) override {
    const double now = state_.clock.now();
    const std::lock_guard lock(state_.mutex);
    for (const Key& key : keys) state_.index.use(key, now);
  }

  bool flush(double deadline) override { return writer_->flush(deadline); }

  TierStats stats() const override {
    const std::lock_guard lock(state_.mutex);
    TierStats s = state_.stats;
    s.entries = state_.index.size();
    s.bytes_used = state_.index.own_bytes();
    s.up = state_.up;
    return s;
  }

 private:
  void tidy_up(const std::stop_token& stop);
  void probe_disk();
  void drop_dead();
  void remove_lock_if_unused();

  mutable DiskState state_;
  WriterLock lock_;
  DiskCatalog catalog_;
  const std::string name_;
  std::unique_ptr<DiskReader> reader_;
  std::unique_ptr<DiskWriter> writer_;
  double expire_at_ = 0;  ///< the janitor's
  std::mutex rest_mutex_;
  std::condition_variable rest_;
  std::jthread janitor_;
};

/// The janitor: late reads, other writers, expiry, and whether a disk that failed is back.
void DiskTier::tidy_up(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "barg-disk-tidy");
  const double rescan_s = std::max(state_.options.rescan_s, 0.001);
  double next = SteadyClock().now() + rescan_s;
  std::unique_lock lock(rest_mutex_);
  while (!stop.stop_requested()) {
    const double wait = reader_->waiting() > 0 ? std::min(0.02, rescan_s) : std::min(0.1, rescan_s);
    rest_.wait_for(lock, std::chrono::duration<double>(wait));
    if (stop.stop_requested()) return;
    reader_->expire();
    if (SteadyClock().now() < next) continue;
    if (state_.up) {
      catalog_.rescan();
      catalog_.retry_quarantined();
      drop_dead();
    } else {
      probe_disk();
    }
    next = SteadyClock().now() + rescan_s;
  }
}

void DiskTier::probe_disk() {
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.clock.now() < state_.probe_at) return;
  }
  // What writing needs: a file, bytes in it, and that they are durable.
  const std::string path = state_.options.directory + "/probe-" + segment_stem(state_.writer, 0);
  int error = 0;
  {
    AlignedBuffer page(kIoAlign);
    const auto file = state_.io.open(path, OpenMode::kCreate, false);
    if (!file) error = -file.error();
    if (error == 0 && page.data() == nullptr) error = -ENOMEM;
    if (error == 0) {
      std::memset(page.data(), 0, page.size());
      error = write_fully(**file, 0, page.first(page.size()));
    }
    if (error == 0) error = (*file)->sync();
    if (error == 0) error = read_fully(**file, 0, page.first(page.size()));
  }
  state_.io.remove(path);
  const std::lock_guard lock(state_.mutex);
  if (error == 0 || error == -ENOSPC ||
      error == -EDQUOT) {  // a full disk can be read, and read-only is another matter
    state_.strikes = 0;
    state_.probe_pause = 1;
    state_.up = true;
    return;
  }
  state_.probe_pause = std::min(2 * state_.probe_pause, kLongestProbePause);
  state_.probe_at = state_.clock.now() + state_.probe_pause;
}

/// Parts past their time (nobody is given one, so that their room is found now and then is enough: a million
/// take 0.2 s), and our segments in which nothing lives any more.
void DiskTier::drop_dead() {
  const double ttl_s = state_.options.ttl_s;
  const bool expire = ttl_s > 0 && state_.clock.now() >= expire_at_;
  if (expire) expire_at_ = state_.clock.now() + ttl_s / kExpiries;
  std::vector<std::uint64_t> serials;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& [serial, s] : state_.index.segments()) serials.push_back(serial);
  }
  for (const std::uint64_t serial : serials) {
    bool dead = false;
    {
      const std::lock_guard lock(state_.mutex);  // segment by segment, so that nobody waits for long
      Segment* s = state_.index.segment(serial);
      if (s == nullptr) continue;
      if (expire) {
        const double now = state_.clock.now();
        for (const Key& key : s->keys) {
          const Entry* e = state_.index.find(key);
          if (e == nullptr || e->segment != serial || !state_.expired(*e, now)) continue;
          state_.index.remove(key);
          ++state_.stats.evicted;
        }
      }
      dead = s->own && !s->open && !s->opaque && s->quarantined_until == 0 && s->live_count == 0;
    }
    if (dead) state_.drop(serial);
  }
}

/// A writer that owns nothing leaves nothing.
void DiskTier::remove_lock_if_unused() {
  const std::lock_guard lock(state_.mutex);
  if (state_.index.own_bytes() == 0) lock_.remove();
}

std::string sentence(const std::string& directory, int error) {
  return "the cache directory " + directory + " cannot be used: " + std::strerror(error);
}

/// Options with every seam filled in.
DiskOptions complete(DiskOptions options) {
  static const SteadyClock steady;
  if (options.clock == nullptr) options.clock = &steady;
  if (!options.io) options.io = system_io(options.use_io_uring);
  if (!options.unix_time) options.unix_time = system_unix_time;
  while (options.directory.size() > 1 && options.directory.ends_with('/')) options.directory.pop_back();
  return options;
}

/// How large segments are made: as asked, but at most an eighth of the capacity, and at least one part.
Result<std::uint64_t> segment_size(const DiskOptions& options, const Domain& domain) {
  const std::uint64_t largest = *std::max_element(domain.part_bytes.begin(), domain.part_bytes.end());
  const std::uint64_t least = kSegmentHeaderBytes + record_bytes(largest) + footer_bytes(1);
  const std::uint64_t wanted =
      std::min({options.segment_bytes, options.capacity_bytes / kSegmentsAtLeast, kMaxSegmentBytes});
  const std::uint64_t size = std::max(wanted / kIoAlign * kIoAlign, least);
  if (options.capacity_bytes / 3 < size) {
    return fail(ErrorCode::kInvalidValue, "the disk cache of " + std::to_string(options.capacity_bytes) +
                                              " bytes is too small: three blocks with their headers take " +
                                              std::to_string(3 * least) + " bytes");
  }
  return size;
}

}  // namespace

Result<std::unique_ptr<Tier>> open_disk_tier(const DiskOptions& given, const Domain& domain) {
  const DiskOptions options = complete(given);
  if (options.directory.empty()) return fail(ErrorCode::kInvalidValue, "the disk cache needs a directory");
  if (const std::string problem = domain_problem(domain); !problem.empty()) {
    return fail(ErrorCode::kUnsupported, "blocks of this model cannot be stored on disk: " + problem);
  }
  const Result<std::uint64_t> segment_bytes = segment_size(options, domain);
  if (!segment_bytes) return std::unexpected(segment_bytes.error());
  if (::mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(ErrorCode::kIo, sentence(options.directory, errno));
  }
  struct stat s {};
  if (::stat(options.directory.c_str(), &s) != 0)
    return fail(ErrorCode::kIo, sentence(options.directory, errno));
  if (!S_ISDIR(s.st_mode)) return fail(ErrorCode::kIo, sentence(options.directory, ENOTDIR));
  Result<WriterLock> lock = WriterLock::create(options.directory);
  if (!lock) return fail(ErrorCode::kIo, lock.error().message);
  auto tier = std::make_unique<DiskTier>(options, domain, std::move(*lock), *segment_bytes);
  if (auto ok = tier->start(); !ok) return std::unexpected(ok.error());
  return tier;
}

}  // namespace barg::store
