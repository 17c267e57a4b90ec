// Tests the error where the backend, the driver or the device is missing: it says which of them, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel.h"
#include "streams/backend.h"
#include "support/fake_cuda.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The error that a new process with these settings gets when it asks for `device`.
std::string told(const std::string& settings, const std::string& device = "cuda:0") {
  const std::string command = "env " + settings + " " ASK_FOR_DEVICE " " + device;
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

const std::string kReal = "SLUICE_CUDA_LIBRARY=" REAL_BACKEND " ";
const std::string kBoth = kReal + "SLUICE_CUDA_DRIVER=" FAKE_CUDA_DRIVER " ";

TEST(Load, FindsTheBackendAndTheDriverByName) {
  EXPECT_EQ(told(kBoth), "cuda:0: 8589934592 bytes");
  EXPECT_EQ(told(kBoth, "cuda:1"), "cuda:1: 8589934592 bytes");
}

TEST(Load, SaysThatTheBackendIsMissing) {
  EXPECT_THAT(
      told("SLUICE_CUDA_LIBRARY=/nowhere/backend.so"),
      StartsWith("unsupported: device: cuda:0: the backend of cuda could not be loaded: /nowhere/backend.so: cannot "
                 "open shared object file: No such file or directory; the kinds here are cpu, sim, cuda; another "
                 "is libsluice_cuda.so in "));
  EXPECT_THAT(told("SLUICE_CUDA_LIBRARY=" FAKE_CUDA_DRIVER),
              StartsWith("unsupported: device: cuda:0: '" FAKE_CUDA_DRIVER "' is no backend: "));
}

TEST(Load, SaysThatTheDriverIsMissing) {
  EXPECT_EQ(told(kReal + "SLUICE_CUDA_DRIVER=/nowhere/libcuda.so.1"),
            "unsupported: device: cuda:0: the NVIDIA driver could not be loaded: /nowhere/libcuda.so.1: cannot open "
            "shared object file: No such file or directory; install release 580 or newer, or name it in "
            "SLUICE_CUDA_DRIVER");
}

TEST(Load, SaysThatTheDriverIsTooOldWithBothVersions) {
  EXPECT_EQ(told(kBoth + "FAKE_CUDA_VERSION=12040"),
            "unsupported: device: cuda:0: the NVIDIA driver is too old: it supports CUDA 12.4; this build needs CUDA "
            "13.0, which release 580 of the driver has: install that or a newer one");
  EXPECT_EQ(told(kBoth + "FAKE_CUDA_VERSION=13010"), "cuda:0: 8589934592 bytes");
  // A library that is no driver.
  EXPECT_EQ(
      told(kReal + "SLUICE_CUDA_DRIVER=libm.so.6"),
      "unsupported: device: cuda:0: the NVIDIA driver is too old: it has no cuInit; install release 580 or newer");
}

TEST(Load, SaysThatThereIsNoSuchDevice) {
  EXPECT_EQ(told(kBoth, "cuda:2"),
            "unsupported: device: cuda:2: no such device: the NVIDIA driver has 2; indices start at 0");
  EXPECT_EQ(told(kBoth + "FAKE_CUDA_DEVICES=0"),
            "unsupported: device: cuda:0: the NVIDIA driver finds no device it can use: CUDA_ERROR_NO_DEVICE (no "
            "CUDA-capable device is detected); see what nvidia-smi says");
}

// The library as it is shipped: its devices and its kernels.
TEST(Load, TheShippedBackendHasItsKernels) {
  const Backend* backend = open_backend(REAL_BACKEND);
  KernelTable table;
  add_cpu_kernels(table);
  backend->add_kernels(table);
  EXPECT_THAT(table.ops(DeviceKind::kCuda), testing::IsSupersetOf({"copy", "conv", "adam_update"}));
  EXPECT_EQ(backend->make_device(parse_device("cuda:1"), {.cores = 1})->describe().device, parse_device("cuda:1"));
}

TEST(Load, OtherKindsHaveNoBackend) {
  EXPECT_EQ(backend_of(DeviceKind::kCpu), nullptr);
  EXPECT_EQ(backend_of(DeviceKind::kSim), nullptr);
  ASSERT_NE(backend_of(DeviceKind::kCuda), nullptr);
  EXPECT_EQ(backend_of(DeviceKind::kCuda), backend_of(DeviceKind::kCuda));
}

}  // namespace
}  // namespace sluice
