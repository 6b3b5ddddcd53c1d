// The endpoints around stored responses; each exists with and without /v1. Handlers of routes.cpp's table.
//
//   POST   /v1/responses                          an answer
//   GET    /v1/responses/{id}                     a stored one; ?stream=true&starting_after=N replays its
//   events DELETE /v1/responses/{id} POST   /v1/responses/{id}/cancel              ends a running one; a
//   finished one is answered as it is GET    /v1/responses/{id}/input_items
//   ?limit=N&order=asc|desc&after=ITEM POST   /v1/responses/input_tokens             counts the prompt of a
//   body of POST /v1/responses
//
// What belongs to another API key is not there (404). io threads; input_tokens works on the text pool.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/server_state.h"

namespace barg::server {

void create_response(const std::shared_ptr<ServerState>& state, HttpRequest request,
                     std::shared_ptr<Responder> responder);
void get_response(const std::shared_ptr<ServerState>& state, HttpRequest request,
                  std::shared_ptr<Responder> responder);
void delete_response(const std::shared_ptr<ServerState>& state, HttpRequest request,
                     std::shared_ptr<Responder> responder);
void cancel_response(const std::shared_ptr<ServerState>& state, HttpRequest request,
                     std::shared_ptr<Responder> responder);
void list_input_items(const std::shared_ptr<ServerState>& state, HttpRequest request,
                      std::shared_ptr<Responder> responder);
void count_input_tokens(const std::shared_ptr<ServerState>& state, HttpRequest request,
                        std::shared_ptr<Responder> responder);

}  // namespace barg::server
