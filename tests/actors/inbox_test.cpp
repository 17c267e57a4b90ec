// Messages between streams: order per producer, no lost wake-up, nothing but the producer's own cells.
#include "actors/inbox.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "actors/ring.h"

namespace sluice::actors {
namespace {

TEST(Ring, GrowsAndKeepsOrder) {
  Ring ring;
  uint32_t in = 0, out = 0;
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i < 3; ++i) ring.push(Item::to(nullptr, ItemKind::kReady, 0, static_cast<int>(in++)));
    ASSERT_EQ(ring.pop().slot, out++);
  }
  EXPECT_EQ(ring.size(), 4000u);
  while (!ring.empty()) ASSERT_EQ(ring.pop().slot, out++);
}

TEST(Inbox, KeepsEachProducersOrderAndWakesItsConsumer) {
  constexpr int kProducers = 4, kMessages = 20000, kCells = 8;
  Inbox inbox;
  std::vector<std::vector<Cell>> cells(kProducers, std::vector<Cell>(kCells));
  std::vector<std::atomic<int>> handled(kProducers);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kMessages; ++i) {
        while (handled[p].load(std::memory_order_acquire) + kCells <= i) std::this_thread::yield();  // its cell is back
        cells[p][i % kCells].item = Item::to(nullptr, ItemKind::kReady, p, i);
        inbox.push(&cells[p][i % kCells]);
      }
    });
  }
  int total = 0;
  while (total < kProducers * kMessages) {
    Cell* cell = inbox.take();
    if (cell == nullptr) {
      inbox.park();
      continue;
    }
    while (cell != nullptr) {
      Cell* next = cell->next;
      const Item item = cell->item;
      ASSERT_EQ(static_cast<int>(item.slot), handled[item.port].load(std::memory_order_relaxed));
      handled[item.port].fetch_add(1, std::memory_order_release);
      ++total;
      cell = next;
    }
  }
  for (std::thread& producer : producers) producer.join();
}

TEST(Inbox, AProducerMayTakeTheParkedConsumersPart) {
  Inbox inbox;
  Cell cells[3];
  EXPECT_FALSE(inbox.put(&cells[0]));  // nobody is parked
  EXPECT_FALSE(inbox.park_again());    // there is something to take
  EXPECT_EQ(inbox.take(), &cells[0]);
  EXPECT_TRUE(inbox.park_again());
  EXPECT_TRUE(inbox.put(&cells[1]));
  EXPECT_FALSE(inbox.put(&cells[2]));  // that is the first's to tell
  EXPECT_FALSE(inbox.park_again());
  Cell* const first = inbox.take();
  ASSERT_EQ(first, &cells[1]);
  EXPECT_EQ(first->next, &cells[2]);
  EXPECT_EQ(inbox.take(), nullptr);
  EXPECT_TRUE(inbox.park_again());
  EXPECT_TRUE(inbox.put(&cells[0]));
}

}  // namespace
}  // namespace sluice::actors
