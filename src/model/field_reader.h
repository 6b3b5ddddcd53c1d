// FieldReader: hyper-parameters by name, each checked against a range, from config.json or GGUF metadata.
//
// The first problem is remembered and later reads return harmless values, so that a builder reads its fields
// in a row and asks once at the end. Null means absent. One thread; borrows its source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "barg/result.h"
#include "base/json.h"
#include "model/gguf.h"

namespace barg::model {

class FieldReader {
 public:
  virtual ~FieldReader() = default;

  /// Integer in [low, high]; `fallback` when absent, an error when absent without one.
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high,
                       std::optional<std::int64_t> fallback = {});
  /// Finite number in [low, high].
  double real(std::string_view key, double low, double high, std::optional<double> fallback = {});
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  virtual bool has(std::string_view key) const = 0;
  /// The key as a person finds it in the file.
  virtual std::string full_name(std::string_view key) const = 0;

  /// Remembers a problem unless there is one already.
  void refuse(ErrorCode code, std::string message, std::string_view key);
  const std::optional<Error>& error() const { return error_; }

 protected:
  // Absent: an empty optional. A wrong type: an error.
  virtual Result<std::optional<std::int64_t>> read_integer(std::string_view key) const = 0;
  virtual Result<std::optional<double>> read_real(std::string_view key) const = 0;
  virtual Result<std::optional<bool>> read_boolean(std::string_view key) const = 0;
  virtual Result<std::optional<std::string>> read_text(std::string_view key) const = 0;

 private:
  template <class T>
  std::optional<T> keep(Result<std::optional<T>> r);

  std::optional<Error> error_;
};

/// Members of one object of config.json. `path` is the object's place in it ("" for the root,
/// "rope_scaling").
class JsonFieldReader final : public FieldReader {
 public:
  JsonFieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}
  bool has(std::string_view key) const override;
  std::string full_name(std::string_view key) const override;

 protected:
  Result<std::optional<std::int64_t>> read_integer(std::string_view key) const override;
  Result<std::optional<double>> read_real(std::string_view key) const override;
  Result<std::optional<bool>> read_boolean(std::string_view key) const override;
  Result<std::optional<std::string>> read_text(std::string_view key) const override;

 private:
  const Json* value(std::string_view key) const;
  const Json& object_;
  std::string path_;
};

/// Metadata keys under "ARCHITECTURE.". An array of equal numbers is read as that number.
class GgufFieldReader final : public FieldReader {
 public:
  GgufFieldReader(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}
  bool has(std::string_view key) const override { return file_.find(full_name(key)) != nullptr; }
  std::string full_name(std::string_view key) const override { return prefix_ + std::string(key); }

 protected:
  Result<std::optional<std::int64_t>> read_integer(std::string_view key) const override;
  Result<std::optional<double>> read_real(std::string_view key) const override;
  Result<std::optional<bool>> read_boolean(std::string_view key) const override;
  Result<std::optional<std::string>> read_text(std::string_view key) const override;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace barg::model
