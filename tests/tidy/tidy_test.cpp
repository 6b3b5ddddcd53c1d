// Style that runs: the arrows between layers, banned calls, sizes. Each message says what to do instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = BARG_SOURCE_DIR;

/// Who may include whom (besides itself, base, store-free include/barg). src/README.md draws the same picture.
const std::map<std::string, std::set<std::string>> kArrows = {
    {"base", {}},
    {"text", {}},
    {"kv", {}},
    {"store", {}},
    {"sched", {"kv"}},
    {"model", {"kernels"}},
    {"runtime", {"model", "kernels", "store", "sched/plan.h", "sched/tier_plan.h"}},
    {"engine", {"sched", "kv", "runtime", "text", "store"}},
    {"server", {"engine", "text"}},
    {"bench", {"engine", "runtime", "model", "kernels", "kv", "store", "sched/plan.h"}},
    {"conform", {}},
    {"cli", {"bench", "conform", "server", "engine", "runtime", "model", "kernels", "text", "store"}},
};

struct Source {
  fs::path path;                   // relative to the root
  std::vector<std::string> lines;
};

std::vector<Source> sources_under(const std::vector<std::string>& folders) {
  std::vector<Source> out;
  for (const auto& folder : folders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const auto ext = entry.path().extension();
      if (ext != ".h" && ext != ".cpp" && ext != ".cu" && ext != ".cuh") continue;
      Source s{fs::relative(entry.path(), kRoot), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) s.lines.push_back(line);
      out.push_back(std::move(s));
    }
  }
  return out;
}

/// "kernels" for ops.h and cpu/x.h, "barg" for public headers, else the first folder of the include.
std::string layer_of_include(const std::string& header) {
  if (header == "ops.h" || header == "math.h" || header.starts_with("cpu/") || header.starts_with("cuda/") ||
      header.starts_with("emu/"))
    return "kernels";
  const auto slash = header.find('/');
  return slash == std::string::npos ? "" : header.substr(0, slash);
}

TEST(Tidy, IncludesFollowTheArrows) {
  const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)")re");
  int edges = 0;
  for (const Source& s : sources_under({"src", "include", "kernels"})) {
    const std::string top = s.path.begin()->string();
    const std::string layer = top == "src" ? std::next(s.path.begin())->string() : top;
    if (layer == "main.cpp") continue;
    for (const std::string& line : s.lines) {
      std::smatch m;
      if (!std::regex_search(line, m, include)) continue;
      ++edges;
      const std::string header = m[1];
      const std::string target = layer_of_include(header);
      if (layer == "include") {
        EXPECT_EQ(target, "barg") << s.path << " includes " << header << ": public headers see only each other";
      } else if (layer == "kernels") {
        EXPECT_TRUE(target == "kernels" || header == "barg/types.h" || target.empty())
            << s.path << " includes " << header << ": kernels are standalone";
      } else {
        const auto& allowed = kArrows.at(layer);
        EXPECT_TRUE(target == layer || target == "base" || target == "barg" || allowed.contains(target) ||
                    allowed.contains(header))
            << s.path << " includes " << header << ": no arrow from " << layer << " to " << target;
      }
    }
  }
  EXPECT_GT(edges, 50) << "the test found hardly any include: is the pattern broken?";
}

// So that files can be compiled together (BARG_UNITY_TESTS): else a helper of one file is quietly taken for another's.
TEST(Tidy, TestsHaveANamespaceOfTheirOwn) {
  int files = 0;
  for (const Source& s : sources_under({"tests"})) {
    const std::string name = s.path.filename().string(), folder = std::next(s.path.begin())->string();
    if (!name.ends_with("_test.cpp") || folder == "cuda" || folder == "tidy" || name == "allocation_test.cpp") continue;
    ++files;
    const std::string own = "::" + s.path.stem().string() + " {";
    const auto is_own = [&](const std::string& line) { return line.starts_with("namespace barg::") && line.ends_with(own); };
    const auto begin = std::find_if(s.lines.begin(), s.lines.end(), is_own);
    EXPECT_NE(begin, s.lines.end()) << s.path << " must have its tests in namespace barg::..." << own;
    const bool leaks = std::any_of(s.lines.begin(), begin, [](const std::string& line) {
      return line.starts_with("using ") || line.starts_with("namespace ") || line.starts_with("static ");
    });
    EXPECT_FALSE(leaks) << s.path << " says something before it, which other files would see";
  }
  EXPECT_GT(files, 150);
}

struct Ban {
  const char* pattern;
  const char* instead;
  std::set<std::string> allowed;  // files where it is right
};

TEST(Tidy, BannedCalls) {
  const std::vector<Ban> bans = {
      {R"(\bgetenv\s*\()", "configuration (only the command line reads the environment)",
       {"src/main.cpp", "src/cli", "benchmarks"}},
      {R"(\bstd::cout\b)", "barg::log, or the command's own output function", {"src/cli", "src/main.cpp"}},
      {R"(\bstd::thread\b(?!::))", "std::jthread", {}},
      {R"(\b(malloc|calloc|realloc)\s*\()", "make_unique or an arena", {}},
      {R"(\bassert\s*\()", "CHECK, which stays on in release", {}},
      {R"(\bTODO\b|\bFIXME\b|\bXXX\b)", "do it, or say in the docs what is missing", {}},
      {R"(\bsleep_for\b|\busleep\s*\(|\bsleep\s*\()", "a condition variable or a timer of the clock seam", {"src/cli"}},
      {R"(\b(rand|srand)\s*\()", "barg::Rng", {}},
      {R"(\bdynamic_cast\b)", "a virtual function at the seam", {}},
      {R"(nlohmann/)", "base/json.h (one instantiation, in json.cpp)", {"src/base/json.cpp"}},
      {R"(boost/beast)", "the plain types of server/http_server.h", {"src/server", "src/bench"}},
      {R"(spdlog/)", "base/log.h", {"src/base/log.cpp"}},
      {R"(immintrin\.h)", "kernels/ops.h", {"kernels/cpu"}},
      {R"(cuda_runtime|__global__|__shared__)", "kernels/cuda", {"kernels/cuda"}},
  };
  std::vector<std::regex> patterns;
  for (const Ban& ban : bans) patterns.emplace_back(ban.pattern, std::regex::optimize);
  for (const Source& s : sources_under({"src", "include", "kernels", "benchmarks"})) {
    for (std::size_t i = 0; i < s.lines.size(); ++i) {
      std::string code = s.lines[i].substr(0, s.lines[i].find("//"));
      for (std::size_t b = 0; b < bans.size(); ++b) {
        const Ban& ban = bans[b];
        const bool here = std::any_of(ban.allowed.begin(), ban.allowed.end(), [&](const std::string& prefix) {
          return s.path.string().starts_with(prefix);
        });
        if (!here && std::regex_search(code, patterns[b])) {
          ADD_FAILURE() << s.path << ":" << i + 1 << ": use " << ban.instead << " instead: " << s.lines[i];
        }
      }
    }
  }
}

TEST(Tidy, FilesStaySmall) {
  for (const Source& s : sources_under({"src", "include", "kernels", "tests", "benchmarks"})) {
    EXPECT_LE(s.lines.size(), 800U) << s.path << " is too long: split it by responsibility";
  }
}

TEST(Tidy, FunctionsFitAScreen) {
  // A definition at file or namespace scope starts in column 0 and ends with a closing brace in column 0.
  for (const Source& s : sources_under({"src", "kernels"})) {
    if (s.path.extension() != ".cpp") continue;
    std::size_t start = 0;
    bool open = false;
    for (std::size_t i = 0; i < s.lines.size(); ++i) {
      const std::string& line = s.lines[i];
      if (!line.empty() && std::isalpha(static_cast<unsigned char>(line[0])) != 0 && line.ends_with("{") &&
          line.find('(') != std::string::npos && !line.starts_with("namespace")) {
        start = i;
        open = true;
      } else if (open && line.starts_with("}")) {
        EXPECT_LE(i - start, 120U) << s.path << ":" << start + 1 << ": this function is too long";
        open = false;
      }
    }
  }
}

TEST(Tidy, HeadersSayWhatTheyAre) {
  for (const Source& s : sources_under({"src", "include", "kernels"})) {
    if (s.path.extension() != ".h") continue;
    ASSERT_FALSE(s.lines.empty()) << s.path;
    EXPECT_TRUE(s.lines[0].starts_with("//")) << s.path << ": open with what the header owns and its thread rule";
    EXPECT_TRUE(std::find(s.lines.begin(), s.lines.end(), "#pragma once") != s.lines.end()) << s.path;
  }
}

/// `scripts/mutants` runs them; here it is only seen to that an edit elsewhere has not left one without its text.
TEST(Tidy, EveryMutantFindsItsText) {
  std::ifstream in(kRoot / "tests/mutants.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with('#')) lines.push_back(line);
  }
  int mutants = 0;
  for (std::size_t i = 0; i < lines.size(); i += 5) {
    if (lines[i].empty()) break;
    ++mutants;
    ASSERT_LE(i + 4, lines.size()) << lines[i] << ": four lines and a blank one";
    EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), ' '), 2) << lines[i] << ": name, target, filter";
    ASSERT_TRUE(i + 4 == lines.size() || lines[i + 4].empty()) << lines[i] << ": a blank line ends a mutant";
    const std::string from = lines[i + 2];
    std::ifstream file(kRoot / lines[i + 1]);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto first = text.find(from);
    const bool once = first != std::string::npos && text.find(from, first + 1) == std::string::npos;
    EXPECT_TRUE(once) << lines[i] << ": must be in " << lines[i + 1] << " once: " << from;
    EXPECT_NE(from, lines[i + 3]) << lines[i];
  }
  EXPECT_GT(mutants, 100);
}

}  // namespace
