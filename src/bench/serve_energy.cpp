#include "bench/serve_energy.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

namespace barg::bench {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

}  // namespace

// The few functions of NVML that are needed, by their C signatures.
class EnergyMeter::Gpus {
 public:
  ~Gpus() {
    if (library_ == nullptr) return;
    if (started_) shutdown_();
    dlclose(library_);
  }

  /// The reason when there are none.
  std::string open() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return "no NVML library";
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*handle)(unsigned, void**) = nullptr;
    if (!load("nvmlInit_v2", init) || !load("nvmlShutdown", shutdown_) || !load("nvmlDeviceGetCount_v2", count) ||
        !load("nvmlDeviceGetHandleByIndex_v2", handle) || !load("nvmlDeviceGetTotalEnergyConsumption", energy_))
      return "an NVML library without energy counters";
    if (init() != 0) return "NVML does not start (no driver?)";
    started_ = true;
    unsigned n = 0;
    if (count(&n) != 0 || n == 0) return "NVML finds no GPU";
    for (unsigned i = 0; i < n; ++i) {
      void* device = nullptr;
      unsigned long long ignored = 0;
      if (handle(i, &device) == 0 && energy_(device, &ignored) == 0) devices_.push_back(device);
    }
    return devices_.empty() ? "the GPUs count no energy" : "";
  }

  /// Millijoules, all devices.
  std::optional<std::uint64_t> read() const {
    std::uint64_t sum = 0;
    for (void* device : devices_) {
      unsigned long long value = 0;
      if (energy_(device, &value) != 0) return std::nullopt;
      sum += value;
    }
    return sum;
  }

  std::size_t size() const { return devices_.size(); }
  std::optional<std::uint64_t> before;

 private:
  template <class F>
  bool load(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
  bool started_ = false;
  int (*shutdown_)() = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  std::vector<void*> devices_;
};

EnergyMeter::EnergyMeter(std::string powercap, bool with_gpus) {
  std::error_code error;
  no_rapl_ = "no RAPL counters (" + powercap + ")";
  for (const fs::directory_entry& entry : fs::directory_iterator(powercap, error)) {
    const std::string zone = entry.path().filename().string();
    // Packages only ("intel-rapl:0"; AMD has the same names): their parts ("intel-rapl:0:0") are inside, and
    // "intel-rapl-mmio" counts the same package again.
    if (!zone.starts_with("intel-rapl:") || std::count(zone.begin(), zone.end(), ':') != 1) continue;
    Zone found{.name = zone, .energy_file = entry.path().string() + "/energy_uj"};
    std::ifstream(entry.path() / "name") >> found.name;
    if (!read_number(found.energy_file)) {
      no_rapl_ = "RAPL is not readable (" + found.energy_file + " needs root)";
      continue;
    }
    found.range = read_number(entry.path().string() + "/max_energy_range_uj").value_or(0);
    zones_.push_back(std::move(found));
  }
  if (!with_gpus) return;
  gpus_ = std::make_unique<Gpus>();
  no_gpus_ = gpus_->open();
  if (!no_gpus_.empty()) gpus_.reset();
}

EnergyMeter::~EnergyMeter() = default;

void EnergyMeter::start() {
  for (Zone& zone : zones_) zone.before = read_number(zone.energy_file).value_or(0);
  if (gpus_) gpus_->before = gpus_->read();
}

EnergyReading EnergyMeter::stop() {
  EnergyReading out;
  const auto add = [&](double joules, const std::string& source) {
    out.joules = out.joules.value_or(0) + joules;
    out.source += (out.source.empty() ? "" : " + ") + source;
  };
  for (const Zone& zone : zones_) {
    const std::optional<std::uint64_t> after = read_number(zone.energy_file);
    if (!after) continue;
    std::uint64_t used = *after - zone.before;
    if (*after < zone.before) {
      if (zone.range == 0) continue;
      used = zone.range - zone.before + *after;
    }
    add(static_cast<double>(used) * 1e-6, "RAPL " + zone.name);
  }
  if (gpus_ && gpus_->before) {
    if (const std::optional<std::uint64_t> after = gpus_->read())
      add(static_cast<double>(*after - *gpus_->before) * 1e-3, "NVML, " + std::to_string(gpus_->size()) + " GPUs");
  }
  if (!out.joules) out.source = no_rapl_ + (no_gpus_.empty() ? "" : ", " + no_gpus_);
  return out;
}

}  // namespace barg::bench
