// Eager calls of devices: what is queued, what is waited for, what becomes of failures and of memory.
#include "tensor/device_queue.h"

#include <thread>

#include "graph/ops/indexing.h"
#include "graph/ops/matmul.h"
#include "graph/origin.h"
#include "memory/counted_bytes.h"
#include "streams/sim/sim_device.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Queue : public TensorTest {
 protected:
  const DeviceId sim = parse_device("sim:0");
  SimDevice& device = dynamic_cast<SimDevice&>(engine->device(sim));
  DeviceQueue& queue = eager.queue(sim);
  void SetUp() override { eager.synchronize(); }
};

TEST_F(Queue, ComputesWhereTheTensorsAre) {
  const Tensor x = tensor({2, 2}, {1, 2, 3, 4}).to(sim);
  const Value y = ops::add(ops::matmul(x, ops::transpose(x, 0, 1)), x);
  EXPECT_EQ(y.device(), sim);
  EXPECT_TRUE(device.owns(static_cast<const EagerImpl&>(*y.impl()).data()));
  EXPECT_THAT(values(y), ElementsAre(6, 13, 14, 29));
}

TEST_F(Queue, ATensorWithoutDimsFollowsFromTheCpu) {
  const Tensor there = vec({1, 2}, true).to(sim), scale = Tensor::scalar(3, DType::kFloat32);
  scale.set_requires_grad(true);
  const Value loss = ops::sum(ops::mul(there, scale));
  EXPECT_EQ(loss.device(), sim);
  backward_from(loss);
  EXPECT_EQ(scale.grad().device(), DeviceId{});  // where its leaf is
  EXPECT_THAT(grad_of(scale), ElementsAre(3));
  EXPECT_EQ(error_of([&] {
              ops::add(vec({1, 2}), Tensor(loss).detach());
            }),
            "add: Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu!");
  EXPECT_THAT(error_of([&] { ops::add(there, there.to(parse_device("sim:1"))); }),
              HasSubstr("found at least two devices, sim:0 and sim:1!"));
}

TEST_F(Queue, GradientsLieOnTheDevice) {
  const Tensor x = vec({1, 2, 3}).to(sim);
  x.set_requires_grad(true);
  backward_from(ops::sum(ops::mul(x, x)));
  EXPECT_EQ(x.grad().device(), sim);
  EXPECT_THAT(grad_of(x), ElementsAre(2, 4, 6));
}

TEST_F(Queue, ViewsAliasInTheDevicesMemory) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}).to(sim);
  const Value column = ops::select(x, 1, 1);
  write_in_place(column, vec({20, 50}));
  write_in_place(ops::select(x, 0, 0), Tensor::scalar(0, DType::kFloat32));
  EXPECT_THAT(values(x), ElementsAre(0, 0, 0, 4, 50, 6));
  EXPECT_THAT(values(column), ElementsAre(0, 50));
}

TEST_F(Queue, AFailureIsToldByWhoWaitsAndNamesTheCall) {
  const Tensor x = vec({1, 2, 3}).to(sim), before = ops::neg(x);
  device.fail_next("exp", 1, Status(ErrorKind::kRuntime, "exp: injected"));
  Value failed, after;
  {
    const Provenance line{.source = {"train.py", 41}, .module = {}};
    const OriginScope here(Role::kForward, &line);
    failed = ops::exp(x);
    after = ops::add(x, 1);  // has nothing to do with it, and was queued behind
  }
  const std::string text = error_of([&] { values(before); });
  EXPECT_THAT(text, HasSubstr("exp: injected"));
  EXPECT_THAT(text, HasSubstr("train.py:41"));
  EXPECT_THAT(text, HasSubstr("exp, call"));
  EXPECT_THAT(text, HasSubstr("of sim:0"));
  EXPECT_THAT(values(before), ElementsAre(-1, -2, -3));  // told once; what was made before is there
  EXPECT_THAT(error_of([&] { values(failed); }), HasSubstr("exp: injected"));
  EXPECT_THAT(error_of([&] { values(after); }), HasSubstr("exp: injected"));
  EXPECT_THAT(error_of([&] { ops::neg(after); }), HasSubstr("exp: injected"));
  EXPECT_THAT(values(ops::add(x, 1)), ElementsAre(2, 3, 4));  // the device goes on
  write_in_place(after, vec({7, 8, 9}));                      // has a content again
  EXPECT_THAT(values(after), ElementsAre(7, 8, 9));
}

TEST_F(Queue, PartsOfFailedContentDoNotMakeItWhole) {
  const Tensor x = vec({1, 2, 3}).to(sim);
  device.fail_next("neg", 1, Status(ErrorKind::kRuntime, "neg: injected"));
  const Value failed = ops::neg(x);
  EXPECT_THAT(error_of([&] { queue.synchronize(); }), HasSubstr("neg: injected"));
  EXPECT_THAT(error_of([&] { write_in_place(ops::select(failed, 0, 0), Tensor::scalar(1, DType::kFloat32)); }),
              HasSubstr("neg: injected"));
  EXPECT_THAT(error_of([&] { values(failed); }), HasSubstr("neg: injected"));
}

TEST_F(Queue, KernelsFindFailuresWhileTheyRun) {
  const Tensor x = vec({1, 2, 3}).to(sim);
  const int64_t beyond[] = {7};
  const Tensor at = Tensor::from_host({DType::kInt64, {1}}, beyond).to(sim);
  const Value row = ops::index_select(x, at, 0);
  EXPECT_THAT(error_of([&] { values(row); }), HasSubstr("index_select"));
  EXPECT_THAT(values(x), ElementsAre(1, 2, 3));
}

TEST_F(Queue, ManyCallsAheadOfTheHost) {
  Value x = vec({0, 0}).to(sim);
  for (int i = 0; i < 5000; ++i) x = ops::add(x, 1);
  EXPECT_THAT(values(x), ElementsAre(5000, 5000));
}

TEST_F(Queue, BlocksAreReusedWithoutWaiting) {
  Value x = Tensor::from_host({DType::kFloat32, {1000}}, std::vector<float>(1000, 1).data()).to(sim);
  queue.synchronize();
  queue.empty_cache();
  engine->device_bytes(sim)->reset_peak();
  const uint64_t held = queue.held_bytes(), used = engine->device_bytes(sim)->stats().current_bytes;
  for (int i = 0; i < 300; ++i) x = ops::mul(ops::add(x, 1), 0.5);
  EXPECT_THAT(values(x), testing::Each(1.0f));
  EXPECT_LE(engine->device_bytes(sim)->stats().peak_bytes, used + 4 * 4096);
  EXPECT_LE(queue.held_bytes(), held + 6 * 8192);
  const uint64_t before = queue.held_bytes();
  queue.empty_cache();
  EXPECT_LT(queue.held_bytes(), before);
  EXPECT_EQ(engine->device_bytes(sim)->stats().current_bytes, used);
}

TEST_F(Queue, CopiesFromTheHostTakeWhatWasThere) {
  std::vector<float> data(1 << 16, 1);
  const Tensor here = Tensor::borrow({DType::kFloat32, {1 << 16}, {1}}, data.data(), [] {});
  Value sum = Tensor::full({DType::kFloat32, {}}, 0).to(sim);
  for (int i = 0; i < 400; ++i) {  // more than is staged at once
    sum = ops::add(sum, ops::mean(Tensor(here).to(sim)));
    std::fill(data.begin(), data.end(), static_cast<float>(i + 2));
  }
  EXPECT_THAT(values(sum), ElementsAre(400 * 401 / 2));
}

TEST_F(Queue, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      const ExecutorScope here(eager);
      Value x = vec({static_cast<float>(t)}).to(sim);
      for (int i = 0; i < 300; ++i) {
        x = ops::add(x, 1);
        if (i % 50 == 0) queue.synchronize();
      }
      results[t] = values(x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_THAT(results[t], ElementsAre(300 + static_cast<float>(t)));
}

TEST_F(Queue, AnEndedEngineRefusesAndItsTensorsGoLater) {
  Tensor left;
  {
    Engine own({.cores = 1});
    EagerExecutor ending(own);
    const ExecutorScope here(ending);
    left = ops::neg(vec({1, 2}).to(sim));
    ending.close(std::chrono::seconds(10));
    EXPECT_THAT(error_of([&] { ops::neg(left); }), HasSubstr("its engine has been shut down"));
  }
  EXPECT_EQ(left.device(), sim);
}

}  // namespace
}  // namespace sluice::test
