// Where test data is: the big collection beside the checkout (../shared/data) when it is there, else the small
// core in tests/data. An empty path means "not here": skip the test with kNoShared.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace barg::test {

inline constexpr const char* kNoShared = "skipped: no ../shared";

/// Path of `relative` ("models/llama"), or empty.
inline std::string shared_data(const std::string& relative) {
  const std::filesystem::path root = BARG_SOURCE_DIR;
  for (const auto& dir : {root / ".." / "shared" / "data", root / "tests" / "data"}) {
    if (std::filesystem::exists(dir / relative)) return (dir / relative).lexically_normal().string();
  }
  return {};
}

/// Path of the SmolLM2-135M-Instruct GGUF (BARG_TEST_SMOLLM2, else the cache that scripts/run fills), or empty.
inline std::string smollm2_gguf() {
  const char* name = "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (const char* path = std::getenv("BARG_TEST_SMOLLM2")) return std::filesystem::exists(path) ? path : "";
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path cache = xdg != nullptr ? std::filesystem::path(xdg)
                                               : std::filesystem::path(home != nullptr ? home : "/") / ".cache";
  const auto path = cache / "barg" / name;
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace barg::test
