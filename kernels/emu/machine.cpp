#include "emu/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string_view>

#include "emu/device.h"
#include "emu/hooks.h"
#include "emu/lanes.h"
#include "emu/prelude.h"

namespace barg::emu {
namespace {

constexpr int kWarp = 32;
constexpr std::size_t kSharedBytes = 227 << 10;
constexpr std::size_t kSharedGap = 64;  ///< between two arrays

enum class State : std::uint8_t { kReady, kBarrier, kWarp, kEnded };
enum class Collective : std::uint8_t { kNone, kSync, kFrom, kXor, kUp, kBallot, kLdmatrix, kLdmatrixTrans, kMmaF16, kMmaBf16 };

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  ///< nullptr: zeros
  bool done = false;
};

struct Thread {
  Context context;
  State state = State::kReady;
  Place place{};
  Site where;
  Collective collective = Collective::kNone;
  std::uint32_t value = 0;
  int operand = 0;
  const void* in[2] = {nullptr, nullptr};
  void* out = nullptr;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

/// The threads that can go on.
class ReadySet {
 public:
  void insert(int t) { words_[word(t)] |= std::uint64_t{1} << (t % 64); }
  void erase(int t) { words_[word(t)] &= ~(std::uint64_t{1} << (t % 64)); }
  void clear() { words_ = {}; }
  /// -1: none.
  int pick(Order order, std::mt19937_64& random) const {
    if (order == Order::kForward) return from(0);
    if (order == Order::kReverse) {
      for (std::size_t w = kWords; w-- > 0;) {
        if (words_[w] != 0) return static_cast<int>(w * 64) + 63 - std::countl_zero(words_[w]);
      }
      return -1;
    }
    const int t = from(static_cast<int>(random() % (kWords * 64)));
    return t >= 0 ? t : from(0);
  }

 private:
  static constexpr std::size_t kWords = 16;
  static std::size_t word(int t) { return static_cast<std::size_t>(t / 64); }
  int from(int first) const {
    std::uint64_t mask = ~std::uint64_t{0} << (first % 64);
    for (std::size_t w = word(first); w < kWords; ++w, mask = ~std::uint64_t{0}) {
      if ((words_[w] & mask) != 0) return static_cast<int>(w * 64) + std::countr_zero(words_[w] & mask);
    }
    return -1;
  }
  std::array<std::uint64_t, kWords> words_{};
};

/// One kernel launch: blocks one after another, their threads as fibers.
class Launch {
 public:
  Launch(Device::Impl& device, const LaunchInfo& info, void (*body)(const void*), const void* params)
      : device_(device), info_(info), body_(body), params_(params), name_(kernel_name(info.name)) {
    threads_.resize(static_cast<std::size_t>(info.threads));
    arena_.resize(kSharedBytes + 128 + kSharedGap);
  }

  void run();

  // For the running thread.
  const Place& place() const { return self().place; }
  void* shared_array(const void* declaration, const char* name, std::size_t bytes);
  void* dynamic_shared() { return dynamic_; }
  void sync_block(const Site& where);
  void sync_warp(const Site& where);
  void collective(Collective what, const Site& where);
  Thread& self() { return threads_[static_cast<std::size_t>(current_)]; }
  const Thread& self() const { return threads_[static_cast<std::size_t>(current_)]; }
  void access(Space space, Access what, const void* address, std::size_t bytes, const Site& where);
  void hooked_access(Access what, const void* address, std::size_t bytes, const Site& where);
  void cp_async16(void* to, const void* from, bool valid, const Site& where);
  void cp_commit();
  void cp_wait(int left, const Site& where);
  std::int32_t publish_count(std::int32_t* counter, const Site& where);
  bool fault_at(Fault::Kind kind, const Site& where) const;
  const Fault& fault() const { return device_.fault; }

 private:
  struct Array {
    const void* declaration;
    std::string name;
    std::byte* begin;
    std::size_t bytes;
  };
  /// What a block told the others by publish_count.
  struct Published {
    std::uint32_t block;
    std::shared_ptr<const std::vector<std::uint32_t>> heard;
  };
  struct Acquired {
    Published from;
    int thread;
    std::uint32_t clock;
  };

  static std::string kernel_name(std::string_view pretty);
  static void entry();
  void run_block(int x, int y, int z);
  void end_thread();
  void release_barrier();
  void stuck();
  std::string census() const;
  void give_up();                  ///< the launch is over; does not return on a fiber
  void yield();
  void complete_warp(int first);
  void move_matrices(Thread* lanes, bool transposed);
  void multiply(Thread* lanes, bool bf16);
  const Array* array_of(const void* p, std::size_t bytes) const;
  bool in_arena(const void* p) const { return p >= arena_.data() && p < arena_.data() + arena_.size(); }
  std::uint32_t user_era(bool shared) const { return shared ? block_era_ : launch_era_; }
  void checked(bool shared, Access what, const void* address, std::size_t bytes, const Site& where);
  bool ordered(std::uint32_t block, int thread, std::uint32_t clock) const;
  void finish(Copy& copy);
  void report(Finding::Kind kind, const Site& where, const std::string& what) {
    device_.report(kind, name_, where, what);
  }

  Device::Impl& device_;
  const LaunchInfo& info_;
  void (*body_)(const void*);
  const void* params_;
  std::string name_;
  std::vector<Thread> threads_;
  std::vector<std::byte> arena_;
  std::vector<Array> arrays_;
  void* dynamic_ = nullptr;
  std::size_t arena_used_ = 0;
  Context scheduler_;
  ReadySet ready_;
  int current_ = 0, ended_ = 0, at_barrier_ = 0;
  std::vector<int> in_warp_;  ///< lanes that wait, by warp
  bool over_ = false;
  std::uint32_t block_ = 0, block_era_ = 0, launch_era_ = 0;
  Clocks clocks_;
  std::map<const void*, std::vector<Published>> published_;
  std::vector<Acquired> acquired_;
};

thread_local Launch* current_launch = nullptr;

std::string Launch::kernel_name(std::string_view pretty) {
  const std::size_t at = pretty.find("Kernel = ");
  if (at == std::string_view::npos) return std::string(pretty);
  const std::string_view rest = pretty.substr(at + 9);
  return std::string(rest.substr(0, rest.find("; Params")));
}

void Launch::run() {
  launch_era_ = ++device_.era;
  std::vector<int> order(static_cast<std::size_t>(info_.grid_x) * static_cast<std::size_t>(info_.grid_y) *
                         static_cast<std::size_t>(info_.grid_z));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  if (device_.schedule.blocks == Order::kReverse) std::reverse(order.begin(), order.end());
  if (device_.schedule.blocks == Order::kRandom) std::shuffle(order.begin(), order.end(), device_.random);
  for (const int b : order) {
    if (over_) break;
    block_ = static_cast<std::uint32_t>(b);
    run_block(b % info_.grid_x, b / info_.grid_x % info_.grid_y, b / info_.grid_x / info_.grid_y);
  }
}

void Launch::run_block(int x, int y, int z) {
  block_era_ = ++device_.era;
  arrays_.clear();
  acquired_.clear();
  arena_used_ = 0;
  dynamic_ = shared_array(&info_, "dynamic shared memory", info_.dynamic_shared);  // first: it is aligned best
  ready_.clear();
  ended_ = at_barrier_ = 0;
  in_warp_.assign(threads_.size() / kWarp, 0);
  if (hooked()) clocks_.reset(info_.threads);
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    threads_[t] = {};
    threads_[t].context = device_.stacks.prepare(t, entry);
    threads_[t].place = {static_cast<int>(t), x, y, z, &info_};
    ready_.insert(static_cast<int>(t));
  }
  while (ended_ < info_.threads && !over_) {
    current_ = ready_.pick(device_.schedule.threads, device_.random);
    if (current_ < 0) {
      stuck();
      break;
    }
    ready_.erase(current_);
    switch_context(scheduler_, self().context);
  }
  device_.lint.end_block();
}

void Launch::entry() {
  Launch& l = *current_launch;
  l.body_(l.params_);
  l.end_thread();
}

void Launch::end_thread() {
  Thread& t = self();
  const bool copies = !t.open.empty() || std::any_of(t.groups.begin(), t.groups.end(), [](const auto& g) { return !g.empty(); });
  if (copies) report(Finding::Kind::kUnfinishedCopy, t.where, "a thread ended before its copies");
  self().state = State::kEnded;
  ++ended_;
  if (at_barrier_ > 0 && at_barrier_ + ended_ == info_.threads) release_barrier();
  yield();
}

/// Leaves the fiber; comes back when its turn has come: it must be in the ready set by then.
void Launch::yield() {
  Thread& t = self();
  switch_context(t.context, scheduler_);
}

void Launch::give_up() {
  over_ = true;
  switch_context(self().context, scheduler_);
  std::abort();  // nobody comes back
}

bool Launch::fault_at(Fault::Kind kind, const Site& where) const {
  const Fault& f = device_.fault;
  return f.kind == kind && where.line == f.line && std::string_view(where.file).ends_with(f.file_ends_with);
}

void Launch::sync_block(const Site& where) {
  if (fault_at(Fault::Kind::kNoBarrier, where)) return;
  Thread& t = self();
  t.where = where;
  t.state = State::kBarrier;
  if (++at_barrier_ + ended_ == info_.threads) release_barrier();
  yield();
}

void Launch::release_barrier() {
  const Thread* first = nullptr;
  for (const Thread& t : threads_) {
    if (t.state != State::kBarrier) continue;
    if (first == nullptr) first = &t;
    if (first->where != t.where)
      report(Finding::Kind::kDivergentBarrier, t.where, "other threads wait at " + show(first->where));
  }
  if (ended_ > 0)
    report(Finding::Kind::kDivergentBarrier, first->where, std::to_string(ended_) + " threads of the block have ended");
  if (hooked()) clocks_.join(0, info_.threads);
  at_barrier_ = 0;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state != State::kBarrier) continue;
    threads_[i].state = State::kReady;
    ready_.insert(static_cast<int>(i));
  }
}

void Launch::sync_warp(const Site& where) {
  if (fault_at(Fault::Kind::kNoWarpBarrier, where)) return;
  collective(Collective::kSync, where);
}

void Launch::collective(Collective what, const Site& where) {
  Thread& t = self();
  t.where = where;
  t.collective = what;
  t.state = State::kWarp;
  const int warp = current_ / kWarp;
  if (++in_warp_[static_cast<std::size_t>(warp)] == kWarp) complete_warp(warp * kWarp);
  yield();
}

void Launch::complete_warp(int first) {
  Thread* const lanes = threads_.data() + first;
  for (int l = 1; l < kWarp; ++l) {
    if (lanes[l].collective == lanes[0].collective && lanes[l].where == lanes[0].where) continue;
    report(Finding::Kind::kDivergentWarp, lanes[l].where, "lane 0 waits at " + show(lanes[0].where));
    give_up();
  }
  std::array<std::uint32_t, kWarp> v{};
  for (int l = 0; l < kWarp; ++l) v[static_cast<std::size_t>(l)] = lanes[l].value;
  const auto each = [&](auto&& value) {
    for (int l = 0; l < kWarp; ++l) lanes[l].value = value(l);
  };
  const auto of = [&](int l) { return v[static_cast<std::size_t>(l & 31)]; };
  switch (lanes[0].collective) {
    case Collective::kNone: break;
    case Collective::kSync:
      if (hooked()) clocks_.join(first, kWarp);
      break;
    case Collective::kFrom: each([&](int l) { return of(lanes[l].operand); }); break;
    case Collective::kXor: each([&](int l) { return of(l ^ lanes[l].operand); }); break;
    case Collective::kUp: each([&](int l) { return of(l >= lanes[l].operand ? l - lanes[l].operand : l); }); break;
    case Collective::kBallot: {
      std::uint32_t mask = 0;
      for (int l = 0; l < kWarp; ++l) mask |= (of(l) & 1u) << l;
      each([&](int) { return mask; });
      break;
    }
    case Collective::kLdmatrix: move_matrices(lanes, false); break;
    case Collective::kLdmatrixTrans: move_matrices(lanes, true); break;
    case Collective::kMmaF16: multiply(lanes, false); break;
    case Collective::kMmaBf16: multiply(lanes, true); break;
  }
  in_warp_[static_cast<std::size_t>(first / kWarp)] = 0;
  for (int l = 0; l < kWarp; ++l) {
    lanes[l].state = State::kReady;
    ready_.insert(first + l);
  }
}

void Launch::move_matrices(Thread* lanes, bool transposed) {
  for (int l = 0; l < kWarp; ++l) {
    auto* r = static_cast<std::uint32_t*>(lanes[l].out);
    for (int m = 0; m < 4; ++m) {
      std::uint16_t half[2];
      for (int e = 0; e < 2; ++e) {
        const MatrixElement at = ldmatrix_element(l, e);
        const int row = transposed ? at.column : at.row, column = transposed ? at.row : at.column;
        std::memcpy(&half[e], static_cast<const std::byte*>(lanes[8 * m + row].in[0]) + 2 * column, 2);
      }
      r[m] = half[0] | static_cast<std::uint32_t>(half[1]) << 16;
    }
  }
}

void Launch::multiply(Thread* lanes, bool bf16) {
  float a[16][16], b[16][8];
  const auto number = [&](std::uint32_t pair, int e) {
    const auto h = static_cast<std::uint16_t>(pair >> (16 * e));
    return bf16 ? ops::bf16_to_f32(h) : ops::f16_to_f32(h);
  };
  for (int l = 0; l < kWarp; ++l) {
    const auto* ra = static_cast<const std::uint32_t*>(lanes[l].in[0]);
    const auto* rb = static_cast<const std::uint32_t*>(lanes[l].in[1]);
    for (int i = 0; i < 8; ++i) {
      const MatrixElement at = mma_a_element(l, i);
      a[at.row][at.column] = number(ra[i / 2], i % 2);
    }
    for (int i = 0; i < 4; ++i) {
      const MatrixElement at = mma_b_element(l, i);
      b[at.row][at.column] = number(rb[i / 2], i % 2);
    }
  }
  for (int l = 0; l < kWarp; ++l) {
    auto* d = static_cast<float*>(lanes[l].out);
    for (int i = 0; i < 4; ++i) {
      const MatrixElement at = mma_d_element(l, i);
      double sum = d[i];
      for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[at.row][k]) * static_cast<double>(b[k][at.column]);
      d[i] = static_cast<float>(sum);
    }
  }
}

void Launch::stuck() {
  over_ = true;
  const auto it = std::find_if(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != State::kEnded; });
  report(Finding::Kind::kDeadlock, it->where, census());
}

std::string Launch::census() const {
  std::map<std::string, int> counts;
  for (const Thread& t : threads_) {
    const char* const what = t.state == State::kBarrier ? "at the barrier " : t.state == State::kWarp ? "in the collective " : "ended ";
    ++counts[what + (t.state == State::kEnded ? std::string() : show(t.where))];
  }
  std::string out;
  for (const auto& [what, n] : counts) out += (out.empty() ? "" : ", ") + std::to_string(n) + " threads " + what;
  return out;
}

void* Launch::shared_array(const void* declaration, const char* name, std::size_t bytes) {
  for (const Array& a : arrays_) {
    if (a.declaration == declaration) return a.begin;
  }
  const auto aligned = (reinterpret_cast<std::uintptr_t>(arena_.data()) + 127) & ~std::uintptr_t{127};
  std::byte* const p = reinterpret_cast<std::byte*>(aligned) + arena_used_;
  arena_used_ += (bytes + kSharedGap + 15) / 16 * 16;
  if (p + bytes + kSharedGap > arena_.data() + arena_.size()) {
    report(Finding::Kind::kOutside, self().where, std::string("shared memory is full: ") + name);
    give_up();
  }
  std::memset(p, 0xFF, bytes + kSharedGap);
  if (hooked()) device_.shadow.forget(p, bytes);
  arrays_.push_back({declaration, name, p, bytes});
  return p;
}

const Launch::Array* Launch::array_of(const void* p, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(p);
  for (const Array& a : arrays_) {
    if (at >= a.begin && at + bytes <= a.begin + a.bytes) return &a;
  }
  return nullptr;
}

void Launch::access(Space space, Access what, const void* address, std::size_t bytes, const Site& where) {
  self().where = where;
  const bool shared = space == Space::kShared;
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    report(Finding::Kind::kMisaligned, where, std::to_string(bytes) + " bytes at an address that is no multiple of it");
  }
  if (shared && array_of(address, bytes) == nullptr) {
    report(Finding::Kind::kOutside, where, "outside of the block's shared arrays");
    give_up();
  }
  Device::Impl::Allocation* const a = shared ? nullptr : device_.find(address, bytes);
  if (!shared && a == nullptr) {
    report(Finding::Kind::kOutside, where, device_.describe(address));
    give_up();
  }
  if (a != nullptr) (what == Access::kRead ? a->traffic.read : a->traffic.written) += bytes;
  device_.lint.add(space, where, current_, address, bytes);
  if (hooked()) checked(shared, what, address, bytes, where);
}

/// A plain load or store, of whatever memory.
void Launch::hooked_access(Access what, const void* address, std::size_t bytes, const Site& where) {
  if (in_arena(address)) {
    access(Space::kShared, what, address, bytes, where);
  } else if (device_.owns(address)) {
    access(Space::kGlobal, what, address, bytes, where);
  }  // else the thread's own stack, parameters, constants
}

void Launch::checked(bool shared, Access what, const void* address, std::size_t bytes, const Site& where) {
  const User user{user_era(shared), block_, current_, clocks_.own(current_)};
  const auto result = device_.shadow.use(static_cast<const std::byte*>(address), bytes, what, user,
                                         [this](std::uint32_t b, int t, std::uint32_t c) { return ordered(b, t, c); });
  const std::string other = "thread " + std::to_string(result.other) + " of block " + std::to_string(result.block);
  const std::string me = "thread " + std::to_string(current_) + " of block " + std::to_string(block_);
  switch (result.verdict) {
    case Shadow::Verdict::kFine: break;
    case Shadow::Verdict::kRaceWithWrite: report(Finding::Kind::kRace, where, me + " and the write of " + other); break;
    case Shadow::Verdict::kRaceWithRead: report(Finding::Kind::kRace, where, me + " and the read of " + other); break;
    case Shadow::Verdict::kUninitialised: report(Finding::Kind::kUninitialised, where, me); break;
    case Shadow::Verdict::kPending:
      report(Finding::Kind::kPending, where, me + " uses what " + other + " still copies");
      break;
  }
}

bool Launch::ordered(std::uint32_t block, int thread, std::uint32_t clock) const {
  if (block == block_) return thread == current_ || clocks_.heard(current_, thread, clock);
  return std::any_of(acquired_.begin(), acquired_.end(), [&](const Acquired& a) {
    return a.from.block == block && (*a.from.heard)[static_cast<std::size_t>(thread)] >= clock &&
           (a.thread == current_ || clocks_.heard(current_, a.thread, a.clock));
  });
}

void Launch::cp_async16(void* to, const void* from, bool valid, const Site& where) {
  if (fault_at(Fault::Kind::kNoCopy, where)) return;
  if (fault_at(Fault::Kind::kCopyAlways, where)) valid = true;
  access(Space::kShared, Access::kWrite, to, 16, where);
  if (valid) access(Space::kGlobal, Access::kRead, from, 16, where);
  Copy copy{static_cast<std::byte*>(to), valid ? static_cast<const std::byte*>(from) : nullptr, false};
  const Copies when = device_.schedule.copies;
  if (when == Copies::kEarly || (when == Copies::kRandom && device_.random() % 2 == 0)) {
    finish(copy);
  } else {
    std::memset(to, 0xFF, 16);
  }
  if (hooked()) device_.shadow.pending(copy.to, 16, true);
  self().open.push_back(copy);
}

void Launch::finish(Copy& copy) {
  if (copy.done) return;
  copy.done = true;
  if (copy.from != nullptr) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

void Launch::cp_commit() {
  Thread& t = self();
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}

void Launch::cp_wait(int left, const Site& where) {
  Thread& t = self();
  t.where = where;
  const std::size_t most = static_cast<std::size_t>(left) + (fault_at(Fault::Kind::kWaitOneLess, where) ? 1 : 0);
  while (t.groups.size() > most) {
    for (Copy& copy : t.groups.front()) {
      finish(copy);
      if (!hooked()) continue;
      device_.shadow.pending(copy.to, 16, false);
      checked(true, Access::kWrite, copy.to, 16, where);  // it is there now: others need a barrier from here on
    }
    t.groups.pop_front();
  }
}

std::int32_t Launch::publish_count(std::int32_t* counter, const Site& where) {
  access(Space::kGlobal, Access::kAtomic, counter, 4, where);
  if (hooked() && !fault_at(Fault::Kind::kNoRelease, where)) {
    std::vector<Published>& all = published_[counter];
    for (const Published& p : all) acquired_.push_back({p, current_, clocks_.own(current_)});
    all.push_back({block_, std::make_shared<std::vector<std::uint32_t>>(clocks_.release(current_))});
  }
  return (*counter)++;
}

}  // namespace

void run(cuda::Stream& stream, const LaunchInfo& info, void (*body)(const void*), const void* params) {
  if (info.threads < 1 || info.threads > 1024 || info.threads % kWarp != 0 || info.dynamic_shared > kSharedBytes ||
      info.grid_x < 1 || info.grid_y < 1 || info.grid_z < 1)
    std::abort();
  Launch launch(*stream.device, info, body, params);
  current_launch = &launch;
  launch.run();
  current_launch = nullptr;
}

const Place& place() { return current_launch->place(); }
void* shared_array(const void* declaration, const char* name, std::size_t bytes) {
  return current_launch->shared_array(declaration, name, bytes);
}
void* dynamic_shared() { return current_launch->dynamic_shared(); }

bool seeding() { return current_launch->fault().kind == Fault::Kind::kValue; }
double seeded(const char* name, double x) {
  const Fault& fault = current_launch->fault();
  return fault.name == name ? fault.value(x) : x;
}

void sync_block(const Site& where) { current_launch->sync_block(where); }
void sync_warp(const Site& where) { current_launch->sync_warp(where); }

std::uint32_t exchange(Exchange how, std::uint32_t value, int operand, const Site& where) {
  Thread& t = current_launch->self();
  t.value = value;
  t.operand = operand;
  current_launch->collective(how == Exchange::kFrom ? Collective::kFrom : how == Exchange::kXor ? Collective::kXor : Collective::kUp,
                             where);
  return t.value;
}

std::uint32_t ballot(bool value, const Site& where) {
  Thread& t = current_launch->self();
  t.value = value ? 1 : 0;
  current_launch->collective(Collective::kBallot, where);
  return t.value;
}

void access(Space space, Access what, const void* address, std::size_t bytes, const Site& where) {
  current_launch->access(space, what, address, bytes, where);
}
void hooked_access(Access what, const void* address, std::size_t bytes, const Site& where) {
  if (current_launch != nullptr) current_launch->hooked_access(what, address, bytes, where);
}

void cp_async16(void* shared, const void* from, bool valid, const Site& where) {
  current_launch->cp_async16(shared, from, valid, where);
}
void cp_commit() { current_launch->cp_commit(); }
void cp_wait(int left, const Site& where) { current_launch->cp_wait(left, where); }

void ldmatrix_x4(std::uint32_t* r, const void* shared, bool transposed, const Site& where) {
  access(Space::kShared, Access::kRead, shared, 16, where);
  if (current_launch->fault_at(Fault::Kind::kTransposed, where)) transposed = !transposed;
  Thread& t = current_launch->self();
  t.in[0] = shared;
  t.out = r;
  current_launch->collective(transposed ? Collective::kLdmatrixTrans : Collective::kLdmatrix, where);
}

void mma_16816(float* d, const std::uint32_t* a, const std::uint32_t* b, bool bf16, const Site& where) {
  Thread& t = current_launch->self();
  const std::uint32_t wrong[4] = {a[0], a[2], a[1], a[3]};
  t.in[0] = current_launch->fault_at(Fault::Kind::kWrongLanes, where) ? wrong : a;
  t.in[1] = b;
  t.out = d;
  current_launch->collective(bf16 ? Collective::kMmaBf16 : Collective::kMmaF16, where);
}

std::int32_t publish_count(std::int32_t* counter, const Site& where) { return current_launch->publish_count(counter, where); }

}  // namespace barg::emu

namespace barg::cuda {

namespace {
Vec16 read16(emu::Space space, const void* p, const Site& where) {
  emu::access(space, emu::Access::kRead, p, 16, where);
  Vec16 v;
  std::memcpy(v.x, p, 16);  // may be misaligned, which has been reported
  return v;
}
Vec8 read8(emu::Space space, const void* p, const Site& where) {
  emu::access(space, emu::Access::kRead, p, 8, where);
  Vec8 v;
  std::memcpy(v.x, p, 8);
  return v;
}
void write16(emu::Space space, void* p, const Vec16& v, const Site& where) {
  emu::access(space, emu::Access::kWrite, p, 16, where);
  std::memcpy(p, v.x, 16);
}
}  // namespace

Vec16 load16(const void* p, Site where) { return read16(emu::Space::kGlobal, p, where); }
Vec8 load8(const void* p, Site where) { return read8(emu::Space::kGlobal, p, where); }
Vec16 load16_stream(const void* p, Site where) { return read16(emu::Space::kGlobal, p, where); }
Vec16 shared_load16(const void* shared, Site where) { return read16(emu::Space::kShared, shared, where); }
Vec8 shared_load8(const void* shared, Site where) { return read8(emu::Space::kShared, shared, where); }
void store16(void* p, const Vec16& v, Site where) { write16(emu::Space::kGlobal, p, v, where); }
void shared_store16(void* shared, const Vec16& v, Site where) { write16(emu::Space::kShared, shared, v, where); }
void store8(void* p, const Vec8& v, Site where) {
  emu::access(emu::Space::kGlobal, emu::Access::kWrite, p, 8, where);
  std::memcpy(p, v.x, 8);
}
void shared_store8(void* shared, const Vec8& v, Site where) {
  emu::access(emu::Space::kShared, emu::Access::kWrite, shared, 8, where);
  std::memcpy(shared, v.x, 8);
}

std::int32_t atomic_add(std::int32_t* p, std::int32_t v, Site where) {
  emu::access(emu::Space::kGlobal, emu::Access::kAtomic, p, 4, where);
  const std::int32_t old = *p;
  *p = old + v;
  return old;
}
std::uint32_t shared_atomic_add(std::uint32_t* shared, std::uint32_t v, Site where) {
  emu::access(emu::Space::kShared, emu::Access::kAtomic, shared, 4, where);
  const std::uint32_t old = *shared;
  *shared = old + v;
  return old;
}
void shared_atomic_add(std::uint64_t* shared, std::uint64_t v, Site where) {
  emu::access(emu::Space::kShared, emu::Access::kAtomic, shared, 8, where);
  *shared += v;
}
float load_published(const float* p, Site where) {
  emu::access(emu::Space::kGlobal, emu::Access::kRead, p, 4, where);
  return *p;
}
Vec16 load16_published(const void* p, Site where) { return read16(emu::Space::kGlobal, p, where); }
Vec8 load8_published(const void* p, Site where) { return read8(emu::Space::kGlobal, p, where); }

}  // namespace barg::cuda
