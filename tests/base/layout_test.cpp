#include "base/layout.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

Strides canonical_of(const Shape& shape, const Strides& strides) {
  const Strides made = canonical_strides(shape, strides);
  EXPECT_TRUE(same_layout(shape, made, strides)) << shape.str() << strides.str();
  EXPECT_EQ(canonical_strides(shape, made).str(), made.str());
  EXPECT_TRUE(is_canonical({DType::kFloat32, shape, made}));
  EXPECT_EQ(is_canonical({DType::kFloat32, shape, strides}), made == strides);
  return made;
}

TEST(Layout, StridesOfDimsOfOneMeanNothing) {
  EXPECT_TRUE(same_layout({1, 8, 10}, {8, 1, 8}, {800, 1, 8}));
  EXPECT_FALSE(same_layout({2, 8, 10}, {8, 1, 8}, {800, 1, 8}));
  EXPECT_TRUE(same_layout({2, 0, 3}, {1, 2, 3}, {9, 9, 9}));
  EXPECT_TRUE(same_layout(Shape{}, Strides{}, Strides{}));
}

TEST(Layout, WhatIsContiguousHasContiguousStrides) {
  EXPECT_EQ(canonical_of({1, 3, 1, 4}, {0, 4, 7, 1}).str(), "(12, 4, 4, 1)");
  EXPECT_EQ(canonical_of({4, 1}, {1, kHuge}).str(), "(1, 1)");
  EXPECT_EQ(canonical_of({1, 1, 1}, {5, 6, 7}).str(), "(1, 1, 1)");
  EXPECT_EQ(canonical_of({2, 0, 3}, {1, 2, 3}).str(), "(3, 3, 1)");
}

TEST(Layout, WhatIsChannelsLastHasThoseStrides) {
  EXPECT_EQ(canonical_of({1, 8, 10, 10}, {8, 1, 80, 8}).str(), "(800, 1, 80, 8)");
  EXPECT_EQ(canonical_of({1, 8, 1, 10}, {0, 1, 3, 8}).str(), "(80, 1, 80, 8)");
  EXPECT_EQ(canonical_of({2, 1, 3, 3}, {9, 1, 3, 1}).str(), "(9, 9, 3, 1)");  // contiguous as well
}

TEST(Layout, ElsewhereADimOfOneContinuesThoseBehindIt) {
  EXPECT_EQ(canonical_of({1, 3, 4}, {77, 5, 1}).str(), "(15, 5, 1)");
  EXPECT_EQ(canonical_of({5, 1}, {3, 99}).str(), "(3, 1)");
  EXPECT_EQ(canonical_of({1, 3, 4}, {0, 0, 0}).str(), "(0, 0, 0)");
  EXPECT_EQ(canonical_of({1, 4, 2}, {2, kHuge, 1}).str(), "(1, 4611686018427387904, 1)");
}

}  // namespace
}  // namespace sluice
