// `barg serve` on a device that is lost: what its clients and its supervisor see.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "cli/http_client.h"
#include "emulated/emulated_kit.h"
#include "emulated/hung_device.h"
#include "support/eventually.h"

namespace barg::test::serve_test {
namespace {

/// Free a moment ago.
std::string free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  const bool bound = ::bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 &&
                     ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) == 0;
  EXPECT_TRUE(bound);
  ::close(s);
  return std::to_string(ntohs(a.sin_port));
}

class ServeOnLostDevice : public ::testing::Test {
 protected:
  ServeOnLostDevice() : model_(dir_.write("m.gguf", RandomModel{}.build())), port_(free_port()) {}

  Result<cli::ClientResponse> ask(const char* method, const char* path, const std::string& body = {}) const {
    return cli::http_request({.host = "127.0.0.1", .port = port_},
                             {.method = method, .path = path, .api_key = {}, .body = body, .timeout_s = 120});
  }
  int status(const char* path) const {
    const auto answer = ask("GET", path);
    return answer ? answer->status : 0;
  }
  /// `barg serve` until it ends, on what `open` gives; what it says goes to `said`.
  int serve(std::ostringstream& said, const runtime::OpenDevice& open) const {
    const std::vector<std::string> args{"serve",          "--model", model_, "--host", "127.0.0.1", "--port", port_,
                                        "--device",       "cuda",    "--max-model-len", "256",
                                        "--kv-cache-memory-bytes", "4MiB"};
    std::istringstream nothing;
    cli::Io io{.in = nothing, .out = said, .err = said};
    return cli::run(args, {{"HOME", dir_.path()}}, io, open);
  }
  struct Seen {
    Result<cli::ClientResponse> before, after;
    int code = 0;
    std::string said;
  };
  /// One request before lose() and one after it.
  Seen see(const runtime::OpenDevice& open, const std::function<void()>& lose) const {
    Seen seen{.before = fail(ErrorCode::kInternal, "never asked"), .after = fail(ErrorCode::kInternal, "never asked"), .said = {}};
    std::ostringstream said;
    std::thread client([&] {
      EXPECT_TRUE(eventually([&] { return status("/readyz") == 200; }));
      seen.before = ask("POST", "/v1/completions", kBody);
      lose();
      seen.after = ask("POST", "/v1/completions", kBody);
    });
    seen.code = serve(said, open);
    client.join();
    seen.said = said.str();
    return seen;
  }
  static void expect_lost(const Seen& seen, const std::string& why) {
    ASSERT_TRUE(seen.before) << seen.before.error().message << seen.said;
    EXPECT_EQ(seen.before->status, 200) << seen.before->body;
    ASSERT_TRUE(seen.after) << seen.after.error().message << seen.said;
    EXPECT_EQ(seen.after->status, 503) << seen.after->body;
    EXPECT_NE(seen.after->body.find("the engine has stopped after a device error"), std::string::npos) << seen.after->body;
    EXPECT_EQ(seen.code, cli::kExitDeviceLost);
    EXPECT_EQ(seen.code, 70) << "what docs/cuda.md promises a supervisor";
    EXPECT_NE(seen.said.find("error: the CUDA device failed: " + why), std::string::npos) << seen.said;
  }

  static constexpr const char* kBody =
      R"({"prompt": [3, 4, 5, 6, 7], "max_tokens": 4, "temperature": 0, "ignore_eos": true})";
  TempDir dir_;
  std::string model_, port_;
};

TEST_F(ServeOnLostDevice, EveryRequestHasAnErrorAndTheProcessEndsWithACodeOfItsOwn) {
  std::atomic<bool> lost = false;
  const auto open = [&](std::unique_ptr<cuda::Device>& to) {
    auto device = cuda::EmulatedDevice::create({});
    // From when `lost` says it, attention reads where nothing is: the checker reports it, and the device is lost.
    device->machine().set_fault({.kind = emu::Fault::Kind::kValue,
                                 .name = "attention.swizzle",
                                 .value = [&](double x) { return lost ? x + 1e6 : x; }});
    to = std::move(device);
    return cuda::Status{};
  };
  expect_lost(see(open, [&] { lost = true; }), "attention_kernel: outside");
}

TEST_F(ServeOnLostDevice, ADriverThatDoesNotAnswerHoldsNobody) {
  if (std::getenv("BARG_TEST_LONG") == nullptr) GTEST_SKIP() << "skipped: long, see scripts/test --full";  // a step's limit
  const auto hang = std::make_shared<Hang>();
  const auto open = [&](std::unique_ptr<cuda::Device>& to) {
    to = std::make_unique<HungDevice>(hang);
    return cuda::Status{};
  };
  expect_lost(see(open, [&] { hang->hang(); }), "its driver does not answer");
  hang->let_go();
}

}  // namespace
}  // namespace barg::test::serve_test
