// What the steps of the device check share: what was asked, results as they come, a device with a queue and memory. A step
// is a process of its own (main.cpp), so that one which hangs or loses the device costs itself: what cannot go on says why
// and ends the process. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device_memory.h"
#include "cuda/queue.h"

namespace barg::check {

struct Options {
  bool emulated = false;            ///< the emulated device, and small shapes
  bool small = false;               ///< small shapes on a real device: under a checker
  std::vector<std::string> images;  ///< files of machine code, besides what the program holds
  std::string fault;                ///< emulated: the value that kernels pass to seeded() by this name is wrong
  std::string predictions = "benchmarks/device";
};

enum class Verdict : std::uint8_t { kOk, kMissed, kFailed, kSkipped };

/// A line of the table. Texts have no tabs and no ends of lines.
struct Row {
  Verdict verdict = Verdict::kOk;
  std::string name, measured, predicted, note;
};
const char* verdict_name(Verdict v);
std::string to_line(const Row& row);
std::optional<Row> from_line(std::string_view line);

struct Prediction {
  double value = 0;
  std::string unit;
  bool higher = true;  ///< is better
};
/// Up to which a figure that is worse than predicted is not a miss.
inline constexpr double kSlack = 1.1;

class Check {
 public:
  explicit Check(Options options);
  const Options& options() const { return options_; }
  bool small() const { return options_.emulated || options_.small; }

  void right(const std::string& name, bool yes, const std::string& note = "");
  void skipped(const std::string& name, const std::string& why);
  /// Against the prediction of that name, if there is one. On the emulated device figures mean nothing and are left out.
  void measured(const std::string& name, double value, const std::string& unit);
  void measured(const std::string& name, double value, const Prediction& predicted);
  [[noreturn]] void stop(const std::string& why);
  void must(const cuda::Status& status);

  /// With all kernels loaded.
  std::unique_ptr<cuda::Device> open_device();

 private:
  void put(const Row& row);
  const Options options_;
  std::map<std::string, Prediction> predictions_;
  std::vector<std::vector<char>> images_;
};

/// A device, its queue, and memory that lives until clear(). Work goes to the queue's stream.
class Lab {
 public:
  explicit Lab(Check& check);
  ~Lab();
  Check& check() { return check_; }
  cuda::Device& device() { return *device_; }
  cuda::Queue& queue() { return *queue_; }
  ops::Stream& stream() { return queue_->stream(); }

  std::byte* allocate(std::size_t bytes);
  /// Bytes 0xFF: NaN, so that what nobody writes is seen.
  template <class T>
  T* room(std::size_t count) {
    std::byte* const p = allocate(count * sizeof(T));
    check_.must(device_->fill(queue_->id(), p, 0xFF, count * sizeof(T)));
    return reinterpret_cast<T*>(p);
  }
  template <class T>
  T* put(const std::vector<T>& data) {
    std::byte* const p = allocate(data.size() * sizeof(T));
    write(p, data.data(), data.size() * sizeof(T));
    return reinterpret_cast<T*>(p);
  }
  template <class T>
  std::vector<T> get(const T* p, std::size_t count) {
    std::vector<T> data(count);
    read(data.data(), p, count * sizeof(T));
    return data;
  }
  void write(std::byte* to, const void* from, std::size_t bytes);
  void read(void* to, const void* from, std::size_t bytes);
  /// Everything has run and nothing went wrong.
  void sync();
  void clear();
  /// Scratch for what `measure` would issue.
  void reserve(const std::function<void()>& measure);

  /// What fn(0), fn(1), ... issue, as a graph.
  cuda::GraphId capture(int nodes, const std::function<void(int)>& fn);
  /// Seconds of one fn(i), by replays of a graph of `nodes` of them.
  double seconds(int nodes, const std::function<void(int)>& fn);

 private:
  Check& check_;
  std::unique_ptr<cuda::Device> device_;
  std::unique_ptr<cuda::Queue> queue_;
  cuda::PinnedBuffer pinned_;
  std::vector<std::byte*> memory_;
};

// The steps.
void ceilings(Check& check);
void conformance(Check& check);
void correctness(Check& check);
void invariance(Check& check);
void timing(Check& check);
void end_to_end(Check& check);

}  // namespace barg::check
