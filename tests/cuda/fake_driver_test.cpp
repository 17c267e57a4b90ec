// The fake driver finds what it is there to find: every kind of misuse is a violation, and proper use is none.
#include "cuda/fake_driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "streams/cuda/driver.h"
#include "support/fake_cuda.h"

namespace sluice::cuda {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FakeDriver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSetCurrent(context), CUDA_SUCCESS);
    for (CUstream& s : {std::ref(a), std::ref(b)})
      ASSERT_EQ(d.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc(&data, 1024), CUDA_SUCCESS);
    fake_cuda::set_lazy(true);
  }
  void TearDown() override {
    fake_cuda::set_lazy(false);
    EXPECT_EQ(d.cuStreamDestroy(a), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamDestroy(b), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventDestroy(event), CUDA_SUCCESS);
    if (data != 0) {
      EXPECT_EQ(d.cuMemFree(data), CUDA_SUCCESS);
    }
    EXPECT_EQ(d.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
  }
  CUresult set(CUstream stream, CUdeviceptr at, size_t bytes) { return d.cuMemsetD8Async(at, 1, bytes, stream); }

  const Driver& d = driver();
  CUcontext context = nullptr;
  CUstream a = nullptr, b = nullptr;
  CUevent event = nullptr;
  CUdeviceptr data = 0;
};

TEST_F(FakeDriver, NothingHappensBeforeSomebodyWaits) {
  unsigned char now[4] = {};
  set(a, data, 4);
  EXPECT_NE(*static_cast<unsigned char*>(fake_cuda::shadow(reinterpret_cast<void*>(data))), 1);
  d.cuEventRecord(event, a);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoH(now, data, 4), CUDA_SUCCESS);
  EXPECT_THAT(now, ElementsAre(1, 1, 1, 1));
}

TEST_F(FakeDriver, AWriteBesideAWriteIsARace) {
  set(a, data, 100);
  set(b, data + 99, 100);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("neither waits for the other")));
}

TEST_F(FakeDriver, AReadBesideAWriteIsARaceInEitherOrder) {
  CUdeviceptr other = 0;
  d.cuMemAlloc(&other, 64);
  set(a, data, 64);
  d.cuMemcpyDtoDAsync(other, data, 64, b);
  EXPECT_THAT(fake_cuda::take_violations(),
              ElementsAre(ContainsRegex("cuMemcpyDtoDAsync_v2 on stream [0-9]+ reads 64 bytes")));
  set(a, data, 64);  // write after read
  EXPECT_THAT(fake_cuda::take_violations(),
              ElementsAre(ContainsRegex("cuMemsetD8Async on stream [0-9]+ writes 64 bytes")));
  d.cuStreamSynchronize(a);
  d.cuStreamSynchronize(b);
  d.cuMemFree(other);
}

TEST_F(FakeDriver, WhatIsOrderedOrApartIsNoRace) {
  set(a, data, 100);
  set(b, data + 100, 100);
  d.cuEventRecord(event, a);
  d.cuStreamWaitEvent(b, event, 0);
  set(b, data, 100);
  d.cuStreamSynchronize(b);  // the host has waited, too
  set(a, data, 200);
}

TEST_F(FakeDriver, AWaitMeansTheRecordingBeforeIt) {
  d.cuEventRecord(event, a);
  d.cuStreamWaitEvent(b, event, 0);
  set(a, data, 8);
  d.cuEventRecord(event, a);
  set(b, data, 8);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("race")));
}

TEST_F(FakeDriver, MemoryIsUsedOnlyWhileItLives) {
  set(a, data + 1000, 100);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("which are not allocated")));
  d.cuStreamSynchronize(a);
  set(a, data, 8);
  d.cuMemFree(data);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("may still be using the memory")));
  d.cuMemFree(data);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("freed twice")));
  set(a, data, 8);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("which are not allocated")));
  data = 0;
  EXPECT_EQ(d.cuMemFreeHost(&data), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("cuMemFreeHost: freed twice")));
}

TEST_F(FakeDriver, TheHostCannotTouchDeviceMemory) { EXPECT_DEATH(*reinterpret_cast<volatile char*>(data) = 1, ""); }

TEST_F(FakeDriver, CallsNeedTheirContext) {
  d.cuCtxSetCurrent(nullptr);
  EXPECT_EQ(set(a, data, 8), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_THAT(fake_cuda::take_violations(),
              ElementsAre(HasSubstr("the context of device 0 is not the calling thread's")));
  d.cuCtxSetCurrent(context);
}

TEST_F(FakeDriver, PageableCopiesBlockAndAreCounted) {
  const uint64_t before = fake_cuda::counts().pageable_copies;
  const std::vector<char> pageable(64, 3);
  d.cuMemcpyHtoDAsync(data, pageable.data(), 64, a);
  EXPECT_EQ(*static_cast<char*>(fake_cuda::shadow(reinterpret_cast<void*>(data))), 3);
  void* pinned = nullptr;
  d.cuMemHostAlloc(&pinned, 64, 0);
  d.cuMemcpyDtoHAsync(pinned, data, 64, a);
  EXPECT_EQ(fake_cuda::counts().pageable_copies, before + 1);
  d.cuStreamSynchronize(a);
  EXPECT_EQ(*static_cast<char*>(pinned), 3);
  d.cuMemFreeHost(pinned);
}

TEST_F(FakeDriver, ABrokenContextRefusesEverything) {
  fake_cuda::Function nothing{"nothing", {}, [](void**) {}, [](void**, std::vector<fake_cuda::Access>&) {}};
  fake_cuda::break_kernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  d.cuLaunchKernel(fake_cuda::handle_of(nothing), 1, 1, 1, 1, 1, 1, 0, a, nullptr, nullptr);
  EXPECT_EQ(d.cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(set(b, data, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
  fake_cuda::repair();
  EXPECT_EQ(set(b, data, 8), CUDA_SUCCESS);
}

TEST_F(FakeDriver, WhatIsCapturedRunsWhenTheGraphIsLaunched) {
  auto* const byte = static_cast<unsigned char*>(fake_cuda::shadow(reinterpret_cast<void*>(data)));
  byte[0] = byte[1] = 0;
  ASSERT_EQ(d.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(set(a, data, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoDAsync(data + 1, data, 1, a), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(byte[0] + byte[1], 0);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(d.cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    byte[0] = byte[1] = 0;
    EXPECT_EQ(d.cuGraphLaunch(executable, b), CUDA_SUCCESS);
    EXPECT_EQ(byte[0], 0);
    EXPECT_EQ(d.cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_EQ(byte[0] + byte[1], 2);
  }
  // Its work is ordered with other streams' like any other.
  EXPECT_EQ(d.cuGraphLaunch(executable, b), CUDA_SUCCESS);
  set(a, data, 2);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("race")));
  EXPECT_EQ(d.cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphExecDestroy(executable), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(fake_cuda::take_violations(), ElementsAre(HasSubstr("a graph is destroyed twice")));
}

// A call that makes the host or a stream wait cannot be captured, and ends the capture.
TEST_F(FakeDriver, WhatCannotBeCapturedInvalidatesTheCapture) {
  const std::vector<char> pageable(8);
  d.cuEventRecord(event, b);
  const auto invalid = [&](CUresult expected, const std::function<CUresult()>& call) {
    CUgraph graph = nullptr;
    ASSERT_EQ(d.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(set(a, data, 8), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
  };
  CUdeviceptr other = 0;
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuStreamSynchronize(a); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuStreamSynchronize(b); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuEventQuery(event); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuMemAlloc(&other, 8); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuMemcpyHtoD(data, pageable.data(), 8); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return d.cuMemcpyHtoDAsync(data, pageable.data(), 8, a); });
  invalid(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, [&] { return d.cuStreamWaitEvent(a, event, 0); });
}

TEST_F(FakeDriver, ACaptureBelongsToItsThread) {
  CUgraph graph = nullptr;
  EXPECT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(d.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_ERROR_ILLEGAL_STATE);
  d.cuEventRecord(event, a);
  EXPECT_EQ(d.cuStreamWaitEvent(b, event, 0), CUDA_ERROR_CAPTURED_EVENT);
  std::thread([&] {
    d.cuCtxSetCurrent(context);
    CUdeviceptr other = 0;
    EXPECT_EQ(d.cuMemAlloc(&other, 8), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFree(other), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_EQ(set(a, data, 8), CUDA_SUCCESS);
  }).join();
  EXPECT_THAT(fake_cuda::take_violations(),
              ElementsAre(ContainsRegex("cuMemsetD8Async: on stream ., which another thread captures")));
  EXPECT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::cuda
