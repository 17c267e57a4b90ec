#include "memory/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/counted_bytes.h"
#include "streams/devices.h"

namespace sluice {
namespace {

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % plan::kAlignment == 0; }

TEST(HostAllocator, CountsBytesAndPeak) {
  auto allocator = make_host_allocator();
  void* a = allocator->allocate(100);
  void* b = allocator->allocate(1000);
  EXPECT_TRUE(aligned(a) && aligned(b));
  allocator->deallocate(a, 100);
  EXPECT_EQ(allocator->stats().current_bytes, 1000u);
  EXPECT_EQ(allocator->stats().peak_bytes, 1100u);
  EXPECT_EQ(allocator->stats().allocations, 2u);
  allocator->reset_peak();
  EXPECT_EQ(allocator->stats().peak_bytes, 1000u);
  allocator->deallocate(b, 1000);
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

TEST(HostAllocator, ZeroBytesHaveAnAddress) {
  auto allocator = make_host_allocator();
  void* a = allocator->allocate(0);
  EXPECT_NE(a, nullptr);
  allocator->deallocate(a, 0);
}

TEST(HostAllocator, RefusesTheImpossible) {
  auto allocator = make_host_allocator();
  try {
    allocator->allocate(~uint64_t{0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kMemory);
    EXPECT_STREQ(e.what(),
                 "memory: out of memory in host: 18446744073709551615 bytes requested; free tensors or use a smaller "
                 "batch");
  }
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

TEST(CachingAllocator, BlocksGoBackAfterWhatUsesThem) {
  auto upstream = make_host_allocator();
  auto total = std::make_shared<CountedBytes>();
  int waits = 0;
  auto allocator = make_caching_allocator(upstream, {total, [&] { ++waits; }});
  void* a = allocator->allocate(1000);
  void* b = allocator->allocate(5000);
  EXPECT_EQ(total->stats().current_bytes, 6000u);
  allocator->deallocate(a, 1000);
  allocator->deallocate(b, 5000);
  EXPECT_EQ(total->stats().current_bytes, 0u);
  EXPECT_EQ(waits, 0);  // blocks that stay here wait for nobody
  EXPECT_GE(allocator->held_bytes(), 6000u);
  EXPECT_EQ(upstream->stats().current_bytes, allocator->held_bytes());
  allocator->release_kept();
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(allocator->held_bytes(), 0u);
  EXPECT_EQ(upstream->stats().current_bytes, 0u);
  allocator->release_kept();
  EXPECT_EQ(waits, 1);
}

// --- Limits ---

TEST(CountedBytes, WhatWouldExceedTheLimitIsRefusedAndNotCounted) {
  const auto total = std::make_shared<CountedBytes>("cpu");
  const auto host = make_host_allocator(total);
  const auto cache = make_caching_allocator(make_host_allocator(), {.total = total});
  total->set_limit(10000);
  void* a = host->allocate(6000);
  void* b = cache->allocate(4000);
  EXPECT_EQ(total->stats().current_bytes, 10000u);
  for (Allocator* allocator : {host.get(), cache.get()}) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, ~uint64_t{0}}) {
      try {
        allocator->allocate(bytes);
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kMemory);
        if (bytes == 5000) {
          EXPECT_STREQ(
              error.what(),
              "memory: out of memory in cpu: 4.9 KiB (5000 bytes) requested; 9.8 KiB (10000 bytes) in use, and "
              "the limit that was set is 9.8 KiB (10000 bytes); free tensors, use a smaller batch or raise the "
              "limit");
        }
      }
    }
  }
  EXPECT_EQ(total->stats().current_bytes, 10000u);
  EXPECT_EQ(total->stats().peak_bytes, 10000u);
  EXPECT_EQ(host->stats().allocations + cache->stats().allocations, 2u);
  total->set_limit(CountedBytes::kNoLimit);
  host->deallocate(host->allocate(5000), 5000);
  EXPECT_EQ(total->stats().peak_bytes, 15000u);
  host->deallocate(a, 6000);
  cache->deallocate(b, 4000);
  EXPECT_EQ(total->stats().current_bytes, 0u);
}

TEST(CountedBytes, MemoryThatCannotBeHadIsNotCounted) {
  const auto total = std::make_shared<CountedBytes>("cpu");
  EXPECT_THROW(make_host_allocator(total)->allocate(uint64_t{1} << 62), Error);
  EXPECT_THROW(make_caching_allocator(make_host_allocator(), {.total = total})->allocate(uint64_t{1} << 59), Error);
  EXPECT_EQ(total->stats().current_bytes, 0u);
  EXPECT_EQ(total->stats().peak_bytes, 0u);
}

TEST(CountedBytes, CachesGiveBackWhatTheLimitHasNoRoomFor) {
  const auto total = std::make_shared<CountedBytes>("cpu");
  const auto host = make_host_allocator(total), upstream = make_host_allocator();
  const auto cache = make_caching_allocator(upstream, {.total = total});
  total->add_cache(cache);
  const auto keep = [&](uint64_t bytes) { cache->deallocate(cache->allocate(bytes), bytes); };
  keep(4096);
  keep(8192);
  EXPECT_EQ(total->kept_bytes(), 12288u);
  total->set_limit(12288);
  EXPECT_EQ(total->kept_bytes(), 12288u);
  void* a = host->allocate(4096);  // of another allocator
  EXPECT_EQ(total->kept_bytes(), 0u);
  keep(4096);
  keep(8192);  // the smaller one goes
  EXPECT_EQ(upstream->stats().current_bytes, 8192u);
  total->set_limit(4096);
  EXPECT_EQ(total->kept_bytes(), 0u);
  total->set_limit(CountedBytes::kNoLimit);
  keep(8192);
  total->set_cache_limit(5000);
  keep(4096);
  keep(4608);
  EXPECT_LE(total->kept_bytes(), 5000u);
  EXPECT_GT(total->kept_bytes(), 0u);
  host->deallocate(a, 4096);
}

TEST(CountedBytes, ThreadsNeverPassTheLimitTogether) {
  const auto total = std::make_shared<CountedBytes>("cpu");
  const auto host = make_host_allocator(total);
  const auto cache = make_caching_allocator(make_host_allocator(), {.total = total});
  total->add_cache(cache);
  total->set_limit(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Allocator& mine = t % 2 == 0 ? *host : *cache;
      for (int i = 0; i < 2000; ++i) {
        try {
          mine.deallocate(mine.allocate(400), 400);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kMemory);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(total->stats().current_bytes, 0u);
  EXPECT_LE(total->stats().peak_bytes, 1000u);
}

// --- Reuse ---

TEST(CachingAllocator, ReusesBlocksOfOneSizeClass) {
  auto upstream = make_host_allocator();
  auto allocator = make_caching_allocator(upstream);
  void* a = allocator->allocate(1000);
  allocator->deallocate(a, 1000);
  void* b = allocator->allocate(1010);
  EXPECT_EQ(a, b);
  EXPECT_EQ(upstream->stats().allocations, 1u);
  EXPECT_EQ(allocator->stats().allocations, 2u);
  EXPECT_EQ(allocator->stats().current_bytes, 1010u);
  allocator->deallocate(b, 1010);
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
  allocator.reset();
  EXPECT_EQ(upstream->stats().current_bytes, 0u);
}

// Every size gets a block at least as large and at most an eighth larger (or 64 bytes for small ones).
TEST(CachingAllocator, SizeClassesFitTightly) {
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 24); bytes += 1 + bytes / 37) {
    auto upstream = make_host_allocator();
    auto allocator = make_caching_allocator(upstream);
    void* data = allocator->allocate(bytes);
    const uint64_t block = upstream->stats().current_bytes;
    ASSERT_GE(block, bytes);
    ASSERT_LE(block, bytes + std::max<uint64_t>(64, bytes / 8)) << bytes;
    allocator->deallocate(data, bytes);
    allocator.reset();
    ASSERT_EQ(upstream->stats().current_bytes, 0u) << bytes;
  }
}

TEST(CachingAllocator, GivesBackWhatIsFarBeyondThePeak) {
  auto upstream = make_host_allocator();
  auto allocator = make_caching_allocator(upstream);
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  for (uint64_t i = 0; i < 60; ++i) {  // a different size class each time
    const uint64_t bytes = 40 * kMiB + i * 8 * kMiB / 10;
    void* data = allocator->allocate(bytes);
    allocator->deallocate(data, bytes);
  }
  EXPECT_LE(upstream->stats().peak_bytes, 2 * 100 * kMiB + 64 * kMiB);
}

// An upstream that is full makes the cache give its blocks back.
TEST(CachingAllocator, TrimsWhenUpstreamIsFull) {
  auto device = make_device(parse_device("sim"), {.memory_bytes = 10000});
  const plan::Space space{plan::SpaceKind::kDevice, parse_device("sim")};
  auto allocator = make_caching_allocator(make_device_allocator(*device, space));
  void* a = allocator->allocate(6000);
  allocator->deallocate(a, 6000);
  void* b = allocator->allocate(9000);
  EXPECT_NE(b, nullptr);
  EXPECT_THROW(allocator->allocate(6000), Error);
  allocator->deallocate(b, 9000);
}

TEST(CachingAllocator, ThreadsGetBlocksOfTheirOwn) {
  auto allocator = make_caching_allocator(make_host_allocator());
  std::vector<std::thread> threads;
  std::atomic<int> clashes{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const uint64_t bytes = 64 + 64 * static_cast<uint64_t>(i % 7);
        void* data = allocator->allocate(bytes);
        std::memset(data, t, bytes);
        for (uint64_t k = 0; k < bytes; k += 64) clashes += static_cast<char*>(data)[k] != t;
        allocator->deallocate(data, bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(clashes.load(), 0);
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

TEST(DeviceAllocator, CountsAndRefusesBySpace) {
  auto device = make_device(parse_device("sim:1"), {.memory_bytes = 1 << 20});
  const plan::Space space{plan::SpaceKind::kDevice, parse_device("sim:1")};
  auto allocator = make_device_allocator(*device, space);
  void* a = allocator->allocate(1 << 19);
  EXPECT_TRUE(aligned(a));
  EXPECT_EQ(allocator->stats().current_bytes, uint64_t{1} << 19);
  try {
    allocator->allocate(1 << 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kMemory);
    EXPECT_STREQ(e.what(),
                 "memory: out of memory in sim:1: 1048576 bytes requested, 524288 of 1048576 in use; free tensors or "
                 "use a smaller batch");
  }
  allocator->deallocate(a, 1 << 19);
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

}  // namespace
}  // namespace sluice
