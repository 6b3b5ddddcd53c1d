// The request parser on hostile bytes: however a connection's bytes are cut, the same requests come out and
// the same refusal ends them; nothing is read out of bounds, nothing grows beyond the limits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/request_parser.h"

namespace {

using barg::server::HttpRequest;
using barg::server::RequestParser;
using State = RequestParser::State;

constexpr std::uint64_t kMaxBody = 4096;

struct Heard {
  std::vector<HttpRequest> requests;
  int status = 0;  // of the refusal that ended it
};

/// A connection that answers nothing: all requests of `bytes`, which arrive `step` at a time.
Heard listen(const std::string& bytes, std::size_t step) {
  Heard heard;
  std::string in;
  auto parser = std::make_unique<RequestParser>(kMaxBody);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    in += bytes.substr(at, step);
    for (bool more = true; more && !in.empty();) {
      const State before = parser->state();
      const std::size_t size = in.size();
      const State after = parser->feed(in);
      more = after != before || in.size() != size;
      if (after == State::kFailed) {
        heard.status = parser->status();
        CHECK(heard.status >= 400 && heard.status < 600 && !parser->reason().empty());
        return heard;
      }
      if (after != State::kDone) continue;
      CHECK(parser->request().body.size() <= kMaxBody);
      heard.requests.push_back(parser->request());
      parser = std::make_unique<RequestParser>(kMaxBody);
      more = true;
    }
  }
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Heard whole = listen(bytes, std::max<std::size_t>(1, bytes.size()));
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
    const Heard cut = listen(bytes, step);
    CHECK(cut.status == whole.status);
    CHECK(cut.requests.size() == whole.requests.size());
    for (std::size_t i = 0; i < cut.requests.size(); ++i) {
      CHECK(cut.requests[i].method == whole.requests[i].method);
      CHECK(cut.requests[i].path == whole.requests[i].path);
      CHECK(cut.requests[i].headers == whole.requests[i].headers);
      CHECK(cut.requests[i].body == whole.requests[i].body);
    }
  }
  return 0;
}
