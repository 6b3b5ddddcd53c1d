#include "cuda/device_emulated.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "cuda/device_kernel.h"

namespace barg::cuda {
namespace {

using Code = Status::Code;

/// One thing in a stream. `run` does it; or it only waits for an event, or makes one happen.
struct Work {
  std::function<void()> run;
  std::optional<std::size_t> waits_for, makes_happen;
  std::uint64_t version = 0;  ///< of the event
};

struct Event {
  std::uint64_t recorded = 0, happened = 0;
};

class Emulated final : public EmulatedDevice {
 public:
  explicit Emulated(const EmulatedOptions& o) : options_(o), machine_(o.schedule), random_(o.seed) {
    info_ = {.name = "emulated", .major = 9, .minor = 0, .multiprocessors = o.multiprocessors,
             .memory_bytes = o.memory_bytes, .block_shared_bytes = o.block_shared_bytes};
  }

  const DeviceInfo& info() const override { return info_; }
  emu::Device& machine() override { return machine_; }
  std::size_t peak_bytes() const override { return peak_; }
  Status free_bytes(std::size_t& out) override {
    out = options_.memory_bytes - used_;
    return lost_;
  }
  Status load(const void*) override { return lost_; }

  Status allocate(std::size_t bytes, const char* name, std::byte*& out) override;
  void release(std::byte* p) override;
  Status allocate_pinned(std::size_t bytes, std::byte*& out) override;
  void release_pinned(std::byte* p) override;

  Status create_stream(StreamId& out) override {
    if (capturing_) return not_now();
    out = static_cast<StreamId>(streams_.size());
    streams_.emplace_back();
    return lost_;
  }
  Status create_event(EventId& out) override {
    if (capturing_) return not_now();
    out = static_cast<EventId>(events_.size());
    events_.emplace_back();
    return lost_;
  }

  Status upload(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status download(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status copy(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override;
  Status fill(StreamId s, std::byte* to, std::uint8_t value, std::size_t bytes) override;
  Status launch(StreamId s, const Kernel& kernel, const LaunchShape& shape, const void* params, bool overlap) override;
  Status call(StreamId s, const LibraryCall& run, std::byte* to, std::size_t bytes) override;

  Status record(StreamId s, EventId e) override;
  Status wait(StreamId s, EventId e) override;
  Status query(EventId e, bool& happened) override;
  Status synchronize(EventId e) override;
  Status synchronize(StreamId s) override;

  Status begin_capture(StreamId s) override;
  Status end_capture(StreamId s, GraphId& out) override;
  Status launch(StreamId s, GraphId g) override;

 private:
  using Regions = std::map<const std::byte*, std::size_t>;

  Status invalid(const std::string& what) const { return lost_.ok() ? Status{Code::kInvalid, what} : lost_; }
  Status not_now() const { return invalid("a stream is being captured: only launches, copies and fills on it"); }
  /// Whether one region has all those bytes.
  static bool has(const Regions& regions, const std::byte* p, std::size_t bytes) {
    auto it = regions.upper_bound(p);
    if (it == regions.begin()) return false;
    --it;
    const auto offset = static_cast<std::size_t>(p - it->first);
    return offset <= it->second && bytes <= it->second - offset;
  }
  bool known(StreamId s) const { return static_cast<std::size_t>(s) < streams_.size(); }
  bool known(EventId e) const { return static_cast<std::size_t>(e) < events_.size(); }
  Event& event(EventId e) { return events_[static_cast<std::size_t>(e)]; }

  /// What a stream or a graph does: `run`, in its turn; until then nobody can know what is in `result`.
  struct Node {
    std::function<void()> run;
    std::byte* result = nullptr;  ///< pinned memory
    std::size_t bytes = 0;
  };

  Status issue(StreamId s, Node node);
  bool can_run(const std::deque<Work>& stream) const;
  void step(std::size_t stream);
  bool step_any(std::optional<std::size_t> target);
  template <class Done>
  void run_until(std::optional<std::size_t> target, const Done& done);
  void run_all() {
    run_until({}, [] { return false; });
  }
  void check(const std::string& kernel);

  const EmulatedOptions options_;
  DeviceInfo info_;
  emu::Device machine_;
  std::mt19937_64 random_;
  Status lost_;
  Regions memory_, pinned_;
  std::map<const std::byte*, std::unique_ptr<std::byte[]>> pinned_storage_;
  std::size_t used_ = 0, peak_ = 0;
  std::vector<std::deque<Work>> streams_;
  std::vector<Event> events_;
  std::optional<StreamId> capturing_;
  std::vector<Node> captured_;
  std::vector<std::vector<Node>> graphs_;
};

// ---- memory

Status Emulated::allocate(std::size_t bytes, const char* name, std::byte*& out) {
  if (capturing_) return not_now();
  if (!lost_.ok()) return lost_;
  if (bytes > options_.memory_bytes - used_) {
    return {Code::kOutOfMemory, std::string(name) + " takes " + std::to_string(bytes) + " bytes, the device has " +
                                    std::to_string(options_.memory_bytes - used_)};
  }
  out = static_cast<std::byte*>(machine_.allocate(std::max<std::size_t>(bytes, 1), name));
  memory_[out] = bytes;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return {};
}

void Emulated::release(std::byte* p) {
  if (p == nullptr) return;
  run_all();
  used_ -= memory_.at(p);
  memory_.erase(p);
  machine_.release(p);
}

Status Emulated::allocate_pinned(std::size_t bytes, std::byte*& out) {
  if (capturing_) return not_now();
  if (!lost_.ok()) return lost_;
  auto storage = std::make_unique<std::byte[]>(std::max<std::size_t>(bytes, 1));
  out = storage.get();
  std::memset(out, 0xFF, bytes);
  pinned_[out] = bytes;
  pinned_storage_[out] = std::move(storage);
  return {};
}

void Emulated::release_pinned(std::byte* p) {
  if (p == nullptr) return;
  run_all();
  pinned_.erase(p);
  pinned_storage_.erase(p);
}

// ---- work

Status Emulated::issue(StreamId s, Node node) {
  if (!lost_.ok()) return lost_;
  if (!known(s)) return invalid("no such stream");
  if (capturing_) {
    if (*capturing_ != s) return not_now();
    captured_.push_back(std::move(node));
  } else {
    if (node.bytes != 0) std::memset(node.result, 0xFF, node.bytes);
    streams_[static_cast<std::size_t>(s)].push_back({.run = std::move(node.run), .waits_for = {}, .makes_happen = {}});
  }
  return {};
}

Status Emulated::upload(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!has(pinned_, from, bytes)) return invalid("an upload from memory that is not pinned");
  if (!has(memory_, to, bytes)) return invalid("an upload to what is no device memory");
  return issue(s, {[=, this] { machine_.upload(to, from, bytes); }});
}

Status Emulated::download(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!has(pinned_, to, bytes)) return invalid("a download to memory that is not pinned");
  if (!has(memory_, from, bytes)) return invalid("a download from what is no device memory");
  return issue(s, {[=, this] { machine_.download(to, from, bytes); }, to, bytes});
}

Status Emulated::call(StreamId s, const LibraryCall& run, std::byte* to, std::size_t bytes) {
  if (!has(memory_, to, bytes)) return invalid("a library's result in what is no device memory");
  return issue(s, {[=, this] {
    if (const std::string error = run(nullptr); !error.empty() && lost_.ok()) lost_ = {Code::kLost, error};
    const std::vector<std::byte> written(to, to + bytes);
    machine_.upload(to, written.data(), bytes);  // nobody saw the library write
  }});
}

Status Emulated::copy(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!has(memory_, to, bytes) || !has(memory_, from, bytes)) return invalid("a copy of what is no device memory");
  return issue(s, {[=, this] {
    std::vector<std::byte> data(bytes);
    machine_.download(data.data(), from, bytes);
    machine_.upload(to, data.data(), bytes);
  }});
}

Status Emulated::fill(StreamId s, std::byte* to, std::uint8_t value, std::size_t bytes) {
  if (!has(memory_, to, bytes)) return invalid("a fill of what is no device memory");
  return issue(s, {[=, this] {
    const std::vector<std::byte> data(bytes, std::byte{value});
    machine_.upload(to, data.data(), bytes);
  }});
}

Status Emulated::launch(StreamId s, const Kernel& kernel, const LaunchShape& shape, const void* params, bool) {
  if (shape.grid_x < 1 || shape.grid_y < 1 || shape.grid_z < 1 || shape.threads < 1 || shape.threads > 1024 ||
      shape.threads % 32 != 0 || shape.dynamic_shared > info_.block_shared_bytes)
    return invalid(kernel_text(kernel.name) + " with blocks or a grid that no device has");
  // Of 8-byte words: a body reads its parameters where they lie.
  std::vector<std::uint64_t> copy((kernel.params_bytes + 7) / 8);
  std::memcpy(copy.data(), params, kernel.params_bytes);
  return issue(s, {[this, kernel, shape, copy = std::move(copy)] {
    const emu::LaunchInfo info{kernel.name,   shape.grid_x,  shape.grid_y,
                               shape.grid_z,  shape.threads, shape.dynamic_shared};
    emu::run(machine_.stream(), info, kernel.body, copy.data());
    check(kernel.name);
  }});
}

void Emulated::check(const std::string& kernel) {
  const std::vector<emu::Finding> findings = machine_.take_findings();
  if (findings.empty() || !lost_.ok()) return;
  const emu::Finding& f = findings.front();
  lost_ = {Code::kLost, kernel_text(kernel.c_str()) + ": " + emu::kind_name(f.kind) + " at " + f.where + ": " + f.what};
}

// ---- order

bool Emulated::can_run(const std::deque<Work>& stream) const {
  if (stream.empty()) return false;
  const Work& w = stream.front();
  return !w.waits_for || events_[*w.waits_for].happened >= w.version;
}

void Emulated::step(std::size_t stream) {
  const Work w = std::move(streams_[stream].front());
  streams_[stream].pop_front();
  if (w.run && lost_.ok()) w.run();
  if (w.makes_happen) events_[*w.makes_happen].happened = std::max(events_[*w.makes_happen].happened, w.version);
}

/// One step of some stream; false: none can go on.
bool Emulated::step_any(std::optional<std::size_t> target) {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (can_run(streams_[i])) ready.push_back(i);
  }
  if (ready.empty()) return false;
  const bool target_ready = target && std::find(ready.begin(), ready.end(), *target) != ready.end();
  std::size_t pick = ready[random_() % ready.size()];
  if (options_.streams == emu::Order::kForward && target_ready) pick = *target;
  if (options_.streams == emu::Order::kReverse && target_ready && ready.size() > 1)
    pick = ready.front() == *target ? ready.back() : ready.front();
  step(pick);
  return true;
}

template <class Done>
void Emulated::run_until(std::optional<std::size_t> target, const Done& done) {
  while (!done() && step_any(target)) {
  }
}

Status Emulated::record(StreamId s, EventId e) {
  if (!known(s) || !known(e)) return invalid("no such stream or event");
  if (capturing_) return not_now();
  streams_[static_cast<std::size_t>(s)].push_back(
      {.run = {}, .waits_for = {}, .makes_happen = static_cast<std::size_t>(e), .version = ++event(e).recorded});
  return lost_;
}

Status Emulated::wait(StreamId s, EventId e) {
  if (!known(s) || !known(e)) return invalid("no such stream or event");
  if (capturing_) return not_now();
  streams_[static_cast<std::size_t>(s)].push_back(
      {.run = {}, .waits_for = static_cast<std::size_t>(e), .makes_happen = {}, .version = event(e).recorded});
  return lost_;
}

Status Emulated::query(EventId e, bool& happened) {
  if (!known(e)) return invalid("no such event");
  if (capturing_) return not_now();
  happened = event(e).happened >= event(e).recorded;
  if (!happened) step_any({});  // so that who asks again and again gets there
  return lost_;
}

Status Emulated::synchronize(EventId e) {
  if (!known(e)) return invalid("no such event");
  if (capturing_) return not_now();
  run_until({}, [&] { return event(e).happened >= event(e).recorded; });
  return lost_;
}

Status Emulated::synchronize(StreamId s) {
  if (!known(s)) return invalid("no such stream");
  if (capturing_) return not_now();
  const auto target = static_cast<std::size_t>(s);
  run_until(target, [&] { return streams_[target].empty(); });
  return lost_;
}

// ---- graphs

Status Emulated::begin_capture(StreamId s) {
  if (!known(s)) return invalid("no such stream");
  if (capturing_) return not_now();
  capturing_ = s;
  captured_.clear();
  return lost_;
}

Status Emulated::end_capture(StreamId s, GraphId& out) {
  if (capturing_ != s) return invalid("this stream is not being captured");
  capturing_.reset();
  out = static_cast<GraphId>(graphs_.size());
  graphs_.push_back(std::move(captured_));
  captured_ = {};
  return lost_;
}

Status Emulated::launch(StreamId s, GraphId g) {
  if (static_cast<std::size_t>(g) >= graphs_.size()) return invalid("no such graph");
  if (capturing_) return not_now();
  for (const Node& node : graphs_[static_cast<std::size_t>(g)]) {
    Status status = issue(s, node);
    if (!status.ok()) return status;
  }
  return lost_;
}

}  // namespace

std::unique_ptr<EmulatedDevice> EmulatedDevice::create(const EmulatedOptions& options) {
  return std::make_unique<Emulated>(options);
}

}  // namespace barg::cuda
