// Logical graphs over several devices give what one device gives; their variables are whole to eager code.
#include "graph/ops/global.h"

#include <algorithm>
#include <filesystem>

#include "graph/ops/activation.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "plan/time/simulator.h"
#include "runtime/bundle/bundle_source.h"
#include "streams/stream.h"
#include "tensor/random.h"
#include "tensor/session/graph_session.h"
#include "tensor/session/sharded_variable.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Sbp kB = Sbp::broadcast();
Sbp S(int axis) { return Sbp::split(axis); }

// How the values and parameters of a two-layer perceptron lie; no mesh: on one device.
struct Placing {
  std::string mesh;
  Sbp x = S(0), w1 = kB, b1 = kB, w2 = kB, b2 = kB;
  std::string second_mesh = {};  // of the second layer
};

struct Mlp {
  Tensor w1, b1, w2, b2, lr;
  std::vector<Tensor> momenta;

  explicit Mlp(uint64_t seed) {
    Generator random(seed);
    const auto parameter = [&](const Shape& shape) {
      const Tensor p = Tensor::empty({DType::kFloat32, shape});
      random.uniform_(p, -0.5, 0.5);
      p.set_requires_grad(true);
      momenta.push_back(Tensor::zeros({DType::kFloat32, shape}));
      return p;
    };
    w1 = parameter({8, 6});
    b1 = parameter({8});
    w2 = parameter({5, 8});
    b2 = parameter({5});
    lr = Tensor::scalar(0.1, DType::kFloat32);
  }
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }

  Value forward(Value x, const Placing& placing) const {
    const auto lay = [](const Value& v, const std::string& mesh, const Sbp& sbp) {
      return mesh.empty() ? v : ops::to_global(v, parse_mesh(mesh), sbp);
    };
    const std::string &first = placing.mesh, &second = placing.second_mesh.empty() ? first : placing.second_mesh;
    x = lay(x, first, placing.x);
    Value h = ops::relu(ops::linear(x, lay(w1, first, placing.w1), lay(b1, first, placing.b1)));
    if (!placing.second_mesh.empty()) h = lay(h, second, placing.x);
    return ops::linear(h, lay(w2, second, placing.w2), lay(b2, second, placing.b2));
  }
};

const TensorType kX{DType::kFloat32, {8, 6}}, kLabels{DType::kInt64, {8}};

class Global : public TensorTest {
 protected:
  std::unique_ptr<GraphSession> training(const Mlp& net, const Placing& placing, CompileOptions compile = {}) {
    TraceScope trace(eager, "train");
    register_all(trace, net);
    const Tensor x = trace.add_input("x", kX), y = trace.add_input("y", kLabels);
    for (const Tensor& p : net.parameters()) p.set_grad({});
    const Value loss = ops::cross_entropy(net.forward(x, placing), y);
    backward_from(loss);
    {
      const GradMode off(false);
      const std::vector<Tensor> parameters = net.parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        ops::SgdOptions options;
        options.momentum = 0.9;
        const auto updated =
            ops::sgd_update({parameters[i], parameters[i].grad(), net.lr, net.momenta[i], {}}, options);
        write_in_place(parameters[i], updated[0]);
        write_in_place(net.momenta[i], updated[1]);
      }
    }
    GraphSessionOptions options;
    options.compile = std::move(compile);
    return std::make_unique<GraphSession>(eager, trace.finish({{"loss", loss}}), options);
  }
  std::unique_ptr<GraphSession> inference(const Mlp& net, const Placing& placing) {
    TraceScope trace(eager, "infer");
    register_all(trace, net);
    const Tensor x = trace.add_input("x", kX);
    return std::make_unique<GraphSession>(eager, trace.finish({{"y", net.forward(x, placing)}}));
  }
  static void register_all(TraceScope& trace, const Mlp& net) {
    const char* const names[] = {"w1", "b1", "w2", "b2"};
    for (size_t i = 0; i < 4; ++i) {
      trace.register_variable(names[i], net.parameters()[i]);
      trace.register_variable(std::string(names[i]) + ".momentum", net.momenta[i]);
    }
    trace.register_variable("lr", net.lr);
  }

  using Result = std::vector<std::vector<float>>;
  // Losses of a few steps, then the parameters.
  Result train(const Mlp& net, GraphSession& session, int steps = 6) {
    Generator data(5);
    std::vector<Tensor> losses;
    for (int i = 0; i < steps; ++i) {
      const Tensor x = data.randn(kX);
      losses.push_back(session.call({x, data.randint(kLabels, 0, 5)})[0]);
    }
    Result result;
    for (const Tensor& loss : losses) result.push_back(values(loss));
    for (const Tensor& p : net.parameters()) result.push_back(values(p));
    return result;
  }
  Result trained(const Placing& placing, CompileOptions compile = {}) {
    const Mlp net(3);
    const auto session = training(net, placing, std::move(compile));
    return train(net, *session);
  }
};

void expect_near(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_THAT(got[i], testing::Pointwise(testing::FloatNear(1e-6f), expected[i])) << "value " << i;
}

int count(const GraphSession& session, const std::string& kind) {
  const auto& boxings = session.compiled().partition.boxings;
  return static_cast<int>(
      std::count_if(boxings.begin(), boxings.end(), [&](const Boxing& b) { return b.kind == kind; }));
}

// The parts of an eager tensor that lies on several devices.
std::vector<std::vector<float>> parts_of(const Tensor& tensor) {
  std::vector<std::vector<float>> parts;
  for (const auto& sharded : static_cast<EagerImpl*>(tensor.impl())->sharded) {
    for (const auto& part : sharded.lock()->parts()) {
      part.storage->before_read();
      parts.emplace_back(numel(part.shard.type.shape));
      part.device->copy_to_host(parts.back().data(), part.storage->data(), part.storage->bytes());
    }
  }
  return parts;
}

TEST_F(Global, DataParallelTrainingIsThatOfOneDevice) {
  const Result expected = trained({});
  expect_near(trained({"sim:0-1"}), expected);
  expect_near(trained({"sim:0-2"}), expected);  // 8 = 3 + 3 + 2 samples
  expect_near(trained({"sim:0-3"}), expected);
  expect_near(trained({"sim:1"}), expected);
}

TEST_F(Global, CopiesOfAVariableAreEqualBitByBit) {
  const Mlp net(3);
  const auto session = training(net, {"sim:0-3"});
  train(net, *session);
  for (const Tensor& p : net.parameters()) {
    const auto parts = parts_of(p);
    ASSERT_EQ(parts.size(), 4u);
    for (const auto& part : parts) EXPECT_EQ(part, values(p));
  }
  EXPECT_EQ(count(*session, "all_reduce"), 4);  // one for each gradient
  EXPECT_EQ(count(*session, "all_gather") + count(*session, "all_to_all") + count(*session, "reduce_scatter"), 0);
}

TEST_F(Global, DataParallelTrainingRepeatsBitByBit) {
  const Result expected = trained({"sim:0-3"});
  EXPECT_EQ(trained({"sim:0-3"}), expected);
  CompileOptions per_op, plain;
  per_op.granularity = Granularity::kOp;
  EXPECT_EQ(trained({"sim:0-3"}, per_op), expected);
  plain.reuse_memory = plain.in_place = false;
  EXPECT_EQ(trained({"sim:0-3"}, plain), expected);
}

TEST_F(Global, TensorParallelTrainingIsThatOfOneDevice) {
  const Placing column_then_row{"sim:0-1", kB, S(0), S(0), S(1), kB};
  expect_near(trained(column_then_row), trained({}));
  const Mlp net(3);
  const auto forward = inference(net, column_then_row);
  EXPECT_EQ(count(*forward, "all_gather") + count(*forward, "all_to_all") + count(*forward, "all_reduce"), 0)
      << "the row's sum is an output of the graph, and added up there";
}

TEST_F(Global, ParametersMaySplitAnyWay) {
  const Result expected = trained({});
  for (const Sbp& w1 : {kB, S(0), S(1)})
    for (const Sbp& x : {kB, S(0), S(1)}) expect_near(trained({"sim:0-1", x, w1, kB, S(0), S(0)}), expected);
}

TEST_F(Global, LayersOnDifferentMeshesTrainAsOne) {
  const Result expected = trained({});
  expect_near(trained({"sim:0", kB, kB, kB, kB, kB, "sim:1"}), expected);
  expect_near(trained({"sim:0-1", S(0), kB, kB, kB, kB, "sim:2-3"}), expected);
  expect_near(trained({"sim:0-3", S(0), kB, kB, kB, kB, "sim:4-5"}), expected);
}

TEST_F(Global, EagerWritesReachThePartsAndBack) {
  const Mlp net(3), one(3);
  const auto several = training(net, {"sim:0-1", S(0), S(1)}), single = training(one, {});
  for (int round = 0; round < 3; ++round) {
    expect_near(train(net, *several, 2), train(one, *single, 2));
    for (const Mlp* m : {&net, &one}) {
      const GradMode off(false);
      update_in_place(m->w1, [](const Value& old) { return ops::mul(old, 0.5); });
      write_in_place(m->lr, Tensor::scalar(0.05, DType::kFloat32));
    }
  }
}

TEST_F(Global, SessionsShareAVariableHoweverItLies) {
  const Mlp net(3), one(3);
  const auto train_split = training(net, {"sim:0-1", S(0), S(1)}), train_one = training(one, {});
  const auto infer_same = inference(net, {"sim:0-1", S(0), S(1)}), infer_other = inference(net, {"sim:0-3", S(0)}),
             infer_whole = inference(net, {});
  Generator data(8);
  for (int round = 0; round < 3; ++round) {
    expect_near(train(net, *train_split, 2), train(one, *train_one, 2));
    const Tensor x = data.randn(kX);
    const auto expected = values(one.forward(x, {}));
    for (const auto* session : {&infer_same, &infer_other, &infer_whole})
      EXPECT_THAT(values((*session)->call({x})[0]), testing::Pointwise(testing::FloatNear(1e-5f), expected));
  }
}

TEST_F(Global, APartMayBeReadOnAnotherDeviceFirst) {
  const Mlp net(3);
  const Tensor x = Generator(8).randn(kX);
  const auto session = inference(net, {"sim:0-1", kB, S(0), S(0), S(0), S(0)});
  EXPECT_THAT(values(session->call({x})[0]), testing::Pointwise(testing::FloatNear(1e-5f), values(net.forward(x, {}))));
}

TEST_F(Global, ContentOutlivesTheSession) {
  const Mlp net(3), one(3);
  auto session = training(net, {"sim:0-1", S(0), S(1)});
  Generator data(5);
  const Tensor x = data.randn(kX), y = data.randint(kLabels, 0, 5);
  session->call({x, y});
  session.reset();
  training(one, {})->call({x, y});
  expect_near({values(net.w1), values(net.w2)}, {values(one.w1), values(one.w2)});
}

TEST_F(Global, ABundleIsPlannedAnew) {
  const std::string dir = testing::TempDir() + "/global_bundle";
  const Mlp net(3);
  const auto session = training(net, {"sim:0-1", S(0), S(1)});
  train(net, *session, 2);
  session->save(dir);
  const auto loaded = GraphSession::load(eager, dir);
  Generator data(6);
  const Tensor x = data.randn(kX), y = data.randint(kLabels, 0, 5);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(loaded->call({x, y})[0]), values(session->call({x, y})[0]));
  std::filesystem::remove_all(dir);
}

// An eager tensor that says how graphs are to lay it.
Tensor laid(const Tensor& tensor, const std::string& mesh, const Sbp& sbp) {
  const Tensor same = tensor.detach();
  static_cast<EagerImpl&>(*same.impl()).global =
      std::make_shared<GlobalTensor>(GlobalTensor{{parse_mesh(mesh), sbp}, std::nullopt});
  return same;
}

TEST_F(Global, VariablesLieAsTheirTensorsSay) {
  const Tensor w = laid(vec({1, 2, 3, 4}), "sim:0-1", S(0));
  TraceScope trace(eager, "laid");
  trace.register_variable("w", w);
  const Tensor x = trace.add_input("x", {DType::kFloat32, {4}});
  const Value y = ops::add(ops::mul(w, x), laid(vec({1, 1, 2, 2}), "sim:0-1", kB));
  write_in_place(w, ops::mul(w, 2));
  GraphSession session(eager, trace.finish({{"y", y}}));
  EXPECT_THAT(values(session.call({vec({1, 1, 1, 1})})[0]), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(values(session.call({vec({1, 1, 1, 1})})[0]), ElementsAre(3, 5, 8, 10));
  ASSERT_EQ(parts_of(w).size(), 2u);
  EXPECT_THAT(parts_of(w)[1], ElementsAre(12, 16));
  std::vector<float> whole(4);
  w.copy_to_host(whole.data());
  EXPECT_THAT(whole, ElementsAre(4, 8, 12, 16));
}

TEST_F(Global, EagerOpsRefuseGlobalTensors) {
  const Tensor x = laid(vec({1, 2}), "sim:0-1", S(0));
  EXPECT_EQ(error_of([&] { ops::add(x, 1); }),
            "add: a is a global tensor: S(0) on sim:0-1; eager ops do not run on several devices: call it inside "
            "nn.Graph, or on .to_local()");
  EXPECT_THAT(error_of([&] { ops::reshape(x.detach(), {2, 1}); }), HasSubstr("reshape: x is a global tensor"));
}

TEST_F(Global, UnknownDevicesAreNamed) {
  const Mlp net(3);
  EXPECT_THAT(error_of([&] { inference(net, {"cuda:0-1"}); }), HasSubstr("cuda:0"));
}

// All pairs of ways to lie, on the same devices and on others; 7 rows do not divide.
TEST_F(Global, EveryConversionKeepsTheValue) {
  const TensorType type{DType::kFloat32, {7, 6}}, square{DType::kFloat32, {6, 6}};
  Generator data(4);
  const Tensor x = data.randn(type), w = data.randn(square);
  const auto expected = values(ops::matmul(x, w));
  const std::vector<Sbp> kinds = {S(0), S(1), kB, Sbp::partial_sum()};
  const std::pair<const char*, const char*> moves[] = {
      {"sim:0-1", "sim:0-1"}, {"sim:0-2", "sim:0-2"}, {"sim:0-3", "sim:0-3"}, {"sim:0-1", "sim:2-5"},
      {"sim:0-3", "sim:4-5"}, {"sim:0-2", "sim:1-2"}, {"sim:0", "sim:0-2"},   {"sim:0-2", "sim:3"}};
  for (const auto& [here, there] : moves) {
    TraceScope trace(eager, "conversions");
    const Tensor in_x = trace.add_input("x", type), in_w = trace.add_input("w", square);
    const DeviceMesh from = parse_mesh(here), to = parse_mesh(there);
    // Sums of which every device has a part.
    const Value y = ops::matmul(ops::to_global(in_x, from, S(1)), ops::to_global(in_w, from, S(0)));
    std::vector<std::pair<std::string, Value>> outputs;
    for (const Sbp& a : kinds)
      for (const Sbp& b : kinds)
        outputs.emplace_back(a.str() + " to " + b.str(), ops::copy(ops::to_global(ops::to_global(y, from, a), to, b)));
    GraphSession session(eager, trace.finish(outputs));
    const std::vector<Tensor> results = session.call({x, w});
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_THAT(values(results[i]), testing::Pointwise(testing::FloatNear(1e-5f), expected))
          << outputs[i].first << ", " << here << " to " << there;
  }
}

// Time of a plan whose kernels take what they are said to, and of the streams that compute.
struct Pace {
  double total, busiest, all;
};
Pace pace_of(const plan::Plan& plan, int steps) {
  const plan::Simulation sim = plan::simulate(plan, {.steps = steps});
  Pace pace{sim.total_ns, 0, 0};
  for (size_t i = 0; i < plan.streams.size(); ++i) {
    if (plan.streams[i].device.kind != DeviceKind::kSim) continue;
    pace.busiest = std::max(pace.busiest, sim.stream_busy_ns[i]);
    pace.all += sim.stream_busy_ns[i];
  }
  return pace;
}

class Pipeline : public Global {
 protected:
  static constexpr int kWidth = 256, kMicroBatches = 8, kRows = 64;

  // Two stages of two layers each; a step takes its batch in parts, whose gradients add up.
  struct Stages {
    std::vector<Tensor> weights;
    explicit Stages(uint64_t seed) {
      Generator random(seed);
      for (int i = 0; i < 4; ++i) {
        weights.push_back(Tensor::empty({DType::kFloat32, {kWidth, kWidth}}));
        random.uniform_(weights.back(), -0.1, 0.1);
        weights.back().set_requires_grad(true);
      }
    }
  };
  const TensorType batch{DType::kFloat32, {kRows, kWidth}};

  std::unique_ptr<GraphSession> training_in_parts(const Stages& net, const std::vector<std::string>& meshes,
                                                  CompileOptions compile) {
    TraceScope trace(eager, "pipeline");
    for (size_t i = 0; i < 4; ++i) trace.register_variable("w" + std::to_string(i), net.weights[i]);
    const Tensor x = trace.add_input("x", batch), y = trace.add_input("y", batch);
    std::vector<Value> losses;
    for (const Tensor& w : net.weights) w.set_grad({});
    const int64_t rows = kRows / kMicroBatches;
    for (int64_t m = 0; m < kMicroBatches; ++m) {
      Value h = ops::slice_axis(x, 0, m * rows, (m + 1) * rows);
      for (size_t i = 0; i < 4; ++i) {
        const Sbp whole = kB;
        const auto on_stage = [&](const Value& v) {
          return meshes.empty() ? v : ops::to_global(v, parse_mesh(meshes[i / 2]), whole);
        };
        if (i % 2 == 0) h = on_stage(h);
        h = ops::tanh(ops::linear(h, on_stage(net.weights[i])));
      }
      const Value error = ops::sub(h, ops::slice_axis(y, 0, m * rows, (m + 1) * rows));
      losses.push_back(ops::mean(ops::mul(error, error)));
    }
    Value loss = losses[0];
    for (size_t m = 1; m < losses.size(); ++m) loss = ops::add(loss, losses[m]);
    backward_from(loss);
    {
      const GradMode off(false);
      for (const Tensor& w : net.weights)
        write_in_place(w, ops::sgd_update({w, w.grad(), Tensor::scalar(0.01, DType::kFloat32), {}, {}}, {})[0]);
    }
    GraphSessionOptions options;
    options.compile = std::move(compile);
    return std::make_unique<GraphSession>(eager, trace.finish({{"loss", loss}}), options);
  }

  std::vector<std::vector<float>> losses(const std::vector<std::string>& meshes, CompileOptions compile = {}) {
    const Stages net(7);
    const auto session = training_in_parts(net, meshes, std::move(compile));
    Generator data(2);
    std::vector<std::vector<float>> result;
    for (int i = 0; i < 4; ++i) {
      const Tensor x = data.randn(batch), y = data.randn(batch);
      result.push_back(values(session->call({x, y})[0]));
    }
    result.push_back(values(net.weights[0]));
    return result;
  }
};

TEST_F(Pipeline, TwoStagesTrainAsOneDevice) {
  const auto expected = losses({});
  EXPECT_EQ(losses({"sim:0", "sim:1"}), expected);
  CompileOptions per_op;
  per_op.granularity = Granularity::kOp;
  EXPECT_EQ(losses({"sim:0", "sim:1"}, per_op), expected);
}

// No schedule is written anywhere: a stage works on one micro-batch while the other has the next.
TEST_F(Pipeline, MicroBatchesOverlap) {
  CompileOptions per_op;
  per_op.granularity = Granularity::kOp;
  const Stages net(7);
  const auto session = training_in_parts(net, {"sim:0", "sim:1"}, per_op);
  const Pace pace = pace_of(session->compiled().plan, 1);
  EXPECT_LT(pace.total, 0.75 * pace.all) << "busiest stream: " << pace.busiest;
  const auto one_after_another = training_in_parts(net, {"sim:0", "sim:0"}, per_op);
  EXPECT_GT(pace_of(one_after_another->compiled().plan, 1).total, 1.3 * pace.total);
}

// A stage is at most as many steps ahead of the next one as its register has slots.
TEST_F(Pipeline, StepsOverlapAsFarAsQuotasAllow) {
  const Mlp net(3);
  const auto stages = [&](int buffers) {
    TraceScope trace(eager, "steps");
    const Tensor x = trace.add_input("x", {DType::kFloat32, {512, 512}});
    Value h = x;
    for (const char* mesh : {"sim:0", "sim:1"}) {
      h = ops::to_global(h, parse_mesh(mesh), kB);
      for (int i = 0; i < 4; ++i) h = ops::tanh(ops::matmul(h, h));
    }
    GraphSessionOptions options;
    options.compile.outputs_buffer_size = buffers;
    options.dry_run = true;
    GraphSession session(eager, trace.finish({{"y", h}}), options);
    return session.compiled().plan;
  };
  const plan::Plan one = stages(1), two = stages(2);
  const double together = plan::simulate(one, {.steps = 32, .in_flight = 1}).period_ns;
  const double overlapped = plan::simulate(two, {.steps = 32}).period_ns;
  EXPECT_LT(overlapped, 0.65 * together);
}

}  // namespace
}  // namespace sluice::test
