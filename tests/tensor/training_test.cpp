// A small residual net with batch norm and momentum, trained eagerly and as a plan: losses and parameters must be
// equal bit by bit, whatever the device and the granularity.
#include "graph/ops/activation.h"
#include "graph/ops/convolution.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "graph/ops/pooling.h"
#include "graph/ops/random.h"
#include "support/accelerator.h"
#include "support/memory_watch.h"
#include "tensor/random.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

struct Net {
  std::vector<std::pair<std::string, Tensor>> parameters, momenta, buffers;

  explicit Net(Generator& generator) {
    parameter("conv1.weight", {4, 1, 3, 3}, generator);
    parameter("bn1.weight", {4}, generator);
    parameter("bn1.bias", {4}, generator);
    parameter("conv2.weight", {4, 4, 3, 3}, generator);
    parameter("fc.weight", {3, 4}, generator);
    parameter("fc.bias", {3}, generator);
    buffers.emplace_back("bn1.running_mean", Tensor::zeros({DType::kFloat32, {4}}));
    buffers.emplace_back("bn1.running_var", Tensor::full({DType::kFloat32, {4}}, 1));
  }
  void parameter(const std::string& name, const Shape& shape, Generator& generator) {
    const Tensor p = Tensor::empty({DType::kFloat32, shape});
    generator.uniform_(p, -0.5, 0.5);
    p.set_requires_grad(true);
    parameters.emplace_back(name, p);
    momenta.emplace_back(name + ".momentum", Tensor::zeros({DType::kFloat32, shape}));
  }
  const Tensor& at(int i) const { return parameters[i].second; }

  Value forward(const Value& x, Generator& generator) const {
    ops::ConvOptions same;
    same.padding = {1};
    Value y = ops::conv(x, at(0), {}, same);
    ops::BatchNormOptions bn{at(1), at(2), buffers[0].second, buffers[1].second, true, 0.1, 1e-5};
    const ops::BatchNormResult normal = ops::batch_norm(y, bn);
    {
      const GradMode off(false);
      write_in_place(buffers[0].second, normal.running_mean);
      write_in_place(buffers[1].second, normal.running_var);
    }
    y = ops::relu(normal.y);
    y = ops::add(y, ops::conv(y, at(3), {}, same));
    const auto draw = generator.next();
    y = ops::dropout(draw.state, y, 0.25, draw.salt);
    y = ops::mean(ops::relu(y), Ints{2, 3});
    return ops::linear(y, at(4), at(5));
  }

  Value step(const Value& x, const Value& target, Generator& generator) const {
    for (const auto& [name, p] : parameters) p.set_grad({});
    const Value loss = ops::cross_entropy(forward(x, generator), target);
    backward({&loss, 1}, {});
    const GradMode off(false);
    const Value lr = Tensor::scalar(0.05, DType::kFloat32);
    for (size_t i = 0; i < parameters.size(); ++i) {
      ops::SgdOptions options;
      options.momentum = 0.9;
      const auto updated = ops::sgd_update({at(i), at(i).grad(), lr, momenta[i].second, {}}, options);
      write_in_place(at(i), updated[0]);
      write_in_place(momenta[i].second, updated[1]);
    }
    return loss;
  }
};

constexpr int kSteps = 6;
const TensorType kImages{DType::kFloat32, {8, 1, 6, 6}}, kTargets{DType::kInt64, {8}};

class Training : public TensorTest {
 protected:
  // Losses, then everything the net holds.
  using Result = std::vector<std::vector<float>>;

  template <class Step>
  Result train(const Net& net, Step step) {
    Generator data(5);
    std::vector<Tensor> losses;
    for (int i = 0; i < kSteps; ++i) {
      const Tensor images = data.randn(kImages);
      losses.push_back(step(images, data.randint(kTargets, 0, 3)));
    }
    Result result;
    for (const Tensor& loss : losses) result.push_back(values(loss));
    for (const auto* group : {&net.parameters, &net.momenta, &net.buffers})
      for (const auto& [name, tensor] : *group) result.push_back(values(tensor.to(DeviceId{})));
    return result;
  }

  Result train_eagerly() {
    Generator init(3), random(9);
    const Net net(init);
    return train(net, [&](const Tensor& x, const Tensor& y) { return Tensor(net.step(x, y, random)); });
  }

  Result train_planned(CompileOptions compile) {
    Generator init(3), random(9);
    const Net net(init);
    TraceScope trace(eager, "train");
    for (const auto* group : {&net.parameters, &net.momenta, &net.buffers})
      for (const auto& [name, tensor] : *group) trace.register_variable(name, tensor);
    const Tensor x = trace.add_input("x", kImages), y = trace.add_input("y", kTargets);
    const Value loss = net.step(x, y, random);
    GraphSessionOptions options;
    options.compile = std::move(compile);
    options.compile.cores = eager.threads();
    const MemoryWatch watch(eager.engine(), {plan::Space{}});
    GraphSession session(eager, trace.finish({{"loss", loss}}), options);
    EXPECT_EQ(watch.held_but_for(ledger_bytes(session.compiled().plan, true, false)), "");
    return train(net, [&](const Tensor& images, const Tensor& labels) { return session.call({images, labels})[0]; });
  }
};

// A plan may keep activations in another layout than eager mode does, so sums may be taken in another order.
TEST_F(Training, PlansMatchEager) {
  const Result expected = train_eagerly(), got = train_planned({});
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_THAT(got[i], testing::Pointwise(testing::FloatNear(2e-6f), expected[i])) << "value " << i;
}

TEST_F(Training, PlansOfOneGraphMatchBitByBit) {
  const Result expected = train_planned({});
  EXPECT_EQ(train_planned({}), expected);
  CompileOptions per_op, plain, sim;
  per_op.granularity = Granularity::kOp;
  EXPECT_EQ(train_planned(per_op), expected);
  plain.reuse_memory = plain.in_place = false;
  EXPECT_EQ(train_planned(plain), expected);
  sim.device = accelerator();
  const Result there = train_planned(sim);
  if (accelerator_rounds_as_cpu()) {
    EXPECT_EQ(there, expected);
  }
  per_op.device = sim.device;
  EXPECT_EQ(train_planned(per_op), there);
}

}  // namespace
}  // namespace sluice::test
