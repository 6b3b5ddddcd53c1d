// Reads of the disk tier: a queue of wanted parts and the threads that keep many reads in flight, verify what
// came and report it. Any thread may call; reports come from the reader's threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "store/disk_state.h"

namespace barg::store {

class DiskReader {
 public:
  explicit DiskReader(DiskState& state);
  ~DiskReader();  ///< what has not been started ends with kUnavailable
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report);
  void cancel(Ticket ticket);
  /// Ends what waits and is past its deadline: for when all threads hang in a disk.
  void expire();
  std::size_t waiting();

 private:
  struct Job {
    GetItem item;
    Ticket ticket{};
    double deadline = 0, submitted = 0;
    std::shared_ptr<ReportFn> report;
    bool cancelled = false;
  };
  struct Flight {
    ReadOp op;
    Job job;
    std::uint64_t segment = 0, offset = 0;
    Hash128 hash;
    AlignedBuffer bounce;     ///< for what the destination cannot take directly
    std::size_t bounced = 0;  ///< so many last bytes of the part came there
  };

  void run();
  bool take(std::vector<Job>& jobs, std::size_t most, bool wait);
  bool start(Job& job, Flight& flight);
  void aim(Flight& flight, std::size_t length);
  void complete(Flight& flight);
  Status finish(Flight& flight);
  void done(Job& job, Status status, std::optional<Hash128> hash = {});

  DiskState& state_;
  unsigned depth_ = 1;
  std::size_t num_threads_ = 1;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace barg::store
