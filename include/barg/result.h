// Errors are values. An Error carries one sentence written where the facts are known; who shows it to a
// person (HTTP status, exit code) decides from `code` by one table.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace barg {

enum class ErrorCode {
  kInvalidValue,           // a field has a wrong type or is out of range
  kMissingParameter,       // a required field is absent
  kUnsupported,            // understood, but Barg cannot do it (yet)
  kContextLengthExceeded,  // prompt (plus output) does not fit the model's length
  kNotFound,               // unknown model, route, file
  kUnauthorized,           // API key absent or wrong
  kTooLarge,               // a body, file or field is over its limit
  kRateLimited,            // the queue is full: try again later
  kUnavailable,            // loading or draining: try again later
  kShutdown,               // the process ends: what was begun is not completed
  kTimeout,                // a deadline passed
  kCancelled,              // the client went away or asked to stop
  kBadFile,                // a model, config or data file is malformed
  kIo,                     // the operating system refused
  kOutOfMemory,            // does not fit this machine
  kBadNumbers,             // the model computed NaN or infinity for this request
  kInternal,               // our bug or a failed device
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;      ///< one sentence for a person, no trailing newline
  std::string param;        ///< dotted path of the offending field (`messages[2].role`), empty if none
  double retry_after_s = 0; ///< for kRateLimited and kUnavailable: when to come back, 0 = unknown
};

template <class T>
using Result = std::expected<T, Error>;

/// `return fail(ErrorCode::kBadFile, "…")` from any function that returns Result<T>.
inline std::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(param), 0});
}

}  // namespace barg
