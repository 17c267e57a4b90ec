// Eager calls of CUDA devices on the fake driver, which tells what streams and events do not order.
#include "cuda/fake_driver/fake_driver.h"
#include "support/fake_cuda.h"
#include "tensor/device_queue.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CudaEager : public TensorTest {
 protected:
  const DeviceId cuda = parse_device("cuda:0");
};

TEST_F(CudaEager, CallsAreLaunchedAndNobodyWaits) {
  const Tensor x = vec({1, 2, 3}).to(cuda);
  eager.synchronize();
  fake_cuda::set_lazy(true);  // nothing is executed but by who waits for it
  const fake_cuda::Counts before = fake_cuda::counts();
  Value y = ops::add(ops::mul(x, x), x);
  y = ops::neg(y);
  EXPECT_EQ(fake_cuda::counts().launches, before.launches + 3);
  EXPECT_EQ(fake_cuda::counts().kernels, before.kernels);  // executed so far
  EXPECT_EQ(y.device(), cuda);
  EXPECT_THAT(values(y), ElementsAre(-2, -6, -12));
  EXPECT_EQ(fake_cuda::counts().kernels, before.kernels + 3);
  fake_cuda::set_lazy(false);
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

// Blocks are used again by later calls, and copies come in on a stream of their own: all of it in an order.
TEST_F(CudaEager, MemoryIsUsedAgainInOrder) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    fake_cuda::seed(seed);
    Value sum = vec({0, 0, 0}).to(cuda);
    for (int i = 1; i <= 150; ++i) {
      const float n = static_cast<float>(i);
      const Tensor there = vec({n, 2 * n, 3 * n}).to(cuda);  // its block is that of the last one
      write_in_place(sum, ops::add(sum, there));
    }
    EXPECT_THAT(values(sum), ElementsAre(11325, 22650, 33975));
    const uint64_t pageable = fake_cuda::counts().pageable_copies;
    vec({1, 2}).to(cuda);
    EXPECT_EQ(fake_cuda::counts().pageable_copies, pageable);  // it comes from pinned memory
    eager.queue(cuda).empty_cache();
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

TEST_F(CudaEager, GradientsAndOtherDevices) {
  const Tensor x = vec({1, 2, 3}).to(cuda);
  x.set_requires_grad(true);
  const Tensor elsewhere = Tensor(ops::mul(x, x)).to(parse_device("cuda:1"));
  backward_from(ops::sum(elsewhere));
  EXPECT_EQ(x.grad().device(), cuda);
  EXPECT_THAT(grad_of(x), ElementsAre(2, 4, 6));
  EXPECT_THAT(error_of([&] { ops::add(x, elsewhere); }), HasSubstr("found at least two devices, cuda:0 and cuda:1!"));
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

TEST_F(CudaEager, ALostDeviceTellsEveryCallAndHangsNobody) {
  const DeviceId other = parse_device("cuda:1");
  {
    Engine own({.cores = 1});
    EagerExecutor there(own);
    const ExecutorScope here(there);
    const Tensor x = vec({1, 2}).to(other);
    EXPECT_THAT(values(x), ElementsAre(1, 2));
    fake_cuda::break_kernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    const Value y = ops::neg(x);
    const std::string text = error_of([&] { values(y); });
    EXPECT_THAT(text, HasSubstr("cuda:1"));
    EXPECT_THAT(text, HasSubstr("found after neg, call"));
    EXPECT_NE(error_of([&] { values(ops::neg(vec({1}).to(other))); }), "");
    EXPECT_THAT(values(ops::neg(vec({1, 2}))), ElementsAre(-1, -2));  // the process goes on
  }
  fake_cuda::repair();
  static_cast<void>(fake_cuda::take_violations());
}

}  // namespace
}  // namespace sluice::test
