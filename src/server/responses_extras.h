// What the parser of a Responses request leaves for the answer's writer and for whoever keeps the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/openai_json.h"
#include "server/responses_items.h"
#include "server/responses_store.h"

namespace barg::server {

struct ResponsesExtras final : ProtocolExtras {
  Json object = Json::object();  ///< members of the Response object that the request decides
  std::vector<NamespacedTool> spaces;
  bool seal = false;  ///< reasoning items carry encrypted_content
  bool background = false;
  std::string secret, owner;               ///< of the seal; who asked
  std::shared_ptr<StoredResponse> record;  ///< null: the answer is not stored
  ResponseStore* store = nullptr;          ///< of `record`; the ServerState keeps it
};

}  // namespace barg::server
