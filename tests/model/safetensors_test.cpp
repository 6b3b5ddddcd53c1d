// safetensors headers that are cut, flipped and crafted, and sharded models whose index lies.
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "model/hf_builder.h"

namespace barg::model::test::safetensors_test {
namespace {

using ::testing::HasSubstr;

std::string parse_error(std::string_view bytes) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  std::memcpy(exact.get(), bytes.data(), bytes.size());
  const auto r = parse_safetensors({exact.get(), bytes.size()});
  return r ? "" : r.error().message;
}

std::string eight(char c) { return std::string(8, c); }

TEST(Safetensors, ShapesTypesAndEmptyTensors) {
  const std::string bytes = safetensors_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"none":{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]},"s":{"dtype":"F64","shape":[],"data_offsets":[8,16]}}   )",
      eight('x') + eight('y'));
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(bytes.data()),
                                    reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
  const auto t = parse_safetensors(copy);
  ASSERT_TRUE(t) << t.error().message;
  ASSERT_EQ(t->size(), 3u);
  EXPECT_EQ((*t)[0].type.dtype, DType::kBF16);
  EXPECT_EQ((*t)[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ((*t)[1].elements(), 0u);
  EXPECT_FALSE((*t)[2].type.dtype.has_value());
  EXPECT_EQ(static_cast<char>((*t)[2].bytes[0]), 'y');
}

TEST(Safetensors, TruncatedAtEveryByteIsOneError) {
  const std::string bytes = safetensors_of(tiny_hf_tensors());
  EXPECT_EQ(parse_error(bytes), "");
  for (std::size_t n = 0; n < bytes.size(); ++n)
    ASSERT_NE(parse_error(std::string_view(bytes).substr(0, n)), "") << n;
}

TEST(Safetensors, FlippedBitsNeverCrash) {
  const std::string bytes = safetensors_of(tiny_hf_tensors());
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < (8 + n) * 8; ++bit) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    refused += !parse_error(bad).empty();
  }
  EXPECT_GT(refused, n * 4);
}

TEST(Safetensors, CraftedHeadersAreRefusedByName) {
  struct Row {
    std::string bytes;
    const char* expected;
  };
  const auto one = [](const std::string& entry) {
    return safetensors_file("{\"t\":" + entry + "}", eight('x'));
  };
  const Row rows[] = {
      {"", "too short"},
      {Bytes().put<std::uint64_t>(1ULL << 40).data + "{}", "header of 1099511627776 bytes does not fit"},
      {Bytes().put<std::uint64_t>(~0ULL).data + "{}", "does not fit"},
      {safetensors_file(" {}", ""), "does not start with"},
      {safetensors_file("", ""), "does not start with"},
      {safetensors_file("{\"t\":", ""), "not valid JSON"},
      {safetensors_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":"
                        "\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                        eight('x')),
       "not valid JSON"},
      {safetensors_file("{\""
                        "\xff"
                        "\":1}",
                        ""),
       "not valid JSON"},
      {safetensors_file("{}", "x"), "1 bytes after its last tensor"},
      {one("[1]"), "tensor t: dtype is missing"},
      {one(R"({"dtype":"F32","shape":[2]})"), "data_offsets is not a pair"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "data_offsets is not a pair"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[-1,7]})"), "data_offsets is not a pair"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0.0,8.0]})"), "data_offsets is not a pair"},
      {one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), "unknown dtype F31"},
      {one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
       "span 8 bytes but its shape and dtype need 12"},
      {one(R"({"dtype":"F16","shape":[2],"data_offsets":[0,8]})"),
       "span 8 bytes but its shape and dtype need 4"},
      {one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "not a size"},
      {one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "shape is missing or not an array"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})"), "overflow"},
      {one(R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]})"), "overflow"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "data_offsets span"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), "4 bytes after its last tensor"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "leaves a hole"},
      {one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "beyond the end of the file"},
      {safetensors_file(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           eight('x')),
       "overlaps"},
      {safetensors_file(R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight('x')),
       "empty name"},
      {safetensors_file(R"({"__metadata__":3})", ""), "__metadata__"},
      {safetensors_file("{" + std::string(100, '['), ""), "not valid JSON"},
  };
  for (const Row& r : rows) EXPECT_THAT(parse_error(r.bytes), HasSubstr(r.expected));
}

TEST(SafetensorsShards, IndexIsChecked) {
  const std::string two = safetensors_of({{"a", {2}}, {"b", {2}}});
  struct Row {
    const char* index;
    const char* expected;
  };
  const Row rows[] = {
      {R"({"weight_map":{"a":"s1.safetensors","b":"s1.safetensors"}})", ""},
      {R"({"weight_map":{"a":"s1.safetensors","c":"s1.safetensors"}})", "c is not in s1.safetensors"},
      {R"({"weight_map":{"a":"s2.safetensors"}})", "s2.safetensors"},
      {R"({"weight_map":{"a":"../s1.safetensors"}})", "weight_map.a is not a plain file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "weight_map.a is not a plain file name"},
      {R"({"weight_map":{"a":".."}})", "weight_map.a is not a plain file name"},
      {R"({"weight_map":{"a":7}})", "weight_map.a is not a plain file name"},
      {R"({"weight_map":{}})", "weight_map is missing or empty"},
      {R"([])", "weight_map is missing or empty"},
      {R"({"weight_map":)", "model.safetensors.index.json"},
  };
  for (const Row& r : rows) {
    TempDir dir;
    dir.write("s1.safetensors", two);
    dir.write("model.safetensors.index.json", r.index);
    const auto m = open_safetensors(dir.path());
    EXPECT_THAT(m ? "" : m.error().message, HasSubstr(r.expected)) << r.index;
    EXPECT_EQ(m.has_value(), std::string_view(r.expected).empty()) << r.index;
  }
}

}  // namespace
}  // namespace barg::model::test::safetensors_test
