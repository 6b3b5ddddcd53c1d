#include "cli/yaml.h"

#include <yaml-cpp/yaml.h>

namespace barg::cli {
namespace {

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

std::string at_line(int line) { return "line " + std::to_string(line) + ": "; }

Result<YamlEntry> read_value(std::string key, int line, const YAML::Node& value) {
  YamlEntry entry{.key = std::move(key), .line = line};
  if (value.IsScalar()) {
    // yaml-cpp tags a quoted scalar "!" and a plain one "?".
    entry.type = value.Tag() == "!" ? YamlEntry::Type::kQuoted : YamlEntry::Type::kScalar;
    entry.text = value.Scalar();
    return entry;
  }
  if (value.IsMap()) {
    entry.type = YamlEntry::Type::kSection;
    return entry;
  }
  if (!value.IsSequence()) {
    entry.type = YamlEntry::Type::kEmpty;
    return entry;
  }
  entry.type = YamlEntry::Type::kList;
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return fail(ErrorCode::kBadFile,
                  at_line(line_of(item)) + entry.key + " must be a list of plain values.");
    }
    entry.items.push_back(item.Scalar());
  }
  return entry;
}

Result<void> read_section(const std::string& name, const YAML::Node& section, std::vector<YamlEntry>& out) {
  for (const auto& member : section) {
    const int line = line_of(member.first);
    if (!member.first.IsScalar())
      return fail(ErrorCode::kBadFile, at_line(line) + "a key must be a plain word.");
    Result<YamlEntry> entry = read_value(name + "." + member.first.Scalar(), line, member.second);
    if (!entry) return std::unexpected(entry.error());
    out.push_back(std::move(*entry));
  }
  return {};
}

Result<std::vector<YamlEntry>> flatten(const YAML::Node& root) {
  std::vector<YamlEntry> out;
  if (root.IsNull()) return out;  // an empty file is a valid configuration
  if (!root.IsMap())
    return fail(ErrorCode::kBadFile, at_line(line_of(root)) + "expected sections such as 'server:'.");
  for (const auto& member : root) {
    const int line = line_of(member.first);
    if (!member.first.IsScalar())
      return fail(ErrorCode::kBadFile, at_line(line) + "a key must be a plain word.");
    const std::string& name = member.first.Scalar();
    Result<YamlEntry> entry = read_value(name, line, member.second);
    if (!entry) return std::unexpected(entry.error());
    out.push_back(std::move(*entry));
    if (!member.second.IsMap()) continue;
    if (const Result<void> read = read_section(name, member.second, out); !read)
      return std::unexpected(read.error());
  }
  return out;
}

}  // namespace

Result<std::vector<YamlEntry>> read_yaml(std::string_view text) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) return fail(ErrorCode::kBadFile, "expected one YAML document, found several.");
    return documents.empty() ? std::vector<YamlEntry>{} : flatten(documents[0]);
  } catch (const YAML::Exception& e) {
    const std::string where = e.mark.is_null() ? "" : at_line(e.mark.line + 1);
    return fail(ErrorCode::kBadFile, where + e.msg + ".");
  }
}

}  // namespace barg::cli
