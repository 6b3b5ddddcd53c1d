// FieldSpec and Fields: one literal row describes a field of a client's body, and everything that is known of it
// comes from that row: its type and range when it is read, its text in /openapi.json.
//
// Fields reads one JSON object strictly by its table. The first thing that is wrong is kept as the error (with its
// dotted path); later reads go on harmlessly, so callers check once at the end.
//
// null counts as absent everywhere. A member that was never asked for is in unread(): accepted, ignored, and
// reported to the client. Borrows the object and the table.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"

namespace barg::server {

enum class FieldType : std::uint8_t { kAny, kBool, kInteger, kNumber, kString, kArray, kObject, kTokenIds };

enum class FieldEffect : std::uint8_t {
  kUsed,
  kIgnored,   // accepted and without effect: named in x-barg-ignored, whether its type is checked or not
  kRefused,   // understood and not built: 400 where it asks for something (not null, false, "", [] or {})
};

inline constexpr double kNoMin = -std::numeric_limits<double>::infinity();
inline constexpr double kNoMax = std::numeric_limits<double>::infinity();

/// Rows are literals with static lifetime. Which endpoints a row belongs to is `apis`, bits of api_bit()
/// (openai_json.h); the tables of one protocol alone leave it as it is.
struct FieldSpec {
  std::string_view name;
  FieldType type = FieldType::kAny;
  std::string_view about = {};  ///< one sentence for /openapi.json
  double min = kNoMin;     ///< of a number
  double max = kNoMax;     ///< of a number; bytes of a string; items of an array
  bool min_open = false;   ///< the minimum itself is not allowed
  bool required = false;   ///< for the document; that it is missing is said by who reads it
  FieldEffect effect = FieldEffect::kUsed;
  unsigned apis = ~0U;
  std::span<const std::string_view> values = {};  ///< the only strings allowed; empty: any
  std::span<const FieldSpec> members = {};        ///< of the object, or of the objects in the array
};

class Fields {
 public:
  /// `object` must be an object, else that is the error. `path` prefixes every param ("stream_options.").
  Fields(const Json& object, std::span<const FieldSpec> specs, std::string path = {});

  bool knows(std::string_view name) const;  ///< there is a row of that name

  // Each REQUIRES a row of that name (and of that type, but for get).

  /// The member, or nullptr when absent or null. Marks it as read; checks nothing.
  const Json* get(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  /// Whole numbers; 5.0 counts, 5.5, "5" and true do not.
  std::optional<std::int64_t> integer(std::string_view name);
  std::optional<double> number(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  const Json* object(std::string_view name);
  const Json* array(std::string_view name);
  /// Token ids in [0, vocab).
  std::vector<std::int32_t> token_ids(std::string_view name, std::int32_t vocab);
  /// A reader of a member that is an object, by the row's members; give it back to absorb(). Nullopt: it is absent.
  std::optional<Fields> nested(std::string_view name);
  /// Takes over what is wrong in, and was not asked of, an object inside.
  void absorb(const Fields& inner);

  /// Fails for the first row of kRefused that asks for something.
  void refuse_unsupported();

  void fail(ErrorCode code, std::string message, std::string_view name);
  /// With a whole path, not one below this object's.
  void fail_at(ErrorCode code, std::string message, std::string path);
  bool ok() const { return !error_; }
  const std::optional<Error>& error() const { return error_; }
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
  /// Whole paths: members that were not asked for and those of kIgnored rows, in the order of the body.
  std::vector<std::string> unread() const;

 private:
  const FieldSpec& spec(std::string_view name, FieldType type) const;
  bool ignored(std::string_view name) const;
  const Json* typed(std::string_view name, FieldType type, std::string_view what, const FieldSpec*& row);

  const Json* object_;
  std::span<const FieldSpec> specs_;
  std::string path_;
  std::vector<bool> read_;
  std::vector<std::string> inner_unread_;
  std::optional<Error> error_;
};

/// Asks for nothing: null, false, "", [] or {}.
bool is_empty_value(const Json& value);
/// A JSON number that is a whole number of int64, or nullopt.
std::optional<std::int64_t> whole_number(const Json& value);
/// "a string", "an array", ...: for messages.
std::string_view type_name(const Json& value);

}  // namespace barg::server
