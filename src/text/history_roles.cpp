#include "text/history_roles.h"

#include <algorithm>
#include <string>
#include <vector>

#include "text/chat_messages.h"

namespace barg::text {

namespace {

bool is_system(const Json& m) {
  const std::string& role = m.find("role")->as_string();
  return role == "system" || role == "developer";
}

bool mergeable(const Json& a, const Json& b) {
  const std::string& role = a.find("role")->as_string();
  if (role != b.find("role")->as_string()) return false;
  if (role == "user") return true;
  return role == "assistant" && a.find("tool_calls") == nullptr && b.find("tool_calls") == nullptr;
}

using Group = std::vector<const Json*>;

// The first message of the group, saying what all of them say.
Json joined(const Group& group) {
  if (group.size() == 1) return *group[0];
  Json out = *group[0];
  for (const char* key : {"content", "reasoning_content"}) {
    std::vector<const Json*> texts;
    for (const Json* m : group) texts.push_back(m->find(key));
    Json all = join_contents(texts);
    if (!all.is_null()) out.set(key, std::move(all));
  }
  return out;
}

}  // namespace

Json merge_system_messages(const Json& messages) {
  Group group;
  const auto& list = messages.as_array();
  for (const Json& m : list) {
    if (is_system(m)) group.push_back(&m);
  }
  if (group.empty() || (group.size() == 1 && group[0] == &list[0])) return Json();
  Json out = Json::array();
  out.push(joined(group));
  for (const Json& m : list) {
    if (!is_system(m)) out.push(m);
  }
  return out;
}

Json system_to_user(const Json& messages) {
  if (messages.size() == 0 || !is_system(messages.as_array()[0])) return Json();
  const auto& list = messages.as_array();
  const auto user = std::find_if(list.begin(), list.end(),
                                 [](const Json& m) { return m.find("role")->as_string() == "user"; });
  Json out = Json::array();
  Json told = user == list.end() ? Json::object({{"role", "user"}}) : *user;
  told.set("content", join_contents({list[0].find("content"), user == list.end() ? nullptr : user->find("content")}));
  if (user == list.end()) out.push(told);
  for (auto m = list.begin() + 1; m != list.end(); ++m) out.push(m == user ? told : *m);
  return out;
}

Json merge_neighbours(const Json& messages) {
  const auto& list = messages.as_array();
  Json out = Json::array();
  for (std::size_t i = 0; i < list.size();) {
    Group group = {&list[i++]};
    while (i < list.size() && mergeable(*group[0], list[i])) group.push_back(&list[i++]);
    out.push(joined(group));
  }
  return out.size() < list.size() ? out : Json();
}

}  // namespace barg::text
