// What the engine does when a CUDA device is not there, cannot serve the model, is too small, or fails.
#include <gtest/gtest.h>

#include <atomic>

#include "emulated/emulated_kit.h"
#include "emulated/hung_device.h"
#include "support/engine_client.h"
#include "support/eventually.h"

namespace barg::test::device_test {
namespace {

using cuda::Status;

const std::int64_t kTokenBytes = RandomModel{}.token_bytes();

class CudaDevices : public ::testing::Test {
 protected:
  CudaDevices() : path_(dir_.write("m.gguf", RandomModel{}.build())), config_(emulated_config(path_, 2000, kTokenBytes)) {}

  Result<runtime::LoadedRunner> load(runtime::LoadOptions how) const {
    const auto files = model::ModelFiles::open(config_.model.path);
    return runtime::load_runner(config_, *files, how);
  }
  static runtime::LoadOptions with(const cuda::EmulatedOptions& options) {
    runtime::LoadOptions how;
    how.open_device = [options](std::unique_ptr<cuda::Device>& to) {
      to = cuda::EmulatedDevice::create(options);
      return Status{};
    };
    return how;
  }
  static Request short_request() {
    Request r;
    r.prompt = {3, 4, 5, 6, 7};
    r.sampling.temperature = 0;
    r.sampling.max_tokens = 8;
    r.sampling.ignore_eos = true;
    return r;
  }

  TempDir dir_;
  std::string path_;
  Config config_;
};

TEST_F(CudaDevices, WithoutOneAutoTakesTheCpuAndCudaIsRefused) {
  runtime::LoadOptions how;
  how.open_device = [](std::unique_ptr<cuda::Device>&) { return Status{Status::Code::kNoDriver, "there is no driver"}; };
  const auto refused = load(how);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().param, "runtime.device");
  EXPECT_EQ(refused.error().message, "runtime.device is cuda: there is no driver");
  config_.runtime.device = "auto";
  const auto loaded = load(how);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE(loaded->device.starts_with("cpu-")) << loaded->device;
  EXPECT_TRUE(loaded->runner->info().numerics_id.ends_with("-cpu"));
  EXPECT_TRUE(loaded->plan.notes.empty()) << "nothing is odd about a machine without a GPU";
}

TEST_F(CudaDevices, AutoSaysWhyADriverThatIsThereIsOfNoUse) {
  config_.runtime.device = "auto";
  using Code = Status::Code;
  for (const Code code : {Code::kBadDriver, Code::kNoDevice, Code::kInvalid, Code::kOutOfMemory, Code::kLost}) {
    runtime::LoadOptions how;
    std::vector<std::string> planned;
    how.open_device = [&](std::unique_ptr<cuda::Device>&) { return Status{code, "it is too old"}; };
    how.planned = [&](const runtime::MemoryPlan& plan) { planned = plan.notes; };
    const auto loaded = load(how);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(loaded->device.starts_with("cpu-")) << loaded->device;
    EXPECT_EQ(loaded->plan.notes, std::vector<std::string>{"the CPU computes: it is too old"});
    EXPECT_EQ(planned, loaded->plan.notes);
  }
}

TEST_F(CudaDevices, AutoTakesTheOneThatIsThereAndSaysSo) {
  config_.runtime.device = "auto";
  int opened = 0, planned = 0;
  runtime::LoadOptions how = with({});
  how.open_device = [&opened, open = how.open_device](std::unique_ptr<cuda::Device>& to) {
    ++opened;
    return open(to);
  };
  how.planned = [&](const runtime::MemoryPlan& plan) {
    ++planned;
    EXPECT_GT(plan.total_bytes, 0U);
  };
  const auto loaded = load(how);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(planned, 1);
  EXPECT_EQ(loaded->device, "emulated");
  EXPECT_EQ(loaded->runner->info().numerics_id, "bf16-t32-s256-k" + std::to_string(kKernelEpoch) + "-kvf16-cuda-emulated");
  config_.runtime.device = "cpu";
  const auto cpu = load(with({}));
  ASSERT_TRUE(cpu) << cpu.error().message;
  EXPECT_TRUE(cpu->device.starts_with("cpu-")) << cpu->device;
  EXPECT_NE(cpu->runner->info().key_root, loaded->runner->info().key_root) << "blocks are not exchangeable";
}

TEST_F(CudaDevices, WhatItCannotServeIsTheCpusOrARefusal) {
  const struct {
    RandomModel model;
    void (*change)(Config&);
    const char* why;
  } kCases[] = {
      {{}, [](Config& c) { c.kv.dtype = "int8"; }, "KV in int8 has no CUDA kernel; there are f16, bf16 and fp8"},
      {{}, [](Config& c) { c.model.numerics = "f32"; }, "model.numerics is f32, which the CUDA back end does not compute"},
      {{.heads = 17}, [](Config&) {}, "17 query heads on 1 kv heads have no CUDA kernel"},
  };
  for (const auto& c : kCases) {
    config_ = emulated_config(dir_.write("n.gguf", c.model.build()), 2000, kTokenBytes);
    c.change(config_);
    const auto refused = load(with({}));
    ASSERT_FALSE(refused) << c.why;
    EXPECT_NE(refused.error().message.find(c.why), std::string::npos) << refused.error().message;
    config_.runtime.device = "auto";
    const auto cpu = load(with({}));
    ASSERT_TRUE(cpu) << cpu.error().message;
    EXPECT_TRUE(cpu->device.starts_with("cpu-"));
    ASSERT_FALSE(cpu->plan.notes.empty());
    EXPECT_NE(cpu->plan.notes.back().find(c.why), std::string::npos) << cpu->plan.notes.back();
  }
}

TEST_F(CudaDevices, ALibraryHasItsOwnNumericsAndKeysOrIsMissed) {
  runtime::LoadOptions how = with({});
  const auto own = load(how);
  ASSERT_TRUE(own) << own.error().message;
  config_.runtime.invariant = false;
  how.cublaslt = {BARG_FAKE_CUBLASLT};
  const auto library = load(how);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_TRUE(library->runner->info().numerics_id.starts_with("bf16lt-")) << library->runner->info().numerics_id;
  EXPECT_NE(library->runner->info().key_root, own->runner->info().key_root);
  how.cublaslt = {"libnothing.so.1"};
  const auto missed = load(how);
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(missed.error().param, "runtime.invariant");
}

// A step's arrays, with whatever is counted again for penalties, fit the memory of batches or get more, whatever its size.
TEST_F(CudaDevices, AStepThatFillsTheMemoryOfBatchesGetsMore) {
  Request r = short_request();
  r.sampling.repetition_penalty = 1.3F;
  r.sampling.max_tokens = 2;
  std::optional<std::vector<TokenId>> first;
  for (std::size_t bytes = 256; bytes <= 1600; bytes += 32) {
    runtime::LoadOptions how = with({});
    how.cuda_batch_bytes = bytes;
    how.cuda_graphs = false;
    auto loaded = load(how);
    ASSERT_TRUE(loaded) << loaded.error().message;
    auto engine = engine::make_engine(config_, std::move(loaded->runner), kEmulatedClock);
    EngineClient client(**engine);
    const Answer a = client.run(r);
    ASSERT_FALSE(a.error) << bytes << ": " << a.error->message;
    if (!first) first = a.ids();
    EXPECT_EQ(a.ids(), *first) << bytes;
  }
}

TEST_F(CudaDevices, ABlocksSharedMemoryDecidesWhatItServes) {
  config_.runtime.device = "auto";
  const auto little = load(with({.block_shared_bytes = 99 << 10}));
  ASSERT_TRUE(little) << little.error().message;
  EXPECT_EQ(little->device, "emulated");
  const auto less = load(with({.block_shared_bytes = 48 << 10}));
  ASSERT_TRUE(less) << less.error().message;
  EXPECT_TRUE(less->device.starts_with("cpu-")) << less->device;
  ASSERT_FALSE(less->plan.notes.empty());
  EXPECT_NE(less->plan.notes.back().find("need more shared memory than the 49152 bytes"), std::string::npos)
      << less->plan.notes.back();
}

TEST_F(CudaDevices, TooLittleMemoryIsSaidBeforeAnythingIsLoaded) {
  const auto loaded = load(with({.memory_bytes = 600'000}));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kOutOfMemory) << loaded.error().message;
}

TEST_F(CudaDevices, AFailedDeviceFailsEveryRequestAndIsReportedOnce) {
  std::atomic<int> lost = 0;
  std::string why;
  cuda::EmulatedDevice* device = nullptr;
  runtime::LoadOptions how;
  how.open_device = [&](std::unique_ptr<cuda::Device>& to) {
    auto made = cuda::EmulatedDevice::create({});
    device = made.get();
    to = std::move(made);
    return Status{};
  };
  auto loaded = load(how);
  ASSERT_TRUE(loaded) << loaded.error().message;
  auto engine = engine::make_engine(config_, std::move(loaded->runner), kEmulatedClock, {.lost = [&](const Error& e) {
                                                                                        why = e.message;
                                                                                        ++lost;
                                                                                      }});
  ASSERT_TRUE(engine) << engine.error().message;
  EngineClient client(**engine);
  ASSERT_FALSE(client.run(short_request()).error);
  EXPECT_FALSE((*engine)->failed());
  // From now on attention reads where nothing is: the checker reports it, and the device is lost.
  device->machine().set_fault(
      {.kind = emu::Fault::Kind::kValue, .name = "attention.swizzle", .value = [](double x) { return x + 1e6; }});
  Request longer = short_request();
  longer.prompt.assign(70, 9);
  longer.n = 2;
  for (const Answer& a : client.wait(client.submit(longer))) {
    ASSERT_TRUE(a.error);
    EXPECT_EQ(a.error->code, ErrorCode::kUnavailable);
    EXPECT_EQ(a.error->message, "the engine has stopped after a device error");
  }
  EXPECT_TRUE(eventually([&] { return lost == 1; }));
  EXPECT_NE(why.find("the CUDA device failed: attention_kernel"), std::string::npos) << why;
  EXPECT_TRUE((*engine)->failed());
  EXPECT_FALSE(client.try_submit(short_request()));
}

/// A prompt with a poisoned token fails, streams beside it and behind it get the bytes that they get alone.
TEST_F(CudaDevices, NotANumberIsItsOwnRequestsAlone) {
  config_.model.path = dir_.write("nan.gguf", RandomModel{.poisoned = 5}.build());
  config_.kv.enable_prefix_caching = false;
  auto loaded = load(with({}));
  ASSERT_TRUE(loaded) << loaded.error().message;
  auto engine = engine::make_engine(config_, std::move(loaded->runner), kEmulatedClock);
  EngineClient client(**engine);
  Request good = short_request();
  good.prompt = {3, 4, 6, 7};
  good.sampling.max_tokens = 20;
  const Answer alone = client.run(good);
  ASSERT_FALSE(alone.error) << alone.error->message;
  Request bad = good;
  bad.prompt = {3, 4, 5, 7};
  const RequestId first = client.submit(good), second = client.submit(bad), third = client.submit(good);
  const Answer failed = client.wait(second)[0];
  ASSERT_TRUE(failed.error);
  EXPECT_TRUE(failed.tokens.empty());
  EXPECT_EQ(client.wait(first)[0].ids(), alone.ids());
  EXPECT_EQ(client.wait(third)[0].ids(), alone.ids());
  EXPECT_FALSE((*engine)->failed());
  EXPECT_EQ((*engine)->metrics().corrupted_requests, 1U);
}

TEST_F(CudaDevices, ADriverThatDoesNotAnswerIsALostDevice) {
  const auto hang = std::make_shared<Hang>();
  runtime::LoadOptions how;
  how.open_device = [&](std::unique_ptr<cuda::Device>& to) {
    to = std::make_unique<HungDevice>(hang);
    return Status{};
  };
  how.step_limit = std::chrono::milliseconds(0);
  auto loaded = load(how);
  ASSERT_TRUE(loaded) << loaded.error().message;
  std::string why;
  auto engine = engine::make_engine(config_, std::move(loaded->runner), kEmulatedClock,
                                    {.lost = [&](const Error& e) { why = e.message; }});
  EngineClient client(**engine);
  hang->hang();
  const RequestId first = client.submit(short_request()), second = client.submit(short_request());
  for (const RequestId id : {first, second}) {
    const Answer a = client.wait(id)[0];
    ASSERT_TRUE(a.error);
    EXPECT_EQ(a.error->code, ErrorCode::kUnavailable);
  }
  EXPECT_TRUE((*engine)->failed());
  hang->let_go();  // else nobody could join the device thread
  engine->reset();
  EXPECT_EQ(why, "the CUDA device failed: its driver does not answer");
}

TEST_F(CudaDevices, AStepThatDoesNotEndInTimeIsALostDevice) {
  runtime::LoadOptions how = with({});
  how.step_limit = std::chrono::milliseconds(-1);
  auto loaded = load(how);
  ASSERT_TRUE(loaded) << loaded.error().message;
  std::string why;
  auto engine = engine::make_engine(config_, std::move(loaded->runner), kEmulatedClock,
                                    {.lost = [&](const Error& e) { why = e.message; }});
  EngineClient client(**engine);
  Request r = short_request();
  r.prompt.assign(120, 9);
  ASSERT_TRUE(client.run(r).error);
  engine->reset();
  EXPECT_NE(why.find("a step has not ended for"), std::string::npos) << why;
}

}  // namespace
}  // namespace barg::test::device_test
