// What parses must print as JSON that parses to the same value, whatever the style.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace barg;
  const auto value = parse_json({reinterpret_cast<const char*>(data), size});
  if (!value) {
    CHECK(!value.error().message.empty());
    return 0;
  }
  for (const JsonStyle& style : {JsonStyle{}, JsonStyle{.indent = 1}, JsonStyle{.spaces = true, .ensure_ascii = true}}) {
    const auto again = parse_json(dump_json(*value, style));
    CHECK(again.has_value());
    CHECK(*again == *value);
  }
  return 0;
}
