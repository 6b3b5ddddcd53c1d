// What the process tells its supervisor. sysexits.h numbers where one fits; restarting helps only for 69,
// 70 and 75.
#pragma once

#include "barg/result.h"

namespace barg::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,        ///< bad model file, template or input: one sentence on stderr
  kExitUsage = 2,          ///< unknown command or flag, or a flag's value
  kExitUnavailable = 69,   ///< a device or server is not there
  kExitDeviceLost = 70,    ///< the device failed while the server ran: only a new process can go on
  kExitCannotCreate = 73,  ///< port, socket or directory
  kExitOutOfMemory = 75,   ///< weights or the KV pool do not fit this machine
  kExitBadConfig = 78,     ///< configuration file or environment
};

/// The code for an error met while a model is opened.
constexpr int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kOutOfMemory:
      return kExitOutOfMemory;
    case ErrorCode::kUnavailable:
      return kExitUnavailable;
    case ErrorCode::kInvalidValue:  // an option that this model or machine cannot satisfy
      return kExitBadConfig;
    default:
      return kExitFailure;
  }
}

}  // namespace barg::cli
