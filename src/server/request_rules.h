// What the bodies of several endpoints share: their table of fields and one function for each group of them. Every
// function reports what is wrong through `fields` and leaves defaults behind. Internal to the protocols' parsers.
//
// A parser reads: its own fields, read_generation(), then finish_request(). The table of a protocol is
// with_shared(api, its own rows), kept for the life of the process; a row of its own replaces the shared one.
#pragma once

#include <span>
#include <vector>

#include "server/json_fields.h"
#include "server/openai_json.h"

namespace barg::server {

/// `own`, then the shared rows of `api` whose names are not in it.
std::vector<FieldSpec> with_shared(Api api, std::span<const FieldSpec> own);

/// model, stream, stream_options, sampling, stop, priority, cache_salt, ...: every shared row that the table has, but
/// those of the template and of reasoning. REQUIRES fields over a table of with_shared(request.output.api, ...).
void read_generation(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults, std::int32_t vocab);
/// priority, cache_salt, cache_pin_s; a part of read_generation().
void read_identity(Fields& fields, ApiRequest& request);
/// string | [string] | [int] | [[int]], nothing empty, nothing mixed, at most `most` of them.
std::vector<PromptInput> read_inputs(Fields& fields, const std::string& name, std::size_t most, std::int32_t vocab);
/// chat_template_kwargs, thinking_token_budget, include_reasoning, separate_reasoning, enable_thinking. Call it when
/// what the protocol itself says of reasoning is in `request` already.
void read_reasoning(Fields& fields, ApiRequest& request);
/// strict_params, ignored fields; the error if there was one.
Result<ApiRequest> finish_request(ApiRequest request, Fields& fields);
/// The error of a strict request of which a field has no effect.
Result<void> check_strict(const ApiRequest& request);

/// min_tokens against max_tokens, once both are read.
void check_min_tokens(Fields& fields, const ApiRequest& request);
/// What a request says of reasoning, with the path of the field that says it. Switches win over efforts ("none" is one
/// and says off, the others say on); two switches, efforts or budgets that differ are an error that names both.
void set_switch(Fields& fields, ReasoningOptions& reasoning, bool on, std::string path);
void set_effort(Fields& fields, ReasoningOptions& reasoning, std::string effort, std::string path);
void set_budget(Fields& fields, ReasoningOptions& reasoning, std::int64_t tokens, std::string path);
inline constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

/// messages, documents, template flags of Chat Completions.
void read_messages(Fields& fields, text::ChatPrompt& chat);

}  // namespace barg::server
