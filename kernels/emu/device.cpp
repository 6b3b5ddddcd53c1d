#include "emu/device.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <unordered_map>

#include "emu/hooks.h"

namespace barg::emu {

const char* kind_name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kRace: return "race";
    case Finding::Kind::kUninitialised: return "uninitialised";
    case Finding::Kind::kPending: return "pending";
    case Finding::Kind::kOutside: return "outside";
    case Finding::Kind::kMisaligned: return "misaligned";
    case Finding::Kind::kDivergentBarrier: return "divergent barrier";
    case Finding::Kind::kDivergentWarp: return "divergent warp";
    case Finding::Kind::kDeadlock: return "deadlock";
    case Finding::Kind::kUnfinishedCopy: return "unfinished copy";
  }
  return "?";
}

std::string show(const Site& where) {
  if (where.pc != nullptr) {
    thread_local std::unordered_map<const void*, std::string> known;  // the program's code stays where it is
    const auto [it, unknown] = known.try_emplace(where.pc);
    if (unknown) it->second = lines_of({where.pc}).front();
    return it->second;
  }
  if (where.file == nullptr) return "?";
  const std::string file = where.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

std::vector<std::string> lines_of(const std::vector<const void*>& pcs) {
  std::vector<std::string> lines;
  Dl_info info{};
  if (!pcs.empty() && ::dladdr(pcs.front(), &info) != 0 && info.dli_fname != nullptr) {
    std::ostringstream command;
    command << "addr2line -e '" << info.dli_fname << "'" << std::hex;
    // A position-independent program is looked up by its offset; the call lies before where it returns to.
    for (const void* pc : pcs) command << " " << static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase) - 1;
    command << " 2>/dev/null";
    if (FILE* pipe = ::popen(command.str().c_str(), "r")) {
      char buffer[512];
      while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) {
        std::string line = buffer;
        line = line.substr(line.rfind('/') + 1);
        lines.push_back(line.substr(0, line.find_first_of(" \n")));
      }
      ::pclose(pipe);
    }
  }
  lines.resize(pcs.size(), "?");
  return lines;
}

Device::Impl::Impl(const Schedule& s) : schedule(s), random(s.seed) {
  void* p = ::mmap(nullptr, kHeapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::abort();
  heap_ = static_cast<std::byte*>(p);
}

Device::Impl::~Impl() { ::munmap(heap_, kHeapBytes); }

void* Device::Impl::allocate(std::size_t bytes, const std::string& name) {
  std::byte* const p = heap_ + used_;
  used_ += (bytes + kGap + 255) / 256 * 256;
  if (used_ > kHeapBytes) std::abort();
  std::memset(p, 0xFF, bytes);
  allocations_[reinterpret_cast<std::uintptr_t>(p)] = {p, bytes, name, {}};
  return p;
}

void Device::Impl::release(void* p) {
  const auto it = allocations_.find(reinterpret_cast<std::uintptr_t>(p));
  if (it == allocations_.end()) std::abort();
  std::memset(p, 0xFF, it->second.bytes);  // who still reads it gets NaN
  allocations_.erase(it);
}

Device::Impl::Allocation* Device::Impl::find(const void* p, std::size_t bytes) {
  auto it = allocations_.upper_bound(reinterpret_cast<std::uintptr_t>(p));
  if (it == allocations_.begin()) return nullptr;
  Allocation& a = (--it)->second;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(p) - a.begin);
  return offset <= a.bytes && bytes <= a.bytes - offset ? &a : nullptr;
}

std::string Device::Impl::describe(const void* p) const {
  if (!owns(p)) return "an address that is not the device's";
  auto it = allocations_.upper_bound(reinterpret_cast<std::uintptr_t>(p));
  if (it == allocations_.begin()) return "no memory that is allocated";
  const Allocation& a = (--it)->second;
  const auto offset = static_cast<const std::byte*>(p) - a.begin;
  return "byte " + std::to_string(offset) + " of " + a.name + ", which has " + std::to_string(a.bytes);
}

void Device::Impl::report(Finding::Kind kind, const std::string& kernel, const Site& where, const std::string& what) {
  if (findings.size() >= 100) return;
  if (!reported_.insert({kind, where}).second) return;
  findings.push_back({kind, kernel, show(where), what});
}

Device::Device(const Schedule& schedule) : impl_(std::make_unique<Impl>(schedule)) {}
Device::~Device() = default;

void* Device::allocate(std::size_t bytes, const std::string& name) { return impl_->allocate(bytes, name); }
void Device::release(void* p) { impl_->release(p); }

void Device::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (impl_->find(to, bytes) == nullptr) std::abort();
  std::memcpy(to, from, bytes);
  if (hooked()) impl_->shadow.initialised(static_cast<std::byte*>(to), bytes, true);
}

void Device::download(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (impl_->find(from, bytes) == nullptr) std::abort();
  std::memcpy(to, from, bytes);
}

Device::Traffic Device::take_traffic(void* p) {
  Impl::Allocation* a = impl_->find(p, 1);
  return a == nullptr ? Traffic{} : std::exchange(a->traffic, {});
}

cuda::Stream& Device::stream() { return impl_->stream; }

void Device::set_schedule(const Schedule& schedule) {
  impl_->schedule = schedule;
  impl_->random.seed(schedule.seed);
}

void Device::set_fault(const Fault& fault) { impl_->fault = fault; }
void Device::count_sites(bool on) { impl_->lint.enable(on); }
std::vector<SiteCount> Device::take_sites() { return impl_->lint.take(); }

std::vector<Finding> Device::take_findings() { return std::exchange(impl_->findings, {}); }

}  // namespace barg::emu
