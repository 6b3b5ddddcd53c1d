// Any JSON as a schema: refused with a message, or compiled; lenient takes whatever strict takes, and lists what it
// leaves out. Small limits, so that inputs are many.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/grammar/schema.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace barg;
  using namespace barg::text::grammar;
  if (size > 16'384) return 0;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  for (const Draft draft : {Draft::k7, Draft::k2019, Draft::k2020}) {
    SchemaOptions options{.draft = draft, .max_nodes = 5'000};
    const auto strict = compile_schema(*json, options);
    options.lenient = true;
    const auto lenient = compile_schema(*json, options);
    if (strict) {
      CHECK(strict->unenforced.empty());
      CHECK(strict->grammar.root >= 0);
      CHECK(lenient.has_value());
      CHECK(lenient->unenforced.empty());
    } else {
      CHECK(!strict.error().message.empty());
      if (lenient) CHECK(strict.error().code == ErrorCode::kUnsupported);
    }
  }
  return 0;
}
