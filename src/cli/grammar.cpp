// `barg grammar check`: whether Barg can enforce a schema, regular expression or grammar, and whether a text is of it.
// No model is needed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <ostream>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/machine.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema.h"

namespace barg::cli {
namespace {

namespace grammar = text::grammar;

constexpr int kExitRefused = 1;
constexpr int kExitNotAccepted = 2;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

constexpr CommandFlag kCheckFlags[] = {
    {"--kind", "KIND", "What FILE is: schema (the default), regex or gbnf."},
    {"--draft", "D", "Draft of a schema without $schema: 7, 2019-09 or 2020-12 (the default)."},
    {"--lenient", "", "Leave out what cannot be enforced, and list it, instead of refusing the schema."},
    {"--text", "TEXT", "Read a text from the file TEXT, or - for stdin, and say where it fails first."},
};

/// A whole stream, at most `most` bytes of it.
Result<std::string> read_all(std::istream& in, std::size_t most, const std::string& name) {
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return fail(ErrorCode::kIo, name + " cannot be read.");
  if (text.size() > most)
    return fail(ErrorCode::kTooLarge, name + " is larger than " + std::to_string(most) + " bytes.");
  return text;
}

Result<std::string> read_file(const std::string& path, std::size_t most) {
  std::ifstream in(path, std::ios::binary);
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(path, ignored)) return fail(ErrorCode::kIo, path + " cannot be opened.");
  return read_all(in, most, path);
}

/// Editors and `echo` end a text with a line feed that is not meant.
void strip_line_feed(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

// ------------------------------------------------------------------------------------------------- kinds

void print_list(std::ostream& out, const char* title, const std::vector<grammar::Unenforced>& list) {
  for (const grammar::Unenforced& one : list) {
    out << title << ": " << one.pointer << " '" << one.keyword << "': " << one.reason << "\n";
  }
}

void print_schema(std::ostream& out, const grammar::CompiledSchema& compiled) {
  constexpr std::string_view kDrafts[] = {"7", "2019-09", "2020-12"};
  out << "schema of draft " << kDrafts[static_cast<std::size_t>(compiled.draft)] << "\nenforced:";
  for (const std::string& keyword : compiled.enforced_keywords) out << " " << keyword;
  const std::size_t enforced = compiled.enforced_keywords.size();
  out << (enforced == 0 ? " (no keyword restricts a value)" : "") << "\ncoverage: " << enforced
      << " keywords enforced, " << compiled.unenforced.size() << " places left out\n";
  print_list(out, "not enforced", compiled.unenforced);
  print_list(out, "without effect", compiled.without_effect);
}

Result<grammar::Grammar> schema_grammar(Invocation& invocation, const std::string& file) {
  grammar::SchemaOptions options{.lenient = invocation.has("--lenient")};
  if (invocation.has("--draft")) {
    auto draft = grammar::parse_draft(invocation.get("--draft"));
    if (!draft) return std::unexpected(draft.error());
    options.draft = *draft;
  }
  auto json = parse_json(file, {.max_depth = 256, .max_members = 0});
  if (!json) return std::unexpected(json.error());
  auto compiled = grammar::compile_schema(*json, options);
  if (!compiled) return std::unexpected(compiled.error());
  print_schema(invocation.io.out, *compiled);
  return std::move(compiled->grammar);
}

Result<grammar::Grammar> regex_grammar(Invocation& invocation, std::string file) {
  strip_line_feed(file);
  auto dfa = grammar::regex_dfa(file, {.search = false});
  if (!dfa) return std::unexpected(dfa.error());
  invocation.io.out << "regular expression: " << dfa->num_states() << " states\n";
  grammar::Grammar out;
  out.root = out.add(grammar::BytesNode{std::make_shared<const grammar::Dfa>(std::move(*dfa))});
  return out;
}

Result<grammar::Grammar> gbnf_grammar(Invocation& invocation, const std::string& file) {
  auto parsed = grammar::parse_gbnf(file);
  if (parsed) invocation.io.out << "grammar: " << parsed->nodes.size() << " nodes\n";
  return parsed;
}

// -------------------------------------------------------------------------------------------------- text

std::string shown_byte(int byte) {
  if (byte == '\'') return "\"'\"";
  if (byte > ' ' && byte < 0x7F) return "'" + std::string(1, static_cast<char>(byte)) + "'";
  constexpr char kHex[] = "0123456789abcdef";
  switch (byte) {
    case ' ':
      return "a blank";
    case '\n':
      return "a line feed";
    case '\t':
      return "a tab";
    case '\r':
      return "a carriage return";
    default:
      return std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15];
  }
}

/// Single bytes and runs of them: "'a' to 'f'".
std::string shown_bytes(const std::vector<int>& bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t last = i;
    while (last + 1 < bytes.size() && bytes[last + 1] == bytes[last] + 1) ++last;
    if (last < i + 2) last = i;
    out += (out.empty() ? "" : ", ") + shown_byte(bytes[i]);
    if (last > i) out += " to " + shown_byte(bytes[last]);
    i = last + 1;
  }
  return out;
}

std::string allowed_after(grammar::Machine& machine, std::string_view text) {
  grammar::Machine::StatePtr state = machine.start();
  for (const char c : text) {
    if (state) state = machine.next(state, static_cast<std::uint8_t>(c));
  }
  if (!state) return "nothing";
  std::vector<int> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if (machine.next(state, static_cast<std::uint8_t>(byte))) bytes.push_back(byte);
  }
  std::string out = shown_bytes(bytes);
  if (grammar::Machine::accepting(*state)) out += out.empty() ? "the end of the text" : ", or the end of the text";
  return out;
}

std::size_t count_chars(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

int check_text(Invocation& invocation, grammar::Machine& machine) {
  Io& io = invocation.io;
  const std::string name = invocation.get("--text");
  Result<std::string> text =
      name == "-" ? read_all(io.in, kMaxTextBytes, "the text on stdin") : read_file(name, kMaxTextBytes);
  if (!text) {
    io.err << "error: " << text.error().message << "\n";
    return kExitRefused;
  }
  strip_line_feed(*text);
  const std::optional<std::size_t> failure = grammar::first_failure(machine, *text);
  if (!failure) {
    io.out << "text: accepted\n";
    return kExitOk;
  }
  const std::string_view before = std::string_view(*text).substr(0, *failure);
  const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto line = std::ranges::count(before, '\n') + 1;
  io.err << "error: the text is not accepted: at offset " << *failure << " (line " << line << ", column "
         << count_chars(before.substr(line_start)) + 1 << ") "
         << (*failure == text->size() ? std::string("it ends")
                                      : "stands " + shown_byte(static_cast<unsigned char>((*text)[*failure])))
         << "; allowed there: " << allowed_after(machine, before) << ".\n";
  return kExitNotAccepted;
}

int run_check(Invocation& invocation) {
  Io& io = invocation.io;
  if (invocation.arguments.empty()) {
    io.err << "error: barg grammar check needs a FILE.\n";
    return kExitUsage;
  }
  const std::string kind = invocation.get("--kind", "schema");
  if (kind != "schema" && kind != "regex" && kind != "gbnf") {
    io.err << "error: --kind is schema, regex or gbnf.\n";
    return kExitUsage;
  }
  const auto refused = [&](const Error& error) {
    io.err << "error: " << error.message << "\n";
    return kExitRefused;
  };
  const Result<std::string> file = read_file(invocation.arguments[0], kMaxFileBytes);
  if (!file) return refused(file.error());
  Result<grammar::Grammar> made = kind == "schema"  ? schema_grammar(invocation, *file)
                                  : kind == "regex" ? regex_grammar(invocation, *file)
                                                    : gbnf_grammar(invocation, *file);
  if (!made) return refused(made.error());
  auto machine = grammar::Machine::compile(std::move(*made));
  if (!machine) return refused(machine.error());
  return invocation.has("--text") ? check_text(invocation, **machine) : kExitOk;
}

constexpr const Command* kSubcommands[] = {&kGrammarCheckCommand};

}  // namespace

const Command kGrammarCheckCommand{
    .name = "grammar check",
    .summary = "whether a schema, regular expression or grammar can be enforced, and whether a text is of it",
    .arguments = "FILE",
    .max_arguments = 1,
    .flags = kCheckFlags,
    .run = run_check,
    .details =
        "Exit code 0: it can be enforced, and the text is accepted; 1: it is refused, stderr says where and why;\n"
        "2: the text is not accepted, stderr says where it fails first and what would have been allowed there.\n"
        "A line feed at the end of the text does not count. Rules: docs/structured-output.md."};

const Command kGrammarCommand{.name = "grammar",
                              .summary = "check schemas, regular expressions and grammars of structured output",
                              .arguments = "check",
                              .details =
                                  "barg grammar check schema.json\n"
                                  "echo '{\"a\": 1}' | barg grammar check schema.json --text -\n"
                                  "barg grammar check pattern.txt --kind regex",
                              .subcommands = kSubcommands};

}  // namespace barg::cli
