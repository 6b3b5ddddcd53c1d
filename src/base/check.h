// CHECK stays on in release: a broken invariant stops the process with file, line and values rather than
// serving wrong answers. Never reachable from input (input errors are Results). DCHECK is for costly scans.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace barg {
[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}
}  // namespace barg

#define CHECK(cond) \
  do { if (!(cond)) [[unlikely]] ::barg::check_failed(__FILE__, __LINE__, #cond); } while (0)
#ifdef NDEBUG
#define DCHECK(cond) do { } while (0)
#else
#define DCHECK(cond) CHECK(cond)
#endif
