#include "store/tier_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "base/mapped_file.h"
#include "store/redis_url.h"

namespace barg::store {
namespace {

constexpr std::size_t kMostSpecs = 64, kLongestSpec = 8192;
constexpr std::size_t kLongestPassword = 4096;

/// What is wrong with a value, as the end of a sentence, or nothing.
using Problem = std::optional<std::string>;

// ---- values

struct Unit {
  std::string_view suffix;
  double factor;
};
constexpr std::array<Unit, 6> kSizes{
    {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}, {"", 1}}};
constexpr std::array<Unit, 5> kTimes{{{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};

std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc{} || end != text.data() + digits || !std::isfinite(value)) return std::nullopt;
  for (const Unit& unit : units) {
    if (text.substr(digits) == unit.suffix) return value * unit.factor;
  }
  return std::nullopt;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 64)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 64 ? "...'" : "'");
}

Problem read_size(std::string_view text, std::uint64_t& out) {
  const auto bytes = quantity(text, kSizes);
  if (!bytes) return "must be a size as 512MiB or 2GiB, got " + quoted(text);
  if (*bytes < 1 || *bytes > 0x1p60) return "must be between 1 byte and 2^60, got " + quoted(text);
  out = static_cast<std::uint64_t>(*bytes);
  return std::nullopt;
}

Problem read_seconds(std::string_view text, double least, double& out) {
  const auto seconds = quantity(text, kTimes);
  if (!seconds) return "must be a time as 500ms, 30s, 5m, 1h or 7d, got " + quoted(text);
  if (*seconds < least || *seconds > 1e9) return "is too small or too large: " + quoted(text);
  out = *seconds;
  return std::nullopt;
}

/// "100GiB/day", "8MiB/s".
Problem read_rate(std::string_view text, std::string_view per, std::uint64_t& out) {
  if (!text.ends_with(per)) return "must be a size and " + std::string(per) + ", got " + quoted(text);
  return read_size(text.substr(0, text.size() - per.size()), out);
}

Problem read_text(std::string_view text, std::string& out) {
  if (text.empty() || text.find('\0') != std::string_view::npos) return "must not be empty";
  out = text;
  return std::nullopt;
}

Problem read_choice(std::string_view text, std::string_view no, std::string_view yes, bool& out) {
  if (text != no && text != yes) {
    return "must be " + std::string(no) + " or " + std::string(yes) + ", got " + quoted(text);
  }
  out = text == yes;
  return std::nullopt;
}

// ---- fields

struct Field {
  std::string_view name;
  bool required;
  Problem (*read)(std::string_view, TierSpec&);
};

Problem size(std::string_view t, TierSpec& s) { return read_size(t, s.size_bytes); }
Problem ttl(std::string_view t, TierSpec& s) { return read_seconds(t, 1, s.ttl_s); }
Problem budget(std::string_view t, TierSpec& s) { return read_rate(t, "/day", s.bytes_per_day); }
Problem admit(std::string_view t, TierSpec& s) { return read_choice(t, "reuse", "all", s.admit_all); }
Problem path(std::string_view t, TierSpec& s) { return read_text(t, s.disk.directory); }
Problem password_file(std::string_view t, TierSpec& s) { return read_text(t, s.password_file); }
Problem ca_file(std::string_view t, TierSpec& s) { return read_text(t, s.redis.ca_file); }
Problem cert_file(std::string_view t, TierSpec& s) { return read_text(t, s.redis.cert_file); }
Problem key_file(std::string_view t, TierSpec& s) { return read_text(t, s.redis.key_file); }
Problem tls_verify(std::string_view t, TierSpec& s) {
  return read_choice(t, "no", "yes", s.redis.tls_verify);
}
Problem op_timeout(std::string_view t, TierSpec& s) { return read_seconds(t, 0.001, s.redis.op_timeout_s); }

Problem connections(std::string_view t, TierSpec& s) {
  std::int32_t n = 0;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), n);
  if (error != std::errc{} || end != t.data() + t.size() || n < 1 || n > 64) {
    return "must be a whole number between 1 and 64, got " + quoted(t);
  }
  s.redis.connections = n;
  return std::nullopt;
}

Problem url(std::string_view t, TierSpec& s) {
  const auto parsed = parse_redis_url(t);
  if (!parsed) return "is no address of a server: " + parsed.error().message;
  s.redis.url = t;
  return std::nullopt;
}

Problem throttle(std::string_view t, TierSpec& s) {
  std::uint64_t bytes = 0;
  s.throttle = true;
  const Problem p = read_rate(t, "/s", bytes);
  s.throttle_bytes_per_s = static_cast<double>(bytes);
  return p;
}

Problem latency(std::string_view t, TierSpec& s) {
  s.throttle = true;
  return read_seconds(t, 0, s.throttle_latency_s);
}

constexpr Field kDramFields[] = {{"size", true, size}, {"ttl", false, ttl}};
constexpr Field kDiskFields[] = {{"path", true, path},       {"size", true, size},
                                 {"ttl", false, ttl},        {"budget", false, budget},
                                 {"admit", false, admit},    {"throttle", false, throttle},
                                 {"latency", false, latency}};
constexpr Field kRedisFields[] = {{"url", true, url},
                                  {"ttl", false, ttl},
                                  {"password_file", false, password_file},
                                  {"ca_file", false, ca_file},
                                  {"cert_file", false, cert_file},
                                  {"key_file", false, key_file},
                                  {"tls_verify", false, tls_verify},
                                  {"connections", false, connections},
                                  {"op_timeout", false, op_timeout},
                                  {"throttle", false, throttle},
                                  {"latency", false, latency}};

// ---- kinds

/// Percent-encoded, for the place of a password in a URL.
std::string encoded(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    if (std::isalnum(c) != 0) {
      out += ch;
    } else {
      out += {'%', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return out;
}

/// The URL with the password of the file, if one was given.
Result<std::string> redis_url(const TierSpec& spec) {
  if (spec.password_file.empty()) return spec.redis.url;
  auto text = read_file(spec.password_file, kLongestPassword);
  if (!text) return fail(ErrorCode::kInvalidValue, "field password_file: " + text.error().message);
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  if (text->empty())
    return fail(ErrorCode::kInvalidValue, "field password_file: " + spec.password_file + " is empty");
  const auto parsed = parse_redis_url(spec.redis.url);
  if (!parsed) return std::unexpected(parsed.error());
  if (!parsed->password.empty()) {
    return fail(ErrorCode::kInvalidValue,
                "field password_file: the URL has a password too; give one of them");
  }
  const std::size_t authority = spec.redis.url.find("://") + 3;
  const std::size_t at = spec.redis.url.find('@', authority);
  std::string out = spec.redis.url.substr(0, authority) + encoded(parsed->user) + ":" + encoded(*text) + "@";
  return out + spec.redis.url.substr(at == std::string::npos ? authority : at + 1);
}

Result<std::unique_ptr<Tier>> open_disk(const TierSpec& spec, const Domain& domain, const Clock& clock) {
  DiskOptions options = spec.disk;
  options.capacity_bytes = spec.size_bytes;
  options.ttl_s = spec.ttl_s;
  options.clock = &clock;
  return open_disk_tier(options, domain);
}

Result<std::unique_ptr<Tier>> open_redis(const TierSpec& spec, const Domain& domain, const Clock& clock) {
  RedisOptions options = spec.redis;
  auto full = redis_url(spec);
  if (!full) return std::unexpected(full.error());
  options.url = *full;
  options.ttl_s = spec.ttl_s;
  options.clock = &clock;
  return make_redis_tier(options, domain);
}

struct KindRow {
  std::string_view name;
  TierKind kind;
  std::span<const Field> fields;
  /// nullptr: the stack's own arena.
  Result<std::unique_ptr<Tier>> (*open)(const TierSpec&, const Domain&, const Clock&);
};
constexpr KindRow kKinds[] = {
    {"dram", TierKind::kDram, kDramFields, nullptr},
    {"disk", TierKind::kDisk, kDiskFields, open_disk},
    {"redis", TierKind::kRemote, kRedisFields, open_redis},
};

const KindRow* find_kind(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.name == name; });
  return row == std::end(kKinds) ? nullptr : row;
}

template <class Rows>
std::string names_of(const Rows& rows) {
  std::string out;
  for (const auto& row : rows) (out += out.empty() ? "" : ", ") += row.name;
  return out;
}

// ---- one spec

Result<TierSpec> parse_tier(std::string_view text) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidValue, std::move(what)); };
  if (text.size() > kLongestSpec) return wrong("is too long");
  const std::size_t colon = std::min(text.find(':'), text.size());
  const KindRow* kind = find_kind(text.substr(0, colon));
  if (kind == nullptr) {
    return wrong("must begin with a kind of tier and a colon, one of " + names_of(kKinds) + ", got " +
                 quoted(text.substr(0, colon)));
  }
  TierSpec spec;
  spec.kind = kind->kind;
  spec.name = kind->name;
  std::set<std::string_view> seen;
  for (std::string_view rest = text.substr(std::min(colon + 1, text.size())); !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const auto field = std::find_if(kind->fields.begin(), kind->fields.end(),
                                    [&](const Field& f) { return f.name == name; });
    if (field == kind->fields.end() || equals == item.size()) {
      return wrong("has an unknown field " + quoted(name) + "; a " + spec.name + " tier has " +
                   names_of(kind->fields) + ", each as field=value");
    }
    if (!seen.insert(field->name).second) return wrong("has the field " + std::string(name) + " twice");
    if (const Problem p = field->read(item.substr(equals + 1), spec)) {
      return wrong("field " + std::string(name) + " " + *p);
    }
  }
  for (const Field& f : kind->fields) {
    if (f.required && !seen.contains(f.name)) return wrong("needs the field " + std::string(f.name));
  }
  return spec;
}

std::string param(std::size_t i) { return "kv.tiers[" + std::to_string(i) + "]"; }

std::string identity(const TierSpec& spec) {
  if (spec.kind == TierKind::kDisk) {
    std::error_code ignored;
    const auto path = std::filesystem::weakly_canonical(spec.disk.directory, ignored);
    return "disk " + (ignored ? spec.disk.directory : path.string());
  }
  return spec.kind == TierKind::kRemote ? "redis " + spec.redis.url : "dram";
}

}  // namespace

Result<std::vector<TierSpec>> parse_tiers(std::span<const std::string> specs) {
  std::vector<TierSpec> out;
  std::set<std::string> seen;
  if (specs.size() > kMostSpecs)
    return fail(ErrorCode::kInvalidValue, "kv.tiers has too many tiers", "kv.tiers");
  for (std::size_t i = 0; i < specs.size(); ++i) {
    auto spec = parse_tier(specs[i]);
    if (!spec) return fail(ErrorCode::kInvalidValue, param(i) + " " + spec.error().message, param(i));
    if (!out.empty() && out.back().kind > spec->kind) {
      return fail(
          ErrorCode::kInvalidValue,
          param(i) + ": tiers go from near to far, so " + spec->name + " comes before " + out.back().name,
          param(i));
    }
    if (!seen.insert(identity(*spec)).second) {
      return fail(
          ErrorCode::kInvalidValue,
          param(i) + (spec->kind == TierKind::kDram ? ": there can be only one dram tier"
                                                    : ": this " + spec->name + " tier is there already"),
          param(i));
    }
    out.push_back(std::move(*spec));
  }
  return out;
}

Result<OpenedStack> open_stack(std::span<const std::string> texts, const Domain& domain, const Clock& clock) {
  auto specs = parse_tiers(texts);
  if (!specs) return std::unexpected(specs.error());
  OpenedStack out;
  StackOptions options;
  std::vector<std::unique_ptr<Tier>> tiers;
  if (!domain.part_bytes.empty() && !specs->empty()) {
    // Without DRAM everything passes through staging, so a few parts must fit however large they are.
    const auto largest = *std::max_element(domain.part_bytes.begin(), domain.part_bytes.end());
    if (largest <= std::uint64_t{1} << 36)
      options.staging_bytes = std::max(options.staging_bytes, 16 * (largest + 4096));
  }
  for (std::size_t i = 0; i < specs->size(); ++i) {
    const TierSpec& spec = (*specs)[i];
    out.throttles.emplace_back();
    if (spec.kind == TierKind::kDram) {
      if (!TierStack::fits(domain, spec.size_bytes)) {
        return fail(ErrorCode::kInvalidValue, param(i) + " field size is too small for four blocks",
                    param(i));
      }
      options.dram_bytes = spec.size_bytes;
      options.ttl_s[0] = spec.ttl_s;
      continue;
    }
    auto tier = find_kind(spec.name)->open(spec, domain, clock);
    if (!tier && tier.error().code == ErrorCode::kInvalidValue) {
      return fail(ErrorCode::kInvalidValue, param(i) + ": " + tier.error().message, param(i));
    }
    if (!tier) {
      out.warnings.push_back("the tier " + param(i) + " is not used: " + tier.error().message);
      continue;
    }
    if (spec.throttle) {
      out.throttles.back() = std::make_shared<ThrottleControl>();
      out.throttles.back()->bytes_per_s = spec.throttle_bytes_per_s;
      out.throttles.back()->latency_s = spec.throttle_latency_s;
      *tier = throttled(std::move(*tier), out.throttles.back(), clock);
    }
    options.disk_bytes_per_day += spec.bytes_per_day;
    options.disk_admit_all = options.disk_admit_all || spec.admit_all;
    tiers.push_back(std::move(*tier));
  }
  if (tiers.empty() && options.dram_bytes == 0) return out;
  if (!TierStack::fits(domain, options.dram_bytes != 0 ? options.dram_bytes : options.staging_bytes)) {
    return fail(ErrorCode::kUnsupported, "blocks of this model are too large for kv.tiers", "kv.tiers");
  }
  out.stack = std::make_unique<TierStack>(domain, std::move(tiers), std::move(options), clock);
  return out;
}

}  // namespace barg::store
