#include "kernels/network_kernels.h"

namespace sluice {
namespace {

NamedAttrs momentum_attrs(double momentum, double dampening, double decay, bool nesterov) {
  return {{"momentum", momentum},
          {"dampening", dampening},
          {"weight_decay", decay},
          {"nesterov", nesterov},
          {"maximize", false}};
}

TEST(SgdTest, FirstStepTakesTheGradientWhole) {
  const TestTensor p(dense({1}), {1}), g(dense({1}), {2}), b(dense({1}), {0}), lr(dense({}), {0.5});
  auto run = [&](double step) {
    return run_call({"sgd_momentum_update",
                     {p, g, b, lr, TestTensor(dense({}), {step})},
                     {dense({1}), dense({1})},
                     momentum_attrs(0.5, 0.5, 0, false)});
  };
  EXPECT_EQ(run(1)[1].read()[0], 2);
  EXPECT_EQ(run(1)[0].read()[0], 0);
  EXPECT_EQ(run(2)[1].read()[0], 1);
}

TEST(SgdTest, NesterovLooksAhead) {
  const TestTensor p(dense({1}), {1}), g(dense({1}), {2}), b(dense({1}), {4}), lr(dense({}), {0.25});
  const auto out = run_call(
      {"sgd_momentum_update", {p, g, b, lr, std::nullopt}, {dense({1}), dense({1})}, momentum_attrs(0.5, 0, 0, true)});
  EXPECT_EQ(out[1].read()[0], 4);  // 0.5 * 4 + 2
  EXPECT_EQ(out[0].read()[0], 1 - 0.25 * (2 + 0.5 * 4));
}

TEST(AdamTest, FollowsTheFormula) {
  const double beta1 = 0.9, beta2 = 0.99, eps = 1e-8, decay = 0.1, lr = 0.01, step = 3;
  for (bool decoupled : {false, true}) {
    const NamedAttrs attrs = {{"beta1", beta1},        {"beta2", beta2},         {"eps", eps},
                              {"weight_decay", decay}, {"decoupled", decoupled}, {"maximize", false}};
    const DType d = DType::kFloat64;
    const auto out = run_call({"adam_update",
                               {TestTensor(dense({1}, d), {2}), TestTensor(dense({1}, d), {0.5}),
                                TestTensor(dense({1}, d), {0.25}), TestTensor(dense({1}, d), {0.125}),
                                TestTensor(dense({}, DType::kInt64), {step}), TestTensor(dense({}, d), {lr})},
                               {dense({1}, d), dense({1}, d), dense({1}, d)},
                               attrs});
    const double p = decoupled ? 2 * (1 - lr * decay) : 2, g = decoupled ? 0.5 : 0.5 + decay * 2;
    const double m = beta1 * 0.25 + (1 - beta1) * g, v = beta2 * 0.125 + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, step)), v_hat = v / (1 - std::pow(beta2, step));
    EXPECT_NEAR(out[0].read()[0], p - lr * m_hat / (std::sqrt(v_hat) + eps), 1e-12);
    EXPECT_NEAR(out[1].read()[0], m, 1e-15);
    EXPECT_NEAR(out[2].read()[0], v, 1e-15);
  }
}

TEST(OptimizerTest, OutputsMayOverwriteTheirInputs) {
  const int64_t n = 50000;
  const KernelCall call{"sgd_momentum_update",
                        {random_tensor(dense({n}), 1), random_tensor(dense({n}), 2), random_tensor(dense({n}), 3),
                         TestTensor(dense({}), {0.1}), std::nullopt},
                        {dense({n}), dense({n})},
                        momentum_attrs(0.9, 0, 0.01, true),
                        2};
  const auto kernel = prepare_call(call);
  const auto expected = run_prepared(*kernel, call);
  TestTensor p = *call.inputs[0], b = *call.inputs[2];
  const void* inputs[] = {p.data(), call.inputs[1]->data(), b.data(), call.inputs[3]->data(), nullptr};
  void* outputs[] = {p.data(), b.data()};
  kernel->run({.inputs = inputs, .outputs = outputs});
  EXPECT_EQ(p.read(), expected[0].read());
  EXPECT_EQ(b.read(), expected[1].read());
}

TEST(EmbeddingTest, NamesABadIndexAndSkipsPadding) {
  const TestTensor table = random_tensor(dense({4, 3}), 1);
  EXPECT_EQ(test::message_of([&] {
              run_call({"embedding",
                        {table, TestTensor(dense({2}, DType::kInt64), {1, 4})},
                        {dense({2, 3})},
                        {{"padding_idx", int64_t{-1}}}});
            }),
            "embedding: index is out of range: 4 at position 1; it must be at least 0 and below 4");
  const auto grad =
      run_call({"embedding_backward",
                {TestTensor(dense({3, 2}), {1, 2, 4, 8, 16, 32}), TestTensor(dense({3}, DType::kInt64), {1, 0, 1})},
                {dense({2, 2})},
                {{"num_embeddings", int64_t{2}}, {"padding_idx", int64_t{0}}}})[0]
          .read();
  EXPECT_EQ(grad, (std::vector<double>{0, 0, 17, 34}));
}

}  // namespace
}  // namespace sluice
