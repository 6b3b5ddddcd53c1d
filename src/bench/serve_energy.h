// Energy that this machine used between two moments: RAPL counters of the processor packages (Linux powercap) and
// NVML counters of the GPUs, whichever are readable. It is the energy of the whole machine, so it means something
// only while the server runs here and little else does. libnvidia-ml is opened at run time, never linked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve_report.h"

namespace barg::bench {

class EnergyMeter {
 public:
  /// `powercap`: the directory of RAPL's zones (tests give their own). `with_gpus`: look for NVML.
  explicit EnergyMeter(std::string powercap = "/sys/class/powercap", bool with_gpus = true);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  void start();
  /// Joules since start(), or nothing and the reason.
  EnergyReading stop();

 private:
  struct Zone {
    std::string name;
    std::string energy_file;
    std::uint64_t range = 0;  ///< where the counter wraps, microjoules; 0 = unknown
    std::uint64_t before = 0;
  };
  class Gpus;

  std::vector<Zone> zones_;
  std::unique_ptr<Gpus> gpus_;
  std::string no_rapl_;  ///< why there are no zones
  std::string no_gpus_;
};

}  // namespace barg::bench
