#include <gtest/gtest.h>

#include "tests/kernels/kernel_runner.h"
#include "tests/kernels/network_kernels.h"

namespace sluice {
namespace {

TEST(Movement, CopyBetweenAnyLayouts) {
  for (const Shape& shape :
       {Shape{}, Shape{5}, Shape{2, 3, 4, 5}, Shape{2, 33, 9, 17}, Shape{1, 64, 40, 40}, Shape{0, 2, 3, 4}})
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
      std::vector<TensorSpec> specs = {dense(shape, dtype), scrambled(shape, dtype)};
      if (shape.rank() >= 3) specs.push_back(channels_last(shape, dtype));
      for (const TensorSpec& from : specs)
        for (const TensorSpec& to : specs) {
          const TestTensor x(from, ramp(std::max<int64_t>(numel(shape), 1), 0, 1));
          ASSERT_EQ(run_kernel("copy", {x}, to), x.read()) << shape.str() << from.strides.str() << to.strides.str();
          ASSERT_EQ(run_kernel("copy", {x}, to, {}, 2), x.read());
        }
    }
}

TEST(Movement, CopyOfABroadcastView) {
  const TestTensor x(TensorSpec{DType::kFloat32, {3, 4}, {0, 1}}, {1, 2, 3, 4});
  EXPECT_EQ(run_kernel("copy", {x}, dense({3, 4})), (std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(Movement, Concat) {
  const TestTensor a(dense({2, 2}), {1, 2, 3, 4}), b(scrambled({2, 1}), {5, 6}), none(dense({2, 0}));
  EXPECT_EQ(run_kernel("concat", {a, none, b}, scrambled({2, 3}), {{"dim", int64_t{-1}}}),
            (std::vector<double>{1, 2, 5, 3, 4, 6}));
  EXPECT_EQ(run_kernel("concat", {a, a}, dense({4, 2}), {{"dim", int64_t{0}}}),
            (std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(Movement, PadAroundAndBetween) {
  const TestTensor x(scrambled({2, 2}), {1, 2, 3, 4});
  const auto run = [&](Ints low, Ints high, double value, Ints interior, Shape out) {
    return run_kernel("pad", {x}, dense(out), {{"low", low}, {"high", high}, {"value", value}, {"interior", interior}});
  };
  EXPECT_EQ(run({1, 0}, {0, 1}, 9, {}, {3, 3}), (std::vector<double>{9, 9, 9, 1, 2, 9, 3, 4, 9}));
  EXPECT_EQ(run({0, 0}, {0, 1}, 0, {0, 1}, {2, 4}), (std::vector<double>{1, 0, 2, 0, 3, 0, 4, 0}));
}

TEST(Movement, Flip) {
  const TestTensor x(dense({2, 3}), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run_kernel("flip", {x}, dense({2, 3}), {{"dims", Ints{1}}}), (std::vector<double>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(run_kernel("flip", {x}, scrambled({2, 3}), {{"dims", Ints{0, -1}}}),
            (std::vector<double>{6, 5, 4, 3, 2, 1}));
}

TEST(Creation, FullAndIota) {
  for (DType dtype : {DType::kFloat32, DType::kInt64, DType::kBFloat16, DType::kUInt8})
    EXPECT_EQ(run_kernel("full", {}, scrambled({2, 2}, dtype), {{"value", 3.0}}), (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(run_kernel("full", {}, dense({2}, DType::kBool), {{"value", 0.5}}), (std::vector<double>{1, 1}));
  EXPECT_EQ(run_kernel("iota", {}, dense({4}, DType::kInt32), {{"start", 10.0}, {"step", -3.0}}),
            (std::vector<double>{10, 7, 4, 1}));
  EXPECT_EQ(run_kernel("iota", {}, dense({1200}), {{"start", 0.0}, {"step", 0.5}})[1199], 599.5);
}

}  // namespace
}  // namespace sluice
