// The clock of a stream, read by others while it runs and stops.
#include "actors/busy_clock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace sluice::actors {
namespace {

void wait_ns(int64_t ns) {
  for (const int64_t until = now_ns() + ns; now_ns() < until;) {
  }
}

TEST(BusyClock, CountsOnlyWhatLiesBetweenResumeAndPause) {
  BusyClock clock;
  EXPECT_EQ(clock.busy_ns(), 0);
  wait_ns(1'000'000);
  EXPECT_EQ(clock.busy_ns(), 0);
  int64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = clock.resume();
    EXPECT_TRUE(clock.running());
    wait_ns(200'000);
    EXPECT_GE(clock.busy_ns(), expected + 200'000);
    expected += clock.pause() - begin;
    EXPECT_FALSE(clock.running());
    EXPECT_EQ(clock.busy_ns(), expected);
    EXPECT_EQ(clock.pauses(), static_cast<uint64_t>(i) + 1);
  }
}

TEST(BusyClock, PausesForAScopeOnlyWhatRuns) {
  BusyClock clock;
  { const BusyClock::Pause pause(clock); }
  EXPECT_FALSE(clock.running());
  EXPECT_EQ(clock.pauses(), 0u);
  clock.resume();
  {
    const BusyClock::Pause pause(clock);
    EXPECT_FALSE(clock.running());
  }
  EXPECT_TRUE(clock.running());
}

TEST(BusyClock, NeverFallsForItsReaders) {
  BusyClock clock;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  std::atomic<int> falls{0};
  std::atomic<uint64_t> reads{0};
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      for (int64_t last = 0; !done.load();) {
        const int64_t now = clock.busy_ns();
        falls += now < last;
        last = now;
        reads.fetch_add(1);
      }
    });
  }
  const int64_t begin = now_ns();
  for (int i = 0; i < 20'000 || reads.load() < 1000; ++i) {
    clock.resume();
    clock.pause();
  }
  const int64_t all = now_ns() - begin;
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(falls.load(), 0);
  EXPECT_LE(clock.busy_ns(), all);
}

}  // namespace
}  // namespace sluice::actors
