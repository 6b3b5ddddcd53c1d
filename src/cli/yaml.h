// A configuration file as flat entries. yaml-cpp lives in yaml.cpp and nowhere else; its exceptions stop
// there. Knows no option: what a key means is settings.cpp's business. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"

namespace barg::cli {

struct YamlEntry {
  enum class Type { kScalar, kQuoted, kList, kSection, kEmpty };
  std::string key;  ///< "kv.block_size"
  int line = 0;     ///< from 1
  Type type = Type::kScalar;
  std::string text = {};                ///< kScalar, kQuoted
  std::vector<std::string> items = {};  ///< kList
};

/// Sections of keys, nothing deeper than a list of scalars. In file order, duplicates kept; each section
/// comes first as an entry of its own (kSection, or kEmpty when it holds nothing). Fails (with a line where
/// there is one) on what is not YAML or has another shape. `text` may be hostile.
Result<std::vector<YamlEntry>> read_yaml(std::string_view text);

}  // namespace barg::cli
