// Runs a fuzz target over every file of its corpus, plus cheap mutations of each: truncations and bit flips.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::vector<std::uint8_t>& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

int run_with_mutations(std::vector<std::uint8_t> bytes) {
  run(bytes);
  int count = 1;
  const std::size_t steps = 24;
  for (std::size_t i = 0; i < steps && !bytes.empty(); ++i) {
    std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() * i / steps));
    run(cut);
    auto flipped = bytes;
    flipped[(i * 2654435761U) % flipped.size()] ^= static_cast<std::uint8_t>(1U << (i % 8));
    run(flipped);
    count += 2;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  int inputs = 0;
  for (int a = 1; a < argc; ++a) {
    if (!std::filesystem::exists(argv[a])) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[a])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      inputs += run_with_mutations({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;  // an empty corpus proves nothing
}
