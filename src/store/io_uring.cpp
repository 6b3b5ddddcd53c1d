// Many reads in flight from one thread through io_uring.
#include <liburing.h>

#include <cerrno>

#include "store/io_file.h"

namespace barg::store {
namespace {

class UringReadQueue final : public ReadQueue {
 public:
  static std::unique_ptr<ReadQueue> make(unsigned depth) {
    std::unique_ptr<UringReadQueue> queue(new UringReadQueue);
    if (::io_uring_queue_init(depth, &queue->ring_, 0) != 0) return nullptr;
    queue->open_ = true;
    return queue;
  }
  ~UringReadQueue() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  void push(ReadOp* op) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {  // more than the depth: the caller's promise is broken, but nothing is lost
      refused_.push_back(op);
      return;
    }
    ::io_uring_prep_readv(entry, op->file->descriptor(), op->pieces, static_cast<unsigned>(op->num_pieces),
                          op->offset);
    ::io_uring_sqe_set_data(entry, op);
    ++in_flight_;
  }

  void wait(std::vector<ReadOp*>& done) override {
    for (ReadOp* op : refused_) {
      op->result = -EAGAIN;
      done.push_back(op);
    }
    const bool some = !refused_.empty();
    refused_.clear();
    if (in_flight_ == 0) return;
    for (;;) {
      const int n = ::io_uring_submit_and_wait(&ring_, some ? 0 : 1);
      if (n >= 0) break;
      // EAGAIN and EBUSY pass; what was submitted before still completes, so there is something to wait for.
      if (n != -EINTR && n != -EAGAIN && n != -EBUSY) break;
    }
    io_uring_cqe* completion = nullptr;
    while (::io_uring_peek_cqe(&ring_, &completion) == 0 && completion != nullptr) {
      auto* op = static_cast<ReadOp*>(::io_uring_cqe_get_data(completion));
      op->result = completion->res;
      ::io_uring_cqe_seen(&ring_, completion);
      --in_flight_;
      done.push_back(op);
      completion = nullptr;
    }
  }

 private:
  UringReadQueue() = default;
  io_uring ring_{};
  bool open_ = false;
  std::size_t in_flight_ = 0;
  std::vector<ReadOp*> refused_;
};

}  // namespace

std::unique_ptr<ReadQueue> uring_read_queue(unsigned depth) { return UringReadQueue::make(depth); }

}  // namespace barg::store
