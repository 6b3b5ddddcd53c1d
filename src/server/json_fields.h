// Fields: strict reading of one JSON object that a client sent. The first thing that is wrong is kept as the
// error (with its dotted path); later reads go on harmlessly, so callers check once at the end.
//
// null counts as absent everywhere. A member that was never asked for is in unread(): accepted, ignored, and
// reported to the client. Borrows the object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"

namespace barg::server {

class Fields {
 public:
  /// `object` must be an object, else that is the error. `path` prefixes every param ("stream_options.").
  Fields(const Json& object, std::string path = {});

  /// The member, or nullptr when absent or null. Marks it as read.
  const Json* get(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  /// Whole numbers; 5.0 counts, 5.5, "5" and true do not.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  /// `min_open`: the minimum itself is not allowed.
  std::optional<double> number(std::string_view name, double min, double max, bool min_open = false);
  std::optional<std::string> string(std::string_view name, std::size_t max_bytes);
  const Json* object(std::string_view name);
  const Json* array(std::string_view name, std::size_t max_items);
  /// Token ids in [0, vocab).
  std::vector<std::int32_t> token_ids(std::string_view name, std::size_t max_items, std::int32_t vocab);

  void fail(ErrorCode code, std::string message, std::string_view name);
  bool ok() const { return !error_; }
  const std::optional<Error>& error() const { return error_; }
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
  std::vector<std::string> unread() const;

 private:
  const Json& object_;
  const std::string path_;
  std::vector<bool> read_;
  std::optional<Error> error_;
};

/// A JSON number that is a whole number of int64, or nullopt.
std::optional<std::int64_t> whole_number(const Json& value);
/// "a string", "an array", ...: for messages.
std::string_view type_name(const Json& value);

}  // namespace barg::server
