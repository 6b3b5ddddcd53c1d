// The framing of server-sent events in chat completions and completions.
#include <algorithm>

#include "base/utf8.h"
#include "conform/look.h"
#include "conform/rule_groups.h"
#include "conform/session.h"

namespace barg::conform {
namespace {

constexpr std::string_view kStreams[] = {"chat.stream", "chat.usage", "completions.stream"};

/// Runs `check` on each stream that the server has; the first that is not a pass decides.
template <class Check>
Verdict each_stream(Session& s, Check check) {
  Verdict last = not_applicable("no stream");
  bool any = false;
  for (const std::string_view probe : kStreams) {
    if (auto verdict = blocked(s, {probe})) {
      if (verdict->kind == Verdict::Kind::kFail) return *verdict;
      if (!any) last = std::move(*verdict);
      continue;
    }
    any = true;
    last = check(s.exchange(probe), s.stream(probe));
    if (last.kind == Verdict::Kind::kFail) return last;
  }
  return any ? pass() : last;
}

Verdict content_type(Session& s) {
  return each_stream(s, [](const Exchange& e, const StreamView&) {
    const std::string* type = e.header("content-type");
    return type != nullptr && type->starts_with("text/event-stream")
               ? pass()
               : failed("the content type is " + (type ? *type : std::string("missing")), e.head);
  });
}

Verdict no_cache(Session& s) {
  return each_stream(s, [](const Exchange& e, const StreamView&) {
    const std::string* value = e.header("cache-control");
    const bool said = value != nullptr &&
                      (value->find("no-cache") != std::string::npos || value->find("no-store") != std::string::npos);
    return said ? pass() : failed("Cache-Control does not say no-cache", e.head);
  });
}

Verdict one_data_line(Session& s) {
  return each_stream(s, [](const Exchange&, const StreamView& view) {
    for (const SseEvent& event : view.sse.events) {
      if (event.data_lines != 1)
        return failed("an event has " + std::to_string(event.data_lines) + " data lines", event.raw);
    }
    if (!view.sse.rest.empty()) return failed("the stream does not end with a blank line", view.sse.rest);
    return view.sse.events.empty() ? failed("the stream holds no event") : pass();
  });
}

Verdict only_data(Session& s) {
  return each_stream(s, [](const Exchange&, const StreamView& view) {
    for (const SseEvent& event : view.sse.events) {
      if (event.event_lines > 0 || !event.others.empty())
        return failed("a line is neither data nor a comment", event.raw);
    }
    return pass();
  });
}

Verdict line_feeds(Session& s) {
  return each_stream(s, [](const Exchange& e, const StreamView& view) {
    return view.sse.carriage_returns ? failed("lines end with CR LF", e.body) : pass();
  });
}

Verdict json_events(Session& s) {
  return each_stream(s, [](const Exchange&, const StreamView& view) {
    return view.broken ? failed("an event is neither a JSON object nor [DONE]", view.sse.events[*view.broken].raw)
                       : pass();
  });
}

Verdict utf8(Session& s) {
  return each_stream(s, [](const Exchange&, const StreamView& view) {
    for (const SseEvent& event : view.sse.events) {
      if (!is_valid_utf8(event.raw)) return failed("an event is not UTF-8 on its own", event.raw);
    }
    return pass();
  });
}

Verdict done(Session& s) {
  return each_stream(s, [](const Exchange& e, const StreamView& view) {
    if (view.done != 1) return failed("[DONE] comes " + std::to_string(view.done) + " times", e.body);
    if (view.sse.events.back().data != "[DONE]") return failed("an event follows [DONE]", view.sse.events.back().raw);
    return pass();
  });
}

Verdict incremental(Session& s) {
  if (auto verdict = blocked_stream(s, {"chat.stream"})) return *verdict;
  const Exchange& e = s.exchange("chat.stream");
  const StreamView& view = s.stream("chat.stream");
  if (view.chunks.size() < 6) return not_applicable("the stream holds fewer than six chunks");
  const double first = view.sse.events[view.chunks.front().event].at;
  const double last = view.sse.events[view.chunks.back().event].at;
  return first < last ? pass() : failed("the whole stream came in one packet, at its end", e.body);
}

Verdict keep_alive(Session& s) {
  const double most = s.options().keep_alive_s;
  if (auto verdict = blocked(s, {"chat.long", "chat.stream"})) return *verdict;
  bool waited = false;
  for (const char* probe : {"chat.long", "chat.stream"}) {
    const Exchange& e = s.exchange(probe);
    const StreamView& view = s.stream(probe);
    double quiet_since = 0;  // nothing at all
    double data_since = 0;   // no event
    for (const Packet& packet : e.packets) {
      if (packet.at - quiet_since > most)
        return failed("the stream was silent for " + std::to_string(static_cast<int>(packet.at - quiet_since)) + " s",
                      e.head);
      quiet_since = packet.at;
    }
    for (const SseEvent& event : view.sse.events) {
      waited |= event.at - data_since > most;
      data_since = event.at;
    }
  }
  return waited ? pass() : not_applicable("no stream waited so long between two events");
}

constexpr Rule kRules[] = {
    {"sse.content_type", "A stream is text/event-stream.", "Browsers' EventSource and proxies look at it.",
     content_type},
    {"sse.no_cache", "A stream says Cache-Control: no-cache.", "Caching proxies hold a stream back otherwise.",
     no_cache},
    {"sse.one_data_line", "Each event is one data line and a blank line, the last one too.",
     "Many clients read line by line and parse each.", one_data_line},
    {"sse.only_data", "Chat and completion streams hold data lines and comments, nothing else.",
     "OpenAI sends no event: lines there; naive clients choke on them.", only_data},
    {"sse.line_feeds", "Lines end with LF alone.", "Clients that split at LF LF never see an event otherwise.",
     line_feeds},
    {"sse.json", "Each event is one whole JSON object, or [DONE].",
     "openai-python calls json.loads on each; a raw line end cuts it.", json_events},
    {"sse.utf8", "Each event is UTF-8 on its own; no character is cut.",
     "exllamav3 171, ik_llama 780: half characters in a chunk.", utf8},
    {"sse.done", "[DONE] comes once, as the last event.", "Clients stop there, or wait for it.", done},
    {"sse.incremental", "Tokens are sent when they exist, not collected.",
     "A stream that comes at once is none for the person who waits.", incremental},
    {"sse.keep_alive", "No stream is silent for longer than the limit (--keep-alive-within).",
     "Proxies cut after 50 s, some clients after 20 s (vLLM 47647).", keep_alive},
};

}  // namespace

const RuleGroup kSseRules{"sse", "Server-sent events", kRules};

}  // namespace barg::conform
