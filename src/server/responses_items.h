// The items of a Responses conversation become the chat messages that templates are given.
//
// One answer of a model is several items (reasoning, message, calls) and one message: neighbours of the
// assistant are merged. Items of kinds that nothing here understands are skipped and noted, never refused:
// clients send back whatever some server once gave them.
//
// Names of tools inside namespaces are told to the model as NAMESPACE__NAME.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "server/json_fields.h"

namespace barg::server {

inline constexpr std::size_t kMaxInputItems = 8192;  ///< of a conversation
inline constexpr std::size_t kMaxItemParts = 1024;

struct NamespacedTool {
  std::string flat;  ///< what the model calls it
  std::string space, name;
};

/// "space__name", where the space does not end so itself.
std::string flat_tool_name(std::string_view space, std::string_view name);

/// How the parts of a content become one text.
struct PartRules {
  std::string_view separator = "\n";
  bool placeholder = false;  ///< what is no text becomes a note in brackets; false: it is an error
};

/// Reads items one after the other. Borrows what it is given; one use.
class ItemReader {
 public:
  /// The text in an encrypted_content, if it is ours.
  using Opener = std::function<std::optional<std::string>(const std::string& sealed)>;
  /// A stored item by its id.
  using Finder = std::function<std::optional<Json>(const std::string& id)>;

  /// Errors go to `fields`, what was skipped to `ignored`.
  ItemReader(Fields& fields, std::vector<std::string>& ignored, Opener open, Finder find)
      : fields_(fields), ignored_(ignored), open_(std::move(open)), find_(std::move(find)) {}

  /// `path`: of the item, for errors. Keeps what was read as text when `keep` (see kept()).
  void add(const Json& item, const std::string& path, bool keep);
  /// A message of plain text.
  void add_text(std::string_view role, std::string_view text);

  /// All messages. Nothing may be added afterwards.
  Json::Array take();
  /// The items of add(keep), references resolved, as a JSON array.
  std::string kept() const { return "[" + kept_ + "]"; }
  std::size_t count() const { return count_; }

 private:
  void read(const Json& item, const std::string& path);
  void message(const Json& item, const std::string& path);
  void reasoning(const Json& item, const std::string& path);
  void call(const Json& item, const std::string& path, bool custom);
  void output(const Json& item, const std::string& path);
  void reference(const Json& item, const std::string& path);
  const Json::Array* parts_of(const Json& content, const std::string& path);
  std::string texts(const Json* content, const std::string& path, const PartRules& rules);
  std::optional<std::string> part_text(const Json& part, const std::string& path, const PartRules& rules);
  const std::string* text_member(const Json& object, const std::string& path, const char* key);
  void note(std::string what);
  void close_assistant();

  struct Assistant {
    std::string reasoning, content;
    Json::Array calls;
    bool open = false;
  };

  Fields& fields_;
  std::vector<std::string>& ignored_;
  const Opener open_;
  const Finder find_;
  Json::Array messages_;
  Assistant assistant_;
  std::unordered_map<std::string, std::string> call_names_;  ///< by call_id
  std::string kept_;
  std::size_t count_ = 0;
};

}  // namespace barg::server
