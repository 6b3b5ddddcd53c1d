// How requests spell constraints: response_format, structured_outputs, guided_*, and the fields of SGLang and llama.cpp,
// for Chat Completions and Completions; text.format and output_config.format call read_format. Two at once are a 400 that
// names both. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "server/constraint_spec.h"
#include "server/json_fields.h"

namespace barg::server {

/// Rows of the shared fields; each reads what the function below reads.
extern const std::span<const FieldSpec> kConstraintRows;
/// Members of response_format, text.format and output_config.format.
extern const std::span<const FieldSpec> kFormatRows;

/// Every shared field that `fields` has a row of.
void read_constraint(Fields& fields, ConstraintSpec& out);

/// One format object: {"type": "json_schema", ...} with `schema` in it or in `json_schema`. Fails where `out` has a
/// constraint already. `format` is absorbed by the caller; `field` is its whole path.
void read_format(Fields& format, const std::string& field, ConstraintSpec& out);

}  // namespace barg::server
