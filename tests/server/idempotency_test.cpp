// Idempotency-Key: one generation for a request and its retries, whoever stays and whoever leaves.
#include "server/idempotency.h"

#include <atomic>
#include <future>
#include <thread>

#include "base/env.h"
#include "test_server.h"

namespace barg::test::idempotency_test {
namespace {

class IdempotencyTest : public ServerTest {
 protected:
  void say(const std::string& text) {
    engine_->set_script([text](const Request&, std::int32_t) {
      auto ids = bytes_of(text);
      ids.push_back(kEnd);
      return ids;
    });
  }
  static std::string key(std::string_view name) { return "Idempotency-Key: " + std::string(name) + "\r\n"; }
  static std::string request(std::string_view name, std::string_view more = "", std::string_view headers = "") {
    return post("/v1/chat/completions", chat(more), key(name) + std::string(headers));
  }
  std::vector<std::unique_ptr<RawClient>> clients_;
};

TEST_F(IdempotencyTest, ARetryAfterTheEndIsSentTheSameBytes) {
  say("one answer");
  start();
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto submitted = engine_->submitted();
    const std::string name = "k" + std::string(more);
    const RawResponse first = ask(request(name, more)), second = ask(request(name, more));
    EXPECT_EQ(first.status, 200);
    EXPECT_EQ(second.status, 200);
    EXPECT_FALSE(first.body.empty());
    EXPECT_EQ(first.body, second.body) << "the id too";
    EXPECT_EQ(first.headers.at("content-type"), second.headers.at("content-type"));
    EXPECT_FALSE(first.headers.contains("idempotent-replayed"));
    EXPECT_EQ(second.headers.at("idempotent-replayed"), "true");
    EXPECT_NE(first.headers.at("x-request-id"), second.headers.at("x-request-id"));
    EXPECT_EQ(engine_->submitted(), submitted + 1);
  }
  const auto records = book_->wait(2);
  EXPECT_EQ(records[0].note.output_tokens, 11);
  EXPECT_EQ(records[1].note.output_tokens, 0) << "it used none";
  EXPECT_EQ(records[1].note.finish_reason, "stop");
}

TEST_F(IdempotencyTest, EveryProtocolHasIt) {
  start();
  const std::pair<const char*, std::string> cases[] = {
      {"/v1/completions", R"({"prompt":"a","max_tokens":3})"},
      {"/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}]})"},
      {"/v1/responses", R"({"input":"a"})"},
  };
  for (const auto& [path, body] : cases) {
    const RawResponse first = ask(post(path, body, key("k"))), second = ask(post(path, body, key("k")));
    EXPECT_EQ(first.status, 200) << path << first.body;
    EXPECT_EQ(first.body, second.body) << path;
    EXPECT_EQ(second.headers.at("idempotent-replayed"), "true") << path;
  }
  EXPECT_EQ(engine_->submitted(), 3) << "an endpoint's keys are its own";
}

TEST_F(IdempotencyTest, WithoutAKeyEveryRequestIsItsOwn) {
  start();
  ask(post("/v1/chat/completions", chat()));
  ask(post("/v1/chat/completions", chat()));
  ask(post("/v1/chat/completions", chat(), "Idempotency-Key: \r\n"));
  EXPECT_EQ(engine_->submitted(), 3);
}

TEST_F(IdempotencyTest, ARetryFollowsTheRunningStream) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += "word" + std::to_string(i) + " ";
  say(text);
  engine_->hold(true);
  start();
  RawClient first(port());
  first.send(request("k", R"(,"stream":true,"max_tokens":900)"));
  ASSERT_TRUE(first.wait_for("\"role\":\"assistant\""));
  RawClient second(port());
  second.send(request("k", R"(,"stream":true,"max_tokens":900)"));
  ASSERT_TRUE(second.wait_for("\"role\":\"assistant\"")) << "what was sent before comes first";
  engine_->hold(false);
  const RawResponse a = first.read(), b = second.read();
  EXPECT_TRUE(a.complete && b.complete);
  EXPECT_EQ(a.body, b.body);
  EXPECT_GT(a.body.size(), 50'000U);
  EXPECT_TRUE(a.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(engine_->submitted(), 1);
}

TEST_F(IdempotencyTest, AnUnstreamedRetryWaitsForTheSameBody) {
  engine_->hold(true);
  start();
  RawClient first(port()), second(port());
  first.send(request("k"));
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  second.send(request("k"));
  engine_->hold(false);
  const RawResponse a = first.read(), b = second.read();
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.body, b.body);
  EXPECT_EQ(engine_->submitted(), 1);
}

TEST_F(IdempotencyTest, AnotherBodyIsAConflict) {
  start();
  ask(request("k"));
  const RawResponse other = ask(request("k", R"(,"seed":1)"));
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(other.error("code"), "idempotency_key_reused");
  EXPECT_EQ(other.headers.at("x-should-retry"), "false") << "clients retry 409 by themselves";
  EXPECT_EQ(engine_->submitted(), 1);
  const std::string messages = R"({"max_tokens":3,"messages":[{"role":"user","content":"a"}]})";
  ask(post("/v1/messages", messages, key("k")));
  const RawResponse theirs = ask(post("/messages", R"({"max_tokens":4,"messages":[{"role":"user","content":"a"}]})", key("k")));
  EXPECT_EQ(theirs.status, 409) << "with and without /v1 is one endpoint";
  EXPECT_EQ(theirs.json().find("type")->as_string(), "error");
}

TEST_F(IdempotencyTest, KeysBelongToAnApiKey) {
  options_.api_key = {"one", "two"};
  start();
  const RawResponse a = ask(request("k", "", "x-api-key: one\r\n")), b = ask(request("k", R"(,"seed":1)", "x-api-key: two\r\n"));
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(b.status, 200);
  EXPECT_EQ(engine_->submitted(), 2);
}

TEST_F(IdempotencyTest, BadKeysAreRefused) {
  start();
  EXPECT_EQ(ask(request(std::string(256, 'k'))).status, 400);
  EXPECT_EQ(ask(request("a", "", key("b"))).status, 400);
  EXPECT_EQ(ask(request(std::string(255, 'k'))).status, 200);
}

TEST_F(IdempotencyTest, FailuresAreNotKept) {
  start();
  engine_->set_admission(fail(ErrorCode::kRateLimited, "full"));
  EXPECT_EQ(ask(request("k")).status, 429);
  engine_->set_admission({});
  EXPECT_EQ(ask(request("k")).status, 200) << "a retry is there to succeed";
  EXPECT_EQ(ask(request("bad", R"(,"temperature":9)")).status, 400);
  EXPECT_EQ(ask(request("bad")).status, 200);
}

TEST_F(IdempotencyTest, WhoLeavesTakesNothingFromWhoStays) {
  engine_->hold(true);
  say("still here");
  start();
  RawClient stays(port());
  {
    RawClient leaves(port());
    leaves.send(request("k", R"(,"stream":true)"));
    ASSERT_TRUE(leaves.wait_for("assistant"));
    stays.send(request("k", R"(,"stream":true)"));
    ASSERT_TRUE(stays.wait_for("assistant"));
    leaves.reset();
  }
  EXPECT_EQ(book_->wait(1)[0].note.finish_reason, "detached");
  engine_->hold(false);
  const RawResponse r = stays.read();
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(engine_->cancelled(), 0);
}

TEST_F(IdempotencyTest, WhoComesBackFindsTheAnswer) {
  engine_->hold(true);
  say("patience");
  start();
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto seen = book_->wait(0).size();
    const std::string name = "k" + std::string(more);
    {
      RawClient leaves(port());
      leaves.send(request(name, more));
      ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
    }
    book_->wait(seen + 1);
    engine_->hold(false);
    ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
    const RawResponse r = ask(request(name, more));
    EXPECT_EQ(r.status, 200);
    EXPECT_TRUE(r.complete);
    EXPECT_EQ(r.headers.at("idempotent-replayed"), "true");
    engine_->hold(true);
  }
  EXPECT_EQ(engine_->submitted(), 2);
  EXPECT_EQ(engine_->cancelled(), 0);
}

TEST_F(IdempotencyTest, ManyAtOnceAreOneGeneration) {
  options_.io_threads = 3;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "many words ";
  say(text);
  start();
  for (int round = 0; round < 20; ++round) {
    const std::string name = "k" + std::to_string(round);
    const bool stream = round % 2 == 0;
    std::vector<std::string> bodies(6);
    {
      std::vector<std::jthread> threads;
      for (std::string& body : bodies) {
        threads.emplace_back([&, this] {
          body = ask(request(name, stream ? R"(,"stream":true,"max_tokens":900)" : R"(,"max_tokens":900)")).body;
        });
      }
    }
    for (const std::string& body : bodies) ASSERT_EQ(body, bodies[0]);
    ASSERT_NE(bodies[0].find(stream ? "data: [DONE]" : "many words"), std::string::npos);
  }
  EXPECT_EQ(engine_->submitted(), 20);
}

TEST_F(IdempotencyTest, RacesOfRetriesAndDisconnects) {
  options_.io_threads = 2;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "some words ";
  say(text);
  start();
  std::atomic<int> answered{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t, this] {
        Rng rng(static_cast<std::uint64_t>(t));
        for (int i = 0; i < 60; ++i) {
          RawClient client(port());
          client.send(request("k" + std::to_string(i), i % 2 == 0 ? R"(,"max_tokens":900)" : R"(,"stream":true,"max_tokens":900)"));
          if (rng.below(2) == 0) continue;  // it leaves at once
          const RawResponse r = client.read();
          EXPECT_EQ(r.status, 200) << r.body;
          ++answered;
        }
      });
    }
  }
  EXPECT_GT(answered, 60);
  EXPECT_LE(engine_->submitted(), 60) << "a key is one generation";
}

TEST_F(IdempotencyTest, ADyingServerTellsAll) {
  options_.io_threads = 3;
  engine_->hold(true);
  start();
  for (int i = 0; i < 12; ++i) {
    const char* more = i % 2 == 0 ? R"(,"stream":true)" : "";
    clients_.push_back(std::make_unique<RawClient>(port()));
    clients_.back()->send(request("k" + std::string(more), more));
    if (i % 2 == 0) {
      ASSERT_TRUE(clients_.back()->wait_for("assistant"));
    }
  }
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 2; }));
  for (bool all = false; !all;) all = ask(get("/metrics")).body.find("\nbarg_requests_active 13\n") != std::string::npos;
  server_->cut();
  const std::jthread waiting([this] { server_->wait(); });
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    EXPECT_TRUE(clients_[i]->wait_for("server_shutdown")) << i << ": " << clients_[i]->buffered();
  }
}

TEST_F(IdempotencyTest, ALargeBodyIsDigestedOnThePool) {
  std::promise<void> begun, free;
  std::atomic<bool> first{true};
  tokenizer_->on_encode = [&, wait = free.get_future().share()](std::string_view) {
    if (!first.exchange(false)) return;
    begun.set_value();
    wait.wait();
  };
  start();
  RawClient tokenizes(port()), large(port());
  tokenizes.send(post("/tokenize", R"({"prompt":"the pool has one thread"})"));
  begun.get_future().wait();
  large.send(request("large", R"(,"padding":")" + std::string(100'000, 'u') + "\""));
  EXPECT_EQ(ask(request("small")).status, 200) << "the io thread is free, and digests what is small";
  EXPECT_EQ(engine_->submitted(), 1) << "the large one waits for the pool";
  EXPECT_EQ(ask(post("/v1/chat/completions", chat(R"(,"padding":")" + std::string(100'000, 'u') + "\""))).status, 200)
      << "without a key there is nothing to digest";
  free.set_value();
  EXPECT_EQ(large.read().status, 200);
  const RawResponse again = ask(request("large", R"(,"padding":")" + std::string(100'000, 'u') + "\""));
  EXPECT_EQ(again.headers.at("idempotent-replayed"), "true");
  EXPECT_EQ(ask(request("large", R"(,"padding":")" + std::string(100'000, 'v') + "\"")).status, 409);
}

TEST_F(IdempotencyTest, WhoLeavesBeforeTheDigestIsMadeStartsNothing) {
  std::promise<void> begun, free;
  std::atomic<bool> first{true};
  tokenizer_->on_encode = [&, wait = free.get_future().share()](std::string_view) {
    if (!first.exchange(false)) return;
    begun.set_value();
    wait.wait();
  };
  start();
  RawClient tokenizes(port());
  tokenizes.send(post("/tokenize", R"({"prompt":"the pool has one thread"})"));
  begun.get_future().wait();
  {
    RawClient leaves(port());
    leaves.send(request("large", R"(,"padding":")" + std::string(100'000, 'u') + "\""));
    ask(get("/health"));  // the same io thread has read it
    leaves.reset();
  }
  book_->wait(2);
  free.set_value();
  EXPECT_EQ(tokenizes.read().status, 200);
  EXPECT_EQ(ask(post("/tokenize", R"({"prompt":"behind the digest"})")).status, 200);
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(IdempotencyTest, ADyingServerWaitsForNobodyWhoHasLeft) {
  engine_->hold(true);
  start();
  {
    RawClient leaves(port());
    leaves.send(request("k"));
    ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  }
  book_->wait(1);
  const auto before = std::chrono::steady_clock::now();
  server_->cut();
  server_->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4));
  EXPECT_EQ(engine_->cancelled(), 1);
}

TEST_F(IdempotencyTest, ItMayBeOff) {
  options_.idempotency_memory_bytes = 0;
  start();
  ask(request("k"));
  EXPECT_EQ(ask(request("k", R"(,"seed":1)")).status, 200);
  EXPECT_EQ(engine_->submitted(), 2);
}

// ---- without a server: time and memory

/// A client of one thread: posted functions run at once, everything is written down.
class BookClient final : public server::Responder {
 public:
  void respond(server::HttpResponse r) override {
    if (over) return;
    status = r.status;
    body = r.body;
    over = true;
  }
  void begin_stream(server::HttpResponse r, std::string_view) override { status = r.status; }
  void write(std::string_view bytes) override { body += bytes; }
  void end() override { over = true; }
  bool gone() const override { return over; }
  server::AccessNote& note() override { return note_; }
  void set_route(std::string_view) override {}
  void on_interrupt(std::function<void(server::Interrupt)> f) override { interrupted = std::move(f); }
  void on_backlog(std::function<void(bool)> f) override { backlog = std::move(f); }
  void post(std::move_only_function<void()> f) override {
    const std::lock_guard lock(mutex);
    posted.push_back(std::move(f));
  }
  void run() {
    for (;;) {
      std::vector<std::move_only_function<void()>> now;
      {
        const std::lock_guard lock(mutex);
        now.swap(posted);
      }
      if (now.empty()) return;
      for (auto& f : now) f();
    }
  }
  void leave() { interrupt(server::Interrupt::kDisconnected); }
  /// As a connection does when the process ends. True: it is not closed, for there is more to say.
  bool shut_down() {
    interrupt(server::Interrupt::kShutdown);
    return !over && interrupted;
  }

  void interrupt(server::Interrupt cause) {
    if (auto f = std::exchange(interrupted, nullptr)) f(cause);
  }

  int status = 0;
  std::string body;
  bool over = false;
  std::function<void(server::Interrupt)> interrupted;
  std::function<void(bool)> backlog;
  std::mutex mutex;
  std::vector<std::move_only_function<void()>> posted;

 private:
  server::AccessNote note_;
};

server::HttpRequest keyed(const std::string& key, const std::string& body = "b") {
  server::HttpRequest r;
  r.method = "POST";
  r.path = "/v1/chat/completions";
  r.headers = {{"idempotency-key", key}};
  r.body = body;
  return r;
}

void answer(server::Responder& to, const std::string& body) {
  server::HttpResponse r;
  r.body = body;
  to.respond(std::move(r));
}

template <class F>
bool soon(F condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

TEST(IdempotencyLayer, AnAbandonedGenerationIsCancelledAfterItsGrace) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 0.05});
  auto client = std::make_shared<BookClient>();
  const auto recorder = layer.admit(keyed("k"), "", client);
  ASSERT_TRUE(recorder);
  bool cancelled = false;
  recorder->on_interrupt([&](server::Interrupt cause) { cancelled = cause == server::Interrupt::kDisconnected; });
  client->leave();
  EXPECT_FALSE(recorder->gone()) << "not yet";
  EXPECT_TRUE(soon([&] {
    client->run();
    return cancelled;
  }));
  EXPECT_TRUE(recorder->gone());
  EXPECT_EQ(layer.gauges().keys, 0);
}

TEST(IdempotencyLayer, ComingBackEndsTheGrace) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 0.3});
  auto first = std::make_shared<BookClient>(), second = std::make_shared<BookClient>();
  const auto recorder = layer.admit(keyed("k"), "", first);
  bool cancelled = false;
  recorder->on_interrupt([&](server::Interrupt) { cancelled = true; });
  first->leave();
  EXPECT_EQ(layer.admit(keyed("k"), "", second), nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  first->run();
  EXPECT_FALSE(cancelled);
  answer(*recorder, "done");
  second->run();
  EXPECT_EQ(second->body, "done");
  EXPECT_EQ(layer.gauges().attached, 1U);
}

TEST(IdempotencyLayer, AnswersExpire) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 0.05, .grace_s = 60});
  auto client = std::make_shared<BookClient>();
  answer(*layer.admit(keyed("k"), "", client), "done");
  EXPECT_EQ(client->body, "done");
  EXPECT_TRUE(soon([&] { return layer.gauges().keys == 0; }));
  EXPECT_EQ(layer.gauges().bytes, 0U);
  EXPECT_TRUE(layer.admit(keyed("k"), "", std::make_shared<BookClient>())) << "a new one";
}

TEST(IdempotencyLayer, MemoryIsBoundedAndTheOldestGoFirst) {
  server::Idempotency layer({.memory_bytes = 100'000, .ttl_s = 60, .grace_s = 60});
  for (int i = 0; i < 50; ++i)
    answer(*layer.admit(keyed("k" + std::to_string(i)), "", std::make_shared<BookClient>()), std::string(10'000, 'x'));
  EXPECT_LE(layer.gauges().bytes, 100'000U);
  EXPECT_GE(layer.gauges().keys, 7);
  auto late = std::make_shared<BookClient>();
  EXPECT_EQ(layer.admit(keyed("k49"), "", late), nullptr) << "the newest is there";
  EXPECT_EQ(late->body.size(), 10'000U);
  EXPECT_TRUE(layer.admit(keyed("k0"), "", std::make_shared<BookClient>())) << "the oldest is not";
}

TEST(IdempotencyLayer, ARunningStreamOverTheLimitIsCutAndStillReadWhole) {
  server::Idempotency layer({.memory_bytes = 200'000, .ttl_s = 60, .grace_s = 60});
  auto client = std::make_shared<BookClient>();
  const auto recorder = layer.admit(keyed("k"), "", client);
  recorder->begin_stream({}, "");
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string piece(10'000, static_cast<char>('a' + i % 26));
    all += piece;
    recorder->write(piece);
    EXPECT_LE(layer.gauges().bytes, 400'000U);
  }
  auto retry = std::make_shared<BookClient>();
  EXPECT_EQ(layer.admit(keyed("k"), "", retry), nullptr);
  EXPECT_EQ(retry->status, 409) << "it cannot be repeated";
  recorder->end();
  EXPECT_EQ(client->body, all);
  EXPECT_TRUE(client->over);
  EXPECT_EQ(layer.gauges().keys, 0);
  EXPECT_EQ(layer.gauges().bytes, 0U);
}

TEST(IdempotencyLayer, TheGenerationWaitsWhenEveryReaderIsBehind) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 60});
  auto first = std::make_shared<BookClient>(), second = std::make_shared<BookClient>();
  const auto recorder = layer.admit(keyed("k"), "", first);
  std::vector<bool> told;
  recorder->on_backlog([&](bool behind) { told.push_back(behind); });
  recorder->begin_stream({}, "");
  recorder->write("a");
  layer.admit(keyed("k"), "", second);
  first->backlog(true);
  first->run();
  EXPECT_TRUE(told.empty()) << "a dead connection holds nobody up";
  recorder->write("b");
  second->run();
  EXPECT_EQ(first->body, "a") << "it is sent no more until it has caught up";
  EXPECT_EQ(second->body, "ab");
  second->backlog(true);
  first->run();
  EXPECT_EQ(told, std::vector<bool>{true});
  first->backlog(false);
  first->run();
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  EXPECT_EQ(first->body, "ab");
}

/// A generation with two clients that ends as one does when the process ends.
struct Dying {
  server::Idempotency layer{{.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 60}};
  std::shared_ptr<BookClient> owner = std::make_shared<BookClient>(), other = std::make_shared<BookClient>();
  std::shared_ptr<server::Responder> recorder;

  Dying() {
    recorder = layer.admit(keyed("k"), "", owner);
    recorder->on_interrupt([this](server::Interrupt cause) {
      if (cause != server::Interrupt::kShutdown) return;
      recorder->write(" shutdown");
      recorder->end();
    });
    recorder->begin_stream({}, "");
    recorder->write("text");
    layer.admit(keyed("k"), "", other);
  }
};

TEST(IdempotencyLayer, WhenTheProcessEndsTheOtherClientIsToldWhicheverIsInterruptedFirst) {
  for (const bool other_first : {true, false}) {
    Dying d;
    if (other_first) {
      EXPECT_TRUE(d.other->shut_down()) << "its connection waits for the owner's thread";
      d.owner->run();
      d.owner->shut_down();
    } else {
      EXPECT_FALSE(d.owner->shut_down());
      d.other->shut_down();
    }
    d.other->run();
    for (const auto& client : {d.owner, d.other}) {
      EXPECT_EQ(client->body, "text shutdown") << other_first;
      EXPECT_TRUE(client->over) << other_first;
    }
  }
}

TEST(IdempotencyLayer, WhenTheProcessEndsWhoOutlivedTheOwnerIsTold) {
  Dying d;
  d.owner->leave();
  EXPECT_TRUE(d.other->shut_down());
  d.owner->run();
  d.other->run();
  EXPECT_EQ(d.other->body, "text shutdown");
  EXPECT_TRUE(d.other->over);
}

TEST(IdempotencyLayer, ALostGenerationLetsItsClientsGo) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 60});
  auto first = std::make_shared<BookClient>(), second = std::make_shared<BookClient>();
  std::weak_ptr<BookClient> a = first, b = second;
  {
    const auto recorder = layer.admit(keyed("k"), "", std::exchange(first, nullptr));
    layer.admit(keyed("k"), "", std::exchange(second, nullptr));
    EXPECT_FALSE(a.expired() || b.expired());
  }
  EXPECT_TRUE(a.expired() && b.expired()) << "the HTTP layer then answers 500";
  EXPECT_EQ(layer.gauges().keys, 0);
}

TEST(IdempotencyLayer, FailedAnswersAreNotKept) {
  server::Idempotency layer({.memory_bytes = 1 << 20, .ttl_s = 60, .grace_s = 60});
  const auto recorder = layer.admit(keyed("k"), "", std::make_shared<BookClient>());
  recorder->begin_stream({}, "");
  recorder->write("data: error");
  recorder->note().finish_reason = "error";
  recorder->end();
  EXPECT_EQ(layer.gauges().keys, 0);
  server::HttpResponse refusal;
  refusal.status = 503;
  layer.admit(keyed("k"), "", std::make_shared<BookClient>())->respond(std::move(refusal));
  EXPECT_EQ(layer.gauges().keys, 0) << "nor is a refusal";
}

}  // namespace
}  // namespace barg::test::idempotency_test
