#include "server/messages_handlers.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/handlers.h"
#include "server/messages_error.h"
#include "server/messages_request.h"
#include "server/prepare.h"
#include "server/protocols.h"

namespace barg::server {
namespace {

constexpr std::size_t kPage = 20, kMaxPage = 1000;  // as in the protocol

struct Counted {
  std::int64_t tokens = 0;
  std::vector<std::string> ignored;
};

Result<Counted> count(const ServerState& state, std::string_view body) {
  const auto json = parse_json(body);
  if (!json) return std::unexpected(json.error());
  const auto model = find_model(state, *json);
  if (!model) return std::unexpected(model.error());
  MessagesContext context = messages_context(state, **model);
  context.counting = true;
  auto request = parse_messages_request(*json, context);
  if (!request) return std::unexpected(request.error());
  const auto prompt = render_prompt(**model, kMessagesProtocol, *request);
  if (!prompt) return std::unexpected(prompt.error());
  return Counted{.tokens = static_cast<std::int64_t>(prompt->ids.size()), .ignored = std::move(request->ignored)};
}

HttpResponse counted_response(const ServerState& state, std::string_view body) {
  const auto counted = count(state, body);
  if (!counted) return messages_error(counted.error());
  HttpResponse response = json_response(Json::object({{"input_tokens", counted->tokens}}));
  if (!counted->ignored.empty()) response.headers.emplace_back("x-barg-ignored", ignored_header(counted->ignored));
  return response;
}

std::string rfc3339(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, n};
}

Json model_json(const ServedModel& model, const std::string& name) {
  const std::int32_t length = model.engine->info().max_model_len;
  return Json::object({{"type", "model"},
                       {"id", name},
                       {"display_name", name},
                       {"created_at", rfc3339(model.created)},
                       {"lifecycle", "active"},
                       {"max_input_tokens", length},
                       {"max_tokens", length}});
}

struct Page {
  std::size_t limit = kPage;
  std::optional<std::string> after, before;
};

Result<Page> read_page(const HttpRequest& request) {
  Page page;
  page.after = query_value(request.target, "after_id");
  page.before = query_value(request.target, "before_id");
  const auto limit = query_value(request.target, "limit");
  if (!limit) return page;
  const auto [end, ec] = std::from_chars(limit->data(), limit->data() + limit->size(), page.limit);
  if (ec == std::errc() && end == limit->data() + limit->size() && page.limit >= 1 && page.limit <= kMaxPage)
    return page;
  return fail(ErrorCode::kInvalidValue, "limit must be a whole number from 1 to " + std::to_string(kMaxPage), "limit");
}

}  // namespace

void count_message_tokens(const std::shared_ptr<ServerState>& state, HttpRequest request,
                          std::shared_ptr<Responder> responder) {
  answer_on_text_pool(
      state, responder, [state, body = std::move(request.body)] { return counted_response(*state, body); }, messages_error);
}

void list_message_models(const std::shared_ptr<ServerState>& state, HttpRequest request,
                         std::shared_ptr<Responder> responder) {
  const auto page = read_page(request);
  if (!page) return responder->respond(messages_error(page.error()));
  std::vector<std::pair<const ServedModel*, const std::string*>> all;
  for (const ServedModel& model : state->models) {
    for (const std::string& name : model.names) all.emplace_back(&model, &name);
  }
  const auto place = [&](const std::optional<std::string>& id) {
    return std::find_if(all.begin(), all.end(), [&](const auto& m) { return id && *m.second == *id; });
  };
  auto begin = all.begin(), end = place(page->before);
  if (const auto after = place(page->after); after != all.end()) begin = after + 1;
  if (begin > end) begin = end;
  const auto left = static_cast<std::size_t>(end - begin);
  if (page->before && end != all.end() && left > page->limit) begin = end - static_cast<std::ptrdiff_t>(page->limit);
  end = begin + static_cast<std::ptrdiff_t>(std::min(left, page->limit));
  Json::Array data;
  for (auto it = begin; it != end; ++it) data.push_back(model_json(*it->first, *it->second));
  const Json first = data.empty() ? Json() : *data.front().find("id"), last = data.empty() ? Json() : *data.back().find("id");
  responder->respond(json_response(Json::object({{"data", Json(std::move(data))},
                                                 {"has_more", left > page->limit},
                                                 {"first_id", first},
                                                 {"last_id", last}})));
}

HttpResponse one_message_model(const ServerState& state, std::string_view name) {
  if (const ServedModel* model = state.find(name)) return json_response(model_json(*model, std::string(name)));
  return messages_error({ErrorCode::kNotFound, "the model does not exist", "model", 0});
}

}  // namespace barg::server
