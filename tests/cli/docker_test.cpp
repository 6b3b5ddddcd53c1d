// What docker/ says about the program and the tree must be true: every flag, variable, key, path, stage and
// function it names exists. No Docker daemon is needed; with a compose client the file is also parsed by it.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "cli/args.h"
#include "cli/cli.h"

namespace barg::cli::docker_test {
namespace {

const std::filesystem::path kRoot = BARG_SOURCE_DIR;

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string dockerfile() { return content(kRoot / "docker/Dockerfile"); }
YAML::Node compose() { return YAML::LoadFile(kRoot / "docker/compose.yaml"); }

// A service's value, looked up through `<<`.
YAML::Node field(const YAML::Node& service, const std::string& name) {
  if (service[name]) return service[name];
  return service["<<"] ? service["<<"][name] : YAML::Node(YAML::NodeType::Undefined);
}

std::vector<std::string> words(const YAML::Node& list) { return list.as<std::vector<std::string>>(); }

// ["barg", "serve", "--x"] must be a command line the program takes.
void expect_command_line(std::vector<std::string> args) {
  if (!args.empty() && args[0] == "CMD") args.erase(args.begin());
  if (!args.empty() && args[0] == "barg") args.erase(args.begin());
  ASSERT_FALSE(args.empty());
  for (const Command* command : commands()) {
    if (command->name != args[0]) continue;
    const ParsedArgs parsed = parse_args(*command, std::span(args).subspan(1));
    EXPECT_TRUE(parsed.problems.empty()) << parsed.problems[0];
    return;
  }
  ADD_FAILURE() << "there is no command " << args[0];
}

std::set<std::string> stages() {
  std::set<std::string> out;
  const std::string text = dockerfile();
  const std::regex from("(?:^|\n)FROM \\S+ AS (\\S+)");
  for (std::sregex_iterator it(text.begin(), text.end(), from), end; it != end; ++it) out.insert((*it)[1]);
  return out;
}

// The instructions of the Dockerfile, one a line, without comments.
std::vector<std::string> instructions() {
  std::vector<std::string> out;
  std::istringstream in(dockerfile());
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') out.push_back(line);
  }
  return out;
}

TEST(Docker, CopiedPathsExist) {
  int copies = 0;
  for (const std::string& line : instructions()) {
    std::istringstream in(line);
    std::vector<std::string> parts(std::istream_iterator<std::string>(in), {});
    if (parts[0] != "COPY") continue;
    ++copies;
    if (parts[1].starts_with("--from=")) {
      EXPECT_TRUE(stages().contains(parts[1].substr(7))) << line;
    } else {
      EXPECT_TRUE(std::filesystem::exists(kRoot / parts[1])) << line;
      // The build context must let it through.
      const std::string top = *std::filesystem::path(parts[1]).begin();
      EXPECT_NE(content(kRoot / "docker/Dockerfile.dockerignore").find("\n!" + top + "\n"), std::string::npos)
          << line;
    }
  }
  EXPECT_GT(copies, 8);
}

TEST(Docker, ScriptFunctionsExist) {
  const std::string lib = content(kRoot / "scripts/lib.sh");
  int calls = 0;
  for (const std::string& line : instructions()) {
    const std::size_t sourced = line.find(". scripts/lib.sh");
    if (sourced == std::string::npos) continue;
    const std::regex call("&& ([a-z_0-9]+)");
    const std::string rest = line.substr(sourced, line.find_first_of("'\"", sourced) - sourced);
    for (std::sregex_iterator it(rest.begin(), rest.end(), call), end; it != end; ++it, ++calls) {
      EXPECT_NE(lib.find("\n" + (*it)[1].str() + "() {"), std::string::npos) << (*it)[1];
    }
  }
  EXPECT_GE(calls, 6);
}

TEST(Docker, BuildOptionsExist) {
  const std::string cmake = content(kRoot / "CMakeLists.txt") + content(kRoot / "kernels/cuda/images.cmake");
  const std::string text = dockerfile();
  const std::regex define("-D([A-Z_]+)=");
  for (std::sregex_iterator it(text.begin(), text.end(), define), end; it != end; ++it) {
    const std::string name = (*it)[1].str() + " ";
    EXPECT_TRUE(cmake.contains("option(" + name) || cmake.contains("set(" + name)) << name;
  }
}

TEST(Docker, CommandLinesOfTheImagesAreValid) {
  int lines = 0;
  for (const std::string& line : instructions()) {
    const bool command = line.starts_with("CMD ") || line.starts_with("HEALTHCHECK ");
    if (!command) continue;
    ++lines;
    expect_command_line(words(YAML::Load(line.substr(line.find('[')))));
  }
  EXPECT_EQ(lines, 4) << "two images, each with a command and a health check";
}

TEST(Docker, ImagesDoNotRunAsRoot) {
  // Of each stage that is meant to run, the last word on the user.
  std::string stage, user;
  std::map<std::string, std::string> users;
  for (const std::string& line : instructions()) {
    if (line.starts_with("FROM ")) stage = line.substr(line.rfind(' ') + 1);
    if (line.starts_with("USER ")) users[stage] = line.substr(5);
  }
  for (const char* target : {"cpu", "cuda", "model"}) EXPECT_EQ(users[target], "10001:10001") << target;
}

TEST(Docker, ComposeNamesThingsThatExist) {
  const YAML::Node root = compose();
  std::set<std::string> profiles;
  for (const auto& entry : root["services"]) {
    const YAML::Node service = entry.second;
    EXPECT_TRUE(stages().contains(service["build"]["target"].Scalar())) << entry.first;
    EXPECT_TRUE(std::filesystem::exists(kRoot / service["build"]["dockerfile"].Scalar()));
    for (const std::string& profile : words(service["profiles"])) profiles.insert(profile);
    for (const std::string& volume : words(field(service, "volumes"))) {
      const std::string source = volume.substr(0, volume.find(':'));
      const bool named = source.find('/') == std::string::npos;
      EXPECT_TRUE(named ? root["volumes"][source].IsDefined()
                        : std::filesystem::exists(kRoot / "docker" / source))
          << volume;
    }
    if (const YAML::Node command = field(service, "command")) expect_command_line(words(command));
    if (const YAML::Node health = field(service, "healthcheck")) expect_command_line(words(health["test"]));
    if (const YAML::Node environment = field(service, "environment")) {
      for (const auto& variable : environment)
        EXPECT_NE(find_env(variable.first.Scalar()), nullptr) << variable.first;
    }
  }
  EXPECT_EQ(profiles, (std::set<std::string>{"cpu", "gpu"}));
}

TEST(Docker, TheMountedConfigurationFitsTheImages) {
  const auto settings =
      load_settings({.file = kRoot / "configs/container.yaml", .environment = {}, .flags = {}});
  ASSERT_TRUE(settings) << settings.error().sentences[0];
  const std::string lib = content(kRoot / "scripts/lib.sh");
  const std::filesystem::path model = settings->config.model.path;
  EXPECT_NE(lib.find("SMOLLM2_FILE=\"" + model.filename().string() + "\""), std::string::npos);
  EXPECT_EQ(model.parent_path(), "/models/barg");
  EXPECT_NE(dockerfile().find("ENV XDG_CACHE_HOME=/models\n"), std::string::npos);
  EXPECT_NE(dockerfile().find("EXPOSE " + std::to_string(settings->config.server.port) + "\n"),
            std::string::npos);
  EXPECT_EQ(settings->config.server.host, "0.0.0.0");
  // The supervisor must not kill a server that is still draining.
  EXPECT_EQ(compose()["x-barg"]["stop_grace_period"].Scalar(), "60s");
  EXPECT_LT(settings->config.server.shutdown_timeout_s, 60);
}

TEST(Docker, ComposeClientParsesTheFile) {
  const auto run = [](const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str());
  };
  std::string client;
  for (const char* candidate : {"docker compose", "docker-compose"}) {
    if (client.empty() && run(std::string(candidate) + " version") == 0) client = candidate;
  }
  if (client.empty()) GTEST_SKIP() << "skipped: no compose client";
  for (const char* profile : {"cpu", "gpu"}) {
    EXPECT_EQ(
        run(client + " -f " + (kRoot / "docker/compose.yaml").string() + " --profile " + profile + " config"),
        0)
        << profile;
  }
}

}  // namespace
}  // namespace barg::cli::docker_test
