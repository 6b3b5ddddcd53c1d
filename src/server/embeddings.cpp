#include "server/embeddings.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/api_error.h"
#include "server/cache_salt.h"
#include "server/embeddings_answer.h"
#include "server/embeddings_request.h"
#include "server/handlers.h"
#include "server/prepare.h"

namespace barg::server {
namespace {

struct Inputs {
  const ServedModel* model = nullptr;  ///< owned by the ServerState
  EmbeddingsRequest request;
  std::vector<Request> requests;  ///< one an input; ids are not set
  std::int64_t tokens = 0;        ///< of all
};

std::string path_of(const ApiRequest& common, std::size_t index) {
  return common.prompts.size() == 1 ? "input" : "input[" + std::to_string(index) + "]";
}

Error too_long(const EngineInfo& info, std::int64_t tokens, bool at_least, const std::string& path) {
  return {ErrorCode::kContextLengthExceeded,
          "This model's maximum context length is " + std::to_string(info.max_model_len) + " tokens. However, " + path +
              " resulted in " + (at_least ? "at least " : "") + std::to_string(tokens) +
              " tokens. Please reduce its length, or ask for truncate_prompt_tokens.",
          path, 0};
}

/// What is refused without tokenising: an input whose bytes alone cannot fit, and a full queue.
Result<void> check_before(const ServedModel& model, const EmbeddingsRequest& request) {
  const EngineInfo& info = model.engine->info();
  std::int64_t estimate = 0;
  for (std::size_t i = 0; i < request.common.prompts.size(); ++i) {
    const PromptInput& input = request.common.prompts[i];
    const std::int64_t least = input.is_ids ? static_cast<std::int64_t>(input.ids.size())
                                            : least_tokens(*model.tokenizer, input.text.size());
    if (!request.truncate && least > info.max_model_len)
      return std::unexpected(too_long(info, least, !input.is_ids, path_of(request.common, i)));
    const auto usual = input.is_ids ? least : static_cast<std::int64_t>(input.text.size()) / kBytesPerToken;
    estimate += std::max<std::int64_t>(1, std::min<std::int64_t>(usual, info.max_model_len));
  }
  return model.engine->admissible(estimate);
}

/// Cuts behind `most` tokens; what the tokenizer added around the text stays. False: not even that has room.
bool truncate(std::vector<TokenId>& ids, const std::vector<TokenId>& bare, std::size_t most) {
  if (ids.size() <= most) return true;
  const std::size_t added = ids.size() - std::min(ids.size(), bare.size());
  if (added >= most) return false;
  std::size_t front = 0;  // so many of the added ones are in front of the text
  while (front < added && !std::equal(bare.begin(), bare.end(), ids.begin() + static_cast<std::ptrdiff_t>(front))) ++front;
  const std::size_t back = added - front, kept = most - back;
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end() - static_cast<std::ptrdiff_t>(back));
  return true;
}

Result<std::vector<TokenId>> tokens_of(const ServedModel& model, const EmbeddingsRequest& request, std::size_t index) {
  const PromptInput& input = request.common.prompts[index];
  const std::string path = path_of(request.common, index);
  const auto encode = [&](bool special) {
    return model.tokenizer->try_encode(input.text, {.add_special_tokens = special, .parse_special_tokens = true});
  };
  auto encoded = input.is_ids ? Result<std::vector<TokenId>>(input.ids) : encode(request.common.add_special_tokens);
  if (!encoded) return fail(encoded.error().code, encoded.error().message, path);
  std::vector<TokenId> ids = std::move(*encoded);
  if (ids.empty()) return fail(ErrorCode::kInvalidValue, path + " has no tokens", path);
  const EngineInfo& info = model.engine->info();
  const auto length = static_cast<std::int64_t>(ids.size());
  if (!request.truncate) {
    if (length > info.max_model_len) return std::unexpected(too_long(info, length, false, path));
    return ids;
  }
  if (length <= *request.truncate) return ids;
  const std::vector<TokenId> bare = input.is_ids ? ids : encode(false).value_or(ids);
  if (truncate(ids, bare, static_cast<std::size_t>(*request.truncate))) return ids;
  return fail(ErrorCode::kInvalidValue, "truncate_prompt_tokens leaves no room for a token of " + path,
              "truncate_prompt_tokens");
}

Result<Inputs> prepare(const ServerState& state, const HttpRequest& http) {
  auto json = parse_json(http.body);
  if (!json) return std::unexpected(json.error());
  auto model = find_model(state, *json);
  if (!model) return std::unexpected(model.error());
  const EngineInfo& info = (*model)->engine->info();
  if (info.embedding.size == 0) {
    return fail(ErrorCode::kUnsupported,
                "the model " + json_quote((*model)->names.front()) + " generates text and computes no embeddings", "model");
  }
  auto request = parse_embeddings_request(*json, info);
  if (!request) return std::unexpected(request.error());
  Inputs out{.model = *model, .request = std::move(*request), .requests = {}, .tokens = 0};
  ApiRequest& common = out.request.common;
  if (const std::string& secret = out.model->salt_secret; !secret.empty())
    common.cache_salt = derived_salt(secret, asking_key(state, http), common.cache_salt);
  if (auto ok = check_before(*out.model, out.request); !ok) return std::unexpected(ok.error());
  for (std::size_t i = 0; i < common.prompts.size(); ++i) {
    auto ids = tokens_of(*out.model, out.request, i);
    if (!ids) return std::unexpected(ids.error());
    out.tokens += static_cast<std::int64_t>(ids->size());
    Request one;
    one.prompt = std::move(*ids);
    one.sampling.max_tokens = 0;
    one.priority = common.priority;
    one.cache_salt = common.cache_salt;
    one.cache_pin_s = common.cache_pin_s;
    one.follows = i > 0;
    one.embeds = true;
    out.requests.push_back(std::move(one));
  }
  return out;
}

class Embeddings : public std::enable_shared_from_this<Embeddings> {
 public:
  Embeddings(std::shared_ptr<ServerState> state, HttpRequest request, std::shared_ptr<Responder> responder)
      : state_(std::move(state)), request_(std::move(request)), responder_(std::move(responder)) {
    state_->generations.add();
  }
  ~Embeddings() { state_->generations.remove(); }

  void start();

 private:
  void launch(Inputs inputs);
  void on_event(std::size_t index, TokenEvent&& event);
  void answer();
  void refuse(const Error& error);
  void on_interrupt(Interrupt cause);
  void end();
  void fill_note();

  const std::shared_ptr<ServerState> state_;
  HttpRequest request_;
  const std::shared_ptr<Responder> responder_;

  // From launch() on; io thread.
  Inputs inputs_;
  std::shared_ptr<Engine> engine_;
  std::vector<RequestId> ids_;
  std::vector<std::vector<float>> vectors_;
  std::size_t done_ = 0;
  std::int64_t cached_ = 0;
  double queue_s_ = -1;  ///< of the first input
  bool over_ = false;    ///< answered, or nobody listens: events are ignored
};

void Embeddings::start() {
  responder_->on_interrupt([self = weak_from_this()](Interrupt cause) {
    if (const auto s = self.lock()) s->on_interrupt(cause);
  });
  const bool queued = state_->pool->submit([self = shared_from_this()] {
    auto inputs = prepare(*self->state_, self->request_);
    self->request_.body = {};
    self->responder_->post([self, i = std::move(inputs)]() mutable {
      i ? self->launch(std::move(*i)) : self->refuse(i.error());
    });
  });
  if (!queued) refuse({ErrorCode::kUnavailable, "too many requests are being prepared, try again later", "", 1});
}

void Embeddings::launch(Inputs inputs) {
  if (over_ || responder_->gone()) return;
  inputs_ = std::move(inputs);
  engine_ = inputs_.model->engine;
  vectors_.resize(inputs_.requests.size());
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    Request& one = inputs_.requests[i];
    one.id = engine_->next_request_id();
    ids_.push_back(one.id);
    auto ok = engine_->submit(std::move(one), [self = shared_from_this(), i](TokenEvent&& event) {
      self->responder_->post([self, i, e = std::move(event)]() mutable { self->on_event(i, std::move(e)); });
    });
    if (ok) continue;
    ids_.pop_back();
    Error error = ok.error();
    if (error.param == "prompt") error.param = path_of(inputs_.request.common, i);
    return refuse(error);
  }
}

void Embeddings::on_event(std::size_t index, TokenEvent&& event) {
  if (over_ || event.finish == FinishReason::kNone) return;
  if (event.embedding.empty())
    return refuse(event.error.value_or(Error{ErrorCode::kCancelled, "the request was cancelled", "", 0}));
  cached_ += event.stats.cached_tokens;
  if (index == 0) queue_s_ = event.stats.first_scheduled_s - event.stats.arrived_s;
  vectors_[index] = std::move(event.embedding);
  if (++done_ == vectors_.size()) answer();
}

/// Thousands of numbers become text: not on the io thread.
void Embeddings::answer() {
  over_ = true;
  fill_note();
  responder_->note().finish_reason = "stop";
  auto write = [self = shared_from_this()] {
    const EmbeddingsRequest& asked = self->inputs_.request;
    for (std::vector<float>& v : self->vectors_) finish_vector(v, asked.size, asked.normalise);
    HttpResponse response;
    response.body = embeddings_body(self->vectors_, asked.base64, self->inputs_.model->names.front(), self->inputs_.tokens);
    if (!asked.common.ignored.empty()) response.headers.emplace_back("x-barg-ignored", ignored_header(asked.common.ignored));
    self->responder_->post([self, r = std::move(response)]() mutable { self->responder_->respond(std::move(r)); });
  };
  if (!state_->text_pool->submit(write)) write();
}

void Embeddings::refuse(const Error& error) {
  if (over_) return;
  end();
  const ErrorShape shape = error_shape(error.code);
  if (shape.status == 500) log::error("request_failed", {{"request_id", request_.id}, {"error", error.message}});
  fill_note();
  responder_->note().finish_reason = "error";
  responder_->note().error_code = shape.code;
  responder_->respond(error_response(error));
}

void Embeddings::on_interrupt(Interrupt cause) {
  if (!over_) {
    end();
    fill_note();
    responder_->note().finish_reason = "abort";
  }
  if (cause != Interrupt::kShutdown) return;
  HttpResponse response = error_response({ErrorCode::kShutdown, "the server is shutting down", "", 0});
  response.close = true;
  responder_->respond(std::move(response));
}

/// Nothing more comes of it.
void Embeddings::end() {
  over_ = true;
  for (const RequestId id : ids_) engine_->cancel(id);
}

void Embeddings::fill_note() {
  if (inputs_.model == nullptr) return;
  AccessNote& note = responder_->note();
  note.model = inputs_.model->names.front();
  note.prompt_tokens = inputs_.tokens;
  note.cached_tokens = cached_;
  if (queue_s_ >= 0) note.queue_ms = queue_s_ * 1e3;
}

}  // namespace

void embeddings(const std::shared_ptr<ServerState>& state, HttpRequest request, std::shared_ptr<Responder> responder) {
  std::make_shared<Embeddings>(state, std::move(request), std::move(responder))->start();
}

}  // namespace barg::server
