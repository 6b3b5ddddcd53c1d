// The conversation of a Messages request, blocks of many types, in the form that chat templates read: messages with
// a role, a text, reasoning and tool calls.
//
//   system (text or blocks)         -> one system message in front
//   roles assistant; system, developer; every other one (user, ctx, msg, ...) is the user's
//   text, document, search_result, tool_reference -> text, blocks joined by line ends
//   tool_use -> tool_calls          tool_result -> a message of role tool, in front of the turn's text
//   thinking -> reasoning_content   redacted_thinking, server tools' blocks, unknown blocks without text -> left out
//   neighbours of one role          -> one message
//
// What was left out or changed is named in `ignored`; images and whatever else the model cannot read are
// kUnsupported. Texts are never changed but for volatile lines of system text (messages_volatile.h) and for a failed
// tool's result that does not say so itself, which gets "Error: " in front.
//
// Pure, any thread. Time and memory are linear in the input; nesting is bounded by the JSON parser.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"

namespace barg::server {

struct ContentOptions {
  bool strip_volatile = true;
  std::string_view thought_key;  ///< of messages_ids.h: thoughts that came back changed are named
};

/// Fields without effect, in the protocol's own way ("messages.2.content.0"); at most kMaxIgnored are kept.
class IgnoredFields {
 public:
  static constexpr std::size_t kMaxIgnored = 64;
  void add(std::string name) {
    if (names_.size() < kMaxIgnored) names_.push_back(std::move(name));
  }
  std::vector<std::string>& names() { return names_; }

 private:
  std::vector<std::string> names_;
};

/// cache_control of whatever carries one: how long its prefix shall stay cached. Longest wins.
void read_cache_control(const Json& holder, const std::string& path, double& pin_s, IgnoredFields& ignored);

struct Conversation {
  Json messages = Json::array();  ///< at least one
  bool continues = false;         ///< the last message is the beginning of the answer
  double cache_pin_s = 0;
};

inline constexpr std::size_t kMaxTurns = 100'000;

/// `system` may be null. REQUIRES that `messages` is an array.
Result<Conversation> read_conversation(const Json* system, const Json& messages, const ContentOptions& options,
                                       IgnoredFields& ignored);

}  // namespace barg::server
