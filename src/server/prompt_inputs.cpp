// What a body gives as texts or token ids: the prompts of Completions, the inputs of Embeddings.
#include <algorithm>

#include "server/request_rules.h"

namespace barg::server {
namespace {

bool all_items(const Json& list, auto predicate) {
  return std::all_of(list.as_array().begin(), list.as_array().end(), predicate);
}

std::vector<TokenId> read_ids(Fields& fields, const Json& list, const std::string& path, std::int32_t vocab) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& item : list.as_array()) {
    const auto id = whole_number(item);
    if (!id || *id < 0 || *id >= vocab) {
      const std::string at = path + "[" + std::to_string(ids.size()) + "]";
      fields.fail(ErrorCode::kInvalidValue, at + " must be a token id from 0 to " + std::to_string(vocab - 1),
                  at);
      return {};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace

std::vector<PromptInput> read_inputs(Fields& fields, const std::string& name, std::size_t most, std::int32_t vocab) {
  std::vector<PromptInput> out;
  const auto fail = [&](ErrorCode code, const std::string& message) {
    fields.fail(code, message, name);
    return std::vector<PromptInput>();
  };
  const auto invalid = [&](const std::string& what) { return fail(ErrorCode::kInvalidValue, name + what); };
  const Json* value = fields.get(name);
  if (!value) return fail(ErrorCode::kMissingParameter, name + " is missing");
  if (value->is_string()) {
    if (value->as_string().empty()) return invalid(" is empty");
    out.push_back({.text = value->as_string(), .ids = {}, .is_ids = false});
    return out;
  }
  if (!value->is_array()) return invalid(" must be a string, an array of strings, or token ids");
  if (value->size() == 0) return invalid(" is empty");
  if (all_items(*value, [](const Json& j) { return j.is_number(); })) {
    out.push_back({.text = {}, .ids = read_ids(fields, *value, name, vocab), .is_ids = true});
    return out;
  }
  if (value->size() > most) return invalid(" has more than " + std::to_string(most) + " items");
  const bool strings = all_items(*value, [](const Json& j) { return j.is_string(); });
  const bool lists = all_items(*value, [](const Json& j) { return j.is_array(); });
  if (!strings && !lists) return invalid(" mixes types; give strings, or token ids, or arrays of token ids");
  for (std::size_t i = 0; i < value->size() && fields.ok(); ++i) {
    const Json& item = value->as_array()[i];
    const std::string path = name + "[" + std::to_string(i) + "]";
    if (strings ? item.as_string().empty() : item.size() == 0) {
      fields.fail(ErrorCode::kInvalidValue, path + " is empty", path);
    } else if (strings) {
      out.push_back({.text = item.as_string(), .ids = {}, .is_ids = false});
    } else {
      out.push_back({.text = {}, .ids = read_ids(fields, item, path, vocab), .is_ids = true});
    }
  }
  return out;
}

}  // namespace barg::server
