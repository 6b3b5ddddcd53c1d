#include "store/tier.h"

namespace barg::store {

const char* status_name(Status s) {
  switch (s) {
    case Status::kOk: return "ok";
    case Status::kMissing: return "missing";
    case Status::kCorrupt: return "corrupt";
    case Status::kIoError: return "io_error";
    case Status::kNoSpace: return "no_space";
    case Status::kTimeout: return "timeout";
    case Status::kCancelled: return "cancelled";
    case Status::kUnavailable: return "unavailable";
  }
  return "?";
}

}  // namespace barg::store
