// Streams record events of themselves, while others read them.
#include "actors/trace_rings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/alloc_counter.h"

namespace sluice::actors {
namespace {

TraceEvent numbered(int64_t i) {
  return {
      .actor = static_cast<int>(i % 1000), .kernel = -1, .step = static_cast<uint64_t>(i), .begin_ns = i, .end_ns = i};
}

TEST(TraceRings, GiveBackWhatWasRecorded) {
  TraceRings rings;
  rings.start(2);
  const TraceEvent event{.stream = 1,
                         .actor = 70000,
                         .kernel = 123456,
                         .kernels = 9,
                         .step = (uint64_t{1} << 40) - 1,
                         .begin_ns = INT64_MAX - 5,
                         .end_ns = INT64_MAX - 3};
  rings.add(event);
  rings.add({.stream = 0, .wait = true});
  rings.add({.stream = 0, .kernel = 1, .left_out = true});
  Trace trace = rings.take();
  ASSERT_EQ(trace.events.size(), 3u);
  EXPECT_TRUE(trace.events[1].left_out);
  EXPECT_FALSE(trace.events[1].wait);
  trace.events.erase(trace.events.begin() + 1);
  EXPECT_FALSE(trace.events[0].left_out);
  EXPECT_TRUE(trace.events[0].wait);
  EXPECT_EQ(trace.events[0].actor, -1);
  EXPECT_EQ(trace.events[0].kernel, -1);
  const TraceEvent& same = trace.events[1];
  EXPECT_EQ(same.stream, 1);
  EXPECT_EQ(same.actor, event.actor);
  EXPECT_EQ(same.kernel, event.kernel);
  EXPECT_EQ(same.kernels, event.kernels);
  EXPECT_EQ(same.step, event.step);
  EXPECT_EQ(same.end_ns - same.begin_ns, 2);
  EXPECT_FALSE(same.wait);
  EXPECT_FALSE(same.left_out);
  EXPECT_EQ(trace.lost, 0u);
  EXPECT_TRUE(rings.take().events.empty());
}

TEST(TraceRings, KeepWhyAFiringBegan) {
  TraceRings rings;
  rings.start(1);
  const TraceCause cause{TraceCause::Kind::kDevice, (1 << 24) - 1};
  rings.add({.actor = 5, .step = 3, .firing = 65535, .cause = cause});
  rings.add({.actor = 5, .step = 3, .wait = true, .cause = {TraceCause::Kind::kCores, 0}});
  const Trace trace = rings.take();
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.events[0].firing, 65535);
  EXPECT_EQ(trace.events[0].kernel, -1);
  EXPECT_EQ(trace.events[0].kernels, 1);
  EXPECT_EQ(trace.events[0].cause, cause);
  EXPECT_EQ(trace.events[1].cause.kind, TraceCause::Kind::kCores);
  EXPECT_TRUE(trace.events[1].wait);
}

TEST(TraceRings, KeepTheLatestAndCountTheRest) {
  TraceRings rings;
  rings.start(1);
  const auto size = static_cast<int64_t>(TraceRing::kEvents);
  for (int64_t i = 0; i < 3 * size + 7; ++i) rings.add(numbered(i));
  const Trace trace = rings.take();
  ASSERT_EQ(trace.events.size(), TraceRing::kEvents);
  EXPECT_EQ(trace.lost, static_cast<uint64_t>(2 * size + 7));
  for (int64_t i = 0; i < size; ++i)
    ASSERT_EQ(trace.events[static_cast<size_t>(i)].step, static_cast<uint64_t>(2 * size + 7 + i));
}

TEST(TraceRings, ForgetWhatCameBeforeTheStart) {
  TraceRings rings;
  rings.start(1);
  rings.add(numbered(1));
  rings.start(1);
  EXPECT_TRUE(rings.take().events.empty());
}

// A reader that sleeps until then has the other half's time to take them.
TEST(TraceRings, RingABellWheneverAnotherHalfIsFull) {
  TraceBell bell;
  TraceRings rings;
  rings.start(2, &bell);
  int64_t i = 0;
  for (int halves = 0; halves < 3; ++halves) {
    for (uint64_t n = 0; n < TraceRing::kEvents / 2 - 1; ++n) rings.add(numbered(i++));
    EXPECT_FALSE(bell.wait_for(std::chrono::milliseconds(0)));
    rings.add(numbered(i++));
    EXPECT_TRUE(bell.wait_for(std::chrono::hours(1)));
    const Trace trace = rings.take();
    EXPECT_EQ(trace.events.size(), TraceRing::kEvents / 2);
    EXPECT_EQ(trace.lost, 0u);
  }
}

TEST(TraceRings, DoNotAllocateAsEventsCome) {
  TraceRings rings;
  rings.start(1);
  const uint64_t before = test::allocations();
  for (uint64_t i = 0; i < 2 * TraceRing::kEvents; ++i) rings.add(numbered(static_cast<int64_t>(i)));
  EXPECT_EQ(test::allocations(), before);
}

// The reader sees whole events in their order, and every event is seen or counted.
TEST(TraceRings, AreReadWhileTheyAreWritten) {
  TraceRings rings;
  rings.start(1);
  constexpr uint64_t kCount = 2'000'000;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t i = 0; i < kCount; ++i) rings.add(numbered(static_cast<int64_t>(i)));
    done.store(true);
  });
  uint64_t next = 0, seen = 0, lost = 0;
  for (bool last = false; !last;) {
    last = done.load();
    const Trace trace = rings.take();
    lost += trace.lost;
    for (const TraceEvent& event : trace.events) {
      ASSERT_GE(event.step, next);
      ASSERT_EQ(event.actor, static_cast<int>(event.step % 1000));
      ASSERT_EQ(event.end_ns, event.begin_ns);
      next = event.step + 1;
      ++seen;
    }
  }
  writer.join();
  EXPECT_EQ(seen + lost, kCount);
}

}  // namespace
}  // namespace sluice::actors
