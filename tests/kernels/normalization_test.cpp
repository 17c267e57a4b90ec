#include "network_kernels.h"

namespace sluice {
namespace {

const NamedAttrs kEps = {{"eps", 1e-5}};

KernelCall train(TensorSpec x, int threads, double offset = 0) {
  auto values = noise(numel(x.shape), 1);
  for (auto& v : values) v += offset;
  const Shape c = {x.shape[1]};
  return {"batch_norm_train",
          {TestTensor(x, values), random_tensor(dense(c), 2), random_tensor(dense(c), 3)},
          {x, dense(c), dense(c)},
          kEps,
          threads};
}
KernelCall train_backward(TensorSpec x, int threads) {
  const Shape c = {x.shape[1]};
  return {"batch_norm_backward",
          {random_tensor(x, 4), random_tensor(x, 1), random_tensor(dense(c), 5), TestTensor(dense(c), {0.5}),
           random_tensor(dense(c), 2)},
          {x, dense(c), dense(c)},
          kEps,
          threads};
}

TEST(BatchNormTest, LayoutsAndThreadsGiveEqualBits) {
  const Shape shape = {8, 20, 12, 12};
  for (auto make : {+[](TensorSpec x, int t) { return train(std::move(x), t); }, train_backward}) {
    const auto expected = run_call(make(channels_last(shape), 1));
    for (int threads : {1, 2, 3}) {
      for (const TensorSpec& x : {dense(shape), channels_last(shape)}) {
        const auto got = run_call(make(x, threads));
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_EQ(got[i].read(), expected[i].read()) << "output " << i << ", threads " << threads;
      }
    }
  }
}

TEST(BatchNormTest, StatisticsSurviveALargeMean) {
  const TensorSpec x = channels_last({16, 4, 16, 16});
  const auto near_zero = run_call(train(x, 1)), far = run_call(train(x, 1, 1024));
  expect_near(far[2].read(), near_zero[2].read(), 1e-5, "variance");
  expect_near(far[0].read(), near_zero[0].read(), 1e-3, "y");
}

TEST(BatchNormTest, InferenceUsesGivenStatistics) {
  const KernelCall call{
      "batch_norm_infer",
      {TestTensor(dense({1, 2}), {3, 5}), TestTensor(dense({2}), {1, 1}), TestTensor(dense({2}), {4, 16}),
       TestTensor(dense({2}), {1, 2}), TestTensor(dense({2}), {0, 1})},
      {dense({1, 2})},
      {{"eps", 0.0}}};
  expect_near(run_call(call)[0].read(), {1, 3}, 1e-6);
}

TEST(LayerNormTest, ThreadsGiveEqualBits) {
  const NamedAttrs attrs = {{"normalized_shape", Ints{129}}, {"eps", 1e-5}};
  const TensorSpec x = dense({400, 129}), w = dense({129});
  auto run = [&](int threads) {
    return run_call({"layer_norm_backward",
                     {random_tensor(x, 1), random_tensor(x, 2), random_tensor(w, 3)},
                     {x, w, w},
                     attrs,
                     threads});
  };
  const auto one = run(1), two = run(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].read(), two[i].read());
}

TEST(LayerNormTest, NormalisesRows) {
  const KernelCall call{"layer_norm",
                        {TestTensor(dense({2, 4}), {1, 2, 3, 4, 10, 10, 30, 30}), std::nullopt, std::nullopt},
                        {dense({2, 4})},
                        {{"normalized_shape", Ints{4}}, {"eps", 0.0}}};
  const double s = std::sqrt(1.25);
  expect_near(run_call(call)[0].read(), {-1.5 / s, -0.5 / s, 0.5 / s, 1.5 / s, -1, -1, 1, 1}, 1e-6);
}

TEST(GroupNormTest, ScalesPerChannel) {
  const KernelCall call{
      "group_norm",
      {TestTensor(dense({1, 2, 2}), {1, 3, 1, 3}), TestTensor(dense({2}), {1, 2}), TestTensor(dense({2}), {0, 5})},
      {dense({1, 2, 2})},
      {{"num_groups", int64_t{1}}, {"eps", 0.0}}};
  expect_near(run_call(call)[0].read(), {-1, 1, 3, 7}, 1e-6);
}

}  // namespace
}  // namespace sluice
