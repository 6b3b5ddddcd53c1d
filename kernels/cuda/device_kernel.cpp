#include "cuda/device_kernel.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace barg::cuda {

// The tag's name is N4barg4cuda9KernelTagIXadL_Z<function>EEEE, where the function's own first mention of its namespace is
// the short form NS0_, and of what comes later the numbers are larger by one: the tag itself has taken S1_.
std::string kernel_symbol(const std::string& tag) {
  const std::string before = "KernelTagIXadL_Z", after = "EEEE", space = "NS0_";
  const std::size_t at = tag.find(before);
  if (at == std::string::npos || !tag.ends_with(after)) return tag;
  std::string name = tag.substr(at + before.size());
  name.resize(name.size() - after.size());
  if (name.starts_with(space)) name.replace(0, space.size(), "N4barg4cuda");
  for (std::size_t i = 0; i + 2 < name.size(); ++i) {
    if (name[i] == 'S' && name[i + 1] >= '1' && name[i + 1] <= '9' && name[i + 2] == '_') --name[i + 1];
  }
  return "_Z" + name;
}

std::string kernel_text(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  if (readable == nullptr) return symbol;
  std::string text = readable.get();
  const std::size_t kernel = text.find("_kernel");
  if (kernel == std::string::npos) return text;
  const std::size_t end = text.find_first_of("<(", kernel), begin = text.rfind(':', kernel);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace barg::cuda
