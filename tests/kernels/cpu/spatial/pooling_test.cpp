#include "kernels/network_kernels.h"

namespace sluice {
namespace {

NamedAttrs max_attrs(Ints kernel, Ints stride, Ints padding, bool ceil) {
  const Ints ones(kernel.size(), 1);
  return {{"kernel_size", std::move(kernel)},
          {"stride", std::move(stride)},
          {"padding", std::move(padding)},
          {"dilation", ones},
          {"ceil_mode", ceil}};
}

TEST(MaxPoolTest, GivesValuesAndFlatIndices) {
  const TestTensor x(dense({1, 1, 3, 4}), {1, 9, 2, 3, 4, 5, 6, 7, 8, 0, 11, 10});
  const auto out = run_call({"max_pool",
                             {x},
                             {dense({1, 1, 2, 2}), dense({1, 1, 2, 2}, DType::kInt64)},
                             max_attrs({2, 2}, {2, 2}, {0, 0}, true)});
  EXPECT_EQ(out[0].read(), (std::vector<double>{9, 7, 8, 11}));
  EXPECT_EQ(out[1].read(), (std::vector<double>{1, 7, 8, 10}));
}

TEST(MaxPoolTest, LayoutsAgreeForManyChannels) {
  const Shape xs = {2, 70, 7, 6}, ys = {2, 70, 4, 4};
  auto run = [&](bool last) {
    auto spec = [&](const Shape& s, DType t = DType::kFloat32) { return last ? channels_last(s, t) : dense(s, t); };
    return run_call({"max_pool",
                     {random_tensor(spec(xs), 3)},
                     {spec(ys), spec(ys, DType::kInt64)},
                     max_attrs({3, 2}, {2, 2}, {1, 1}, false),
                     2});
  };
  const auto a = run(false), b = run(true);
  EXPECT_EQ(a[0].read(), b[0].read());
  EXPECT_EQ(a[1].read(), b[1].read());
}

TEST(MaxPoolTest, BackwardNamesBadIndices) {
  const KernelCall call{"max_pool_backward",
                        {TestTensor(dense({1, 1, 1}), {1}), TestTensor(dense({1, 1, 1}, DType::kInt64), {4})},
                        {dense({1, 1, 4})},
                        {{"input_shape", Ints{1, 1, 4}}}};
  EXPECT_EQ(
      test::message_of([&] { run_call(call); }),
      "max_pool_backward: an index is out of range: the input has 4 positions per channel; indices must be max_pool's");
}

// torch's three rules for what a window at the border is divided by.
TEST(AvgPoolTest, DividesAsTorchDoes) {
  auto run = [&](bool include_pad, int64_t divisor) {
    return run_call({"avg_pool",
                     {TestTensor(dense({1, 1, 4}), {1, 2, 3, 4})},
                     {dense({1, 1, 3})},
                     {{"kernel_size", Ints{3}},
                      {"stride", Ints{2}},
                      {"padding", Ints{1}},
                      {"ceil_mode", true},
                      {"count_include_pad", include_pad},
                      {"divisor_override", divisor}}})[0]
        .read();
  };
  expect_near(run(true, 0), {1, 3, 2}, 1e-6);  // the overhang beyond the padding does not count
  expect_near(run(false, 0), {1.5, 3, 4}, 1e-6);
  expect_near(run(true, 2), {1.5, 4.5, 2}, 1e-6);
}

}  // namespace
}  // namespace sluice
