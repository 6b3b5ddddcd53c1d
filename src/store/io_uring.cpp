// Many reads in flight from one thread through io_uring.
#include <liburing.h>
#include <poll.h>

#include <cerrno>

#include "store/io_file.h"

namespace barg::store {
namespace {

constexpr int kPatience = 1000;  ///< rests that a kernel without memory is given
constexpr int kRestMs = 1;

class UringReadQueue final : public ReadQueue {
 public:
  static std::unique_ptr<ReadQueue> make(unsigned depth) {
    std::unique_ptr<UringReadQueue> queue(new UringReadQueue(depth));
    return queue->open() ? std::move(queue) : nullptr;
  }
  ~UringReadQueue() override { close(); }

  void push(ReadOp* op) override {
    if (broken_ != 0 && in_flight_ == 0) {  // the old ring would still start what it was given
      close();
      open();
    }
    io_uring_sqe* entry = broken_ == 0 ? ::io_uring_get_sqe(&ring_) : nullptr;
    if (entry == nullptr) {  // or more than the depth: the caller's promise is broken, but nothing is lost
      refused_.push_back(op);
      return;
    }
    ::io_uring_prep_readv(entry, op->file->descriptor(), op->pieces, static_cast<unsigned>(op->num_pieces),
                          op->offset);
    ::io_uring_sqe_set_data(entry, op);
    queued_.push_back(op);
  }

  void wait(std::vector<ReadOp*>& done) override {
    const std::size_t before = done.size();
    end(refused_, broken_ != 0 ? broken_ : -EAGAIN, done);
    int rests = 0;
    while (in_flight_ + queued_.size() > 0) {
      submit(done.size() == before, rests, done);
      reap(done);
      if (done.size() > before) return;
    }
  }

 private:
  explicit UringReadQueue(unsigned depth) : depth_(depth) {}

  bool open() {
    open_ = ::io_uring_queue_init(depth_, &ring_, 0) == 0;
    if (open_) broken_ = 0;
    return open_;
  }
  void close() {
    if (open_) ::io_uring_queue_exit(&ring_);
    open_ = false;
  }

  static void end(std::vector<ReadOp*>& ops, int error, std::vector<ReadOp*>& done) {
    for (ReadOp* op : ops) op->result = error;
    done.insert(done.end(), ops.begin(), ops.end());
    ops.clear();
  }

  /// Hands the kernel what is queued, and with `block` waits for a completion. EAGAIN and EBUSY pass, mostly;
  /// after any other error the ring is given nothing any more, and what the kernel has not got ends with it.
  void submit(bool block, int& rests, std::vector<ReadOp*>& done) {
    if (broken_ == 0) {
      const int n = ::io_uring_submit_and_wait(&ring_, block ? 1 : 0);
      if (n >= 0) {
        in_flight_ += static_cast<std::size_t>(n);
        queued_.erase(queued_.begin(), queued_.begin() + n);
        return;
      }
      if (n == -EINTR) return;
      if ((n != -EAGAIN && n != -EBUSY) || ++rests > kPatience) {
        broken_ = n;
        end(queued_, n, done);
        return;
      }
    }
    pollfd completions{.fd = ring_.ring_fd, .events = POLLIN, .revents = 0};
    if (block) ::poll(&completions, 1, kRestMs);  // of what the kernel has already: they come by themselves
  }

  void reap(std::vector<ReadOp*>& done) {
    io_uring_cqe* completion = nullptr;
    while (open_ && ::io_uring_peek_cqe(&ring_, &completion) == 0 && completion != nullptr) {
      auto* op = static_cast<ReadOp*>(::io_uring_cqe_get_data(completion));
      op->result = completion->res;
      ::io_uring_cqe_seen(&ring_, completion);
      --in_flight_;
      done.push_back(op);
      completion = nullptr;
    }
  }

  const unsigned depth_;
  io_uring ring_{};
  bool open_ = false;
  int broken_ = 0;  ///< -errno with which the kernel refused the ring, for good
  std::size_t in_flight_ = 0;
  std::vector<ReadOp*> queued_;  ///< in the ring, and not yet the kernel's
  std::vector<ReadOp*> refused_;
};

}  // namespace

std::unique_ptr<ReadQueue> uring_read_queue(unsigned depth) { return UringReadQueue::make(depth); }

}  // namespace barg::store
