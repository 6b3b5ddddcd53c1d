// Writes of the disk tier: one thread appends parts to the open segment, makes a batch durable, and only then
// shows it and reports it; seals full segments, and makes room by cleaning those that are worth least. Any
// thread may call; reports come from the writer's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "store/disk_state.h"

namespace barg::store {

class DiskWriter {
 public:
  explicit DiskWriter(DiskState& state);
  ~DiskWriter();  ///< what has not been started ends with kUnavailable; the open segment is sealed
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  void put(Ticket ticket, std::vector<PutItem> items, ReportFn report);
  void cancel(Ticket ticket);
  bool flush(double deadline);

 private:
  struct Job {
    PutItem item;
    Ticket ticket{};
    double submitted = 0;
    std::shared_ptr<ReportFn> report;
    bool cancelled = false;
  };
  struct Pending {
    Record record;
    std::vector<Job> jobs;  ///< who waits for it; none: moved by cleaning
  };
  struct Open {
    std::uint64_t serial = 0;
    std::string stem;
    FileRef file;
    SegmentHeader header;
    std::uint64_t committed = 0;       ///< end of what is durable
    std::uint64_t end = 0;             ///< end of what is in the file or gathered
    std::vector<Record> records = {};  ///< durable ones
  };

  void run();
  bool take(std::vector<Job>& batch);
  void write(Job& job);
  Status append(const Record& record, std::span<const std::byte> payload, bool stays);
  void gather(const std::byte* data, std::size_t bytes);
  std::span<std::byte> gather_own(std::size_t bytes);
  void forget_gathered();
  bool room_for(std::uint64_t payload) const;
  Status write_out();
  Status give_up(const char* what, int error);
  void commit();
  void publish();
  void fail_pending(Status status);

  Status begin_segment();
  std::expected<FileRef, Status> create_file(SegmentHeader& header, std::string& stem);
  int start_file(File& file, const SegmentHeader& header);
  void seal();
  bool clean_one();
  void done(Job& job, Status status);

  DiskState& state_;
  AlignedBuffer buffer_;
  std::size_t used_ = 0;        ///< of the buffer
  std::vector<iovec> pieces_;   ///< the file's bytes before open_->end, in the buffer or a job
  std::uint64_t gathered_ = 0;  ///< bytes of pieces_
  std::optional<Open> open_;
  std::vector<Pending> pending_;
  std::uint64_t last_id_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Job> jobs_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t accepted_ = 0, finished_ = 0;
  int flushing_ = 0;
  bool stop_ = false;
  double last_commit_ = -std::numeric_limits<double>::infinity();  ///< real time, 0 when the machine starts
  std::jthread thread_;
};

}  // namespace barg::store
