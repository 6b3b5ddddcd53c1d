#include "server/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/detokenizer.h"

namespace barg::server {
namespace {

constexpr double kFloor = -9999.0;

Json bytes_json(std::string_view bytes) {
  Json::Array out;
  for (const char c : bytes) out.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return Json(std::move(out));
}

std::string legacy_token(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += hex;
  }
  return out;
}

std::size_t shown(const TokenLogprobs& lp, std::int32_t top) {
  return std::min(lp.top.size(), static_cast<std::size_t>(std::max(top, 0)));
}

/// OpenAI's dictionary: the most likely tokens and always the chosen one.
Json legacy_top(const Tokenizer& tokenizer, const OutToken& token, std::int32_t top) {
  Json out = Json::object();
  for (std::size_t i = 0; i < shown(*token.logprobs, top); ++i) {
    const TopLogprob& t = token.logprobs->top[i];
    const std::string key = legacy_token(tokenizer.token_bytes(t.id));
    if (!out.find(key)) out.set(key, clip_logprob(t.logprob));
  }
  out.set(legacy_token(tokenizer.token_bytes(token.id)), clip_logprob(token.logprobs->logprob));
  return out;
}

}  // namespace

double clip_logprob(float value) { return std::isfinite(value) ? std::max<double>(value, kFloor) : kFloor; }

Json chat_entry(const Tokenizer& tokenizer, const OutToken& token, std::int32_t top) {
  const std::string_view bytes = tokenizer.token_bytes(token.id);
  Json entry = Json::object({{"token", repair_utf8(bytes)},
                             {"logprob", token.logprobs ? clip_logprob(token.logprobs->logprob) : kFloor},
                             {"bytes", bytes_json(bytes)}});
  Json::Array alternatives;
  for (std::size_t i = 0; token.logprobs && i < shown(*token.logprobs, top); ++i) {
    const TopLogprob& t = token.logprobs->top[i];
    const std::string_view text = tokenizer.token_bytes(t.id);
    alternatives.push_back(Json::object(
        {{"token", repair_utf8(text)}, {"logprob", clip_logprob(t.logprob)}, {"bytes", bytes_json(text)}}));
  }
  entry.set("top_logprobs", Json(std::move(alternatives)));
  return entry;
}

Json chat_logprobs(const Tokenizer& tokenizer, std::span<const OutToken> tokens, std::int32_t top) {
  Json::Array content;
  for (const OutToken& token : tokens) {
    if (token.has_text()) content.push_back(chat_entry(tokenizer, token, top));
  }
  if (content.empty()) return nullptr;
  return Json::object({{"content", Json(std::move(content))}, {"refusal", nullptr}});
}

Json legacy_logprobs(const Tokenizer& tokenizer, std::span<const OutToken> tokens, std::int32_t top,
                     bool first_null) {
  Json::Array names, values, tops, offsets;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const OutToken& token = tokens[i];
    const bool known = token.logprobs && !(first_null && i == 0);
    names.emplace_back(token.hidden ? std::string() : legacy_token(tokenizer.token_bytes(token.id)));
    values.push_back(known ? Json(clip_logprob(token.logprobs->logprob)) : Json(nullptr));
    tops.push_back(known ? legacy_top(tokenizer, token, top) : Json(nullptr));
    offsets.emplace_back(static_cast<std::int64_t>(token.char_start));
  }
  return Json::object({{"tokens", Json(std::move(names))},
                       {"token_logprobs", Json(std::move(values))},
                       {"top_logprobs", Json(std::move(tops))},
                       {"text_offset", Json(std::move(offsets))}});
}

std::vector<OutToken> prompt_records(const Tokenizer& tokenizer, const PromptInfo& prompt,
                                     std::span<const TokenLogprobs> logprobs, bool skip_special_tokens) {
  const bool skip = skip_special_tokens && !prompt.from_text;
  text::Detokenizer detokenizer(tokenizer, skip);
  std::vector<OutToken> out;
  std::size_t chars = 0;
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
    OutToken token{.id = prompt.ids[i], .logprobs = std::nullopt, .char_start = chars, .hidden = false};
    token.hidden = (i == 0 && prompt.added_front) || (i + 1 == prompt.ids.size() && prompt.added_back) ||
                   (skip && tokenizer.is_special(token.id));
    if (!token.hidden) {
      const std::size_t held = detokenizer.held();
      const std::string text = detokenizer.push(token.id);
      token.char_start += broken_characters(held, text);
      chars += count_characters(text);
    }
    if (i > 0 && i < logprobs.size()) token.logprobs = logprobs[i];
    out.push_back(std::move(token));
  }
  return out;
}

Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const TokenLogprobs> logprobs) {
  Json::Array out;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    if (i == 0) {
      out.emplace_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    const auto add = [&](TokenId id, float value, std::int64_t rank) {
      entry.set(std::to_string(id),
                Json::object({{"logprob", clip_logprob(value)},
                              {"rank", rank},
                              {"decoded_token", repair_utf8(tokenizer.token_bytes(id))}}));
    };
    for (std::size_t k = 0; k < logprobs[i].top.size(); ++k) {
      add(logprobs[i].top[k].id, logprobs[i].top[k].logprob, static_cast<std::int64_t>(k) + 1);
    }
    add(logprobs[i].id, logprobs[i].logprob, logprobs[i].rank);
    out.push_back(std::move(entry));
  }
  return Json(std::move(out));
}

}  // namespace barg::server
