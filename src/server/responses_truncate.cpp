#include "server/responses_truncate.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "server/prepare.h"
#include "server/protocols.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxGuesses = 8;
constexpr std::size_t kMarkupTokens = 64;    ///< a message's markers, generously
constexpr std::size_t kMostTokenBytes = 16;  ///< of any text worth reading: beyond it nothing need be counted
constexpr std::int64_t kAnswerShare =
    4;  ///< of the context where no max_output_tokens says how long it may be

std::size_t string_bytes(const Json& value) {
  std::size_t sum = 0;
  std::vector<const Json*> open = {&value};
  while (!open.empty()) {
    const Json* v = open.back();
    open.pop_back();
    if (v->is_string()) {
      sum += v->as_string().size();
    } else if (v->is_array()) {
      for (const Json& item : v->as_array()) open.push_back(&item);
    } else if (v->is_object()) {
      for (const auto& [key, member] : v->as_object()) {
        sum += key.size();
        open.push_back(&member);
      }
    } else {
      sum += 8;
    }
  }
  return sum;
}

bool has_role(const Json& message, std::string_view role) {
  const Json* r = message.find("role");
  return r && r->is_string() && r->as_string() == role;
}

bool is_system(const Json& m) { return has_role(m, "system") || has_role(m, "developer"); }

/// Removes the oldest messages of together at least `bytes`; returns how many.
std::size_t drop_oldest(Json::Array& messages, std::vector<std::size_t>& sizes, std::size_t bytes) {
  std::size_t freed = 0, kept = 0, at = 0;
  for (; at + 1 < messages.size(); ++at) {
    if (!is_system(messages[at])) {
      if (freed >= bytes && !has_role(messages[at], "tool")) break;
      freed += sizes[at];
      continue;
    }
    std::swap(messages[kept], messages[at]);
    std::swap(sizes[kept++], sizes[at]);
  }
  const auto first = static_cast<std::ptrdiff_t>(kept), last = static_cast<std::ptrdiff_t>(at);
  messages.erase(messages.begin() + first, messages.begin() + last);
  sizes.erase(sizes.begin() + first, sizes.begin() + last);
  return at - kept;
}

std::size_t sum(const std::vector<std::size_t>& sizes) {
  std::size_t total = 0;
  for (const std::size_t s : sizes) total += s;
  return total;
}

}  // namespace

std::size_t truncate_messages(ApiRequest& request, const ServedModel& model) {
  const std::int64_t length = model.engine->info().max_model_len;
  const std::int64_t answer = std::clamp<std::int64_t>(request.max_tokens.value_or(length / kAnswerShare), 1,
                                                       std::max<std::int64_t>(1, length / 2));
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(1, length - answer));
  Json::Array& messages = request.chat.messages.as_array();
  std::vector<std::size_t> sizes;
  for (const Json& message : messages) sizes.push_back(string_bytes(message) + kMarkupTokens);
  std::size_t fixed = 0;
  for (const ToolSpec& tool : request.output.tools.tools)
    fixed += string_bytes(tool.parameters) + tool.description.size() + tool.name.size() + kMarkupTokens;
  if (sum(sizes) + fixed <= room) return 0;

  std::size_t dropped = 0;
  if (sum(sizes) > room * kMostTokenBytes)
    dropped += drop_oldest(messages, sizes, sum(sizes) - room * kMostTokenBytes);
  for (std::size_t guess = 0; guess < kMaxGuesses; ++guess) {
    const auto prompt = render_prompt(model, kResponsesProtocol, request);
    if (!prompt || prompt->ids.size() <= room) break;  // what is wrong with it is said by whoever needs it
    const std::size_t excess = prompt->ids.size() - room;
    const double bytes_per_token =
        static_cast<double>(sum(sizes) + fixed) / static_cast<double>(prompt->ids.size());
    const auto bytes = static_cast<std::size_t>(static_cast<double>(excess) * bytes_per_token) + 1;
    const std::size_t now = drop_oldest(messages, sizes, bytes);
    if (now == 0) break;
    dropped += now;
  }
  return dropped;
}

}  // namespace barg::server
