#include "bench/serve_workload.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/env.h"
#include "base/json.h"
#include "bench/serve_words.h"
#include "bench/trace_file.h"

namespace barg::bench {
namespace {

// Independent streams of random numbers: what a prompt says does not depend on which others were made.
Rng stream(std::uint64_t seed, std::uint64_t kind, std::uint64_t index) {
  Rng mix(seed * 0x9E3779B97F4A7C15ULL + kind);
  return Rng(mix.next() ^ (index * 0xD1B54A32D192ED03ULL));
}

enum StreamKind : std::uint64_t { kOwn = 1, kShared = 2, kBlock = 3, kLengths = 4, kArrivals = 5 };

// Writes prompts of a length in tokens: as common words (one token each in the usual vocabularies) or as ids.
class Writer {
 public:
  explicit Writer(const ServeWorkload& options) : ids_(options.token_ids) {
    // The low ids are bytes and control tokens in most vocabularies.
    low_ = std::min(512, options.vocabulary / 2);
    range_ = static_cast<std::uint64_t>(options.vocabulary - low_);
  }

  void append(std::string& out, Rng rng, int tokens) const {
    for (int i = 0; i < tokens; ++i) {
      if (!out.empty()) out += ids_ ? ',' : ' ';
      if (ids_) {
        out += std::to_string(low_ + static_cast<int>(rng.below(range_)));
      } else {
        out += kCommonWords[rng.below(std::size(kCommonWords))];
      }
    }
  }

 private:
  bool ids_;
  int low_;
  std::uint64_t range_;
};

class SyntheticWorkload final : public Workload {
 public:
  explicit SyntheticWorkload(const ServeWorkload& options) : options_(options), writer_(options) {}

  ServePrompt prompt(std::uint64_t conversation, int turn) const override {
    const std::uint64_t index = conversation * static_cast<std::uint64_t>(options_.turns) +
                                static_cast<std::uint64_t>(turn);
    Rng lengths = stream(options_.seed, kLengths, index);
    ServePrompt out;
    const int own = spread(options_.input_length, lengths);
    out.output_length = spread(options_.output_length, lengths);
    out.input_length = own;
    if (options_.shared_prefix_length > 0 && turn == 0) {
      const std::uint64_t prefix = lengths.below(static_cast<std::uint64_t>(options_.prefixes));
      writer_.append(out.text, stream(options_.seed, kShared, prefix), options_.shared_prefix_length);
      out.input_length += options_.shared_prefix_length;
    }
    writer_.append(out.text, stream(options_.seed, kOwn, index), own);
    return out;
  }
  int turns() const override { return options_.turns; }

 private:
  int spread(int length, Rng& rng) const {
    const double factor = 1 + options_.length_spread * (2 * rng.uniform() - 1);
    return std::max(1, static_cast<int>(std::lround(length * factor)));
  }

  ServeWorkload options_;
  Writer writer_;
};

// Equal hash ids become equal text, so a prefix cache meets what it met when the trace was taken.
class TraceWorkload final : public Workload {
 public:
  TraceWorkload(const ServeWorkload& options, std::vector<TraceRow> rows)
      : options_(options), writer_(options), rows_(std::move(rows)) {}

  ServePrompt prompt(std::uint64_t conversation, int) const override {
    const TraceRow& row = rows_[conversation];
    ServePrompt out;
    out.input_length = scaled(row.input_length);
    out.output_length = scaled(row.output_length);
    const int block = scaled(kTraceBlock);
    int left = out.input_length;
    for (const std::uint64_t id : row.blocks) {
      writer_.append(out.text, stream(options_.seed, kBlock, id), std::min(left, block));
      left -= std::min(left, block);
    }
    writer_.append(out.text, stream(options_.seed, kOwn, conversation), left);
    return out;
  }
  std::optional<std::uint64_t> size() const override { return rows_.size(); }
  std::optional<double> arrival(std::uint64_t i) const override {
    return std::min((rows_[i].at_s - rows_[0].at_s) / options_.trace_speed, kLatest);
  }

 private:
  static constexpr double kLatest = 1e9;  // thirty years: as nanoseconds still a 64-bit number

  int scaled(int length) const {
    return std::max(1, static_cast<int>(std::lround(length * options_.trace_scale)));
  }

  ServeWorkload options_;
  Writer writer_;
  std::vector<TraceRow> rows_;
};

class FileWorkload final : public Workload {
 public:
  explicit FileWorkload(std::vector<ServePrompt> prompts) : prompts_(std::move(prompts)) {}
  ServePrompt prompt(std::uint64_t conversation, int) const override { return prompts_[conversation]; }
  std::optional<std::uint64_t> size() const override { return prompts_.size(); }

 private:
  std::vector<ServePrompt> prompts_;
};

Result<std::unique_ptr<Workload>> open_trace(const ServeWorkload& options) {
  Result<std::vector<TraceRow>> rows = read_trace(options.trace_file);
  if (!rows) return std::unexpected(rows.error());
  return std::make_unique<TraceWorkload>(options, std::move(*rows));
}

Result<std::unique_ptr<Workload>> open_prompts(const ServeWorkload& options) {
  std::vector<ServePrompt> prompts;
  const Result<void> read = read_rows(options.prompts_file, [&](const Json& json) -> std::string {
    const Json* prompt = json.find("prompt");
    if (prompt == nullptr || !prompt->is_string()) return "\"prompt\" must be a text.";
    ServePrompt out;
    out.text = json_quote(prompt->as_string());
    out.text = out.text.substr(1, out.text.size() - 2);
    out.output_length = json.find("max_tokens") == nullptr ? options.output_length : whole_member(json, "max_tokens", 1);
    if (out.output_length < 0) return "\"max_tokens\" must be a whole number of at least 1.";
    prompts.push_back(std::move(out));
    return {};
  });
  if (!read) return std::unexpected(read.error());
  if (prompts.empty()) return fail(ErrorCode::kBadFile, options.prompts_file + " has no prompts.");
  return std::make_unique<FileWorkload>(std::move(prompts));
}

// Marsaglia and Tsang; below shape 1 by the usual boost.
double gamma_sample(Rng& rng, double shape) {
  if (shape < 1) return gamma_sample(rng, shape + 1) * std::pow(1 - rng.uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double normal = std::sqrt(-2 * std::log(1 - rng.uniform())) *
                          std::cos(2 * std::numbers::pi * rng.uniform());
    const double v = std::pow(1 + c * normal, 3);
    if (v > 0 && std::log(1 - rng.uniform()) < normal * normal / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace

Result<std::unique_ptr<Workload>> make_workload(const ServeWorkload& options) {
  if (!options.trace_file.empty()) return open_trace(options);
  if (!options.prompts_file.empty()) return open_prompts(options);
  return std::make_unique<SyntheticWorkload>(options);
}

std::string request_body(const ServeBody& body, const std::vector<ServeMessage>& messages, bool token_ids,
                         int max_tokens) {
  std::string out = "{\"model\":" + json_quote(body.model);
  if (body.api == ServeApi::kChat) {
    out += ",\"messages\":[";
    for (std::size_t i = 0; i < messages.size(); ++i) {
      out += i == 0 ? "{\"role\":\"" : ",{\"role\":\"";
      out += messages[i].from_user ? "user" : "assistant";
      out += "\",\"content\":\"" + messages[i].text + "\"}";
    }
    out += ']';
  } else {
    out += token_ids ? ",\"prompt\":[" : ",\"prompt\":\"";
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (i > 0) out += token_ids ? "," : (messages[i].from_user ? "\\n\\n" : "\\n");
      out += messages[i].text;
    }
    out += token_ids ? ']' : '"';
  }
  out += ",\"max_tokens\":" + std::to_string(max_tokens) + ",\"stream\":true";
  const auto add = [&](const char* key, const std::string& value) {
    if (std::find(body.extra_keys.begin(), body.extra_keys.end(), key) == body.extra_keys.end())
      out += std::string(",\"") + key + "\":" + value;
  };
  add("stream_options", "{\"include_usage\":true}");
  add("temperature", dump_json(Json(body.temperature)));
  if (body.ignore_eos) add("ignore_eos", "true");
  if (body.seed) add("seed", std::to_string(*body.seed));
  if (!body.extra_members.empty()) out += "," + body.extra_members;
  return out + "}";
}

std::vector<double> arrivals(double rate, double burstiness, std::optional<std::int64_t> count,
                             std::optional<double> duration_s, std::uint64_t seed) {
  Rng rng = stream(seed, kArrivals, 0);
  std::vector<double> out;
  double at = 0;
  while ((!count || static_cast<std::int64_t>(out.size()) < *count) && out.size() < 10'000'000) {
    if (duration_s && at > *duration_s) break;
    out.push_back(at);  // the first request opens the run
    at += gamma_sample(rng, burstiness) / (burstiness * rate);
  }
  return out;
}

}  // namespace barg::bench
