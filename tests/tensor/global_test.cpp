// Logical graphs over several devices give what one device gives; their variables are whole to eager code.
#include "graph/ops/global.h"

#include <algorithm>
#include <filesystem>

#include "graph/ops/activation.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "streams/stream.h"
#include "tensor/graph_session.h"
#include "tensor/random.h"
#include "tensor/sharded_variable.h"
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
  EXPECT_EQ(count(*session, "all_reduce"), 6);  // four gradients, the loss's sum and its count
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

TEST_F(Global, UnknownDevicesAreNamed) {
  const Mlp net(3);
  EXPECT_THAT(error_of([&] { inference(net, {"cuda:0-1"}); }), HasSubstr("cuda:0"));
}

}  // namespace
}  // namespace sluice::test
