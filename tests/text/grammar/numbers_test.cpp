#include "text/grammar/numbers.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace barg::text::grammar::numbers_test {
namespace {

constexpr std::int64_t kScale = 10'000;  // numbers here have at most four digits behind the point

std::string padded(std::int64_t n, std::size_t digits) {
  const std::string text = std::to_string(n);
  return std::string(digits - text.size(), '0') + text;
}

// As a client may write n / kScale.
std::string written(std::int64_t n, std::mt19937& rng) {
  const std::int64_t magnitude = n < 0 ? -n : n;
  std::string text =
      (n < 0 ? "-" : "") + std::to_string(magnitude / kScale) + "." + padded(magnitude % kScale, 4);
  switch (rng() % 4) {
    case 0:
      return text;
    case 1:
      return std::to_string(n) + "e-4";
    case 2:
      return std::to_string(n) + "0.0E-5";
    default:
      break;
  }
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Texts that are numbers of JSON and texts that nearly are, with their values times kScale.
struct Text {
  std::string text;
  std::optional<std::int64_t> value;  // nullopt: not a number of JSON
};

std::vector<Text> texts() {
  std::vector<Text> all = {{"", {}},    {"-", {}},   {".", {}},  {"01", {}},    {"00", {}},  {"1.", {}},
                           {".5", {}},  {"--1", {}}, {"+1", {}}, {"1.2.3", {}}, {"-01", {}}, {"1-", {}},
                           {"0x1", {}}, {"1e", {}},  {" 1", {}}, {"-.5", {}},   {"1.-", {}}, {"NaN", {}}};
  const auto add = [&](const std::string& whole, const std::string& fraction, std::int64_t value) {
    const std::string text = fraction.empty() ? whole : whole + "." + fraction;
    all.push_back({text, value});
    all.push_back({"-" + text, -value});
  };
  for (std::int64_t n = 0; n <= 130; ++n) {
    add(std::to_string(n), "", n * kScale);
    for (const char* zeros : {"0", "00", "000"}) add(std::to_string(n), zeros, n * kScale);
    for (std::int64_t f = 0; f < 100; f += n < 12 ? 1 : 7) {
      add(std::to_string(n), padded(f, 2), n * kScale + f * 100);
      add(std::to_string(n), padded(f, 3), n * kScale + f * 10);
      add(std::to_string(n), padded(f, 4), n * kScale + f);
      add(std::to_string(n), padded(f, 4) + "00", n * kScale + f);
    }
  }
  for (const std::int64_t n : {999, 1000, 1001, 4096, 99'999, 100'000, 123'456})
    add(std::to_string(n), "", n * kScale);
  return all;
}

bool is_integer(const std::string& text) {
  const std::size_t point = text.find('.');
  if (point == std::string::npos) return true;
  const std::string fraction = text.substr(point + 1);
  return fraction.size() <= 3 && fraction.find_first_not_of('0') == std::string::npos;
}

struct Range {
  std::optional<std::int64_t> min, max, multiple;  // times kScale
  bool no_min = false, no_max = false;             // exclusive

  bool has(std::int64_t v) const {
    if (min && (no_min ? v <= *min : v < *min)) return false;
    if (max && (no_max ? v >= *max : v > *max)) return false;
    return !multiple || v % *multiple == 0;
  }
  NumberRange range(std::mt19937& rng) const {
    NumberRange r{.exclusive_minimum = no_min, .exclusive_maximum = no_max};
    if (min) r.minimum = written(*min, rng);
    if (max) r.maximum = written(*max, rng);
    if (multiple) r.multiple_of = written(*multiple, rng);
    return r;
  }
};

Range random_range(std::mt19937& rng) {
  // Whole numbers, halves and so on, and any.
  const auto value = [&](std::int64_t most) {
    const std::int64_t unit = std::array<std::int64_t, 4>{kScale, kScale / 2, 100, 1}[rng() % 4];
    const auto n =
        static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(2 * most * kScale / unit + 1));
    return n * unit - most * kScale;
  };
  Range r;
  if (rng() % 4 != 0) r.min = value(rng() % 2 == 0 ? 130 : 3);
  if (rng() % 4 != 0) r.max = value(rng() % 2 == 0 ? 130 : 3);
  if (rng() % 3 == 0) {
    constexpr std::int64_t kMultiples[] = {
        kScale,       2 * kScale,    3 * kScale, 7 * kScale,  10 * kScale, 12 * kScale,
        100 * kScale, 1500 * kScale, kScale / 2, kScale / 4,  100,         1,
        25'000,       300,           7,          40 * kScale, 12'500,      1024 * kScale};
    r.multiple = kMultiples[rng() % std::size(kMultiples)];
  }
  r.no_min = rng() % 2 == 0;
  r.no_max = rng() % 2 == 0;
  return r;
}

TEST(Numbers, RangesByExactArithmetic) {
  std::mt19937 rng(1);
  const std::vector<Text> all = texts();
  std::size_t checked = 0;
  for (int i = 0; i < 400; ++i) {
    const Range range = random_range(rng);
    const NumberRange written = range.range(rng);
    const auto integers = integer_dfa(written);
    const auto numbers = number_dfa(written);
    ASSERT_TRUE(integers) << integers.error().message;
    ASSERT_TRUE(numbers) << numbers.error().message;
    for (const Text& t : all) {
      const bool in_range = t.value && range.has(*t.value);
      ASSERT_EQ(numbers->matches(t.text), in_range)
          << t.text << " in " << written.minimum.value_or("") << " .. " << written.maximum.value_or("")
          << " of " << written.multiple_of.value_or("") << range.no_min << range.no_max;
      ASSERT_EQ(integers->matches(t.text), in_range && is_integer(t.text))
          << t.text << " in " << written.minimum.value_or("") << " .. " << written.maximum.value_or("")
          << " of " << written.multiple_of.value_or("") << range.no_min << range.no_max;
      ++checked;
    }
  }
  EXPECT_GT(checked, 1'000'000U);
}

TEST(Numbers, Unbounded) {
  const Dfa number = *number_dfa({});
  const Dfa integer = *integer_dfa({});
  for (const char* text :
       {"0", "-0", "12", "-1.50", "1e5", "1E+5", "0.1e-10", "123456789012345678901234567890"}) {
    EXPECT_TRUE(number.matches(text)) << text;
  }
  for (const char* text : {"", "01", "1.", ".1", "1e", "+1", "1e5.5", "- 1"})
    EXPECT_FALSE(number.matches(text)) << text;
  for (const char* text : {"0", "-0", "12", "-0.0", "7.000", "123456789012345678901234567890"}) {
    EXPECT_TRUE(integer.matches(text)) << text;
  }
  for (const char* text : {"1.5", "7.0000", "1e2", "007"}) EXPECT_FALSE(integer.matches(text)) << text;
  EXPECT_FALSE(number_dfa({.minimum = "0"})->matches("1e5")) << "an exponent beside a bound";
}

TEST(Numbers, LongBounds) {
  const std::string large(60, '9');
  const Dfa dfa = *integer_dfa({.minimum = "-1e60", .maximum = large});
  EXPECT_TRUE(dfa.matches(large));
  EXPECT_FALSE(dfa.matches("1" + std::string(60, '0')));
  EXPECT_TRUE(dfa.matches("-1" + std::string(60, '0')));
  EXPECT_FALSE(dfa.matches("-1" + std::string(59, '0') + "1"));
  const Dfa doubles =
      *number_dfa({.minimum = "-1.7976931348623157E+308", .maximum = "1.7976931348623157e308"});
  EXPECT_TRUE(doubles.matches("17976931348623157" + std::string(292, '0')));
  EXPECT_FALSE(doubles.matches("17976931348623157" + std::string(292, '0') + ".01"));
  EXPECT_FALSE(doubles.matches("17976931348623158" + std::string(292, '0')));
  const Dfa tiny = *number_dfa({.minimum = "5e-324", .maximum = "1"});
  EXPECT_FALSE(tiny.matches("0.0"));
  EXPECT_TRUE(tiny.matches("0.01"));
}

TEST(Numbers, EmptyRangesAreEmpty) {
  EXPECT_TRUE(integer_dfa({.minimum = "0.1", .maximum = "0.9"})->empty());
  EXPECT_TRUE(number_dfa({.minimum = "1", .maximum = "1", .exclusive_maximum = true})->empty());
  EXPECT_TRUE(integer_dfa({.minimum = "1", .maximum = "4", .multiple_of = "5"})->empty());
}

TEST(Numbers, Refusals) {
  const auto expect = [](const NumberRange& range, ErrorCode code, const std::string& word) {
    for (const auto& dfa : {integer_dfa(range), number_dfa(range)}) {
      ASSERT_FALSE(dfa);
      EXPECT_EQ(dfa.error().code, code);
      EXPECT_NE(dfa.error().message.find(word), std::string::npos) << dfa.error().message;
    }
  };
  expect({.multiple_of = "123457"}, ErrorCode::kUnsupported, "multipleOf");
  expect({.multiple_of = "123.456789"}, ErrorCode::kUnsupported, "multipleOf");
  expect({.multiple_of = "0"}, ErrorCode::kInvalidValue, "multipleOf");
  expect({.multiple_of = "-2"}, ErrorCode::kInvalidValue, "multipleOf");
  expect({.minimum = "1e99999999999"}, ErrorCode::kUnsupported, "minimum");
  expect({.maximum = "1e-99999", .exclusive_maximum = true}, ErrorCode::kUnsupported, "exclusiveMaximum");
  for (const char* bad : {"", "-", "abc", "1.", ".5", "1e", "1e+", "--1", "0x10"}) {
    expect({.minimum = bad}, ErrorCode::kInvalidValue, "minimum");
  }
  expect({.minimum = std::string(401, '1')}, ErrorCode::kInvalidValue, "minimum");
}

TEST(Numbers, LargeDivisorsThatEndWithZeros) {
  const Dfa dfa = *integer_dfa({.multiple_of = "86400000"});
  EXPECT_TRUE(dfa.matches("86400000"));
  EXPECT_TRUE(dfa.matches("172800000"));
  EXPECT_TRUE(dfa.matches("864000000"));
  EXPECT_TRUE(dfa.matches("-0"));
  EXPECT_FALSE(dfa.matches("8640000"));
  EXPECT_FALSE(dfa.matches("86400001"));
  EXPECT_FALSE(dfa.matches("96400000"));
}

}  // namespace
}  // namespace barg::text::grammar::numbers_test
