// Device memory in and out of sessions on the fake driver, whose memory the host cannot touch, and which tells what
// nobody orders.
#include "support/device_ports.h"

#include "cuda/fake_driver/fake_driver.h"
#include "support/fake_cuda.h"

namespace sluice::api_test {
namespace {

using testing::IsEmpty;

TEST(CudaDevicePorts, NothingIsCopiedFromStepToStep) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    fake_cuda::seed(seed);
    state_stays_there("cuda:0", seed % 2 == 0, [] { return fake_cuda::counts().large_copies; });
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

TEST(CudaDevicePorts, HostMemoryIsTakenToo) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    fake_cuda::seed(seed);
    host_memory_is_taken_too("cuda:0");
  }
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

TEST(CudaDevicePorts, ErrorsSayWhereItLies) {
  errors_say_where_it_lies("cuda:0", "cuda:1");
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

}  // namespace
}  // namespace sluice::api_test
