// The field groups of openai_json.cpp, one function each. Internal to it. Every function reports what is
// wrong through `fields` and leaves defaults behind.
#pragma once

#include "server/json_fields.h"
#include "server/openai_json.h"

namespace barg::server {

/// kUnsupported for whatever changes the meaning of the answer and is not built: tools, formats, beams, ...
void refuse_unsupported(Fields& fields, Api api);
/// temperature ... stop_token_ids.
void read_sampling(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults, std::int32_t vocab);
/// stop: string or array.
void read_stops(Fields& fields, OutputSpec& out);
/// priority, cache_salt, cache_pin_s, user, metadata.
void read_identity(Fields& fields, ApiRequest& request);
/// messages, documents, template flags and kwargs.
void read_messages(Fields& fields, text::ChatPrompt& chat);

}  // namespace barg::server
