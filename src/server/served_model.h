// ServedModel: everything the server needs to serve one model under one or more names. Plain data, made by
// the command line; constant while the server runs. A process may hold several.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "barg/engine.h"
#include "barg/tokenizer.h"
#include "text/chat_template.h"
#include "text/dialect.h"

namespace barg::server {

/// What the model's generation_config.json says; a request's own values win, OpenAI's defaults come last.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int32_t> top_k;
};

struct ServedModel {
  std::vector<std::string> names;  ///< the first is canonical: responses and metrics carry it
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  ///< may be null: chat is then refused
  /// How its output writes tool calls and reasoning; null: everything is text.
  std::shared_ptr<const text::BoundDialect> dialect = {};
  SamplingDefaults sampling;
  /// Secret of cache_salt.h; empty (embedders, tests): a request's cache_salt is the salt, whatever its API key.
  std::string salt_secret = {};
  std::int64_t created = 0;         ///< unix seconds shown by /v1/models
  std::string fingerprint;          ///< "" = derived from version, numerics id and weights
};

}  // namespace barg::server
