// `barg cache ls|verify|gc`: the directory of a disk tier that no process uses.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <ostream>

#include "base/json.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/values.h"
#include "store/disk_admin.h"

namespace barg::cli {
namespace {

using store::StoppedStore;
using store::StoredSegment;

std::uint64_t age_of(std::uint64_t then) {
  const std::uint64_t now = store::system_unix_time();
  return now > then ? now - then : 0;
}

std::string show_age(std::uint64_t seconds) {
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  if (seconds < 172800) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " days";
}

/// Enough of a root's digits to name a domain.
std::string short_root(const std::string& root) { return root.substr(0, 12); }

/// The store named by the argument, or the exit code after its sentence.
std::expected<StoppedStore, int> open_store(Invocation& invocation) {
  if (invocation.arguments.empty()) {
    invocation.io.err << "error: which directory? Give the path of a disk tier.\n";
    return std::unexpected(kExitUsage);
  }
  auto opened = StoppedStore::open(invocation.arguments[0]);
  if (opened) return std::move(*opened);
  invocation.io.err << "error: " << opened.error().message << ".\n";
  return std::unexpected(exit_code_of(opened.error()));
}

struct DomainSum {
  std::string label;
  std::uint64_t segments = 0, bytes = 0, live_parts = 0, live_bytes = 0, used = 0;
};

std::map<std::string, DomainSum> sum_domains(const StoppedStore& store) {
  std::map<std::string, DomainSum> sums;
  for (const StoredSegment& s : store.segments()) {
    if (!s.problem.empty()) continue;
    DomainSum& sum = sums[hex(s.domain.root)];
    sum.label = s.domain.label;
    ++sum.segments;
    sum.bytes += s.bytes;
    sum.live_parts += s.live_parts;
    sum.live_bytes += s.live_bytes;
    sum.used = std::max(sum.used, s.used);
  }
  return sums;
}

Json segment_json(const StoredSegment& s) {
  if (!s.problem.empty()) {
    return Json::object({{"file", s.file}, {"bytes", s.bytes}, {"problem", s.problem}});
  }
  return Json::object({{"file", s.file},
                       {"bytes", s.bytes},
                       {"sealed", s.sealed},
                       {"domain", hex(s.domain.root)},
                       {"parts", s.records.size()},
                       {"live_parts", s.live_parts},
                       {"live_bytes", s.live_bytes},
                       {"created", s.created},
                       {"last_write", s.used}});
}

void print_json(const StoppedStore& store, std::ostream& out) {
  Json::Array segments, domains;
  std::uint64_t bytes = 0;
  for (const StoredSegment& s : store.segments()) {
    segments.push_back(segment_json(s));
    bytes += s.bytes;
  }
  for (const auto& [root, sum] : sum_domains(store)) {
    domains.push_back(Json::object({{"root", root},
                                    {"label", sum.label},
                                    {"segments", sum.segments},
                                    {"bytes", sum.bytes},
                                    {"live_parts", sum.live_parts},
                                    {"live_bytes", sum.live_bytes},
                                    {"last_write", sum.used}}));
  }
  out << dump_json(Json::object({{"bytes", bytes},
                                 {"domains", Json(std::move(domains))},
                                 {"segments", Json(std::move(segments))}}))
      << "\n";
}

int run_ls(Invocation& invocation) {
  const auto opened = open_store(invocation);
  if (!opened) return opened.error();
  std::ostream& out = invocation.io.out;
  if (invocation.has("--json")) {
    print_json(*opened, out);
    return kExitOk;
  }
  std::uint64_t bytes = 0;
  for (const StoredSegment& s : opened->segments()) bytes += s.bytes;
  out << opened->segments().size() << " segments, " << show_size(bytes) << "\n";
  for (const auto& [root, sum] : sum_domains(*opened)) {
    out << "domain " << short_root(root) << ": " << sum.label << "\n"
        << "  " << sum.segments << " segments, " << show_size(sum.bytes) << ", " << sum.live_parts
        << " live parts (" << show_size(sum.live_bytes) << "), last write " << show_age(age_of(sum.used))
        << " ago\n";
  }
  for (const StoredSegment& s : opened->segments()) {
    out << s.file << ": " << show_size(s.bytes);
    if (!s.problem.empty()) {
      out << ", cannot be read: " << s.problem << "\n";
      continue;
    }
    out << ", domain " << short_root(hex(s.domain.root)) << ", " << s.live_parts << " of " << s.records.size()
        << " parts live, " << show_age(age_of(s.created)) << " old" << (s.sealed ? "" : ", not sealed")
        << "\n";
  }
  return kExitOk;
}

int run_verify(Invocation& invocation) {
  const auto opened = open_store(invocation);
  if (!opened) return opened.error();
  Io& io = invocation.io;
  std::uint64_t parts = 0, bytes = 0, bad = 0, torn = 0;
  bool failed = false;
  for (const StoredSegment& s : opened->segments()) {
    if (!s.problem.empty()) {
      io.out << s.file << ": " << s.problem << "\n";
      failed = failed || !s.foreign_version;
      continue;
    }
    const store::VerifiedSegment v = opened->verify(s);
    parts += v.parts;
    bytes += v.bytes;
    bad += v.bad;
    torn += v.torn;
    if (v.bad > 0) io.out << s.file << ": " << v.bad << " of " << v.parts << " parts are damaged\n";
    if (v.torn > 0) io.out << s.file << ": " << v.torn << " parts were cut short when their writer died\n";
    if (!v.io_error.empty()) io.out << s.file << ": " << v.io_error << "\n";
    failed = failed || v.bad > 0 || !v.io_error.empty();
    if (io.err_is_terminal) io.err << "\r" << show_size(bytes) << " read" << std::flush;
  }
  if (io.err_is_terminal) io.err << "\r\033[K";
  io.out << opened->segments().size() << " segments, " << parts << " parts, " << show_size(bytes) << ": "
         << bad << " damaged\n";
  return failed ? kExitFailure : kExitOk;
}

/// What `gc` was told to drop.
struct Wish {
  std::uint64_t max_bytes = UINT64_MAX;
  double older_than = INFINITY;
  std::string domain;  ///< drop it; a prefix of a root
  std::string keep;    ///< drop all others
  bool dry = false;

  /// Why this segment goes, whatever the size; nullptr: it may stay.
  const char* reason(const StoredSegment& s) const {
    if (!s.problem.empty() && !s.foreign_version) return "cannot be read";
    const std::string root = s.problem.empty() ? hex(s.domain.root) : "";
    if (!keep.empty() && !root.starts_with(keep)) return "is of another domain";
    if (s.foreign_version) return nullptr;
    if (!domain.empty() && root.starts_with(domain)) return "is of that domain";
    return static_cast<double>(age_of(s.used)) > older_than ? "is too old" : nullptr;
  }
};

std::expected<Wish, std::string> read_wish(const Invocation& invocation) {
  Wish wish{.domain = invocation.get("--domain"),
            .keep = invocation.get("--foreign"),
            .dry = invocation.has("--dry-run")};
  for (const std::string* root : {&wish.domain, &wish.keep}) {
    if (root->find_first_not_of("0123456789abcdef") == std::string::npos) continue;
    return std::unexpected(
        "--domain and --foreign expect the first digits of a root as `barg cache ls` shows it");
  }
  if (invocation.has("--max-size")) {
    const auto size = read_size(invocation.get("--max-size"));
    if (!size || *size > 0x1p60) return std::unexpected("--max-size expects a size as 10GiB");
    wish.max_bytes = static_cast<std::uint64_t>(*size);
  }
  if (invocation.has("--older-than")) {
    const auto seconds = read_seconds(invocation.get("--older-than"));
    if (!seconds) return std::unexpected("--older-than expects a time as 30m or 48h");
    wish.older_than = *seconds;
  }
  return wish;
}

int run_gc(Invocation& invocation) {
  Io& io = invocation.io;
  const auto wish = read_wish(invocation);
  if (!wish) {
    io.err << "error: " << wish.error() << ".\n";
    return kExitUsage;
  }
  auto opened = open_store(invocation);
  if (!opened) return opened.error();
  std::uint64_t left = 0, freed = 0;
  std::size_t dropped = 0;
  for (const StoredSegment& s : opened->segments()) left += s.bytes;
  bool failed = false;
  const auto drop = [&](const StoredSegment& s, const char* why) {
    const int error = wish->dry ? 0 : opened->remove(s);
    if (error != 0) {
      io.err << "error: cannot remove " << s.file << ": " << std::strerror(-error) << ".\n";
      failed = true;
      return;
    }
    io.out << (wish->dry ? "would drop " : "dropped ") << s.file << " (" << show_size(s.bytes) << "): it "
           << why << "\n";
    left -= s.bytes;
    freed += s.bytes;
    ++dropped;
  };
  // The oldest last write first: what it holds was used least recently, as far as a stopped store tells.
  const std::vector<StoredSegment> all = opened->segments();
  std::vector<const StoredSegment*> kept;
  for (const StoredSegment& s : all) {
    if (const char* why = wish->reason(s))
      drop(s, why);
    else
      kept.push_back(&s);
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const StoredSegment* a, const StoredSegment* b) { return a->used < b->used; });
  for (const StoredSegment* s : kept) {
    if (left <= wish->max_bytes) break;
    drop(*s, "is over the size");
  }
  io.out << dropped << " segments " << (wish->dry ? "would be " : "") << "dropped, " << show_size(freed)
         << "; " << show_size(left) << " left\n";
  return failed ? kExitFailure : kExitOk;
}

constexpr CommandFlag kLsFlags[] = {{"--json", "", "One JSON object instead of lines."}};
constexpr CommandFlag kGcFlags[] = {
    {"--max-size", "SIZE", "Drop segments, oldest first, until the directory takes at most SIZE (10GiB)."},
    {"--older-than", "TIME", "Drop segments whose last write is longer ago than TIME (48h)."},
    {"--domain", "ROOT", "Drop all segments of this domain: its first digits as `ls` shows them."},
    {"--foreign", "ROOT", "Drop all segments of every other domain and format version."},
    {"--dry-run", "", "Only say what would be dropped."},
};

constexpr const Command* kSubcommands[] = {&kCacheLsCommand, &kCacheVerifyCommand, &kCacheGcCommand};

}  // namespace

const Command kCacheLsCommand{.name = "cache ls",
                              .summary = "segments and domains of a disk tier's directory",
                              .arguments = "DIR",
                              .max_arguments = 1,
                              .flags = kLsFlags,
                              .run = run_ls,
                              .details =
                                  "A domain is one model with one way to compute and store its KV. Refuses "
                                  "(69) while a process uses DIR."};

const Command kCacheVerifyCommand{
    .name = "cache verify",
    .summary = "read every stored block of a disk tier's directory and check it",
    .arguments = "DIR",
    .max_arguments = 1,
    .run = run_verify,
    .details =
        "Exit code 1 if anything is damaged. Damaged blocks are never served in any case: they are\n"
        "recomputed. Refuses (69) while a process uses DIR."};

const Command kCacheGcCommand{
    .name = "cache gc",
    .summary = "drop segments of a disk tier's directory",
    .arguments = "DIR",
    .max_arguments = 1,
    .flags = kGcFlags,
    .run = run_gc,
    .details =
        "Drops whole segments, and always those that cannot be read. Refuses (69) while a process uses DIR."};

const Command kCacheCommand{
    .name = "cache",
    .summary = "look at, check or shrink the directory of a disk tier",
    .arguments = "ls|verify|gc",
    .details =
        "barg cache ls DIR                 what is in it, by domain and segment\n"
        "barg cache verify DIR             reads and checks everything\n"
        "barg cache gc DIR --max-size 10GiB\n"
        "\nThe directory must not be in use: `path` of a `disk` tier of a stopped server.",
    .subcommands = kSubcommands};

}  // namespace barg::cli
