#include "cli/yaml.h"

#include <algorithm>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "base/utf8.h"

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

constexpr std::size_t kMaxBytes = 1 << 20;  ///< a configuration file has a few thousand

/// What YAML itself forbids but yaml-cpp lets through: control characters and broken UTF-8.
Result<void> check_text(std::string_view text) {
  if (text.size() > kMaxBytes) return fail(ErrorCode::kTooLarge, "it has more than 1 MiB.");
  const auto is_control = [](char c) {
    const auto b = static_cast<unsigned char>(c);
    return (b < 0x20 && c != '\n' && c != '\r' && c != '\t') || b == 0x7F;
  };
  const auto bad = std::find_if(text.begin(), text.end(), is_control);
  if (bad != text.end()) {
    return fail(ErrorCode::kBadFile,
                at_line(static_cast<int>(std::count(text.begin(), bad, '\n')) + 1) + "a control character.");
  }
  if (!is_valid_utf8(text)) return fail(ErrorCode::kBadFile, "it is not UTF-8.");
  return {};
}

/// Reads and forgets.
class NoEvents final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// YAML::LoadAll would answer this too, but never returns for a text such as ",": its parser then finds one empty
/// document after the other without moving on.
bool has_several_documents(std::string_view text) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  NoEvents nothing;
  return parser.HandleNextDocument(nothing) && parser.HandleNextDocument(nothing);
}

}  // namespace

Result<std::vector<YamlEntry>> read_yaml(std::string_view text) {
  if (const auto fine = check_text(text); !fine) return std::unexpected(fine.error());
  try {
    if (has_several_documents(text)) return fail(ErrorCode::kBadFile, "expected one YAML document, found several.");
    return flatten(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& e) {
    const std::string where = e.mark.is_null() ? "" : at_line(e.mark.line + 1);
    return fail(ErrorCode::kBadFile, where + e.msg + ".");
  }
}

}  // namespace barg::cli
