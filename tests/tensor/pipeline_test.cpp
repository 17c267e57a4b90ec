// Steps of several micro-batches through stages on threads of their own: the bits of one thread, whoever is ahead.
#include "graph/ops/activation.h"
#include "graph/ops/matmul.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/optimizer_updates.h"
#include "tensor/random.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"
#include "tensor/trace.h"

namespace sluice::test {
namespace {

struct Case {
  int stages = 1;
  std::string place;  // "stream": of compute streams of the cpu; "sim": on devices; "": all in one
  bool staged = true;
  bool updates_there = true;  // the update runs where the stage does, else on the first stream
  Granularity granularity = Granularity::kProgram;
};

class PipelineStages : public TensorTest {
 protected:
  static constexpr int kWidth = 24, kRows = 4, kBatches = 6, kLayers = 6;

  static graph::Placement placement(const Case& c, int layer) {
    const int stage = layer * c.stages / kLayers;
    if (c.place == "stream") return {DeviceId{}, fmt::format("compute:{}", stage)};
    if (c.place == "sim") return {parse_device(fmt::format("sim:{}", stage)), ""};
    return {};
  }

  // The losses of `steps` calls, all submitted before the first is read.
  std::vector<std::vector<float>> losses(const Case& c, int steps) {
    Generator random(3);
    std::vector<Tensor> weights;
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(Tensor::empty({DType::kFloat32, {kWidth, kWidth}}));
      random.uniform_(weights.back(), -0.3, 0.3);
      weights.back().set_requires_grad(true);
    }
    GraphSessionOptions options;
    options.compile.granularity = c.granularity;
    options.compile.cores = 1;
    for (int s = 0; c.staged && s < c.stages; ++s) options.compile.stages[fmt::format("stage{}", s)] = s;

    TraceScope trace(eager, "stages");
    for (int i = 0; i < kLayers; ++i) trace.register_variable(fmt::format("w{}", i), weights[i]);
    const TensorType part{DType::kFloat32, {kRows, kWidth}};
    const Tensor x = trace.add_input("x", part), y = trace.add_input("y", part);
    Value h = x, loss;
    for (int i = 0; i < kLayers; ++i) {
      const PlacementScope place(placement(c, i));
      const ModuleScope module(fmt::format("stage{}.layer{}", i * c.stages / kLayers, i));
      h = ops::tanh(ops::linear(h, weights[i]));
      if (i + 1 < kLayers) continue;
      const Value error = ops::sub(h, y);
      loss = ops::mean(ops::mul(error, error));
    }
    backward_from(loss);
    const GradMode off(false);
    for (int i = 0; i < kLayers; ++i) {
      const PlacementScope place(c.updates_there ? placement(c, i) : graph::Placement{});
      const Value sum = ops::accumulate(weights[i].grad(), kBatches);
      const RateScope once(kBatches);
      const Value lr = Tensor::scalar(0.1 / kBatches, DType::kFloat32);
      write_in_place(weights[i], ops::sgd_update({weights[i], sum, lr, {}, {}}, {})[0]);
    }
    const RateScope once(kBatches);
    GraphSession session(eager, trace.finish({{"loss", ops::pack(loss, kBatches)}}), options);

    Generator data(2);
    std::vector<Tensor> results;
    for (int i = 0; i < steps; ++i) {
      const TensorType batch{DType::kFloat32, {kBatches * kRows, kWidth}};
      results.push_back(session.call({data.randn(batch), data.randn(batch)})[0]);
    }
    std::vector<std::vector<float>> all;
    for (const Tensor& result : results) all.push_back(values(result));
    for (const Tensor& w : weights) all.push_back(values(w));
    return all;
  }
};

TEST_F(PipelineStages, GiveTheBitsOfOneThread) {
  constexpr int kSteps = 10;
  const auto expected = losses({}, kSteps);
  EXPECT_EQ(expected[0].size(), static_cast<size_t>(kBatches));
  for (const char* place : {"stream", "sim"}) {
    for (const int stages : {2, 3}) {
      for (const bool staged : {true, false}) {
        for (const bool updates_there : {true, false}) {
          for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
            SCOPED_TRACE(fmt::format("{} stages on {}, {} {} {}", stages, place, staged, updates_there,
                                     granularity == Granularity::kOp));
            EXPECT_EQ(losses({stages, place, staged, updates_there, granularity}, kSteps), expected);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
