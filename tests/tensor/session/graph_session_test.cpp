#include "tensor/session/graph_session.h"

#include <atomic>
#include <thread>

#include "graph/ops/host.h"
#include "runtime/session/session.h"
#include "support/memory_watch.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GraphSessions : public TensorTest {
 protected:
  TensorType pair{DType::kFloat32, {2}};

  // y = f(x) * 10 with f on a host stream.
  std::unique_ptr<GraphSession> with_function(HostFunction function) {
    TraceScope trace(eager, "g");
    const Tensor x = trace.add_input("x", pair);
    Value y;
    {
      set_source_provider([] { return SourceLocation{"prepare.py", 12}; });
      graph::Placement placement;
      placement.stream = "host";
      const PlacementScope host(placement, 2);
      const Value in = x;
      y = ops::host_function({&in, 1}, "f", {&pair, 1})[0];
      set_source_provider(nullptr);
    }
    y = ops::mul(y, 10);
    GraphSessionOptions options;
    options.session.functions["f"] = std::move(function);
    const MemoryWatch watch(eager.engine(), {plan::Space{}});
    auto session = std::make_unique<GraphSession>(eager, trace.finish({{"y", y}}), options);
    EXPECT_EQ(watch.held_but_for(ledger_bytes(session->compiled().plan, true, false)), "");
    return session;
  }
};

void add_one(const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
  for (int i = 0; i < 2; ++i)
    static_cast<float*>(args.outputs[0])[i] = static_cast<const float*>(args.inputs[0])[i] + 1;
}

TEST_F(GraphSessions, HostFunctionsAreActors) {
  const auto session = with_function(add_one);
  EXPECT_THAT(values(session->call({vec({1, 2})})[0]), ElementsAre(20, 30));
}

TEST_F(GraphSessions, HostFunctionsRunEagerly) {
  const HostFunctions functions{{"f", add_one}};
  const HostFunctionScope scope(functions);
  const Value x = vec({1, 2});
  EXPECT_THAT(values(ops::host_function({&x, 1}, "f", {&pair, 1})[0]), ElementsAre(2, 3));
}

TEST_F(GraphSessions, AFailingStepDoesNotEndTheSession) {
  std::atomic<int> calls{0};
  const auto session = with_function([&](const KernelArgs& args, const auto& in, const auto& out) {
    if (++calls == 2) throw Error(ErrorKind::kValue, "broken image");
    add_one(args, in, out);
  });
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) results.push_back(session->call({vec({1, 2})})[0]);
  EXPECT_THAT(values(results[0]), ElementsAre(20, 30));
  const std::string error = error_of([&] { values(results[1]); });
  EXPECT_THAT(error, HasSubstr("broken image"));
  EXPECT_THAT(error, HasSubstr("prepare.py:12"));
  EXPECT_THAT(error_of([&] { ops::neg(results[1]); }), HasSubstr("broken image"));  // every later use says so too
  EXPECT_THAT(values(results[2]), ElementsAre(20, 30));
}

TEST_F(GraphSessions, WrongInputsAreNamed) {
  const auto session = with_function(add_one);
  EXPECT_THAT(error_of([&] { session->call({}); }), HasSubstr("1"));
  EXPECT_THAT(error_of([&] { session->call({vec({1, 2, 3})}); }), HasSubstr("x"));
  const int64_t ints[] = {1, 2};
  EXPECT_THAT(error_of([&] { session->call({Tensor::from_host({DType::kInt64, {2}}, ints)}); }), HasSubstr("int64"));
  EXPECT_THAT(values(session->call({vec({1, 2})})[0]), ElementsAre(20, 30));
}

TEST_F(GraphSessions, ResultsOutliveTheSession) {
  auto session = with_function(add_one);
  const Tensor result = session->call({vec({1, 2})})[0];
  session.reset();
  EXPECT_THAT(values(result), ElementsAre(20, 30));
}

TEST_F(GraphSessions, UnreadResultsDoNotBlock) {
  const auto session = with_function(add_one);
  std::vector<Tensor> results;
  for (int i = 0; i < 50; ++i) results.push_back(session->call({vec({1, static_cast<float>(i)})})[0]);
  for (int i = 0; i < 50; ++i) EXPECT_THAT(values(results[i]), ElementsAre(20, 10 * (i + 1)));
}

TEST_F(GraphSessions, ManyThreadsMayCall) {
  const auto session = with_function(add_one);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const ExecutorScope here(eager);
      for (int i = 0; i < 50; ++i) {
        const float v = static_cast<float>(100 * t + i);
        if (values(session->call({vec({v, v})})[0])[0] != (v + 1) * 10) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(GraphSessions, OneResultFeedsTheNextCall) {
  const auto session = with_function(add_one);
  Tensor x = vec({0, 1});
  for (int i = 0; i < 3; ++i) x = session->call({x})[0];
  EXPECT_THAT(values(x), ElementsAre(1110, 2110));
}

TEST_F(GraphSessions, VariablesAreTensorsWithMemory) {
  TraceScope trace(eager, "g");
  const Tensor traced = trace.add_input("x", {DType::kFloat32, {3}});
  EXPECT_THAT(error_of([&] { trace.register_variable("w", traced); }),
              HasSubstr("variable 'w' is no tensor with memory"));
}

}  // namespace
}  // namespace sluice::test
