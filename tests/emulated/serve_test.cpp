// `barg serve` on a device that is lost: what its clients and its supervisor see.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "cli/http_client.h"
#include "emulated/emulated_kit.h"
#include "support/eventually.h"

namespace barg::test {
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
  /// `barg serve` until it ends; what it says goes to `said`.
  int serve(std::ostringstream& said) const {
    const std::vector<std::string> args{"serve",          "--model", model_, "--host", "127.0.0.1", "--port", port_,
                                        "--device",       "cuda",    "--max-model-len", "256",
                                        "--kv-cache-memory-bytes", "4MiB"};
    std::istringstream nothing;
    cli::Io io{.in = nothing, .out = said, .err = said};
    return cli::run(args, {{"HOME", dir_.path()}}, io, [this](std::unique_ptr<cuda::Device>& to) {
      auto device = cuda::EmulatedDevice::create({});
      // From when `lost_` says it, attention reads where nothing is: the checker reports it, and the device is lost.
      device->machine().set_fault({.kind = emu::Fault::Kind::kValue, .name = "attention.swizzle",
                                   .value = [this](double x) { return lost_ ? x + 1e6 : x; }});
      to = std::move(device);
      return cuda::Status{};
    });
  }

  TempDir dir_;
  std::string model_, port_;
  mutable std::atomic<bool> lost_ = false;
};

constexpr const char* kBody = R"({"prompt": [3, 4, 5, 6, 7], "max_tokens": 4, "temperature": 0, "ignore_eos": true})";

TEST_F(ServeOnLostDevice, EveryRequestHasAnErrorAndTheProcessEndsWithACodeOfItsOwn) {
  std::ostringstream said;
  Result<cli::ClientResponse> before = fail(ErrorCode::kInternal, "never asked"), after = before;
  std::thread client([&] {
    EXPECT_TRUE(eventually([&] { return status("/readyz") == 200; }));
    before = ask("POST", "/v1/completions", kBody);
    lost_ = true;
    after = ask("POST", "/v1/completions", kBody);
  });
  const int code = serve(said);
  client.join();
  ASSERT_TRUE(before) << before.error().message << said.str();
  EXPECT_EQ(before->status, 200) << before->body;
  ASSERT_TRUE(after) << after.error().message << said.str();
  EXPECT_EQ(after->status, 503) << after->body;
  EXPECT_NE(after->body.find("the engine has stopped after a device error"), std::string::npos) << after->body;
  EXPECT_EQ(code, cli::kExitDeviceLost);
  EXPECT_EQ(code, 70) << "what docs/cuda.md promises a supervisor";
  EXPECT_NE(said.str().find("error: the CUDA device failed: attention_kernel: outside"), std::string::npos) << said.str();
}

}  // namespace
}  // namespace barg::test
