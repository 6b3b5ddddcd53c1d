// The protocols there are: one constant each, defined in its own file; protocol.cpp lists them.
#pragma once

#include "server/protocol.h"

namespace barg::server {

extern const Protocol kChatProtocol;         // chat_protocol.cpp
extern const Protocol kCompletionsProtocol;  // completions_protocol.cpp
extern const Protocol kResponsesProtocol;    // responses_protocol.cpp
extern const Protocol kMessagesProtocol;     // messages_protocol.cpp

}  // namespace barg::server
