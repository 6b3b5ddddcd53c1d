// The secret of a pool of processes that share stored KV blocks (kv.salt_file). Named in the configuration it must exist;
// otherwise it is made once, of 32 random bytes, in the user's state directory, readable to its owner alone. Of processes
// that start at the same moment one makes it and all read the same bytes.
#pragma once

#include <string>

#include "barg/result.h"

namespace barg::cli {

struct SaltFile {
  std::string secret;   ///< 16 to 4,096 bytes
  std::string path;
  bool made = false;    ///< by this call
  bool exposed = false; ///< others on this machine can read it
};

/// `configured`: kv.salt_file, may be empty. `state_directory`: Settings::state_directory. Fails with kNotFound, kBadFile
/// or kIo; the sentence names the file.
Result<SaltFile> open_salt_file(const std::string& configured, const std::string& state_directory);

/// 32 random bytes for a process whose blocks end with it.
std::string passing_secret();

}  // namespace barg::cli
