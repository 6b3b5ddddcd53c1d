// EngineClient: submits requests and waits for answers on condition variables. Checks the event contract on
// the way: order, contiguous indices, exactly one final event per choice and nothing after it.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "barg/engine.h"

namespace barg::test {

struct Answer {
  std::vector<OutputToken> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<float> embedding;
  FinishReason finish = FinishReason::kNone;
  TokenId stop_token = kNoToken;
  std::optional<Error> error;
  RequestStats stats;
  std::int32_t events = 0;

  std::vector<TokenId> ids() const {
    std::vector<TokenId> out;
    for (const auto& t : tokens) out.push_back(t.id);
    return out;
  }
};

class EngineClient {
 public:
  explicit EngineClient(Engine& engine) : engine_(engine), state_(std::make_shared<State>()) {}

  /// REQUIRES that the engine accepts it.
  RequestId submit(Request request) {
    auto id = try_submit(std::move(request));
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    return id ? *id : RequestId{};
  }

  Result<RequestId> try_submit(Request request) {
    const RequestId id = engine_.next_request_id();
    request.id = id;
    {
      std::lock_guard lock(state_->mutex);
      state_->answers[id].resize(static_cast<std::size_t>(std::max(request.n, 1)));
    }
    auto ok =
        engine_.submit(std::move(request), [state = state_](TokenEvent&& e) { state->take(std::move(e)); });
    if (ok) return id;
    std::lock_guard lock(state_->mutex);
    state_->answers.erase(id);
    return std::unexpected(ok.error());
  }

  /// All choices, once each is finished.
  std::vector<Answer> wait(RequestId id) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->finished(id); });
    return state_->answers.at(id);
  }

  /// Until choice 0 has `count` tokens or is finished.
  void wait_tokens(RequestId id, std::size_t count) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] {
      const auto& a = state_->answers.at(id)[0];
      return a.tokens.size() >= count || a.finish != FinishReason::kNone;
    });
  }

  /// Tokens of choice 0 so far, and whether it is finished.
  std::pair<std::size_t, bool> progress(RequestId id) const {
    std::lock_guard lock(state_->mutex);
    const auto& a = state_->answers.at(id)[0];
    return {a.tokens.size(), a.finish != FinishReason::kNone};
  }

  Answer run(Request request) { return wait(submit(std::move(request))).at(0); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<RequestId, std::vector<Answer>> answers;

    bool finished(RequestId id) const {
      for (const auto& a : answers.at(id)) {
        if (a.finish == FinishReason::kNone) return false;
      }
      return true;
    }

    void take(TokenEvent&& e) {
      std::lock_guard lock(mutex);
      auto& a = answers.at(e.request).at(static_cast<std::size_t>(e.choice));
      EXPECT_EQ(a.finish, FinishReason::kNone) << "an event after the last one";
      EXPECT_EQ(e.error.has_value(), e.finish == FinishReason::kError);
      if (!e.tokens.empty()) {
        EXPECT_EQ(e.first_index, static_cast<std::int32_t>(a.tokens.size()));
      }
      for (auto& t : e.tokens) a.tokens.push_back(std::move(t));
      for (auto& p : e.prompt_logprobs) a.prompt_logprobs.push_back(std::move(p));
      EXPECT_TRUE(e.embedding.empty() || e.finish == FinishReason::kStop);
      if (!e.embedding.empty()) a.embedding = std::move(e.embedding);
      a.finish = e.finish;
      a.stop_token = e.stop_token;
      a.error = e.error;
      a.stats = e.stats;
      ++a.events;
      changed.notify_all();
    }
  };

  Engine& engine_;
  std::shared_ptr<State> state_;  // shared with sinks, which may outlive the client
};

}  // namespace barg::test
