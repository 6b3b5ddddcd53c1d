// The machine code in the program has every kernel that the table of operations, the sampler and the rest of kernels/cuda
// may launch. Needs no GPU.
#include "cuda/kernel_images.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/device_kernel.h"

namespace barg::cuda {
namespace {

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The C strings in `bytes` that begin with `prefix`, without it.
std::set<std::string> strings_behind(const std::string& bytes, const std::string& prefix) {
  std::set<std::string> found;
  for (std::size_t at = bytes.find(prefix); at != std::string::npos; at = bytes.find(prefix, at + 1))
    found.insert(bytes.c_str() + at + prefix.size());
  return found;
}

/// Of each kernel<...>() in the library of kernels/cuda, the symbol: its function has a variable whose name has the function,
/// written as in the tag's name.
std::set<std::string> asked_for() {
  const std::string end = "RKNS0_6KernelEvE5known";
  std::set<std::string> symbols;
  for (std::string name : strings_behind(file_bytes(BARG_DEVICE_LIBRARY), "_ZZN4barg4cuda6kernelI")) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
    symbols.insert(kernel_symbol("N4barg4cuda9KernelTagI" + name));
  }
  return symbols;
}

/// Of all cubins of this architecture: a kernel is a section of its own.
std::set<std::string> compiled(const std::string& arch) {
  std::set<std::string> symbols;
  for (const KernelImage& image : kernel_images()) {
    const std::filesystem::path path = std::filesystem::path(BARG_CUDA_DIR) / (std::string(image.name) + "." + arch + ".cubin");
    symbols.merge(strings_behind(file_bytes(path), std::string(1, '\0') + ".text."));
  }
  return symbols;
}

/// "80", "90", ... without those of PTX.
std::vector<std::string> archs() {
  std::istringstream in(kernel_archs());
  std::vector<std::string> all;
  for (std::string arch; std::getline(in >> std::ws, arch, ',');) {
    if (!arch.ends_with("-ptx")) all.push_back(arch);
  }
  return all;
}

TEST(KernelImages, HaveEveryKernelThatMayBeLaunched) {
  if (kernel_images().empty()) GTEST_SKIP() << "skipped: built without CUDA kernels (BARG_CUDA=OFF)";
  const std::set<std::string> asked = asked_for();
  EXPECT_TRUE(asked.contains("_ZN4barg4cuda13sample_kernelENS0_10SampleArgsE"));
  EXPECT_GT(asked.size(), 80u) << "embeddings, products and attention alone are more";
  ASSERT_FALSE(archs().empty());
  for (const std::string& arch : archs()) {
    const std::set<std::string> there = compiled(arch);
    for (const std::string& symbol : asked)
      EXPECT_TRUE(there.contains(symbol)) << "no .cu file has an instance of it, for " << arch << ": " << symbol;
  }
}

TEST(KernelImages, AreThere) {
  if (kernel_images().empty()) {
    EXPECT_STREQ(kernel_archs(), "none");
    return;
  }
  for (const KernelImage& image : kernel_images()) {
    const std::string file = file_bytes(std::filesystem::path(BARG_CUDA_DIR) / (std::string(image.name) + ".fatbin"));
    EXPECT_EQ(std::string(static_cast<const char*>(image.data), image.bytes), file) << image.name;
    EXPECT_EQ(file.substr(0, 4), "\x50\xed\x55\xba") << "no fatbin: " << image.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(image.data) % 64, 0u);
  }
}

}  // namespace
}  // namespace barg::cuda
