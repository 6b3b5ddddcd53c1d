// A JSON object that was cut off, closed again: the arguments of a call that the answer broke off in, as the
// official clients' accumulators read them. Pure, any thread, one pass.
#pragma once

#include <string>
#include <string_view>

namespace barg::server {

/// `prefix` of the text of one JSON object -> the object with every member and element that is complete in it;
/// an unfinished string, word or number goes, with its key. Always an object; "{}" where `prefix` begins none.
std::string closed_json_object(std::string_view prefix);

}  // namespace barg::server
