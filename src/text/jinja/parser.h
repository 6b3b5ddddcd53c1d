// Parser: tokens to AST. The grammar and precedences are those of Jinja2's parser.py, function by function,
// so that what it refuses is refused here; statements this project does not have (include, import, extends,
// block, autoescape) are errors that name them. Raises RenderError with "line N: ...". Pure function.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/template.h"

namespace barg::text::jinja {

/// Parses, then resolves scopes and filter names (scope.h).
std::unique_ptr<TemplateAst> parse_template(std::string_view source, const Limits& limits);

}  // namespace barg::text::jinja
