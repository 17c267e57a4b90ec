// Kernels' threads leave the cores to others who want them.
#include "kernels/worker_threads.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "base/denormals.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/core_use.h"
#include "support/processes.h"
#include "support/threads.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

void kernel_on_two_cores() {
  cpu::parallel_ranges(2, 1 << 14, 64, [](int64_t, int64_t) { asm volatile(""); });
}

double cpu_ms(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// The time that the other threads burn after a kernel, when nothing is left to do, until they sleep.
double burnt_after_a_kernel_ms() {
  kernel_on_two_cores();
  const double before = cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms(CLOCK_THREAD_CPUTIME_ID);
  EXPECT_TRUE(others_fall_asleep());
  return cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms(CLOCK_THREAD_CPUTIME_ID) - before;
}

TEST(WorkerThreads, ThatNeverSpinBurnNothingAfterAKernel) {
  WorkerThreads workers(Spin::kNever);
  workers.look();
  EXPECT_FALSE(workers.spins());
  // The switch works once its idle threads have been started.
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  int calm = 0;
  while (calm < 5 && Clock::now() < deadline) calm = burnt_after_a_kernel_ms() < 0.7 ? calm + 1 : 0;
  EXPECT_EQ(calm, 5);
}

#if !defined(__SANITIZE_THREAD__)  // whose teams are of one thread
// On a thread of its own, in a process of its own: what is wrong, or 0.
int what_is_wrong_with_leaving_a_team() {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto alone = threads();
  const auto ends = [&] {  // it has ended, and the system shows it a moment longer
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (threads() > alone && Clock::now() < deadline) std::this_thread::yield();
    return threads() == alone;
  };
  WorkerThreads workers(Spin::kAlways);
  for (int i = 0; i < 3; ++i) {
    kernel_on_two_cores();
    if (threads() != alone + 1) return 1;
    if (i > 0) workers.leave_team(false);
    if (threads() != alone + 1) return 2;  // it has been of use since
    workers.leave_team(i == 0);
    if (!ends()) return 3;
  }
  return 0;
}

TEST(WorkerThreads, OfAThreadThatGivesItsWorkToAnotherEnd) {
  const WorkerThreads here(Spin::kAlways);  // so that a child has no team of its parent's
  const auto child = [](int) {
    int wrong = -1;
    std::thread([&] { wrong = what_is_wrong_with_leaving_a_team(); }).join();
    return wrong;
  };
  EXPECT_EQ(in_processes(1, child), std::vector<int>{0});
}
#endif

TEST(WorkerThreads, ThatAlwaysSpinAreLeftAlone) {
  WorkerThreads workers(Spin::kAlways);
  for (int i = 0; i < 100; ++i) workers.look();
  EXPECT_TRUE(workers.spins());
}

TEST(WorkerThreads, StopSpinningWhenOthersWantTheCores) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) GTEST_SKIP() << "the system does not tell who waits for cores";
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  WorkerThreads workers(Spin::kAuto);
  auto* const stop = static_cast<std::atomic<bool>*>(
      mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(stop, MAP_FAILED);
  std::thread others([&] {
    in_processes(2 * static_cast<int>(std::thread::hardware_concurrency()), [&](int) {
      while (!stop->load(std::memory_order_relaxed)) {
      }
      return 0;
    });
  });
  const auto deadline = Clock::now() + std::chrono::seconds(50);
  while (workers.spins() && Clock::now() < deadline) {
    kernel_on_two_cores();
    workers.look();
  }
  EXPECT_FALSE(workers.spins());
  stop->store(true);
  others.join();
  munmap(stop, sizeof(std::atomic<bool>));
}

// Else a process would stop spinning for its own threads' sake.
TEST(CoreUse, DoesNotCountThisProcessAmongTheOthers) {
  CoreUse before, after;
  if (!CoreUse::read(&before)) GTEST_SKIP() << "the system does not tell who uses the cores";
  const double own_before = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<std::thread> own;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    own.emplace_back([begin = Clock::now()] {
      while (Clock::now() - begin < std::chrono::seconds(1)) {
      }
    });
  }
  for (std::thread& thread : own) thread.join();
  ASSERT_TRUE(CoreUse::read(&after));
  const double own_ms = cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - own_before;
  const auto all_ms = static_cast<double>(after.all_ns - before.all_ns) * 1e-6;
  const auto others_ms = static_cast<double>(after.others_ns - before.others_ns) * 1e-6;
  EXPECT_GT(all_ms, 0);
  EXPECT_LE(own_ms + others_ms, 1.1 * all_ms);
}

// Without it the child's first kernel on several cores would wait for ever for the parent's threads.
TEST(WorkerThreads, AKernelRunsInAChildOfFork) {
  WorkerThreads workers(Spin::kAuto);
  kernel_on_two_cores();
  EXPECT_EQ(in_processes(1,
                         [](int) {
                           kernel_on_two_cores();
                           return 0;
                         }),
            std::vector<int>{0});
  kernel_on_two_cores();
}

// All threads of a kernel treat denormal numbers as its caller does.
TEST(Denormals, ATeamDoesAsTheThreadThatTakesIt) {
  if (!kFlushesDenormals) GTEST_SKIP() << "this processor always keeps denormals";
  for (const bool flush : {true, false, true, false}) {
    flush_denormals(flush);
    std::atomic<int> as_the_caller{0};
    cpu::parallel_ranges(3, 3 * 1024, 1024, [&](int64_t, int64_t) { as_the_caller += flushes_denormals() == flush; });
    EXPECT_EQ(as_the_caller, 3);
    bool started = !flush;
    std::thread([&] { started = flushes_denormals(); }).join();
    EXPECT_EQ(started, flush);
  }
}

TEST(Denormals, AScopeLeavesTheModeAsItWas) {
  if (!kFlushesDenormals) GTEST_SKIP() << "this processor always keeps denormals";
  const uint64_t before = float_control(), half = before | (kFlushBits & ~(kFlushBits - 1));  // one of its bits
  set_float_control(half);
  {
    const DenormalScope on(true);
    EXPECT_TRUE(flushes_denormals());
  }
  EXPECT_EQ(float_control(), half);
  set_float_control(before);
  {
    const DenormalScope off(false);
    EXPECT_FALSE(flushes_denormals());
    const DenormalScope on(true);
    EXPECT_TRUE(flushes_denormals());
    const DenormalScope inner(false);
    EXPECT_TRUE(flushes_denormals());
  }
  EXPECT_FALSE(flushes_denormals());
}

}  // namespace
}  // namespace sluice::test
