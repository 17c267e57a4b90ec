#include "serving/core/buffers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <vector>

#include "serving/core/error.h"
#include "serving/core/text.h"

namespace sluice::serving {
namespace {

constexpr size_t kSmall = 1000, kLarge = 100000;  // of the heap, and with pages of their own
constexpr size_t kRoundedSmall = 1024, kRoundedLarge = 100032;

void surge(BufferPool& pool, size_t bytes, size_t count) {
  std::vector<std::shared_ptr<void>> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(pool.take(bytes));
    std::memset(all.back().get(), 1, bytes);
  }
}

TEST(BufferPool, GivesWhatItKeeps) {
  BufferPool pool(1 << 20);
  for (const size_t bytes : {kSmall, kLarge}) {
    void* const first = pool.take(bytes).get();
    EXPECT_EQ(pool.take(bytes).get(), first);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(pool.kept(), kRoundedSmall + kRoundedLarge);  // no more than was in use at once
  EXPECT_EQ(pool.take(0), nullptr);
  EXPECT_THROW(pool.take(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(pool.take(size_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(pool.kept(), kRoundedSmall + kRoundedLarge);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(250000);
  surge(pool, kLarge, 10);
  EXPECT_EQ(pool.kept(), 2 * kRoundedLarge);
  BufferPool none(0);
  surge(none, kLarge, 10);
  EXPECT_EQ(none.kept(), 0u);
}

TEST(BufferPool, ForgetsASurge) {
  for (const auto [bytes, rounded] : {std::pair{kSmall, kRoundedSmall}, std::pair{kLarge, kRoundedLarge}}) {
    BufferPool pool(64 << 20);
    surge(pool, bytes, 100);
    EXPECT_EQ(pool.kept(), 100 * rounded);
    for (size_t i = 0; i < 2 * BufferPool::kWindow; ++i) surge(pool, bytes, 1);
    EXPECT_EQ(pool.kept(), rounded);
    for (size_t i = 0; i < 2 * BufferPool::kWindow; ++i) surge(pool, 64, 1);
    EXPECT_EQ(pool.kept(), 64u);
  }
}

class CountedPool : public testing::Test {
 protected:
  MemoryPtr share() { return std::make_shared<MemoryShare>(budget, UINT64_MAX); }
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(10 * kRoundedLarge);
  BufferPool pool{1 << 20, budget};
};

TEST_F(CountedPool, ABufferCountsAsLongAsSomebodyHasIt) {
  const MemoryPtr mine = share();
  std::shared_ptr<void> small = pool.take(kSmall, mine), large = pool.take(kLarge, mine);
  EXPECT_EQ(budget->held(), kRoundedSmall + kRoundedLarge);
  EXPECT_EQ(mine->held(), budget->held());
  small = nullptr;
  EXPECT_EQ(budget->held(), kRoundedLarge);
  EXPECT_EQ(budget->kept(), kRoundedSmall);
  std::vector<std::shared_ptr<void>> all;
  for (int i = 0; i < 9; ++i) all.push_back(pool.take(kLarge, mine));
  EXPECT_EQ(budget->kept(), 0u) << "what is kept goes before a request is refused";
  EXPECT_THROW(pool.take(kLarge, mine), Error);
  all.clear();
  large = nullptr;
  EXPECT_EQ(budget->held(), 0u);
  EXPECT_LE(budget->kept(), budget->limit() / 8);
  EXPECT_EQ(budget->kept(), pool.kept());
}

TEST_F(CountedPool, WhatIsToComeCountsAsItComes) {
  {
    const MemoryPtr mine = share();
    BufferPool::Arriving arriving = pool.take_arriving(kLarge, mine);
    EXPECT_EQ(budget->held(), 0u);
    arriving.come(100);
    EXPECT_EQ(budget->held(), 100u);
    arriving.come(kLarge - 100);
    EXPECT_EQ(budget->held(), kRoundedLarge);
  }
  EXPECT_EQ(budget->held(), 0u);
  EXPECT_EQ(budget->kept(), kRoundedLarge);
  {  // it is there already
    const BufferPool::Arriving again = pool.take_arriving(kLarge, share());
    EXPECT_EQ(budget->held(), kRoundedLarge);
    EXPECT_EQ(budget->kept(), 0u);
  }
  {  // half of one is not kept
    pool.take_arriving(2 * kLarge, share()).come(1000);
    EXPECT_EQ(budget->held(), 0u);
  }
}

TEST_F(CountedPool, TextCountsWhatItTakes) {
  {
    Text text(share());
    text.reserve(50000);
    EXPECT_GE(budget->held(), 50000u);
    Text other = std::move(text);
    EXPECT_GE(budget->held(), 50000u);
    EXPECT_THROW(other.reserve(20 * kLarge), Error);
    EXPECT_LE(budget->held(), 60000u);
  }
  EXPECT_EQ(budget->held(), 0u);
}

TEST(BufferPool, MayEndBeforeWhatItGave) {
  std::shared_ptr<void> data = BufferPool(1 << 20).take(kLarge);
  std::memset(data.get(), 1, kLarge);
}

}  // namespace
}  // namespace sluice::serving
