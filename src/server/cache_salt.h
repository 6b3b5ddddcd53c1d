// The salt of a request's KV blocks where blocks outlive the process (docs/tiers.md): HMAC of the pool's secret over the
// API key that came with the request and the request's own cache_salt. Processes with one secret agree, so they find each
// other's blocks, and nobody without it can tell by its key which text a stored block belongs to. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace barg::server {

/// 32 bytes. Different API keys never share blocks, except under an equal `cache_salt` that begins with "shared:": then
/// the API key does not enter. `api_key` is empty where none is asked for.
std::string derived_salt(std::string_view secret, std::string_view api_key, std::string_view cache_salt);

}  // namespace barg::server
