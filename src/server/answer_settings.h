// What of a server decides an answer, beside the request, the weights and the seeds: the model's defaults, its template
// and dialect, its lengths, the options of the server. A capsule says what they were (capture.h), and a replay what they
// are (replay.h). Nothing here is a secret. Pure functions, any thread.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "server/served_model.h"

namespace barg::server {

/// Options of the server that a replay takes over from the capsule.
struct ReplayedOptions {
  bool strip_volatile_lines = true;
  bool stores_responses = true;
};

/// An object of one level: null where a setting is not there.
Json answer_settings(const ServedModel& model, const ReplayedOptions& options);

/// The first member that is missing, unknown or of another type than answer_settings() makes it.
std::optional<std::string> wrong_setting(const Json& settings);
/// REQUIRES !wrong_setting(settings).
ReplayedOptions replayed_options(const Json& settings);

/// "temperature 0.6 then, null now; ..." for whatever differs; empty: nothing does.
std::string settings_difference(const Json& then, const Json& now);

}  // namespace barg::server
