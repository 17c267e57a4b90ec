// Whole plans on the fake driver: any order of the device gives the same bits, every refused call is told and leaves
// nothing, a device that breaks ends its steps and not the program.
#include <gmock/gmock.h>

#include "cuda/fake_driver/fake_driver.h"
#include "runtime/fixture.h"
#include "streams/cuda/driver.h"
#include "support/fake_cuda.h"

namespace sluice::test {
namespace {

using testing::IsEmpty;

HostFunctions with_stage(float bad = -1) {
  HostFunctions f = functions();
  f["stage"] = failing(bad, 1);
  return f;
}

// `contexts`: kept by libraries for the process, before the test.
void expect_nothing_left(uint64_t contexts) {
  const fake_cuda::Counts left = fake_cuda::counts();
  EXPECT_EQ(left.streams, 0u);
  EXPECT_EQ(left.events, 0u);
  EXPECT_EQ(left.graphs, 0u);
  EXPECT_EQ(left.device_bytes, 0u);
  EXPECT_EQ(left.pinned_blocks, 0u);
  EXPECT_EQ(left.contexts, contexts);
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

TEST(CudaPlans, GiveTheSameInEveryOrderOfTheDevice) {
  const uint64_t kept = fake_cuda::counts().contexts;
  const uint64_t late = fake_cuda::counts().executed_late;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    fake_cuda::seed(seed);
    fake_cuda::set_lazy(seed % 4 == 0);
    {
      Engine engine({.cores = 2});
      Session session = load_counted(engine, device_plan("stage", "cuda:0"), {}, {.functions = with_stage(5)});
      std::vector<StepHandle> steps;
      for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
      for (int i = 0; i < 8; ++i) {
        const std::string error = error_of([&] { EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1))); });
        EXPECT_EQ(error.find("picky: 5 is not accepted") != std::string::npos, i == 5) << error;
      }
    }
    expect_nothing_left(kept);
  }
  fake_cuda::set_lazy(false);
  EXPECT_GT(fake_cuda::counts().executed_late, late);
}

// Whichever call the driver refuses, and however often it was good before: the result is right or the error names the
// call, the next step works, and nothing is left.
TEST(CudaPlans, EveryRefusedCallIsToldAndLeavesNothing) {
  const uint64_t kept = fake_cuda::counts().contexts;
  int refused = 0;
#define SLUICE_NAME(name) #name
#define SLUICE_NAMED(name) SLUICE_NAME(name),
  for (const std::string call : {SLUICE_CUDA_CALLS(SLUICE_NAMED)}) {
    for (int nth = 1; nth <= 40; ++nth) {
      SCOPED_TRACE(fmt::format("{}, call {}", call, nth));
      bool met = true;
      {
        Engine engine({.cores = 2});
        fake_cuda::fail_call(call, nth, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        Session session;
        std::string errors = error_of([&] {
          session = Session::load(engine, device_plan("stage", "cuda:0"), {}, {.functions = with_stage()});
          for (int i = 0; i < 3; ++i) {
            StepHandle step = submit(session, filled(1));
            const std::string error = error_of([&] { EXPECT_EQ(result(step), filled(2)); });
            if (error != "no error") {
              EXPECT_THAT(error, HasSubstr("too many resources requested for launch")) << i;
            }
          }
        });
        met = fake_cuda::calls_to_fail() == 0;
        if (errors != "no error") {
          EXPECT_THAT(errors, HasSubstr("too many resources requested for launch"));
        }
        fake_cuda::repair();
        if (session.valid()) {
          EXPECT_EQ(result(submit(session, filled(4))), filled(5));
        }
      }
      expect_nothing_left(kept);
      if (!met || ::testing::Test::HasFailure()) break;
      ++refused;
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(refused, 100);
}

TEST(CudaPlans, ABrokenDeviceEndsItsStepsAndNotTheProgram) {
  const uint64_t kept = fake_cuda::counts().contexts;
  for (int nth = 1; nth <= 6; ++nth) {
    fake_cuda::repair();
    Engine engine({.cores = 2});
    {
      Session session = load_counted(engine, device_plan("stage", "cuda:0"), {}, {.functions = with_stage()});
      EXPECT_EQ(result(submit(session, filled(1))), filled(2));
      fake_cuda::break_kernel(nth, CUDA_ERROR_ILLEGAL_ADDRESS);
      std::vector<StepHandle> steps;
      for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
      int good = 0;
      std::string told;
      for (int i = 0; i < 8; ++i) {
        const std::string error = error_of([&] { EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1))); });
        good += error == "no error";
        if (error != "no error") told = error;
      }
      EXPECT_LT(good, 8);
      EXPECT_THAT(told, HasSubstr("cuda:0: the device is poisoned: CUDA_ERROR_ILLEGAL_ADDRESS"));
      EXPECT_THAT(told, HasSubstr("of actor '"));  // what had been launched last
      EXPECT_THAT(
          error_of([&] { load_counted(engine, device_plan("stage", "cuda:0"), {}, {.functions = with_stage()}); }),
          HasSubstr("cuda:0: the device is poisoned"));
    }
    Session host = load_counted(engine, pipeline({"copy", "add_one"}), {}, {.functions = functions()});
    EXPECT_EQ(result(submit(host, filled(1))), filled(2));
  }
  fake_cuda::repair();
  expect_nothing_left(kept);
}

}  // namespace
}  // namespace sluice::test
