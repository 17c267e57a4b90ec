#include "tensor/trace.h"

#include "graph/ops/matmul.h"
#include "graph/ops/random.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/session/session.h"
#include "support/accelerator.h"
#include "support/memory_watch.h"
#include "tensor/random.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Runs `build` traced, planned and twice; eager execution of the same code is the oracle.
class Trace : public TensorTest {
 protected:
  using Build = std::function<std::vector<Value>(const std::vector<Value>& inputs)>;

  std::unique_ptr<GraphSession> compile(const Build& build, const std::vector<Tensor>& inputs,
                                        const std::vector<std::pair<std::string, Tensor>>& variables = {},
                                        CompileOptions options = {}) {
    TraceScope trace(eager, "g");
    for (const auto& [name, tensor] : variables) trace.register_variable(name, tensor);
    std::vector<Value> traced;
    for (const Tensor& input : inputs)
      traced.push_back(trace.add_input("x" + std::to_string(traced.size()), input.type()));
    std::vector<std::pair<std::string, Value>> outputs;
    for (const Value& v : build(traced)) outputs.emplace_back("y" + std::to_string(outputs.size()), v);
    GraphSessionOptions session_options;
    session_options.compile = options;
    const MemoryWatch watch(eager.engine(), {plan::Space{}});
    auto session = std::make_unique<GraphSession>(eager, trace.finish(outputs), session_options);
    EXPECT_EQ(watch.held_but_for(ledger_bytes(session->compiled().plan, true, false)), "");
    return session;
  }

  void expect_as_eager(const Build& build, const std::vector<Tensor>& inputs) {
    const auto session = compile(build, inputs);
    std::vector<Value> clones;
    for (const Tensor& input : inputs) clones.push_back(input.detach().clone());
    const std::vector<Value> expected = build(clones);
    const std::vector<Tensor> got = session->call(inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].type().str(), expected[i].type().str());
      EXPECT_EQ(values(got[i]), values(expected[i])) << "output " << i;
    }
  }
};

Value add_(const Value& t, const Value& by) {
  update_in_place(t, [&](const Value& old) { return ops::add(old, by); });
  return t;
}

TEST_F(Trace, RunsLikeEager) {
  expect_as_eager(
      [](auto& x) {
        return std::vector<Value>{ops::mul(ops::add(x[0], 1), x[1]), ops::neg(x[0])};
      },
      {vec({1, 2}), vec({3, 4})});
}

TEST_F(Trace, WritesToABaseAreSeenThroughViews) {
  expect_as_eager(
      [](auto& x) {
        const Value y = ops::mul(x[0], 1), row = ops::select(y, 0, 1),
                    column = ops::select(ops::permute(y, {1, 0}), 0, 0);
        add_(y, vec({100}));
        add_(row, vec({10, 20, 30}));
        return std::vector<Value>{y, row, column};
      },
      {tensor({2, 3}, {0, 1, 2, 3, 4, 5})});
}

TEST_F(Trace, WritesThroughChainsOfViews) {
  expect_as_eager(
      [](auto& x) {
        const Value y = ops::mul(x[0], 1);
        const Value v = ops::reshape(ops::slice(ops::permute(y, {1, 0}), {0, 0}, {4, 3}, {2, 1}), {2, 3});
        const Value w = ops::select(v, 1, 1);
        write_in_place(w, vec({-1, -2}));
        add_(ops::slice_axis(y, 1, 1, 4, 2), Tensor::scalar(1000, DType::kFloat32));
        return std::vector<Value>{y, v, w};
      },
      {tensor({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})});
}

TEST_F(Trace, ReshapesAliasExactlyWhenEagerOnesDo) {
  expect_as_eager(
      [](auto& x) {
        const Value y = ops::mul(x[0], 1);
        const Value alias = ops::reshape(y, {4}), copied = ops::reshape(ops::permute(y, {1, 0}), {4});
        add_(y, vec({5}));
        return std::vector<Value>{alias, copied};
      },
      {tensor({2, 2}, {0, 1, 2, 3})});
}

TEST_F(Trace, InputsAreNotWrittenBack) {
  const Tensor x = vec({1, 2});
  const auto session = compile([](auto& in) { return std::vector<Value>{add_(in[0], vec({1}))}; }, {x});
  EXPECT_THAT(values(session->call({x})[0]), ElementsAre(2, 3));
  EXPECT_THAT(values(x), ElementsAre(1, 2));
}

TEST_F(Trace, VariablesAreUpdatedOncePerStep) {
  const Tensor counter = Tensor::zeros({DType::kFloat32, {2}});
  const auto session = compile(
      [&](auto& x) {
        add_(counter, x[0]);
        const Value seen = ops::mul(counter, 1);
        add_(ops::slice_axis(counter, 0, 0, 1), vec({100}));
        return std::vector<Value>{seen};
      },
      {vec({1, 2})}, {{"counter", counter}});
  EXPECT_THAT(values(counter), ElementsAre(0, 0));
  EXPECT_THAT(values(session->call({vec({1, 2})})[0]), ElementsAre(1, 2));
  EXPECT_THAT(values(counter), ElementsAre(101, 2));
  const uint64_t version = counter.impl()->version();
  session->call({vec({1, 2})});
  EXPECT_GT(counter.impl()->version(), version);
  EXPECT_THAT(values(counter), ElementsAre(202, 4));
}

TEST_F(Trace, EagerWritesAreSeenByTheNextStep) {
  const Tensor w = vec({1});
  const auto session = compile([&](auto& x) { return std::vector<Value>{ops::mul(x[0], w)}; }, {vec({2})}, {{"w", w}});
  EXPECT_THAT(values(session->call({vec({2})})[0]), ElementsAre(2));
  write_in_place(w, vec({10}));
  EXPECT_THAT(values(session->call({vec({2})})[0]), ElementsAre(20));
}

TEST_F(Trace, CapturedTensorsAreConstants) {
  const Tensor c = vec({3});
  const auto session = compile([&](auto& x) { return std::vector<Value>{ops::mul(x[0], c)}; }, {vec({2})});
  write_in_place(c, vec({100}));
  EXPECT_THAT(values(session->call({vec({2})})[0]), ElementsAre(6));
}

TEST_F(Trace, WritingACapturedTensorIsRefused) {
  const Tensor c = vec({3});
  EXPECT_THAT(error_of([&] {
                compile(
                    [&](auto& x) {
                      add_(c, x[0]);
                      return std::vector<Value>{c};
                    },
                    {vec({2})});
              }),
              HasSubstr("in-place write inside graph 'g' to a tensor that is not part of it"));
}

TEST_F(Trace, ReadingAValueIsRefused) {
  EXPECT_THAT(error_of([&] {
                compile(
                    [&](auto& x) {
                      Tensor(x[0]).item();
                      return x;
                    },
                    {vec({2})});
              }),
              HasSubstr("item: the tensor is part of a graph"));
}

TEST_F(Trace, VariablesCannotDecideWhatIsTraced) {
  const Tensor w = vec({1});
  EXPECT_THAT(error_of([&] {
                compile(
                    [&](auto& x) {
                      w.item();
                      return x;
                    },
                    {vec({2})}, {{"w", w}});
              }),
              HasSubstr("item: the tensor is part of a graph"));
}

TEST_F(Trace, VariablesMoveToTheDeviceOfTheGraph) {
  const Tensor w = vec({1});
  const DeviceId sim = accelerator();
  CompileOptions options;
  options.device = sim;
  const auto build = [&](auto& x) { return std::vector<Value>{add_(w, x[0])}; };
  const auto session = compile(build, {vec({2})}, {{"w", w}}, options);
  EXPECT_EQ(w.device(), sim);
  EXPECT_THAT(values(session->call({vec({2})})[0]), ElementsAre(3));
  EXPECT_THAT(values(w.to(DeviceId{})), ElementsAre(3));
  EXPECT_THAT(error_of([&] { compile(build, {vec({2})}, {{"w", w}}); }), HasSubstr("compile both for one device"));
}

TEST_F(Trace, MovingAVariableInsideAGraphIsANode) {
  const Tensor w = vec({3});
  const auto session = compile(
      [&](auto& x) { return std::vector<Value>{ops::mul(Tensor(x[0]).to(accelerator()), w.to(accelerator()))}; },
      {vec({2})}, {{"w", w}});
  write_in_place(w, vec({10}));
  EXPECT_THAT(values(session->call({vec({2})})[0]), ElementsAre(20));
}

TEST_F(Trace, ValuesOfFinishedGraphsAreRefused) {
  Value leaked;
  compile(
      [&](auto& x) {
        leaked = ops::neg(x[0]);
        return std::vector<Value>{leaked};
      },
      {vec({2})});
  EXPECT_THAT(error_of([&] { ops::neg(leaked); }), HasSubstr("a value of a graph was used outside it"));
  EXPECT_THAT(
      error_of([&] { compile([&](auto& x) { return std::vector<Value>{ops::add(leaked, x[0])}; }, {vec({2})}); }),
      HasSubstr("a value of another graph"));
}

TEST_F(Trace, TrainingStepMatchesEager) {
  const auto step = [](const Value& x, const Tensor& w) {
    const Value loss = ops::mean(ops::square(ops::sub(ops::mul(x, w), 3)));
    backward({&loss, 1}, {});
    const GradMode off(false);
    update_in_place(w, [&](const Value& old) { return ops::sub(old, ops::mul(w.grad(), 0.1)); });
    return loss;
  };
  const Tensor x = vec({1, 2, 3}), eager_w = vec({1, 1, 1}, true), w = vec({1, 1, 1}, true);
  w.set_grad(vec({7, 7, 7}));
  const auto session = compile(
      [&](auto& in) {
        EXPECT_FALSE(w.grad().defined());
        return std::vector<Value>{step(in[0], w)};
      },
      {x}, {{"w", w}});
  EXPECT_THAT(grad_of(w), ElementsAre(7, 7, 7));  // the graph's gradients are its own
  for (int i = 0; i < 5; ++i) {
    eager_w.set_grad({});
    const float expected = values(step(x, eager_w))[0];
    EXPECT_EQ(values(session->call({x})[0])[0], expected);
  }
  EXPECT_EQ(values(w), values(eager_w));
}

TEST_F(Trace, CallsArePipelined) {
  const Tensor total = Tensor::zeros({DType::kFloat32, {1}});
  const auto session =
      compile([&](auto& x) { return std::vector<Value>{add_(total, x[0])}; }, {vec({1})}, {{"total", total}});
  std::vector<Tensor> results;
  for (int i = 0; i < 20; ++i) results.push_back(session->call({vec({1})})[0]);
  for (int i = 0; i < 20; ++i) EXPECT_THAT(values(results[i]), ElementsAre(i + 1));
}

TEST_F(Trace, RandomOpsStepOncePerCall) {
  Generator generator(7);
  const auto session = compile(
      [&](auto& x) {
        const auto a = generator.next(), b = generator.next();
        return std::vector<Value>{ops::dropout(a.state, x[0], 0.5, a.salt), ops::dropout(b.state, x[0], 0.5, b.salt)};
      },
      {Tensor::full({DType::kFloat32, {64}}, 1)});
  const Tensor ones = Tensor::full({DType::kFloat32, {64}}, 1);
  const std::vector<Tensor> first = session->call({ones}), second = session->call({ones});
  EXPECT_NE(values(first[0]), values(first[1]));
  EXPECT_NE(values(first[0]), values(second[0]));
  const int64_t* state = static_cast<const int64_t*>(generator.state().read());
  EXPECT_EQ(state[0], 7);
  EXPECT_EQ(state[1], 2);
  generator.manual_seed(7);
  EXPECT_EQ(values(session->call({ones})[1]), values(first[1]));
}

TEST_F(Trace, NodesKnowWhereTheyComeFrom) {
  set_source_provider([] { return SourceLocation{"train.py", 41}; });
  TraceScope trace(eager, "g");
  const Tensor x = trace.add_input("x", {DType::kFloat32, {2}});
  {
    const ModuleScope module("model.layer1");
    graph::Placement placement;
    placement.stream = "host";
    const PlacementScope host(placement, 3);
    ops::neg(x);
  }
  set_source_provider(nullptr);
  const graph::Node& node = trace.graph().nodes().back();
  EXPECT_EQ(node.source.str(), "train.py:41");
  EXPECT_EQ(node.module, "model.layer1");
  EXPECT_EQ(node.placement.stream, "host");
  EXPECT_EQ(node.quota, 3);
}

TEST_F(Trace, TwoDevicesGiveTheSame) {
  const auto build = [](auto& x) { return std::vector<Value>{ops::mul(ops::add(x[0], 1), x[1])}; };
  CompileOptions options;
  options.device = accelerator();
  const auto session = compile(build, {vec({1, 2}), vec({3, 4})}, {}, options);
  EXPECT_THAT(values(session->call({vec({1, 2}), vec({3, 4})})[0]), ElementsAre(6, 12));
}

TEST_F(Trace, SavedAndLoadedGraphsGiveTheSame) {
  const Tensor w = vec({2, 5});
  const auto session =
      compile([&](auto& x) { return std::vector<Value>{ops::mul(ops::add(x[0], 0.5), w)}; }, {vec({1, 2})}, {{"w", w}});
  const std::string dir = testing::TempDir() + "/sluice_bundle_" + std::to_string(getpid());
  session->save(dir);
  const auto loaded = GraphSession::load(eager, dir);
  EXPECT_EQ(values(loaded->call({vec({1, 2})})[0]), values(session->call({vec({1, 2})})[0]));
}

}  // namespace
}  // namespace sluice::test
