// Encodes a file with a tokenizer.json: one line of ids for each block (they are separated by U+001E). For
// tests/python/trained_tokenizers.py. Never installed.
//
//   barg_tokenizer_batch TOKENIZER.json TEXT
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "barg/tokenizer.h"

namespace {

std::string read_file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: barg_tokenizer_batch TOKENIZER.json TEXT\n", stderr), 2;
  barg::VocabData vocab;
  vocab.tokenizer_json = read_file(argv[1]);
  const auto tokenizer = barg::make_tokenizer(vocab);
  if (!tokenizer) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 1;
  const std::string text = read_file(argv[2]);
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t end = rest.find('\x1e');
    std::string line;
    for (const barg::TokenId id : (*tokenizer)->encode(rest.substr(0, end), {})) line += std::to_string(id) + ' ';
    std::printf("%s\n", line.c_str());
    more = end != std::string_view::npos;
    if (more) rest.remove_prefix(end + 1);
  }
  return 0;
}
