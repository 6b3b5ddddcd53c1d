// replay: a capsule (capture.h) is computed again by a model, and its answer compared byte for byte.
//
// The request is prepared as the server did it, at the captured time (and time of day there), with the captured seeds
// and options of the server; the tokens that the engine gives are cut into the steps in which they came then, and written
// by the same protocol. So a difference is one of the model, its numerics, its template or this program: the report says
// where it begins, and what of the recorded settings is another now. What the cache served then is taken from the
// capsule: it is in the answer, and changes no other byte. A refusal is compared with what the request is refused with.
//
// A capsule has no secret, so what is made with one cannot be made again: of signatures of thinking blocks and of sealed
// reasoning only the length is compared, and the report says so. What they are made from is in the answer, or is the
// tokens, which are compared.
//
// Not replayable: an answer that refers to another (previous_response_id, item_reference) or that read sealed reasoning;
// one that failed in the middle; a truncated capsule.
#pragma once

#include <string>

#include "barg/result.h"
#include "base/json.h"
#include "server/served_model.h"

namespace barg::server {

struct ReplayReport {
  bool same = false;
  std::int64_t tokens = 0;  ///< computed again
  std::string answer;       ///< as computed now
  std::string difference;   ///< one sentence; empty when same
  std::string note;         ///< what of build, model and settings is not as it was; need not matter
  bool seals = false;       ///< same but for the bytes of signatures or seals
};

/// Is it one that replay() can compare with? Needs no model.
/// Errors: kInvalidValue names the member for what is no capsule, and says why there is nothing to compare.
Result<void> check_capsule(const Json& capsule);

/// `build`: this program's version and revision. Blocks until the engine has answered.
/// Errors: those of check_capsule(); whatever the request is refused with now and was not then.
Result<ReplayReport> replay(ServedModel model, const Json& capsule, const std::string& build);

}  // namespace barg::server
