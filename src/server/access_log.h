// log_access: one line per HTTP request at its end of life, whatever became of it. No prompt text, ever;
// values a client chose are escaped and cut by the log itself. Any thread.
#pragma once

#include "server/http.h"

namespace barg::server {

void log_access(const AccessRecord& record);

}  // namespace barg::server
