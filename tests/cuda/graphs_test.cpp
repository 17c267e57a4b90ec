// Compiled graphs on the fake driver.
#include "cuda/fake_driver/fake_driver.h"
#include "support/fake_cuda.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"
#include "tensor/trace.h"

namespace sluice::test {
namespace {

using testing::IsEmpty;

using CudaGraphs = TensorTest;

// One compiled plan over the host, two GPUs and sim, whose events and those of cuda cannot wait for each other on a
// device: the streams' threads do. Memory that a GPU copies is pinned, since it would wait for other memory.
TEST_F(CudaGraphs, OnePlanRunsOnTwoGpusBesideOtherDevices) {
  const auto build = [](const Value& x, const std::vector<std::string>& devices) {
    Value y = x;
    for (const std::string& device : devices) {
      const PlacementScope on({.device = parse_device(device), .stream = {}});
      y = ops::add(ops::mul(y, x), 1);
    }
    return y;
  };
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"cuda:0"}, {"cuda:0", "cuda:1", "cpu:0", "cuda:0"}, {"cuda:1", "sim:0", "cuda:0"}}) {
    const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
    TraceScope trace(eager, "g");
    const Value traced = trace.add_input("x", x.type());
    GraphSession session(eager, trace.finish({{"y", build(traced, devices)}}), {});
    const uint64_t pageable = fake_cuda::counts().pageable_copies;
    const Tensor expected(build(x, std::vector<std::string>(devices.size(), "cpu:0")));
    for (int step = 0; step < 5; ++step) EXPECT_EQ(values(session.call({x})[0]), values(expected));
    EXPECT_EQ(fake_cuda::counts().pageable_copies, pageable);
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

}  // namespace
}  // namespace sluice::test
