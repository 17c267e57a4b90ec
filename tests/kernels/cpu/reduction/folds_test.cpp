// Many elements as one: what folds promise of NaN, infinities, and the bits of squares.
#include "kernels/cpu/reduction/folds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace sluice::cpu {
namespace {

using Kind = ReductionKind;
constexpr int64_t kLengths[] = {1, 7, 63, 64, 65, 129, 1023, 1024, 1025};

template <class T>
std::vector<T> waves(int64_t n) {
  std::vector<T> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::sin(static_cast<double>(i) * 0.7) - 0.2);
  return x;
}
template <class T>
T fold(Kind kind, const std::vector<T>& x) {
  return folds_of<T>(kind).run(x.data(), static_cast<int64_t>(x.size()));
}

template <class T>
void check_extremes() {
  for (const int64_t n : kLengths) {
    std::vector<T> x = waves<T>(n);
    EXPECT_EQ(fold(Kind::kMax, x), *std::max_element(x.begin(), x.end())) << n;
    EXPECT_EQ(fold(Kind::kMin, x), *std::min_element(x.begin(), x.end())) << n;
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<T> broken = x;
      broken[static_cast<size_t>(at)] = static_cast<T>(NAN);
      EXPECT_TRUE(std::isnan(fold(Kind::kMax, broken))) << n << " " << at;
      EXPECT_TRUE(std::isnan(fold(Kind::kMin, broken))) << n << " " << at;
    }
    // Their sum is no number, though none of them is none.
    x.front() = static_cast<T>(INFINITY);
    x.back() = static_cast<T>(-INFINITY);
    EXPECT_EQ(fold(Kind::kMax, x), n == 1 ? x[0] : static_cast<T>(INFINITY)) << n;
    EXPECT_EQ(fold(Kind::kMin, x), static_cast<T>(-INFINITY)) << n;
  }
}

TEST(Folds, ExtremesKeepNanAndInfinities) {
  check_extremes<float>();
  check_extremes<double>();
}

template <class T>
void check_squares() {
  for (const int64_t n : kLengths) {
    const std::vector<T> x = waves<T>(n);
    std::vector<T> squares = x;
    for (T& v : squares) v *= v;
    const T got = fold(Kind::kSquares, x), expected = fold(Kind::kSum, squares);
    EXPECT_EQ(std::memcmp(&got, &expected, sizeof(T)), 0) << n << ": " << got << ", not " << expected;
  }
}

TEST(Folds, SumsOfSquaresHaveTheBitsOfSquaresThatAreSummed) {
  check_squares<float>();
  check_squares<double>();
}

TEST(Folds, RowsAreFoldedAsRunsAre) {
  for (const Kind kind : {Kind::kSum, Kind::kSquares, Kind::kProd, Kind::kMax, Kind::kMin}) {
    for (const int64_t n : {129, 1023, 1025}) {
      const std::vector<float> x = waves<float>(3 * n + 2);
      float rows[3];
      folds_of<float>(kind).rows(x.data(), n + 1, n, rows, 3);
      for (int r = 0; r < 3; ++r) EXPECT_EQ(rows[r], folds_of<float>(kind).run(x.data() + r * (n + 1), n));
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
