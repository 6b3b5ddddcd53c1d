#include "server/responses_routes.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/generation.h"
#include "server/handlers.h"
#include "server/prepare.h"
#include "server/protocols.h"
#include "server/responses_answer.h"
#include "server/responses_ids.h"
#include "server/responses_request.h"
#include "server/responses_store.h"
#include "server/routes.h"

namespace barg::server {
namespace {

using State = std::shared_ptr<ServerState>;
using Answerer = std::shared_ptr<Responder>;

constexpr ErrorShape kMissing = {404, "invalid_request_error", "response_not_found"};
constexpr ErrorShape kInvalid = {400, "invalid_request_error", "invalid_value"};
constexpr std::size_t kShownId = 64;
constexpr std::int64_t kDefaultItems = 20, kMostItems = 100;

void answer(const Answerer& responder, std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  responder->respond(std::move(response));
}

/// The {id} of the path: what stands between "responses/" and the next slash.
std::string path_id(const HttpRequest& request) {
  constexpr std::string_view kFolder = "responses/";
  std::string_view path = request.path;
  path.remove_prefix(std::min(path.size(), path.find(kFolder) + kFolder.size()));
  return percent_decode(path.substr(0, path.find('/'))).value_or("");
}

/// The stored response of the path; nullptr: the client has been told that there is none.
std::shared_ptr<StoredResponse> stored(const State& state, const HttpRequest& request,
                                       const Answerer& responder) {
  const std::string id = path_id(request);
  auto found = state->responses->find(id, key_owner(asking_key(*state, request)));
  if (!found) {
    responder->respond(
        error_response(kMissing,
                       "Response with id " + json_quote(id.substr(0, kShownId)) + " not found." +
                           (state->responses->enabled() ? "" : " This server stores no responses."),
                       "id"));
  }
  return found;
}

bool is_true(const std::optional<std::string>& value) { return value == "true" || value == "1"; }

std::optional<std::int64_t> whole(const std::string& text, std::int64_t min, std::int64_t max) {
  std::int64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end != text.data() + text.size() || n < min || n > max) return std::nullopt;
  return n;
}

struct Page {
  std::int64_t limit = kDefaultItems;
  bool ascending = false;
  std::string after;
};

/// Nullopt: the client has been told what is wrong.
std::optional<Page> read_page(const HttpRequest& request, const Answerer& responder) {
  Page page;
  if (const auto limit = query_value(request.target, "limit")) {
    const auto n = whole(*limit, 1, kMostItems);
    if (!n) {
      responder->respond(error_response(kInvalid, "limit must be a whole number from 1 to 100", "limit"));
      return std::nullopt;
    }
    page.limit = *n;
  }
  const std::string order = query_value(request.target, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    responder->respond(error_response(kInvalid, "order must be asc or desc", "order"));
    return std::nullopt;
  }
  page.ascending = order == "asc";
  page.after = query_value(request.target, "after").value_or("");
  return page;
}

Json item_page(Json::Array items, const std::string& response_id, const Page& page) {
  std::vector<Json> listed;
  for (std::size_t i = 0; i < items.size(); ++i)
    listed.push_back(listed_item(std::move(items[i]), response_id, i));
  if (!page.ascending) std::reverse(listed.begin(), listed.end());
  const auto id_of = [](const Json& item) {
    const Json* id = item.find("id");
    return id && id->is_string() ? id->as_string() : std::string();
  };
  std::size_t first = 0;
  if (!page.after.empty()) {
    const auto at =
        std::find_if(listed.begin(), listed.end(), [&](const Json& i) { return id_of(i) == page.after; });
    first = at == listed.end() ? listed.size() : static_cast<std::size_t>(at - listed.begin()) + 1;
  }
  const std::size_t last = std::min(listed.size(), first + static_cast<std::size_t>(page.limit));
  Json::Array data(std::make_move_iterator(listed.begin() + static_cast<std::ptrdiff_t>(first)),
                   std::make_move_iterator(listed.begin() + static_cast<std::ptrdiff_t>(last)));
  const std::string first_id = data.empty() ? "" : id_of(data.front()),
                    last_id = data.empty() ? "" : id_of(data.back());
  return Json::object({{"object", "list"},
                       {"data", Json(std::move(data))},
                       {"first_id", first_id},
                       {"last_id", last_id},
                       {"has_more", last < listed.size()}});
}

Result<Json> count(const ServerState& state, const HttpRequest& request, std::vector<std::string>& ignored) {
  const auto body = parse_json(request.body);
  if (!body) return std::unexpected(body.error());
  const auto model = find_model(state, *body);
  if (!model) return std::unexpected(model.error());
  auto parsed = kResponsesProtocol.parse(
      *body, {.state = state, .model = **model, .request = request, .api_key = asking_key(state, request)});
  if (!parsed) return std::unexpected(parsed.error());
  ignored = std::move(parsed->ignored);
  const auto prompt = render_prompt(**model, kResponsesProtocol, *parsed);
  if (!prompt) return std::unexpected(prompt.error());
  return Json::object(
      {{"object", "response.input_tokens"}, {"input_tokens", static_cast<std::int64_t>(prompt->ids.size())}});
}

HttpResponse result_response(const Result<Json>& result) {
  return result ? json_response(*result) : kResponsesProtocol.error(result.error());
}

}  // namespace

void create_response(const State& state, HttpRequest request, Answerer responder) {
  start_generation(state, Api::kResponses, std::move(request), std::move(responder));
}

void get_response(const State& state, HttpRequest request, Answerer responder) {
  const auto record = stored(state, request, responder);
  if (!record) return;
  const bool events = request.method != "HEAD" && is_true(query_value(request.target, "stream"));
  if (!events) return answer(responder, record->object());
  if (!record->origin().streamed) {
    return responder->respond(error_response(
        kInvalid, "only a response that was created with stream: true has events to read", "stream"));
  }
  std::int64_t after = -1;
  if (const auto text = query_value(request.target, "starting_after")) {
    const auto n = whole(*text, -1, std::numeric_limits<std::int64_t>::max());
    if (!n)
      return responder->respond(
          error_response(kInvalid, "starting_after must be a sequence number", "starting_after"));
    after = *n;
  }
  follow_response(record, after, {}, std::move(responder));
}

void delete_response(const State& state, HttpRequest request, Answerer responder) {
  const auto record = stored(state, request, responder);
  if (!record) return;
  const std::string id = path_id(request);
  state->responses->erase(id, record->origin().owner);
  answer(responder, dump_json(Json::object({{"id", id}, {"object", "response"}, {"deleted", true}})));
}

void cancel_response(const State& state, HttpRequest request, Answerer responder) {
  const auto record = stored(state, request, responder);
  if (!record) return;
  record->cancel(
      [record, responder] { responder->post([record, responder] { answer(responder, record->object()); }); });
}

void list_input_items(const State& state, HttpRequest request, Answerer responder) {
  const auto record = stored(state, request, responder);
  if (!record) return;
  auto page = read_page(request, responder);
  if (!page) return;
  answer_on_text_pool(state, responder, [record, id = path_id(request), page = std::move(*page)]() -> HttpResponse {
    auto items = parse_json(*record->origin().input, {.max_members = 0});
    if (!items || !items->is_array())
      return result_response(fail(ErrorCode::kInternal, "stored items do not parse"));
    return result_response(item_page(std::move(items->as_array()), id, page));
  });
}

void count_input_tokens(const State& state, HttpRequest request, Answerer responder) {
  answer_on_text_pool(state, responder, [state, request = std::move(request)] {
    std::vector<std::string> ignored;
    HttpResponse response = result_response(count(*state, request, ignored));
    if (!ignored.empty()) response.headers.emplace_back("x-barg-ignored", ignored_header(ignored));
    return response;
  });
}

}  // namespace barg::server
