// replay: a capsule (capture.h) is computed again by a model, and its answer compared byte for byte.
//
// The request is prepared as the server does it, at the captured time and with the captured seeds; the tokens that the
// engine gives are cut into the steps in which they came then, and written by the same protocol. So a difference is one
// of the model, its numerics, its template or this program, and the report says where it begins. What the cache served
// then is taken from the capsule: it is in the answer, and changes no other byte.
//
// Not replayable: an answer that refers to another (previous_response_id, item_reference), and one with encrypted
// reasoning (its nonce is random).
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
  std::string note;         ///< what differs and need not matter: another build, another digest
};

/// `build`: this program's version and revision. Blocks until the engine has answered.
/// Errors: kInvalidValue for what is no capsule; whatever the request is refused with.
Result<ReplayReport> replay(ServedModel model, const Json& capsule, const std::string& build);

}  // namespace barg::server
