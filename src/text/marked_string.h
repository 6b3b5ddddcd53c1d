// MarkedString: text that remembers which of its bytes a client wrote.
//
// The chat template's own text is trusted: a `<|im_start|>` in it is a control token. What came from the
// request never is. Ranges are byte offsets [begin, end), ascending, disjoint, non-empty and within `text`.
// Plain data; no thread rule of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/tokenizer.h"

namespace barg::text {

struct MarkedString {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> untrusted;

  /// The text as alternating pieces for Tokenizer::encode_marked. The views point into `text`, so they live
  /// as long as this object stays where it is.
  std::vector<MarkedText> pieces() const;

  /// What the template wrote behind the last byte of a client: where a rendered prompt says whether reasoning is
  /// open. Views `text`.
  std::string_view trusted_tail() const;

  /// The same of a prompt that goes on with its last message (`continue_final_message`): what that message says counts,
  /// and what the template wrote since the message before it.
  std::string_view continued_tail() const;
};

}  // namespace barg::text
