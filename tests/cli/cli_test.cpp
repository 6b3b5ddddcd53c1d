// The commands from the outside: arguments in, exit code and text out. Those that need a model take the tiny
// ones; the running server is tested in tests/end_to_end.
#include "cli/cli.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/bundle.h"
#include "cli/exit_codes.h"
#include "support/data.h"
#include "support/temp_dir.h"

namespace barg::cli::cli_test {
namespace {

struct Done {
  int code = 0;
  std::string out, err;
};

Done barg(std::vector<std::string> args, const std::string& input = {}, const Environment& environment = {}) {
  std::istringstream in(input);
  std::ostringstream out, err;
  Io io{.in = in, .out = out, .err = err};
  const int code = run(args, environment, io);
  return {code, out.str(), err.str()};
}

std::string temp_file(const std::string& name, const std::string& text) {
  return test::scratch().write("cli_" + name, text);
}

void expect_one_sentence(const Done& done, int code) {
  EXPECT_EQ(done.code, code) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(done.err.starts_with("error: ")) << done.err;
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
}

TEST(Cli, HelpAndUsage) {
  EXPECT_EQ(barg({"--help"}).code, kExitOk);
  EXPECT_EQ(barg({}).code, kExitUsage);
  EXPECT_EQ(barg({}).out, "");
  for (const Command* command : commands()) {
    const Done done = barg({std::string(command->name), "--help"});
    EXPECT_EQ(done.code, kExitOk);
    EXPECT_NE(done.out.find("Usage: barg " + std::string(command->name)), std::string::npos);
  }
  expect_one_sentence(barg({"srve"}), kExitUsage);
  EXPECT_NE(barg({"srve"}).err.find("did you mean serve?"), std::string::npos);
  EXPECT_EQ(barg({"serve", "--block-sise", "16"}).code, kExitUsage);
  EXPECT_NE(barg({"serve", "--block-sise", "16"}).err.find("--block-size"), std::string::npos);
}

// A file that is not a model shows that the flags before it were taken.
TEST(Cli, BenchModelReadsItsFlags) {
  expect_one_sentence(barg({"bench", "model"}), kExitUsage);
  const std::string junk = temp_file("bench_junk.gguf", "no model");
  for (const auto& [flag, value] : {std::pair{"-p", "x"}, {"-p", "1,x"}, {"-n", "-1"}, {"-b", "0"}, {"--batch", "1,0"},
                                    {"--depth", "1.5"}, {"-r", "0"}, {"-r", "1,2"}, {"-o", "xml"}, {"-t", "many"},
                                    {"--recipe", "f16"}, {"--kv-dtype", "q8"}}) {
    const Done done = barg({"bench", "model", "-m", junk, flag, value});
    expect_one_sentence(done, kExitUsage);
    EXPECT_NE(done.err.find(flag), std::string::npos) << done.err;
  }
  const Done done = barg({"bench", "model", "-m", junk, "-p", "16,0", "-n", "4", "-b", "1,8", "-d", "0,64", "-r", "2",
                          "-t", "1", "--isa", "scalar", "--recipe", "f32", "--kv-dtype", "f16", "-o", "md"});
  expect_one_sentence(done, kExitFailure);
  EXPECT_NE(done.err.find("bench_junk.gguf"), std::string::npos) << done.err;
  const std::string model = test::shared_data("models/llama");
  if (model.empty()) GTEST_SKIP() << test::kNoShared;
  const Done measured = barg({"bench", "model", "--model", model, "-p", "8", "-n", "4", "-r", "1", "-o", "csv"});
  EXPECT_EQ(measured.code, kExitOk) << measured.err;
  EXPECT_EQ(measured.err, "");
  EXPECT_NE(measured.out.find(",pp8,prefill,8,1,0,"), std::string::npos) << measured.out;
  EXPECT_EQ(barg({"bench", "model", "--model", model, "-d", "1000000"}).code, kExitUsage);
}

TEST(Cli, TheSecondWordNamesASubcommand) {
  for (const Command* command : commands()) {
    for (const Command* sub : command->subcommands) {
      const std::string name(sub->name);
      const std::size_t space = name.find(' ');
      ASSERT_EQ(name.substr(0, space), command->name);
      const Done done = barg({name.substr(0, space), name.substr(space + 1), "--help"});
      EXPECT_EQ(done.code, kExitOk);
      EXPECT_NE(done.out.find("Usage: barg " + name), std::string::npos);
      EXPECT_NE(barg({std::string(command->name), "--help"}).out.find("barg " + name), std::string::npos);
    }
  }
  EXPECT_EQ(barg({"bench"}).code, kExitUsage);
  EXPECT_NE(barg({"bench"}).err.find("barg bench serve"), std::string::npos);
  expect_one_sentence(barg({"bench", "srve"}), kExitUsage);
  EXPECT_NE(barg({"bench", "srve"}).err.find("did you mean bench serve?"), std::string::npos);
}

TEST(Cli, CodesTellTheSources) {
  expect_one_sentence(barg({"serve", "--block-size", "17"}), kExitUsage);
  expect_one_sentence(barg({"serve"}, "", {{"BARG_BLOCK_SIZE", "17"}}), kExitBadConfig);
  const std::string file = temp_file("bad.yaml", "kv:\n  block_sise: 16\n");
  expect_one_sentence(barg({"config", "check", "--config", file}), kExitBadConfig);
  expect_one_sentence(barg({"config", "check"}, "", {{"BARG_CONFIG", file}}), kExitBadConfig);
  // A flag names the file that counts.
  const std::string good = temp_file("good.yaml", "kv:\n  block_size: 32\n");
  EXPECT_EQ(barg({"config", "check", "--config", good}, "", {{"BARG_CONFIG", file}}).code, kExitOk);
  // What takes no option does not look at them.
  EXPECT_EQ(barg({"version"}, "", {{"BARG_CONFIG", file}, {"BARG_PORT", "x"}}).code, kExitOk);
}

TEST(Cli, RefusedFlagsSayWhatIsPossible) {
  expect_one_sentence(barg({"chat", "--url", "nowhere", "hi"}), kExitUsage);
  const Done large = barg({"config", "check", "--kv-cache-memory-bytes", "18446744073709551616"});
  EXPECT_NE(large.err.find("--kv-cache-memory-bytes cannot be that large"), std::string::npos) << large.err;
}

TEST(Cli, ConfigPrintShowsValuesAndOrigins) {
  const Done done = barg({"config", "print", "--port", "81"}, "",
                         {{"BARG_BLOCK_SIZE", "32"}, {"BARG_API_KEY", "sk-secret"}});
  EXPECT_EQ(done.code, kExitOk);
  EXPECT_NE(done.out.find("  port: 81"), std::string::npos);
  EXPECT_NE(done.out.find("# --port\n"), std::string::npos);
  EXPECT_NE(done.out.find("# BARG_BLOCK_SIZE\n"), std::string::npos);
  EXPECT_NE(done.out.find("# default\n"), std::string::npos);
  EXPECT_EQ(done.out.find("sk-secret"), std::string::npos);
  expect_one_sentence(barg({"config"}), kExitUsage);
  expect_one_sentence(barg({"config", "prnt"}), kExitUsage);
}

TEST(Cli, VersionAsJson) {
  const Done done = barg({"version", "--json"});
  const Result<Json> json = parse_json(done.out);
  ASSERT_TRUE(json) << done.out;
  EXPECT_NE(json->find("version"), nullptr);
  const Json* const cuda = json->find("cuda");
  ASSERT_NE(cuda, nullptr);
  EXPECT_NE(barg({"version"}).out.find(", CUDA " + cuda->as_string() + ")"), std::string::npos);
  EXPECT_EQ(barg({"--version"}).out, barg({"version"}).out);
}

TEST(Cli, RenderATemplateFile) {
  const std::string file = temp_file("t.jinja",
                                     "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} {{ "
                                     "strftime_now('%d %b %Y %H:%M:%S %A %j') }}");
  const Done done = barg({"render", "--template", file, "--now", "2026-11-29T12:34:56"},
                         R"({"messages":[{"role":"user","content":"h\u00e9"}]})");
  EXPECT_EQ(done.err, "");
  EXPECT_EQ(done.out, "[user] h\u00e9 29 Nov 2026 12:34:56 Sunday 333");
  expect_one_sentence(
      barg({"render", "--template", temp_file("e.jinja", "{{ raise_exception('please not') }}")}, "{}"),
      kExitFailure);
  expect_one_sentence(barg({"render", "--template", temp_file("s.jinja", "{% if %}")}, "{}"), kExitFailure);
  expect_one_sentence(barg({"render", "--template", file}, "[1]"), kExitFailure);
  expect_one_sentence(barg({"render", "--template", file}, "{"), kExitFailure);
  expect_one_sentence(barg({"render", "--template", "/nowhere.jinja"}, "{}"), kExitFailure);
  expect_one_sentence(barg({"render"}, "{}"), kExitUsage);
  for (const char* time :
       {"2026-11-29", "2026-02-30T00:00:00", "2026-11-29T12:34:56Z", "2026-11-29 12:34:56", "x"}) {
    expect_one_sentence(barg({"render", "--template", file, "--now", time}, "{}"), kExitUsage);
  }
}

TEST(Cli, HealthOfNobody) {
  expect_one_sentence(barg({"health", "--url", "http://127.0.0.1:1"}), kExitFailure);
  expect_one_sentence(barg({"health", "--url", "https://127.0.0.1"}), kExitUsage);
}

TEST(Cli, AnAddressThatIsTakenIsFoundBeforeLoading) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Done done = barg({"serve", "--model", "/nowhere.gguf", "--port", port});
  expect_one_sentence(done, kExitCannotCreate);
  EXPECT_NE(done.err.find(port), std::string::npos);
  close(fd);
  expect_one_sentence(barg({"serve", "--model", "/nowhere.gguf", "--host", "192.0.2.1"}), kExitCannotCreate);
}

TEST(Cli, BadModelsAreOneSentence) {
  for (const char* command : {"inspect", "serve", "complete", "chat", "tokenize"}) {
    const bool positional = std::string(command) == "inspect" || std::string(command) == "serve" ||
                            std::string(command) == "tokenize";
    const auto with = [&](const std::string& model) {
      std::vector<std::string> args{command};
      if (!positional) args.push_back("--model");
      args.push_back(model);
      if (args[0] == "serve") args.insert(args.end(), {"--port", "0"});
      return barg(args, "hi");
    };
    expect_one_sentence(with("/nowhere/model.gguf"), kExitFailure);
    expect_one_sentence(with(temp_file("junk.gguf", "GGUF" + std::string(64, '\xff'))), kExitFailure);
    expect_one_sentence(with(test::scratch().path()), kExitFailure);
    if (std::string(command) != "serve") expect_one_sentence(barg({command}), kExitUsage);
    expect_one_sentence(barg({"serve", "--port", "0"}), kExitUsage);
  }
}

class CliModel : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::shared_data("models/smollm2");
    if (model_.empty()) GTEST_SKIP() << test::kNoShared;
  }
  std::string model_;
};

TEST_F(CliModel, InspectShowsThePlanBeforeLoading) {
  const Done done = barg({"inspect", model_, "--kv-cache-dtype", "f16", "--kv-cache-memory-bytes", "1MiB"});
  ASSERT_EQ(done.code, kExitOk) << done.err;
  for (const char* part :
       {"tokenizer: byte-level BPE, ", "an answer ends with: \"", "llama", "memory plan:", "kv per token: ", "(f16)", "kv pool: ", "total: ", "verdict: valid"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
  EXPECT_NE(barg({"inspect", model_, "--tensors"}).out.size(), done.out.size());
}

TEST_F(CliModel, InspectShowsWhatARefusedFileHoldsAndThenWhy) {
  const Result<std::string> config = read_file(model_ + "/config.json", 1 << 20);
  ASSERT_TRUE(config);
  const test::TempDir dir;
  std::string other = *config;
  const std::string from = "LlamaForCausalLM";
  ASSERT_NE(other.find(from), other.npos);
  dir.write("config.json", other.replace(other.find(from), from.size(), "MarsForCausalLM"));
  std::filesystem::create_symlink(std::filesystem::absolute(model_ + "/model.safetensors"), dir.path() + "/model.safetensors");
  const Done done = barg({"inspect", dir.path()});
  EXPECT_EQ(done.code, kExitFailure);
  for (const char* part : {"architecture: MarsForCausalLM\n", "quantisation: BF16", "verdict: refused\n"})
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  EXPECT_NE(done.err.find("architectures: \"MarsForCausalLM\" is not supported yet"), std::string::npos) << done.err;
  // One that only has no tokenizer is described to the end.
  dir.write("config.json", *config);
  const Done mute = barg({"inspect", dir.path()});
  EXPECT_EQ(mute.code, kExitFailure);
  for (const char* part : {"kv group: ", "memory plan:", "verdict: refused\n"})
    EXPECT_NE(mute.out.find(part), std::string::npos) << part << "\n" << mute.out;
  EXPECT_NE(mute.err.find("tokenizer.json"), std::string::npos) << mute.err;
}

// Text is completed without it, and the line says where it is wrong.
TEST_F(CliModel, ATemplateThatDoesNotParseIsAWarning) {
  const test::TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(model_))
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), dir.path() + "/" + entry.path().filename().string());
  std::filesystem::remove(dir.path() + "/chat_template.jinja");
  dir.write("chat_template.jinja", "{{ bos_token }}\n{% if %}");
  const Done done = barg({"inspect", dir.path()});
  EXPECT_EQ(done.code, kExitOk) << done.err;
  EXPECT_NE(done.out.find("chat template: does not parse, so chat is refused\n  chat_template: the template does not parse: line 2"), std::string::npos) << done.out;
  EXPECT_EQ(barg({"tokenize", dir.path()}, "a").code, kExitOk);
  EXPECT_NE(barg({"render", "--model", dir.path()}, "{}").err.find("line 2"), std::string::npos);
}

/// Added tokens without a row of the embedding: said, and a prompt that has one is refused.
TEST_F(CliModel, InspectSaysWhichTokensTheEmbeddingHasNoRowFor) {
  const test::TempDir dir;
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json"})
    std::filesystem::create_symlink(std::filesystem::absolute(model_ + "/" + file), dir.path() + "/" + file);
  Json tokenizer = parse_json(read_file(model_ + "/tokenizer.json", 1 << 24).value(), {.max_members = 0}).value();
  tokenizer.find("added_tokens")->push(Json::object({{"id", 5000},
                                                     {"content", "<beyond>"},
                                                     {"single_word", false},
                                                     {"lstrip", false},
                                                     {"rstrip", false},
                                                     {"normalized", false},
                                                     {"special", false}}));
  dir.write("tokenizer.json", dump_json(tokenizer));
  const Done done = barg({"inspect", dir.path()});
  EXPECT_EQ(done.code, kExitOk) << done.err;
  EXPECT_NE(done.out.find("  note: the tokenizer has 5001 ids and the embedding "), std::string::npos) << done.out;
  const Done prompted = barg({"complete", "--model", dir.path(), "--max-tokens", "1", "a <beyond> b"});
  EXPECT_EQ(prompted.code, kExitFailure);
  EXPECT_NE(prompted.err.find("token ids below "), std::string::npos) << prompted.err;
  EXPECT_EQ(barg({"inspect", model_}).out.find("note: the tokenizer"), std::string::npos);
}

TEST_F(CliModel, TheToolDialectIsFoundAndCanBeNamed) {
  const auto has = [&](const Done& done, const char* part) {
    EXPECT_NE((done.out + done.err).find(part), std::string::npos) << part << "\n" << done.out << done.err;
  };
  const Done found = barg({"inspect", model_});
  has(found, "tool dialect: generic (");
  has(found, "\nchat template:");
  has(found, "because: no known marker in the chat template");
  has(found, "reasoning: none");
  const Done named = barg({"inspect", model_, "--tool-dialect", "qwen3_xml"});
  EXPECT_EQ(named.code, kExitOk);
  has(named, "tool dialect: qwen3_coder (");
  has(named, "because: named by model.tool_dialect");
  const Done unknown = barg({"inspect", model_, "--tool-dialect", "klingon"});
  EXPECT_NE(unknown.code, kExitOk);
  has(unknown, "no tool dialect is named \"klingon\"; known are auto, harmony");
}

// A dialect that nobody reads is not taken for another's.
TEST_F(CliModel, AnUnknownToolDialectIsSaid) {
  const test::TempDir dir;
  const std::string path =
      dir.write("functionary.jinja", "Respond in this format:\n>>>${recipient}\n${content}\n{{ messages[0].content }}");
  const Done found = barg({"inspect", model_, "--chat-template", path});
  EXPECT_EQ(found.code, kExitOk) << found.err;
  for (const char* part : {"tool dialect: not known\n  because: >>>${recipient} in the chat template: Functionary 3.2",
                           "stay text; read are those of generic ("}) {
    EXPECT_NE(found.out.find(part), std::string::npos) << part << "\n" << found.out;
  }
  EXPECT_EQ(barg({"inspect", model_, "--chat-template", path, "--tool-dialect", "hermes"}).out.find("not known"), std::string::npos);
}

TEST_F(CliModel, TheStartNamesEveryTier) {
  const test::TempDir dir;
  Config config;
  config.model.path = model_;
  config.kv.memory_bytes = 4 << 20;
  config.kv.tiers = {"dram:size=16MiB", "disk:path=" + dir.path() + "/kv,size=64MiB"};
  std::string tiers;
  LoadWatch watch;
  watch.done = [&](std::string_view phase, const std::string& detail) {
    if (phase == "tiers") tiers = detail;
  };
  const Result<Bundle> bundle = open_bundle(config, watch, dir.path());
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(tiers, "dram, disk:" + dir.path() + "/kv");
}

TEST_F(CliModel, TokenizePrintsAList) {
  const Done done = barg({"tokenize", "--model", model_}, "Hello, world");
  ASSERT_EQ(done.code, kExitOk) << done.err;
  const Result<Json> ids = parse_json(done.out);
  ASSERT_TRUE(ids && ids->is_array() && ids->size() > 0) << done.out;
  const Result<Json> bare = parse_json(barg({"tokenize", "--no-special", model_}, "Hello, world").out);
  ASSERT_TRUE(bare);
  EXPECT_LE(bare->size(), ids->size());
  expect_one_sentence(barg({"tokenize", model_}, "\xff\xfe"), kExitFailure);
  EXPECT_EQ(barg({"tokenize", "--no-special", model_}, "").out, "[]\n");
}

TEST_F(CliModel, CompleteIsRepeatable) {
  const std::vector<std::string> args{"complete", "--model",   model_, "--max-tokens", "8", "--temperature",
                                      "0",        "--threads", "1",    "Hello"};
  const Done first = barg(args);
  ASSERT_EQ(first.code, kExitOk) << first.err;
  EXPECT_TRUE(first.out.ends_with('\n'));
  EXPECT_EQ(barg(args).out, first.out);
  std::vector<std::string> from_stdin(args.begin(), args.end() - 1);
  EXPECT_EQ(barg(from_stdin, "Hello").out, first.out);
  from_stdin.push_back("--echo");
  EXPECT_EQ(barg(from_stdin, "Hello").out, "Hello" + first.out);
  // Without --max-tokens: what the context holds.
  const Done all =
      barg({"complete", "--model", model_, "--max-model-len", "32", "--temperature", "0", "Hello"});
  EXPECT_EQ(all.code, kExitOk) << all.err;
  EXPECT_TRUE(all.out.starts_with(first.out.substr(0, first.out.size() - 1)));
  EXPECT_GT(all.out.size(), first.out.size());
  expect_one_sentence(barg({"complete", "--model", model_, "--temperature", "3", "x"}), kExitUsage);
  expect_one_sentence(barg({"complete", "--model", model_, "--max-tokens", "0", "x"}), kExitUsage);
}

TEST_F(CliModel, ChatAnswersEachLine) {
  const Done one = barg({"chat", "--model", model_, "--max-tokens", "4", "--temperature", "0", "Hi"});
  ASSERT_EQ(one.code, kExitOk) << one.err;
  const Done conversation =
      barg({"chat", "--model", model_, "--max-tokens", "4", "--temperature", "0"}, "Hi\n\nignored\n");
  EXPECT_EQ(conversation.out, one.out);
}

TEST_F(CliModel, RenderWithTheModelsOwnTemplate) {
  const Done done = barg({"render", "--model", model_},
                         R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true})");
  EXPECT_EQ(done.code, kExitOk) << done.err;
  EXPECT_NE(done.out.find("hi"), std::string::npos);
}

TEST(Cli, ModelNamesComeFromPaths) {
  EXPECT_EQ(default_model_name("/a/SmolLM2.Q4_1.gguf"), "SmolLM2.Q4_1");
  EXPECT_EQ(default_model_name("/a/llama/"), "llama");
  EXPECT_EQ(default_model_name("llama"), "llama");
  EXPECT_EQ(default_model_name("/a/Llama-3.1-8B"), "Llama-3.1-8B");
}

}  // namespace
}  // namespace barg::cli::cli_test
