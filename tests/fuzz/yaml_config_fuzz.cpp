// Configuration files are read or refused in one sentence.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cli/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace barg;
  const auto entries = cli::read_yaml({reinterpret_cast<const char*>(data), size});
  if (!entries) {
    CHECK(!entries.error().message.empty());
    return 0;
  }
  for (const auto& e : *entries) CHECK(e.line >= 1 && !e.key.empty());
  return 0;
}
