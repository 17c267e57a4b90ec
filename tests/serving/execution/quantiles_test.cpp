// Quantiles of the last minute, against those of all values.
#include "serving/execution/quantiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::serving::test {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
const Clock::time_point kBegin(std::chrono::hours(1));

TEST(Quantiles, AreThoseOfTheValuesToThreePercent) {
  std::mt19937_64 random(7);
  for (const double spread : {1.0, 4.0, 10.0}) {
    Quantiles quantiles;
    std::vector<double> all;
    for (int i = 0; i < 2000; ++i) {
      const auto us = static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, 2 * spread)(random)));
      all.push_back(static_cast<double>(us));
      quantiles.add(microseconds(us), kBegin + std::chrono::milliseconds(i));
    }
    std::sort(all.begin(), all.end());
    for (const double q : {0.001, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double exact = all[static_cast<size_t>(std::ceil(q * 2000)) - 1];
      EXPECT_NEAR(quantiles.value(q, kBegin + seconds(2)), exact, 0.032 * exact) << q;
    }
    EXPECT_NEAR(quantiles.value(0, kBegin + seconds(2)), all.front(), 0.032 * all.front());
  }
}

TEST(Quantiles, ForgetWhatIsOlderThanAMinute) {
  Quantiles quantiles;
  EXPECT_TRUE(std::isnan(quantiles.value(0.5, kBegin)));
  quantiles.add(seconds(1), kBegin);
  EXPECT_NEAR(quantiles.value(0.5, kBegin + seconds(40)), 1e6, 3e4);
  quantiles.add(microseconds(3), kBegin + seconds(40));
  EXPECT_NEAR(quantiles.value(1, kBegin + seconds(41)), 1e6, 3e4);
  EXPECT_EQ(quantiles.value(1, kBegin + seconds(75)), 3);
  EXPECT_TRUE(std::isnan(quantiles.value(1, kBegin + seconds(140))));
  quantiles.add(std::chrono::hours(1000), kBegin + seconds(140));  // beyond all buckets, and before all
  quantiles.add(microseconds(-5), kBegin + seconds(140));
  EXPECT_EQ(quantiles.value(0, kBegin + seconds(140)), 0);
  EXPECT_GT(quantiles.value(1, kBegin + seconds(140)), 3e10);
}

}  // namespace
}  // namespace sluice::serving::test
