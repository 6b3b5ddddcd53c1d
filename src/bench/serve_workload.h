// What is sent: prompts by number, the same ones for the same options and seed on every machine. A workload is
// a list of conversations (of one turn, mostly); prompts are made when they are asked for, so a long run needs
// no memory for them. Immutable after creation; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "barg/result.h"
#include "bench/serve_options.h"

namespace barg::bench {

/// What one turn says.
struct ServePrompt {
  std::string text;      ///< as it stands between the quotes of a JSON string, or "1,2,3" for token ids
  int input_length = 0;  ///< tokens asked for; 0 where a file gave text
  int output_length = 0;
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual ServePrompt prompt(std::uint64_t conversation, int turn) const = 0;
  /// How many conversations there are; nothing = as many as wanted.
  virtual std::optional<std::uint64_t> size() const { return std::nullopt; }
  /// When conversation i arrives, seconds from the start; only a trace knows.
  virtual std::optional<double> arrival(std::uint64_t) const { return std::nullopt; }
  virtual int turns() const { return 1; }
};

/// Opens the files it needs. kInvalidValue, kNotFound or kBadFile with line number.
Result<std::unique_ptr<Workload>> make_workload(const ServeWorkload& options);

/// One message of a conversation so far, its text as between quotes.
struct ServeMessage {
  bool from_user = true;
  std::string text;
};

/// The JSON body of a request: the last message is the new prompt. Completions get the texts joined.
std::string request_body(const ServeBody& body, const std::vector<ServeMessage>& messages, bool token_ids,
                         int max_tokens);

/// Arrival times in seconds from the start, ascending: gaps from a gamma distribution of mean 1 / rate and
/// shape `burstiness` (1 = Poisson arrivals). Seeded: the same everywhere.
std::vector<double> arrivals(double rate, double burstiness, std::optional<std::int64_t> count,
                             std::optional<double> duration_s, std::uint64_t seed);

}  // namespace barg::bench
