// What SpeedMeter makes of reads whose times follow from a latency and a bandwidth.
#include "store/speed.h"

#include <gtest/gtest.h>

namespace barg::store::speed_test {
namespace {

constexpr double kPart = 1 << 20;

/// A tier in simulated time: parts asked for together come one after another, behind one latency.
class SpeedTest : public testing::Test {
 protected:
  void round(int parts, double latency, double bytes_per_s) {
    for (int i = 0; i < parts; ++i) meter_.started(kPart, now_);
    now_ += latency;
    for (int i = 0; i < parts; ++i) {
      now_ += kPart / bytes_per_s;
      meter_.finished(kPart, true, now_);
    }
    now_ += 10;  // idle time says nothing
  }
  /// Asked for, and given up after `seconds`.
  void given_up(int parts, double seconds) {
    for (int i = 0; i < parts; ++i) meter_.started(kPart, now_);
    now_ += seconds;
    for (int i = 0; i < parts; ++i) meter_.finished(kPart, false, now_);
  }
  /// The time that a load of `parts` is expected to take.
  double expected(int parts) const {
    const TierSpeed s = meter_.speed(now_);
    return s.latency_s + parts * kPart / s.bytes_per_s;
  }

  SpeedMeter meter_;
  double now_ = 5;
};

TEST_F(SpeedTest, ManyPartsShowBoth) {
  EXPECT_FALSE(meter_.speed(now_).measured);
  round(16, 0.004, 1e9);
  const TierSpeed s = meter_.speed(now_);
  EXPECT_TRUE(s.measured);
  EXPECT_NEAR(s.bytes_per_s, 1e9, 1e6);
  EXPECT_NEAR(s.latency_s, 0.004, 1e-5);
  EXPECT_NEAR(s.age_s, 10, 1e-9);
  EXPECT_NEAR(expected(64), 0.004 + 64 * kPart / 1e9, 1e-4);
}

TEST_F(SpeedTest, WhatItSawIsWhatItExpects) {
  for (const int parts : {1, 2, 7, 40}) {
    meter_ = {};
    const double before = now_ + 10;
    round(parts, 0.01, 3e8);
    EXPECT_NEAR(expected(parts), now_ - before, 1e-9) << parts;
  }
}

TEST_F(SpeedTest, ClustersDoNotShowMoreThanFourTimesTheWhole) {
  for (int i = 0; i < 8; ++i) meter_.started(kPart, 5);
  for (int i = 0; i < 8; ++i) meter_.finished(kPart, true, 6 + i * 1e-9);
  EXPECT_LE(meter_.speed(7).bytes_per_s, 4 * 8 * kPart);
}

TEST_F(SpeedTest, AChangeIsBelievedAfterTwoRoundsHoweverLongItWasOtherwise) {
  for (const double factor : {1.0 / 16, 16.0}) {
    meter_ = {};
    for (int i = 0; i < 100; ++i) round(16, 0.001, 1e9);
    round(16, 0.001 / factor, 1e9 * factor);
    EXPECT_NEAR(meter_.speed(now_).bytes_per_s, 1e9, 1e7) << "one may be a stutter";
    EXPECT_NEAR(meter_.speed(now_).latency_s, 0.001, 1e-5);
    round(16, 0.001 / factor, 1e9 * factor);
    EXPECT_NEAR(meter_.speed(now_).bytes_per_s / factor, 1e9, 1e7);
    EXPECT_NEAR(meter_.speed(now_).latency_s * factor, 0.001, 1e-5);
  }
}

TEST_F(SpeedTest, ReadsThatWereGivenUpShowThatItIsSlower) {
  for (int i = 0; i < 3; ++i) round(16, 0, 1e9);
  for (int i = 0; i < 2; ++i) given_up(16, 1);
  EXPECT_LE(meter_.speed(now_).bytes_per_s, 16 * kPart);
  round(16, 0, 1e9);
  round(16, 0, 1e9);
  EXPECT_NEAR(meter_.speed(now_).bytes_per_s, 1e9, 1e6);
}

TEST_F(SpeedTest, ReadsThatAreGivenUpBeforeTheyCouldComeSayNothing) {
  for (int i = 0; i < 3; ++i) round(16, 0.001, 1e9);
  for (int i = 0; i < 10; ++i) given_up(16, 0.005);
  EXPECT_NEAR(meter_.speed(now_).bytes_per_s, 1e9, 1e7);
}

TEST_F(SpeedTest, ATierThatIsAlwaysAskedAndNeverAnswersIsFoundSlow) {
  for (int i = 0; i < 3; ++i) round(16, 0, 1e9);
  meter_.started(kPart, now_);  // somebody always waits
  for (int i = 0; i < 40; ++i) given_up(200, 0.05);
  EXPECT_LE(meter_.speed(now_).bytes_per_s, 8 * kPart);
}

TEST_F(SpeedTest, SomeThatCameAndMoreThatDidNot) {
  for (int i = 0; i < 3; ++i) round(16, 0, 1e9);
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < 16; ++i) meter_.started(kPart, now_);
    meter_.finished(kPart, true, now_ + 0.001);
    now_ += 2;
    for (int i = 1; i < 16; ++i) meter_.finished(kPart, false, now_);
  }
  EXPECT_GE(expected(16), 2 - 1e-9);
}

TEST_F(SpeedTest, MissingPartsChangeNothing) {
  given_up(4, 1e-4);
  EXPECT_FALSE(meter_.speed(now_).measured) << "nothing came";
  round(16, 0.002, 1e8);
  const double before = meter_.speed(now_).bytes_per_s;
  for (int i = 0; i < 10; ++i) given_up(16, 1e-5);
  EXPECT_EQ(meter_.speed(now_).bytes_per_s, before);
  EXPECT_EQ(meter_.speed(now_).queued_bytes, 0);
}

TEST_F(SpeedTest, ATierThatIsNeverIdleIsMeasuredToo) {
  const auto busy = [&](double bytes_per_s, double seconds) {
    for (const double end = now_ + seconds; now_ < end;) {
      now_ += kPart / bytes_per_s;
      meter_.finished(kPart, true, now_);
      meter_.started(kPart, now_);
    }
  };
  for (int i = 0; i < 8; ++i) meter_.started(kPart, now_);
  busy(1e8, 5);
  EXPECT_NEAR(meter_.speed(now_).bytes_per_s, 1e8, 1e6);
  busy(2e7, 3);
  EXPECT_NEAR(meter_.speed(now_).bytes_per_s, 2e7, 1e6);
}

}  // namespace
}  // namespace barg::store::speed_test
