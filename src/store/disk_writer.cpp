#include "store/disk_writer.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace barg::store {
namespace {

constexpr std::uint64_t kBatchBytes = 16ULL << 20;  ///< committed together
constexpr std::size_t kWriteBytes = 4 << 20;        ///< one write
constexpr std::size_t kMostPieces = 1000;           ///< of one write

double real_now() { return SteadyClock().now(); }

}  // namespace

DiskWriter::DiskWriter(DiskState& state) : state_(state) {
  const auto& sizes = state.domain.part_bytes;
  const std::uint64_t largest = record_bytes(*std::max_element(sizes.begin(), sizes.end()));
  buffer_ = AlignedBuffer(
      std::max<std::uint64_t>(std::min<std::uint64_t>(kWriteBytes, state.segment_bytes), largest));
  thread_ = std::jthread([this] { run(); });
}

DiskWriter::~DiskWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DiskWriter::put(Ticket ticket, std::vector<PutItem> items, ReportFn report) {
  const double now = state_.clock.now();
  const auto shared = std::make_shared<ReportFn>(std::move(report));
  {
    const std::lock_guard lock(state_.mutex);
    state_.stats.puts += items.size();
    state_.stats.writes_in_flight += items.size();
  }
  {
    const std::lock_guard lock(mutex_);
    accepted_ += items.size();
    for (PutItem& item : items) {
      waiting_bytes_ += item.from.length;
      jobs_.push_back({std::move(item), ticket, now, shared, false});
    }
  }
  wake_.notify_one();
}

void DiskWriter::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) job.cancelled = job.cancelled || job.ticket == ticket;
    std::stable_partition(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.cancelled; });
  }
  wake_.notify_one();
}

bool DiskWriter::flush(double deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t goal = accepted_;
  ++flushing_;
  wake_.notify_one();
  // The clock may be a virtual one, so it is looked at now and then.
  while (finished_ < goal && (deadline <= 0 || state_.clock.now() < deadline)) {
    idle_.wait_for(lock, std::chrono::milliseconds(5));
  }
  --flushing_;
  return finished_ >= goal;
}

/// False: the end.
bool DiskWriter::take(std::vector<Job>& batch) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  // Small batches wait for company, so that a trickle does not become a stream of fdatasync.
  const double ready = last_commit_ + state_.options.commit_delay_s;
  while (!stop_ && flushing_ == 0 && waiting_bytes_ < kBatchBytes && !jobs_.front().cancelled) {
    const double left = ready - real_now();
    if (left <= 0) break;
    wake_.wait_for(lock, std::chrono::duration<double>(left));
  }
  std::uint64_t bytes = 0;
  while (!jobs_.empty() && bytes < kBatchBytes) {
    bytes += jobs_.front().item.from.length;
    batch.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
  waiting_bytes_ -= bytes;
  return !batch.empty();
}

void DiskWriter::run() {
  pthread_setname_np(pthread_self(), "barg-disk-write");
  const auto too_much = [this] {
    const std::lock_guard lock(state_.mutex);
    return state_.index.own_bytes() > state_.options.capacity_bytes;
  };
  while (too_much() && state_.evict_one()) {  // adopted more than we may have
  }
  std::vector<Job> batch;
  while (take(batch)) {
    for (Job& job : batch) write(job);
    commit();
    batch.clear();
    last_commit_ = real_now();
  }
  if (open_) seal();
}

void DiskWriter::write(Job& job) {
  const PutItem& item = job.item;
  Status status = Status::kOk;
  const auto& sizes = state_.domain.part_bytes;
  if (job.cancelled)
    status = Status::kCancelled;
  else if (state_.closing || !state_.up)
    status = Status::kUnavailable;
  else if (item.from.kind != MemoryKind::kHost || item.from.address == nullptr ||
           item.key.part >= sizes.size() || item.from.length != sizes[item.key.part])
    status = Status::kIoError;
  else if (state_.read_only())
    status = Status::kNoSpace;
  if (status != Status::kOk) return done(job, status);
  bool there = false;
  {
    const std::lock_guard lock(state_.mutex);
    const Entry* e = state_.index.find(item.key);
    there = e != nullptr && !state_.expired(*e, state_.clock.now());
    if (e != nullptr && !there) state_.index.remove(item.key);
  }
  if (there) return done(job, Status::kOk);
  for (Pending& p : pending_) {
    if (p.record.key != item.key) continue;
    p.jobs.push_back(std::move(job));
    return;
  }
  const std::span<const std::byte> payload{item.from.address, item.from.length};
  Record record{.key = item.key,
                .info = item.info,
                .offset = 0,
                .length = payload.size(),
                .hash = item.hash ? *item.hash : payload_hash(payload),
                .written = state_.unix_now()};
  status = append(record, payload, true);
  if (status != Status::kOk) return done(job, status);
  pending_.back().jobs.push_back(std::move(job));
}

bool DiskWriter::room_for(std::uint64_t payload) const {
  const std::size_t records = open_->records.size() + pending_.size() + 1;
  return open_->end + record_bytes(payload) + footer_bytes(records) <= state_.segment_bytes;
}

/// `stays`: until the record is durable or has failed, so that the payload can be written from where it lies.
Status DiskWriter::append(const Record& record, std::span<const std::byte> payload, bool stays) {
  if (open_ && !room_for(record.length)) {
    commit();
    if (open_) seal();
  }
  if (!open_) {
    if (const Status s = begin_segment(); s != Status::kOk) return s;
  }
  const std::uint64_t need = record_bytes(record.length);
  if (!room_for(record.length)) return Status::kNoSpace;
  const bool straight = stays && reinterpret_cast<std::uintptr_t>(payload.data()) % kIoAlign == 0;
  const std::span<const std::byte> whole = payload.first(straight ? payload.size() / kIoAlign * kIoAlign : 0);
  const std::span<const std::byte> rest = payload.subspan(whole.size());
  if (gathered_ >= kWriteBytes || pieces_.size() >= kMostPieces ||
      buffer_.size() - used_ < need - whole.size()) {
    if (const Status s = write_out(); s != Status::kOk) return s;
  }
  Record placed = record;
  placed.offset = open_->end + kIoAlign;
  encode_record_header(placed, open_->header.stamp, gather_own(kIoAlign).first<kIoAlign>());
  if (!whole.empty()) gather(whole.data(), whole.size());
  if (!rest.empty()) {
    const std::span<std::byte> to = gather_own(io_padded(rest.size()));
    std::memcpy(to.data(), rest.data(), rest.size());
    std::memset(to.data() + rest.size(), 0, to.size() - rest.size());
  }
  open_->end += need;
  pending_.push_back({placed, {}});
  return Status::kOk;
}

/// The next bytes of the file.
void DiskWriter::gather(const std::byte* data, std::size_t bytes) {
  gathered_ += bytes;
  if (!pieces_.empty()) {
    iovec& last = pieces_.back();
    if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  pieces_.push_back({const_cast<std::byte*>(data), bytes});
}

/// The same in the buffer, to be filled in. REQUIRES room there.
std::span<std::byte> DiskWriter::gather_own(std::size_t bytes) {
  std::byte* const at = buffer_.data() + used_;
  used_ += bytes;
  gather(at, bytes);
  return {at, bytes};
}

void DiskWriter::forget_gathered() {
  pieces_.clear();
  used_ = 0;
  gathered_ = 0;
}

/// What is gathered to the file. Not kOk: everything pending has failed and the segment is given up.
Status DiskWriter::write_out() {
  if (gathered_ == 0) return Status::kOk;
  int error = 0;
  do {
    error = write_fully(*open_->file, open_->end - gathered_, pieces_);
  } while (error == -ENOSPC && state_.evict_one());
  if (error == 0) {
    forget_gathered();
    return Status::kOk;
  }
  return give_up("cannot write to ", error);
}

/// What was pending fails, and nothing more is appended to the segment; what is durable stays readable.
Status DiskWriter::give_up(const char* what, int error) {
  const bool full = error == -ENOSPC || error == -EDQUOT;
  if (full)
    state_.no_space();
  else
    state_.io_failed(what + state_.options.directory, error);
  fail_pending(full ? Status::kNoSpace : Status::kIoError);
  seal();
  return full ? Status::kNoSpace : Status::kIoError;
}

void DiskWriter::commit() {
  if (pending_.empty()) return;
  if (write_out() != Status::kOk) return;
  if (const int error = open_->file->sync(); error != 0) {
    give_up("cannot make blocks durable in ", error);  // what a failed sync left behind is not known
    return;
  }
  publish();
}

void DiskWriter::publish() {
  open_->committed = open_->end;
  {
    const std::lock_guard lock(state_.mutex);
    TierStats& stats = state_.stats;
    const double now = state_.clock.now();
    for (const Pending& p : pending_) {
      open_->records.push_back(p.record);
      stats.bytes_moved += record_bytes(p.record.length);
      if (!p.jobs.empty()) {
        stats.bytes_written += p.record.length;
        stats.bytes_moved -= p.record.length;
        state_.index.insert(open_->serial, p.record, now);
      } else if (state_.index.find(p.record.key) != nullptr) {  // may have been erased while it moved
        state_.index.relocate(p.record.key, open_->serial, p.record.offset);
      }
    }
    state_.strikes = 0;
    state_.read_only_pause = 1;
  }
  std::vector<Pending> ready = std::move(pending_);
  pending_.clear();
  for (Pending& p : ready) {
    for (Job& job : p.jobs) done(job, Status::kOk);
  }
}

void DiskWriter::fail_pending(Status status) {
  std::vector<Pending> failed = std::move(pending_);
  pending_.clear();
  forget_gathered();
  if (open_) open_->end = open_->committed;
  for (Pending& p : failed) {
    for (Job& job : p.jobs) done(job, status);
  }
}

void DiskWriter::done(Job& job, Status status) {
  {
    const std::lock_guard lock(state_.mutex);
    TierStats& s = state_.stats;
    --s.writes_in_flight;
    if (status == Status::kOk)
      ++s.put_ok;
    else if (status == Status::kCancelled || status == Status::kUnavailable)
      ++s.put_dropped;
    else
      ++s.put_failed;
  }
  (*job.report)({job.item.key, job.item.tag, status, state_.clock.now() - job.submitted});
  job = Job{};
  const std::lock_guard lock(mutex_);
  ++finished_;
  idle_.notify_all();
}

}  // namespace barg::store
