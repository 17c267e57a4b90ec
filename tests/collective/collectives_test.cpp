// Tests what collectives compute, on 1 to 5 ranks, and how they fail.
#include <cmath>
#include <cstring>

#include "collective/ranks.h"
#include "support/memory_carrier.h"

namespace sluice::test {
namespace {

using Ints = std::vector<int64_t>;

// Over connections, or over what a test registers.
class Collectives : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  void run(const std::function<void(World&, Communicator&)>& f) {
    const auto& [ranks, carrier] = GetParam();
    const auto box = std::make_shared<Mailbox>();
    const std::string name = carrier == kGloo ? carrier : carrier_over(box);
    EXPECT_THAT(in_world(ranks, f, [&](WorldOptions& options) { options.carrier = name; }), Each("no error"));
    EXPECT_EQ(box->sent > 0, carrier != kGloo && ranks > 1);
    for (const auto& [key, messages] : box->messages) EXPECT_TRUE(messages.empty());
  }
};

// The value that rank r has at i.
int64_t value(int r, int64_t i) { return 1000 * r + i; }

TEST_P(Collectives, AllReduceOfEverySizeAndOperation) {
  run([](World&, Communicator& c) {
    const int n = c.size();
    for (const int64_t elements : {0, 1, 2, 7, 1000, 300001}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        Ints data(elements);
        for (int64_t i = 0; i < elements; ++i) data[i] = value(c.rank(), i);
        c.all_reduce(data.data(), elements, DType::kInt64, op);
        for (int64_t i = 0; i < elements; ++i) {
          int64_t expected = value(0, i);
          for (int r = 1; r < n; ++r) {
            if (op == ReduceOp::kSum) expected += value(r, i);
            if (op == ReduceOp::kMax) expected = value(r, i);
            if (op == ReduceOp::kProduct)
              expected = static_cast<int64_t>(static_cast<uint64_t>(expected) * static_cast<uint64_t>(value(r, i)));
          }
          ASSERT_EQ(data[i], expected) << reduce_op_name(op) << " of " << elements << " at " << i;
        }
      }
    }
  });
}

TEST_P(Collectives, GatherScatterExchangeAndBroadcast) {
  run([](World&, Communicator& c) {
    const int n = c.size(), me = c.rank();
    for (const int64_t k : {0, 1, 3, 40000}) {
      Ints part(k), parts(n * k), workspace(n * k);
      for (int64_t i = 0; i < k; ++i) part[i] = value(me, i);
      c.all_gather(part.data(), parts.data(), static_cast<uint64_t>(k) * 8);
      for (int r = 0; r < n; ++r) {
        for (int64_t i = 0; i < k; ++i) ASSERT_EQ(parts[r * k + i], value(r, i));
      }
      Ints mine(n * k), got(n * k);
      for (int64_t i = 0; i < n * k; ++i) mine[i] = value(me, i);
      c.all_to_all(mine.data(), got.data(), static_cast<uint64_t>(k) * 8);
      for (int r = 0; r < n; ++r) {
        for (int64_t i = 0; i < k; ++i) ASSERT_EQ(got[r * k + i], value(r, me * k + i));
      }
      c.reduce_scatter(mine.data(), part.data(), workspace.data(), k, DType::kInt64, ReduceOp::kSum);
      for (int64_t i = 0; i < k; ++i) ASSERT_EQ(part[i], 1000 * (n * (n - 1) / 2) + n * (me * k + i));
      for (int root = 0; root < n; ++root) {
        Ints data(k, me == root ? 7 + root : -1);
        c.broadcast(data.data(), static_cast<uint64_t>(k) * 8, root);
        EXPECT_THAT(data, Each(7 + root));
      }
      c.barrier();
    }
  });
}

TEST_P(Collectives, AveragesAreOfFloatingDtypesAndEqualOnAllRanks) {
  run([](World&, Communicator& c) {
    std::vector<float> data(1001), all(data.size() * c.size());
    for (size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<float>(i) + 100.f * c.rank());
    c.all_reduce(data.data(), 1001, DType::kFloat32, ReduceOp::kAverage);
    for (size_t i = 0; i < data.size(); ++i) {
      double expected = 0;
      for (int r = 0; r < c.size(); ++r) expected += std::sin(static_cast<float>(i) + 100.f * r) / c.size();
      ASSERT_NEAR(data[i], expected, 1e-6);
    }
    c.all_gather(data.data(), all.data(), data.size() * sizeof(float));
    for (int r = 0; r < c.size(); ++r)
      EXPECT_EQ(std::memcmp(all.data() + r * data.size(), data.data(), data.size() * sizeof(float)), 0);
    int32_t integer = 1;
    EXPECT_EQ(error_of([&] { c.all_reduce(&integer, 1, DType::kInt32, ReduceOp::kAverage); }),
              "type: all_reduce: average of int32 is not defined; bool and complex numbers have no reduction (reduce "
              "view_as_real), and an average needs a floating dtype");
    c.barrier();  // nobody minds
  });
}

TEST_P(Collectives, PointToPointInAnyOrder) {
  run([](World&, Communicator& c) {
    if (c.size() < 2) return;
    if (c.rank() == 0) {
      for (int r = 1; r < c.size(); ++r) {
        const Ints data(10000, r);
        c.send(data.data(), data.size() * 8, r, 3);
      }
      for (int r = c.size() - 1; r > 0; --r) {
        int64_t answer = 0;
        c.receive(&answer, sizeof answer, r, 4);
        EXPECT_EQ(answer, r * 10000);
      }
      EXPECT_EQ(error_of([&] { c.send(nullptr, 0, 0, 0); }),
                "value: send: rank 0 is this rank itself; it must be another");
      EXPECT_EQ(error_of([&] { c.send(nullptr, 0, c.size(), 0); }),
                fmt::format("index: send: rank {} is not in the group; ranks are 0 to {}", c.size(), c.size() - 1));
    } else {
      Ints data(10000);
      c.receive(data.data(), data.size() * 8, 0, 3);
      const int64_t sum = data[0] * 10000;
      c.send(&sum, sizeof sum, 0, 4);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5), testing::Values(kGloo, "memory")),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

// One of those who wait for a rank reads its connection, for all.
TEST(PointToPoint, ManyThreadsWaitForOneRank) {
  constexpr uint32_t kThreads = 4;
  EXPECT_THAT(in_world(2,
                       [](World&, Communicator& c) {
                         const auto talk = [&](uint32_t tag) {
                           for (int64_t i = 0; i < 400; ++i) {
                             Ints data(i % 50 == 7 ? 50000 : 1 + i % 5, value(static_cast<int>(tag), i));
                             const uint64_t bytes = data.size() * 8;
                             if (c.rank() == 0) c.send(data.data(), bytes, 1, tag);
                             Ints got(data.size());
                             c.receive(got.data(), bytes, 1 - c.rank(), tag);
                             ASSERT_EQ(got, data);
                             if (c.rank() == 1) c.send(data.data(), bytes, 0, tag);
                           }
                         };
                         std::vector<std::thread> threads;
                         for (uint32_t tag = 0; tag < kThreads; ++tag) threads.emplace_back([&, tag] { talk(tag); });
                         for (std::thread& thread : threads) thread.join();
                       }),
              Each("no error"));
}

TEST(PointToPoint, AllWhoWaitHearOfAFailure) {
  const auto errors = in_world(2, [](World& world, Communicator& c) {
    if (c.rank() == 1) {
      int64_t last = 0;
      for (uint32_t tag = 0; tag < 3; ++tag) c.receive(&last, sizeof last, 0, tag);  // all three are about to wait
      return world.leave("boom");
    }
    std::vector<std::string> heard(3);
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < 3; ++tag) {
      threads.emplace_back([&, tag] {
        int64_t word = 0;
        c.send(&word, sizeof word, 1, tag);
        heard[tag] = error_of([&] { c.receive(&word, sizeof word, 1, tag); });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(heard, Each(HasSubstr("rank 1 failed: boom")));
  });
  EXPECT_THAT(errors, Each("no error"));
}

// A connection is left to its last reader for a moment, and no longer.
TEST(PointToPoint, WhatComesWhenNobodyWaitsAnyMoreIsRead) {
  const auto errors = in_world(2, [](World& world, Communicator& c) {
    int64_t word = 0;
    if (c.rank() == 1) {
      c.send(&word, sizeof word, 0, 0);
      c.receive(&word, sizeof word, 0, 1);
      return world.leave("boom");
    }
    c.receive(&word, sizeof word, 1, 0);
    c.send(&word, sizeof word, 1, 1);
    for (const auto end = Clock::now() + kSoon; world.failure().ok() && Clock::now() < end;) std::this_thread::yield();
    EXPECT_THAT(world.failure().message(), HasSubstr("rank 1 failed: boom"));
  });
  EXPECT_THAT(errors, Each("no error"));
}

TEST(Groups, AreIndependentOfEachOther) {
  EXPECT_THAT(in_world(4,
                       [](World& w, Communicator& all) {
                         const bool odd = w.rank() % 2 == 1;
                         const auto pair =
                             w.communicator(odd ? std::vector<int>{1, 3} : std::vector<int>{0, 2}, kFirstChannel + odd);
                         EXPECT_EQ(pair->rank(), w.rank() / 2);
                         for (int i = 0; i < 50; ++i) {
                           int32_t sum = w.rank(), whole = w.rank();
                           pair->all_reduce(&sum, 1, DType::kInt32, ReduceOp::kSum);
                           EXPECT_EQ(sum, odd ? 4 : 2);
                           if (i % 10 == 0) all.all_reduce(&whole, 1, DType::kInt32, ReduceOp::kSum);
                         }
                         // Two threads, two groups, at once.
                         std::thread other([&] {
                           for (int i = 0; i < 50; ++i) pair->barrier();
                         });
                         for (int i = 0; i < 50; ++i) all.barrier();
                         other.join();
                       }),
              Each("no error"));
}

TEST(Groups, OfRanksThatAreNoneAreRefused) {
  EXPECT_THAT(
      in_world(
          2,
          [](World& w, Communicator&) {
            for (const std::vector<int>& ranks : {std::vector<int>{}, {1, 0}, {0, 0, 1}, {0, 1, 2}, {1 - w.rank()}}) {
              EXPECT_THAT(error_of([&] { w.communicator(ranks, kFirstChannel); }),
                          HasSubstr("they must be ascending, below 2, and with rank"));
            }
          }),
      Each("no error"));
}

TEST(Failure, OfARankIsToldByNameToAllOthers) {
  const auto errors = in_world(4, [](World& w, Communicator& c) {
    c.barrier();
    if (w.rank() == 2) return w.leave("ValueError: no such file (train.py:12)");
    c.barrier();
    c.barrier();
  });
  for (const int r : {0, 1, 3})
    EXPECT_EQ(errors[r], "runtime: barrier: rank 2 failed: ValueError: no such file (train.py:12)");
}

TEST(Failure, IsFinalAndNamesTheRankAtFault) {
  in_world(3, [](World& w, Communicator& c) {
    c.barrier();
    if (w.rank() == 1) return w.leave("boom");
    EXPECT_THAT(error_of([&] {
                  c.barrier();
                  c.barrier();
                }),
                HasSubstr("rank 1 failed: boom"));
    EXPECT_EQ(w.failed_rank(), 1);
    EXPECT_EQ(w.failure().message(), "rank 1 failed: boom");
    float x = 0;
    EXPECT_EQ(error_of([&] { c.all_reduce(&x, 1, DType::kFloat32, ReduceOp::kSum); }),
              "runtime: all_reduce: rank 1 failed: boom");
  });
}

TEST(Failure, AGoodbyeIsOneForThoseWhoStillWantSomething) {
  const auto errors = in_world(3, [](World& w, Communicator& c) {
    c.barrier();
    if (w.rank() == 1) return w.leave();
    if (w.rank() == 2) return;
    int x = 0;
    c.receive(&x, sizeof x, 1, 0);
  });
  EXPECT_EQ(errors[0],
            "runtime: receive: rank 1 has left while rank 0 still wants something of it; all ranks must make the "
            "same calls");
  EXPECT_EQ(errors[1], "no error");
  EXPECT_EQ(errors[2], "no error");
}

TEST(Failure, WhoDoesNotComeIsNamedAfterTheTimeout) {
  const auto errors = in_world(
      2,
      [](World& w, Communicator& c) {
        c.barrier();
        if (w.rank() == 0) return c.barrier();
        while (w.failure().ok()) std::this_thread::yield();
        EXPECT_EQ(w.failed_rank(), 1);
      },
      [](WorldOptions& o) { o.timeout = milliseconds(1000); });
  EXPECT_EQ(errors[0],
            "timeout: barrier: rank 0 waited 1000 ms for rank 1, which is alive; all ranks must make the same calls in "
            "the same order");
}

TEST(Failure, SizesThatDifferAreAnErrorOnBothSides) {
  const auto errors = in_world(2, [](World& w, Communicator& c) {
    std::vector<float> data(w.rank() == 0 ? 4 : 6);
    c.broadcast(data.data(), data.size() * 4, 0);
    c.barrier();
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                HasSubstr("rank 0 has 16 bytes for rank 1, which expects 24; all ranks must make the same call"));
}

TEST(Missed, ACallFailsInTheOthersAndTheNextOneWorks) {
  for (const int size : {2, 3, 4}) {
    EXPECT_THAT(in_world(size,
                         [](World& w, Communicator& c) {
                           for (int round = 0; round < 60; ++round) {
                             const int absent = round % 3 == 2 ? -1 : round % c.size();
                             std::vector<float> x(round % 2 == 0 ? 10 : 300000, 1.f + w.rank());
                             if (w.rank() == absent) {
                               c.miss("its step failed");
                               continue;
                             }
                             const std::string error = error_of([&] {
                               c.all_reduce(x.data(), static_cast<int64_t>(x.size()), DType::kFloat32, ReduceOp::kSum);
                             });
                             if (absent < 0) {
                               ASSERT_EQ(error, "no error");
                               ASSERT_THAT(x, Each(c.size() * (c.size() + 1) / 2.f));
                             } else {
                               ASSERT_EQ(
                                   error,
                                   fmt::format("runtime: all_reduce: rank {} takes no part: its step failed", absent));
                             }
                           }
                           EXPECT_TRUE(w.failure().ok());
                         }),
                Each("no error"));
  }
}

// A rank that runs ahead misses calls that others have not begun; one that lags misses what others are in.
TEST(Missed, EarlyOrLate) {
  EXPECT_THAT(in_world(2,
                       [](World& w, Communicator& c) {
                         float x = 1;
                         if (w.rank() == 0) {
                           for (int i = 0; i < 5; ++i) c.miss(std::to_string(i));
                           int go = 0;
                           c.receive(&go, sizeof go, 1, 0);
                           for (int i = 5; i < 10; ++i) c.miss(std::to_string(i));
                         } else {
                           for (int i = 0; i < 10; ++i) {
                             if (i == 5) c.send(&i, sizeof i, 0, 0);
                             EXPECT_EQ(error_of([&] { c.all_reduce(&x, 1, DType::kFloat32, ReduceOp::kSum); }),
                                       fmt::format("runtime: all_reduce: rank 0 takes no part: {}", i));
                           }
                         }
                         c.barrier();
                         x = 1;
                         c.all_reduce(&x, 1, DType::kFloat32, ReduceOp::kSum);
                         EXPECT_EQ(x, 2);
                       }),
              Each("no error"));
}

TEST(Reduce, OfEveryDtype) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (dtype == DType::kBool || is_complex(dtype)) {
      EXPECT_THAT(error_of([&] { reduce_function(ReduceOp::kSum, dtype); }),
                  HasSubstr(fmt::format("sum of {} is not defined", dtype_name(dtype))));
      continue;
    }
    // One and one are two: added twice, then halved, in place.
    std::vector<char> one(16 * dtype_size(dtype)), two = one;
    const auto set = [&](auto unit) {
      for (int i = 0; i < 16; ++i) std::memcpy(one.data() + i * sizeof unit, &unit, sizeof unit);
    };
    switch (dtype) {
      case DType::kUInt8:
      case DType::kInt8: set(int8_t{1}); break;
      case DType::kInt16: set(int16_t{1}); break;
      case DType::kInt32: set(int32_t{1}); break;
      case DType::kInt64: set(int64_t{1}); break;
      case DType::kFloat16: set(to_float16(1)); break;
      case DType::kBFloat16: set(to_bfloat16(1)); break;
      case DType::kFloat32: set(1.f); break;
      default: set(1.0); break;
    }
    reduce_function(ReduceOp::kSum, dtype)(two.data(), one.data(), one.data(), 16);
    EXPECT_NE(one, two) << dtype_name(dtype);
    std::vector<char> out = one;
    reduce_function(ReduceOp::kMax, dtype)(out.data(), out.data(), two.data(), 16);
    EXPECT_EQ(out, two) << dtype_name(dtype);
    reduce_function(ReduceOp::kMin, dtype)(out.data(), out.data(), one.data(), 16);
    EXPECT_EQ(out, one) << dtype_name(dtype);
    reduce_function(ReduceOp::kProduct, dtype)(out.data(), two.data(), one.data(), 16);
    EXPECT_EQ(out, two) << dtype_name(dtype);
    if (!is_floating(dtype)) continue;
    divide(out.data(), dtype, 16, 2);
    EXPECT_EQ(out, one) << dtype_name(dtype);
  }
}

TEST(Reduce, NaNWins) {
  const float nan = std::nanf(""), one = 1;
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProduct}) {
    float a = 0, b = 0;
    reduce_function(op, DType::kFloat32)(&a, &nan, &one, 1);
    reduce_function(op, DType::kFloat32)(&b, &one, &nan, 1);
    EXPECT_TRUE(std::isnan(a) && std::isnan(b)) << reduce_op_name(op);
  }
}

}  // namespace
}  // namespace sluice::test
