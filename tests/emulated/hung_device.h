// A device whose driver stops answering: from hang() on, no call returns until the test is over.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda/device_emulated.h"

namespace barg::test {

/// Shared by the device and the test, which must let_go() before it ends.
class Hang {
 public:
  void hang() { set(true); }
  void let_go() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !hangs_; });
  }

 private:
  void set(bool hangs) {
    {
      std::lock_guard lock(mutex_);
      hangs_ = hangs;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false;  // guarded by mutex_
};

class HungDevice final : public cuda::Device {
 public:
  explicit HungDevice(std::shared_ptr<Hang> hang) : hang_(std::move(hang)), device_(cuda::EmulatedDevice::create({})) {}

  const cuda::DeviceInfo& info() const override { return device_->info(); }
  cuda::Status free_bytes(std::size_t& out) override { return on().free_bytes(out); }
  cuda::Status load(const void* image) override { return on().load(image); }
  cuda::Status allocate(std::size_t bytes, const char* name, std::byte*& out) override {
    return on().allocate(bytes, name, out);
  }
  void release(std::byte* p) override { on().release(p); }
  cuda::Status allocate_pinned(std::size_t bytes, std::byte*& out) override { return on().allocate_pinned(bytes, out); }
  void release_pinned(std::byte* p) override { on().release_pinned(p); }
  cuda::Status create_stream(cuda::StreamId& out) override { return on().create_stream(out); }
  cuda::Status create_event(cuda::EventId& out) override { return on().create_event(out); }
  cuda::Status upload(cuda::StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on().upload(s, to, from, bytes);
  }
  cuda::Status download(cuda::StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on().download(s, to, from, bytes);
  }
  cuda::Status copy(cuda::StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on().copy(s, to, from, bytes);
  }
  cuda::Status fill(cuda::StreamId s, std::byte* to, std::uint8_t value, std::size_t bytes) override {
    return on().fill(s, to, value, bytes);
  }
  cuda::Status launch(cuda::StreamId s, const cuda::Kernel& kernel, const cuda::LaunchShape& shape, const void* params,
                      bool overlap) override {
    return on().launch(s, kernel, shape, params, overlap);
  }
  cuda::Status call(cuda::StreamId s, const LibraryCall& run, std::byte* to, std::size_t bytes) override {
    return on().call(s, run, to, bytes);
  }
  cuda::Status record(cuda::StreamId s, cuda::EventId e) override { return on().record(s, e); }
  cuda::Status wait(cuda::StreamId s, cuda::EventId e) override { return on().wait(s, e); }
  cuda::Status query(cuda::EventId e, bool& happened) override { return on().query(e, happened); }
  cuda::Status synchronize(cuda::EventId e) override { return on().synchronize(e); }
  cuda::Status synchronize(cuda::StreamId s) override { return on().synchronize(s); }
  cuda::Status begin_capture(cuda::StreamId s) override { return on().begin_capture(s); }
  cuda::Status end_capture(cuda::StreamId s, cuda::GraphId& out) override { return on().end_capture(s, out); }
  cuda::Status launch(cuda::StreamId s, cuda::GraphId g) override { return on().launch(s, g); }

 private:
  cuda::Device& on() {
    hang_->pass();
    return *device_;
  }

  const std::shared_ptr<Hang> hang_;
  const std::unique_ptr<cuda::EmulatedDevice> device_;
};

}  // namespace barg::test
