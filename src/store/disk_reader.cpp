#include "store/disk_reader.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace barg::store {
namespace {

constexpr std::uint64_t kBounceBytes = 32ULL << 20;  ///< a thread's, at most
constexpr unsigned kDeepest = 64;

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 512 == 0; }

}  // namespace

DiskReader::DiskReader(DiskState& state) : state_(state) {
  const auto& sizes = state.domain.part_bytes;
  const std::uint64_t largest = io_padded(*std::max_element(sizes.begin(), sizes.end()));
  depth_ = static_cast<unsigned>(std::clamp<std::uint64_t>(kBounceBytes / largest, 2, kDeepest));
  const bool deep = state.io.deep_queues();
  if (!deep) depth_ = 1;
  num_threads_ = state.options.io_threads > 0 ? static_cast<std::size_t>(state.options.io_threads)
                 : deep                       ? 2
                                              : 8;
  for (std::size_t i = 0; i < num_threads_; ++i) threads_.emplace_back([this] { run(); });
}

DiskReader::~DiskReader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  threads_.clear();
}

void DiskReader::get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) {
  const double now = state_.clock.now();
  const auto shared = std::make_shared<ReportFn>(std::move(report));
  {
    const std::lock_guard lock(state_.mutex);
    state_.stats.gets += items.size();
    state_.stats.reads_in_flight += items.size();
  }
  {
    const std::lock_guard lock(mutex_);
    for (GetItem& item : items) jobs_.push_back({std::move(item), ticket, deadline, now, shared, false});
  }
  items.size() == 1 ? wake_.notify_one() : wake_.notify_all();
}

void DiskReader::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) job.cancelled = job.cancelled || job.ticket == ticket;
    // To the front, so that they end soon.
    std::stable_partition(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.cancelled; });
  }
  wake_.notify_one();
}

void DiskReader::expire() {
  std::vector<Job> late;
  {
    const std::lock_guard lock(mutex_);
    const double now = state_.clock.now();
    std::erase_if(jobs_, [&](Job& job) {
      const bool over = job.cancelled || (job.deadline > 0 && now >= job.deadline);
      if (over) late.push_back(std::move(job));
      return over;
    });
  }
  for (Job& job : late) done(job, job.cancelled ? Status::kCancelled : Status::kTimeout);
}

std::size_t DiskReader::waiting() {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

/// A share of what waits, so that all threads verify. False: nothing is left to do, ever.
bool DiskReader::take(std::vector<Job>& jobs, std::size_t most, bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  const std::size_t share = std::min(most, (jobs_.size() + num_threads_ - 1) / num_threads_);
  for (std::size_t i = 0; i < share; ++i) {
    jobs.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
  return !(stop_ && jobs.empty());
}

void DiskReader::run() {
  pthread_setname_np(pthread_self(), "barg-disk-read");
  const std::unique_ptr<ReadQueue> queue = state_.io.read_queue(depth_);
  std::vector<Flight> flights(depth_);
  std::vector<Flight*> idle;
  for (Flight& f : flights) idle.push_back(&f);
  std::vector<Job> jobs;
  std::vector<ReadOp*> ended;
  for (;;) {
    jobs.clear();
    const bool busy = idle.size() < flights.size();
    if (!idle.empty() && !take(jobs, idle.size(), !busy) && !busy) return;
    for (Job& job : jobs) {
      if (!start(job, *idle.back())) continue;
      queue->push(&idle.back()->op);
      idle.pop_back();
    }
    ended.clear();
    if (idle.size() < flights.size()) queue->wait(ended);
    for (ReadOp* op : ended) {
      const auto flight =
          std::find_if(flights.begin(), flights.end(), [&](Flight& f) { return &f.op == op; });
      complete(*flight);
      idle.push_back(&*flight);
    }
  }
}

/// True: `flight` is ready to be pushed. Else the job has been reported.
bool DiskReader::start(Job& job, Flight& flight) {
  const double now = state_.clock.now();
  const GetItem& item = job.item;
  Status refused = Status::kOk;
  if (job.cancelled)
    refused = Status::kCancelled;
  else if (state_.closing || !state_.up)
    refused = Status::kUnavailable;
  else if (job.deadline > 0 && now >= job.deadline)
    refused = Status::kTimeout;
  else if (item.to.kind != MemoryKind::kHost || item.to.address == nullptr)
    refused = Status::kIoError;
  std::size_t length = 0;
  if (refused == Status::kOk) {
    const std::lock_guard lock(state_.mutex);
    Entry* e = state_.index.find(item.key);
    if (e != nullptr && state_.expired(*e, now)) {
      state_.index.remove(item.key);
      e = nullptr;
    }
    if (e == nullptr) {
      refused = Status::kMissing;
    } else if (e->length != item.to.length) {
      refused = Status::kIoError;
    } else if (e->info.parent != item.info.parent || e->info.depth != item.info.depth ||
               e->info.fingerprint != item.info.fingerprint) {
      refused = Status::kCorrupt;
      ++state_.stats.verify_failed;
      state_.stats.last_error = "a stored part has other tokens than its key says";
      state_.index.remove(item.key);
    } else {
      flight.segment = e->segment;
      flight.offset = e->offset;
      flight.hash = e->hash;
      length = e->length;
    }
  }
  if (refused == Status::kOk) {
    const auto file = state_.reading(flight.segment);
    if (file)
      flight.op.file = *file;
    else
      refused = file.error();
  }
  flight.job = std::move(job);
  if (refused == Status::kOk) {
    aim(flight, length);
    if (flight.op.num_pieces > 0) return true;
    refused = Status::kIoError;  // no memory for a bounce buffer
  }
  flight.op.file.reset();
  done(flight.job, refused);
  return false;
}

/// O_DIRECT wants whole pages at aligned addresses: what the destination cannot take goes through the bounce
/// buffer.
void DiskReader::aim(Flight& flight, std::size_t length) {
  ReadOp& op = flight.op;
  std::byte* to = flight.job.item.to.address;
  op.offset = flight.offset;
  op.num_pieces = 0;
  op.result = 0;
  flight.bounced = 0;
  std::size_t straight = length;
  if (op.file->direct()) straight = aligned(to) ? length / kIoAlign * kIoAlign : 0;
  if (straight > 0) op.pieces[op.num_pieces++] = {to, straight};
  if (straight == length) return;
  flight.bounced = length - straight;
  const std::size_t padded = io_padded(flight.bounced);
  if (flight.bounce.size() < padded) flight.bounce = AlignedBuffer(padded);
  if (flight.bounce.data() == nullptr) {
    op.num_pieces = 0;
    return;
  }
  op.pieces[op.num_pieces++] = {flight.bounce.data(), padded};
}

void DiskReader::complete(Flight& flight) {
  const FileRef file = flight.op.file;
  if (flight.op.result == -EINVAL &&
      file->direct()) {  // the file system takes O_DIRECT at open and refuses it later
    state_.direct = false;
    state_.forget_file(flight.segment);
    flight.op.file.reset();
    const std::lock_guard lock(mutex_);
    jobs_.push_front(std::move(flight.job));
    return;
  }
  const Status status = finish(flight);
  flight.op.file.reset();
  done(flight.job, status, status == Status::kOk ? std::optional(flight.hash) : std::nullopt);
}

Status DiskReader::finish(Flight& flight) {
  const GetItem& item = flight.job.item;
  const std::size_t length = item.to.length;
  std::int64_t result = flight.op.result;
  if (result >= 0 && static_cast<std::size_t>(result) < length) {  // short: once more, piece by piece
    result = static_cast<std::int64_t>(length);
    std::uint64_t offset = flight.offset;
    for (int i = 0; i < flight.op.num_pieces && result > 0; ++i) {
      const iovec& piece = flight.op.pieces[i];
      const int error =
          read_fully(*flight.op.file, offset, {static_cast<std::byte*>(piece.iov_base), piece.iov_len});
      if (error < 0) result = error;
      if (error > 0) result = 0;
      offset += piece.iov_len;
    }
  }
  if (result == -ESTALE || result == -ENOENT) {
    state_.drop(flight.segment);
    return Status::kMissing;
  }
  if (result < 0) {
    state_.quarantine(flight.segment);
    state_.io_failed("cannot read from " + state_.options.directory, static_cast<int>(result));
    return Status::kIoError;
  }
  if (flight.bounced > 0) {
    std::memcpy(item.to.address + length - flight.bounced, flight.bounce.data(), flight.bounced);
  }
  if (result == 0 || payload_hash({item.to.address, length}) != flight.hash) {
    return state_.corrupt(item.key, flight.segment, flight.offset);
  }
  const std::lock_guard lock(state_.mutex);
  state_.strikes = 0;
  ++state_.stats.verify_ok;
  state_.stats.bytes_read += length;
  if (Entry* e = state_.index.find(item.key)) {
    ++e->reads;
    state_.index.use(item.key, state_.clock.now());
  }
  return Status::kOk;
}

void DiskReader::done(Job& job, Status status, std::optional<Hash128> hash) {
  {
    const std::lock_guard lock(state_.mutex);
    TierStats& s = state_.stats;
    --s.reads_in_flight;
    if (status == Status::kOk)
      ++s.get_ok;
    else if (status == Status::kMissing)
      ++s.get_missing;
    else if (status == Status::kTimeout)
      ++s.get_timeout;
    else
      ++s.get_failed;
  }
  (*job.report)({job.item.key, job.item.tag, status, state_.clock.now() - job.submitted, hash});
  job = Job{};
}

}  // namespace barg::store
