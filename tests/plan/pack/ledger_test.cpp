#include "plan/pack/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

TEST(Ledger, CountsArenasAndVariablesRoundedUp) {
  PlanBuilder b("ledger");
  b.stream();
  const int device = b.space(SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {sink}, {.quota = 3, .bytes = 100});
  b.input("x", x, b.f32({25}));
  b.variable("w", {5});
  b.variable("c", {17}, true, device);
  const Plan plan = b.build();
  const Ledger l = ledger(plan);
  EXPECT_EQ(l.arenas, 3 * 128u);
  EXPECT_EQ(l.register_slots, 3 * 128u);
  EXPECT_EQ(l.variables, 64u);
  EXPECT_EQ(l.constants, 128u);
  EXPECT_EQ(l.total, 384u + 64 + 128);
  EXPECT_EQ(l.space_bytes, (std::vector<uint64_t>{448, 128}));
  EXPECT_EQ(l.lines.size(), 3u);
}

TEST(Ledger, ABudgetNamesTheRegistersAndTheSmallestThatWorks) {
  const Plan plan = two_stage_plan();
  const uint64_t total = ledger(plan).total;
  EXPECT_NO_THROW(check_budget(plan, 0));
  EXPECT_NO_THROW(check_budget(plan, total));
  try {
    check_budget(plan, total - 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kMemory);
    EXPECT_STREQ(
        e.what(),
        "plan 'two_stage': over its memory budget: needs 512 bytes, budget 511 bytes; the smallest budget that "
        "works is 512 bytes; largest registers: 'raw' (2 slots of 64 bytes), 'images' (2 slots of 64 bytes), 'loss' "
        "(2 slots of 4 bytes)");
  }
}

TEST(Ledger, BytesReadWell) {
  EXPECT_EQ(bytes_str(0), "0 bytes");
  EXPECT_EQ(bytes_str(1023), "1023 bytes");
  EXPECT_EQ(bytes_str(1536), "1.5 KiB (1536 bytes)");
  EXPECT_EQ(bytes_str(3ull << 30), "3.0 GiB (3221225472 bytes)");
}

}  // namespace
}  // namespace sluice::plan
