#include "device/check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cuda/device_driver.h"
#include "cuda/device_emulated.h"
#include "cuda/kernel_images.h"

namespace barg::check {
namespace {

constexpr const char* kVerdicts[] = {"ok", "missed", "FAILED", "skipped"};

std::vector<std::string> split(std::string_view line, char by) {
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string plain(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

std::string figure(double value, const std::string& unit) {
  char text[64];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : value < 1000 ? "%.1f %s" : "%.0f %s", value, unit.c_str());
  return text;
}

/// predictions.csv: name,value,unit,better,why.
std::map<std::string, Prediction> read_predictions(const std::string& folder) {
  std::map<std::string, Prediction> out;
  std::ifstream in(folder + "/predictions.csv");
  for (std::string line; std::getline(in, line);) {
    const auto parts = split(line, ',');
    if (line.starts_with("#") || parts.size() < 4 || parts[0] == "name") continue;
    out[parts[0]] = {std::strtod(parts[1].c_str(), nullptr), parts[2], parts[3] == "higher"};
  }
  return out;
}

}  // namespace

const char* verdict_name(Verdict v) { return kVerdicts[static_cast<std::size_t>(v)]; }

std::string to_line(const Row& row) {
  std::string line = "row";
  for (const std::string& part : {std::string(verdict_name(row.verdict)), row.name, row.measured, row.predicted, row.note})
    line += "\t" + plain(part);
  return line;
}

std::optional<Row> from_line(std::string_view line) {
  const auto parts = split(line, '\t');
  if (parts.size() != 6 || parts[0] != "row") return std::nullopt;
  const auto* const at = std::find(std::begin(kVerdicts), std::end(kVerdicts), parts[1]);
  if (at == std::end(kVerdicts)) return std::nullopt;
  return Row{static_cast<Verdict>(at - std::begin(kVerdicts)), parts[2], parts[3], parts[4], parts[5]};
}

// ---- Check

Check::Check(Options options) : options_(std::move(options)), predictions_(read_predictions(options_.predictions)) {}

void Check::put(const Row& row) {
  std::puts(to_line(row).c_str());
  std::fflush(stdout);
}

void Check::right(const std::string& name, bool yes, const std::string& note) {
  put({yes ? Verdict::kOk : Verdict::kFailed, name, "", "", note});
}

void Check::skipped(const std::string& name, const std::string& why) {
  put({Verdict::kSkipped, name, "", "", "skipped: " + why});
}

void Check::measured(const std::string& name, double value, const std::string& unit) {
  const auto found = predictions_.find(name);
  if (found != predictions_.end()) return measured(name, value, found->second);
  put({Verdict::kOk, name, small() ? "" : figure(value, unit), "", small() ? "ran" : ""});
}

void Check::measured(const std::string& name, double value, const Prediction& predicted) {
  const std::string expected = figure(predicted.value, predicted.unit);
  if (small()) return put({Verdict::kOk, name, "", expected, "ran"});
  const double ratio = value / predicted.value;
  const bool missed = predicted.higher ? ratio * kSlack < 1 : ratio > kSlack;
  put({missed ? Verdict::kMissed : Verdict::kOk, name, figure(value, predicted.unit), expected, figure(ratio, "of it")});
}

void Check::stop(const std::string& why) {
  put({Verdict::kFailed, "the rest of this step", "", "", why});
  std::exit(1);
}

void Check::must(const cuda::Status& status) {
  if (!status.ok()) stop(status.message);
}

std::unique_ptr<cuda::Device> Check::open_device() {
  if (options_.emulated) {
    auto device = cuda::EmulatedDevice::create(
        {.schedule = {.threads = emu::Order::kReverse, .blocks = emu::Order::kRandom, .copies = emu::Copies::kRandom}});
    if (!options_.fault.empty()) {
      device->machine().set_fault(
          {.kind = emu::Fault::Kind::kValue, .name = options_.fault, .value = [](double x) { return x + 1; }});
    }
    return device;
  }
  std::unique_ptr<cuda::Device> device;
  must(cuda::open_driver({}, device));
  std::printf("device\t%s, driver %d.%d\n", device->info().name.c_str(), device->info().driver_version / 1000,
              device->info().driver_version % 1000 / 10);
  const bool own = !cuda::kernel_images().empty();
  if (own) must(cuda::load_kernels(*device));
  if (!own && options_.images.empty()) stop("no machine code was given (--image FILE)");
  images_.clear();
  for (const std::string& path : options_.images) {
    std::ifstream in(path, std::ios::binary);
    images_.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (images_.back().empty()) stop("cannot read " + path);
    images_.back().push_back(0);
    must(device->load(images_.back().data()));
  }
  return device;
}

// ---- Lab

Lab::Lab(Check& check) : check_(check), device_(check.open_device()) { check_.must(cuda::Queue::create(*device_, queue_)); }

Lab::~Lab() {
  for (std::byte* const p : memory_) device_->release(p);
}

std::byte* Lab::allocate(std::size_t bytes) {
  std::byte* p = nullptr;
  check_.must(device_->allocate(bytes, "memory of the check", p));
  memory_.push_back(p);
  return p;
}

void Lab::write(std::byte* to, const void* from, std::size_t bytes) {
  const auto read = [&](std::size_t offset, std::size_t count, std::byte* out) {
    std::copy_n(static_cast<const std::byte*>(from) + offset, count, out);
  };
  check_.must(queue_->uploader().put(to, bytes, read));
  check_.must(queue_->uploader().finish());
}

void Lab::read(void* to, const void* from, std::size_t bytes) {
  queue_->flush();
  if (pinned_.size() < bytes) check_.must(cuda::PinnedBuffer::create(*device_, bytes, pinned_));
  check_.must(device_->download(queue_->id(), pinned_.data(), static_cast<const std::byte*>(from), bytes));
  sync();
  std::copy_n(pinned_.data(), bytes, static_cast<std::byte*>(to));
}

void Lab::sync() {
  queue_->flush();
  check_.must(device_->synchronize(queue_->id()));
  check_.must(queue_->take_status());
}

void Lab::clear() {
  sync();
  for (std::byte* const p : memory_) device_->release(p);
  memory_.clear();
}

void Lab::reserve(const std::function<void()>& measure) {
  sync();
  queue_->begin_measure();
  measure();
  queue_->flush();
  check_.must(queue_->reserve());
  sync();
}

cuda::GraphId Lab::capture(int nodes, const std::function<void(int)>& fn) {
  sync();
  cuda::GraphId graph{};
  check_.must(device_->begin_capture(queue_->id()));
  for (int i = 0; i < nodes; ++i) {
    fn(i);
    queue_->flush();
  }
  check_.must(queue_->take_status());
  check_.must(device_->end_capture(queue_->id(), graph));
  return graph;
}

/// Of `few` and of three times as many replays, so that what a wait costs drops out; the median of five.
double Lab::seconds(int nodes, const std::function<void(int)>& fn) {
  fn(0);  // what is looked up when it is first wanted may not be captured
  const cuda::GraphId graph = capture(check_.small() ? 1 : nodes, fn);
  const auto replay = [&](int times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) check_.must(device_->launch(queue_->id(), graph));
    sync();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double once = replay(1);
  if (check_.small()) return once;
  replay(2);
  const int few = std::clamp(static_cast<int>(0.004 / replay(1)), 1, 50);
  std::vector<double> each;
  for (int i = 0; i < 5; ++i) {
    const double less = replay(few), more = replay(3 * few);
    each.push_back((more - less) / (2.0 * few * nodes));
  }
  std::nth_element(each.begin(), each.begin() + 2, each.end());
  return std::max(each[2], 1e-9);
}

}  // namespace barg::check
