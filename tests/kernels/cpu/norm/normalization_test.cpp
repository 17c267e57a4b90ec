#include "kernels/cpu/support/support.h"
#include "kernels/network_kernels.h"

namespace sluice {
namespace {

const NamedAttrs kEps = {{"eps", 1e-5}};

TensorSpec statistics_of(const TensorSpec& x) {
  return dense({x.shape[1]}, x.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
}
KernelCall train(TensorSpec x, int threads, double offset = 0) {
  auto values = noise(numel(x.shape), 1);
  for (auto& v : values) v += offset;
  const TensorSpec c = dense({x.shape[1]}, x.dtype), statistics = statistics_of(x);
  return {"batch_norm_train",
          {TestTensor(x, values), random_tensor(c, 2), random_tensor(c, 3)},
          {x, statistics, statistics},
          kEps,
          threads};
}
KernelCall infer(TensorSpec x, int threads) {
  const TensorSpec c = dense({x.shape[1]}, x.dtype);
  return {"batch_norm_infer",
          {random_tensor(x, 1), random_tensor(c, 5), TestTensor(c, {0.5}), random_tensor(c, 2), random_tensor(c, 3)},
          {x},
          kEps,
          threads};
}
KernelCall train_backward(TensorSpec x, int threads) {
  const TensorSpec c = dense({x.shape[1]}, x.dtype), statistics = statistics_of(x);
  return {"batch_norm_backward",
          {random_tensor(x, 4), random_tensor(x, 1), random_tensor(statistics, 5), TestTensor(statistics, {0.5}),
           random_tensor(c, 2)},
          {x, statistics, statistics},
          kEps,
          threads};
}
KernelCall fused(TensorSpec x, int threads) {
  const TensorSpec c = dense({x.shape[1]}, x.dtype), statistics = statistics_of(x);
  return {"fused_batch_norm",
          {random_tensor(x, 1), random_tensor(c, 2), random_tensor(c, 3), random_tensor(x, 6),
           random_tensor(statistics, 7), TestTensor(statistics, {0.5})},
          {x, statistics, statistics, statistics, statistics},
          {{"eps", 1e-5}, {"activation", std::string("relu")}, {"kept", 0.9}, {"taken", 0.1}, {"correction", 1.01}},
          threads};
}
KernelCall fused_backward(TensorSpec x, int threads, bool residual) {
  const TensorSpec c = dense({x.shape[1]}, x.dtype), statistics = statistics_of(x);
  KernelCall call{"fused_batch_norm_backward",
                  {random_tensor(x, 4), random_tensor(x, 1), random_tensor(statistics, 5),
                   TestTensor(statistics, {0.5}), random_tensor(x, 8), random_tensor(c, 2)},
                  {x, statistics, statistics},
                  {{"eps", 1e-5}, {"residual", residual}},
                  threads};
  if (residual) call.outputs.push_back(x);
  return call;
}
const std::vector<KernelCall (*)(TensorSpec, int)> kBatchNorms = {
    [](TensorSpec x, int threads) { return train(std::move(x), threads); },
    infer,
    train_backward,
    fused,
    [](TensorSpec x, int threads) { return fused_backward(std::move(x), threads, false); },
    [](TensorSpec x, int threads) { return fused_backward(std::move(x), threads, true); }};

TEST(BatchNormTest, LayoutsAndThreadsGiveEqualBits) {
  const std::pair<Shape, DType> cases[] = {{{8, 20, 12, 12}, DType::kFloat32},
                                           {{3, 130, 7, 7}, DType::kFloat32},
                                           {{2, 3, 90, 91}, DType::kBFloat16},
                                           {{4, 17, 5, 9}, DType::kFloat16},
                                           {{5, 36, 11, 3}, DType::kFloat64}};
  for (const auto& [shape, dtype] : cases) {
    for (const auto make : kBatchNorms) {
      const KernelCall call = make(channels_last(shape, dtype), 1);
      const auto expected = run_call(call);
      for (const int threads : {1, 2, 3}) {
        for (const TensorSpec& x : {dense(shape, dtype), channels_last(shape, dtype)}) {
          const auto got = run_call(make(x, threads));
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(got[i].read(), expected[i].read())
                << call.op << " " << shape.str() << ", output " << i << ", " << threads << " threads";
        }
      }
      KernelCall mixed = make(dense(shape, dtype), 2);
      mixed.inputs[0] = TestTensor(channels_last(shape, dtype), mixed.inputs[0]->read());
      EXPECT_EQ(run_call(mixed)[0].read(), expected[0].read()) << call.op << " " << shape.str() << ", layouts mixed";
    }
  }
}

TEST(BatchNormTest, ComputesWhereOperandsLie) {
  for (const TensorSpec& x : {dense({8, 32, 56, 56}), channels_last({8, 32, 56, 56})}) {
    for (const auto make : kBatchNorms) {
      const KernelCall call = make(x, 2);
      EXPECT_LT(prepare_call(call)->workspace_bytes(), x.extent_bytes() / 8) << call.op;
      const auto wanted = cpu_table().get(call.op, DeviceKind::kCpu).layouts(query_of(call));
      EXPECT_EQ(wanted.inputs[0], cpu::spatial_layout(x)) << call.op;
      EXPECT_EQ(wanted.outputs[0], cpu::spatial_layout(x)) << call.op;
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
