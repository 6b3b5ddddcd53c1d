// available_memory(): what this process may still allocate, from /proc and the cgroup files.
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "runtime/memory_plan.h"

namespace barg::runtime {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// First number in the file, or `otherwise` if it is absent or says "max".
std::uint64_t read_number(const std::string& path, std::uint64_t otherwise) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : otherwise;
}

/// The number after `key` in a file of "key value" lines, 0 if absent.
std::uint64_t read_keyed(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  std::uint64_t value = 0;
  while (in >> word) {
    if (word == key && in >> value) return value;
    in.clear();
  }
  return 0;
}

struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // page cache that the kernel gives back: counts in usage, does not limit us
};
constexpr CgroupFiles kV2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr CgroupFiles kV1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                          "total_inactive_file"};

/// Least room in the group at `path` and all groups around it. Inside a container the path of
/// /proc/self/cgroup may not exist below the mount; then only the ancestors that do are read.
std::uint64_t cgroup_room(const std::string& root, const CgroupFiles& files, std::string path) {
  std::uint64_t room = kUnlimited;
  for (;;) {
    const std::string dir = root + files.mount + path;
    const std::uint64_t limit = read_number(dir + files.limit, kUnlimited);
    if (limit != kUnlimited) {
      const std::uint64_t usage = read_number(dir + files.usage, 0);
      const std::uint64_t reclaimable = read_keyed(dir + "/memory.stat", files.reclaimable);
      const std::uint64_t held = usage > reclaimable ? usage - reclaimable : 0;
      room = std::min(room, limit > held ? limit - held : 0);
    }
    if (path.empty() || path == "/") return room;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  std::uint64_t room = read_keyed(root + "/proc/meminfo", "MemAvailable:");
  room = room > kUnlimited / 1024 ? kUnlimited : room * 1024;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) room = std::min(room, cgroup_room(root, kV2, path));
    if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      room = std::min(room, cgroup_room(root, kV1, path));
    }
  }
  return room;
}

std::uint64_t available_memory() { return available_memory(""); }

}  // namespace barg::runtime
