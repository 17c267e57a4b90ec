#include "base/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace sluice {
namespace {

TEST(Shape, CountsElementsAndRefusesOverflow) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({4, 0, 3}), 0);
  EXPECT_EQ(numel({4, 3}), 12);
  EXPECT_EQ(checked_bytes({4, 3}, 4), 48u);
  EXPECT_THROW(numel({int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(checked_bytes({int64_t{1} << 62}, 8), Error);
  EXPECT_EQ(test::message_of([] {
              numel({2, -1});
            }),
            "shape: negative dimension: (2, -1); every dimension must be >= 0");
}

TEST(Shape, RefusesMoreThanMaxRank) {
  EXPECT_EQ(test::message_of([] { Shape(std::vector<int64_t>(9, 1)); }),
            "shape: too many dimensions: 9; at most 8 are supported");
}

TEST(Shape, StridesOfBothLayouts) {
  const Shape s{2, 3, 4, 5};
  EXPECT_EQ(contiguous_strides(s), (Strides{60, 20, 5, 1}));
  EXPECT_EQ(channels_last_strides(s), (Strides{60, 1, 15, 3}));
  EXPECT_TRUE(is_contiguous(s, contiguous_strides(s)));
  EXPECT_FALSE(is_contiguous(s, channels_last_strides(s)));
  EXPECT_TRUE(is_dense(s, channels_last_strides(s)));
  EXPECT_FALSE(is_dense({2, 3}, {6, 2}));
  EXPECT_EQ(storage_extent({2, 3}, {6, 2}), 11);
  EXPECT_EQ(storage_extent({2, 0}, {6, 2}), 0);
}

TEST(Shape, BroadcastsLikeNumpy) {
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {5, 1}, "add"), (Shape{4, 5, 3}));
  EXPECT_EQ(test::message_of([] {
              broadcast_shapes({4, 3}, {2, 3}, "add");
            }),
            "add: shapes do not broadcast: (4, 3) and (2, 3) differ at axis 0; sizes must be equal or 1");
}

TEST(Shape, NormalizesAxes) {
  EXPECT_EQ(normalize_axis(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_axis(0, 0, "sum"), 0);
  EXPECT_EQ(test::message_of([] { normalize_axis(3, 3, "sum"); }), "sum: axis out of range: 3; must be in [-3, 2]");
}

TEST(Shape, AlignsUp) {
  EXPECT_EQ(align_up(0, 64), 0u);
  EXPECT_EQ(align_up(65, 64), 128u);
  EXPECT_THROW(align_up(~uint64_t{0}, 64), Error);
}

}  // namespace
}  // namespace sluice
