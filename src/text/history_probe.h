// What a template does with a conversation, found by rendering small ones when it is loaded. A template that
// refuses a probe is just not capable of what the probe shows. About forty renders of three messages; the renderer
// bounds each.
#pragma once

#include <functional>
#include <optional>

#include "base/json.h"
#include "text/dialect.h"
#include "text/history_traits.h"
#include "text/marked_string.h"

namespace barg::text {

struct Probe {
  Json messages;
  Json tools;                        ///< null, or an array
  Json variables = Json::object();   ///< of the template
  bool generation = false;
};

/// Renders as a request would be, with these traits; nullopt if the template refuses.
using ProbeRender = std::function<std::optional<MarkedString>(const TemplateTraits& traits, const Probe& probe)>;

/// Fills the second half of `traits`. `markers`: of the model's reasoning.
void probe_traits(TemplateTraits& traits, const ReasoningMarkers& markers, const ProbeRender& render);

}  // namespace barg::text
