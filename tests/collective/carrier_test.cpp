// Jobs whose messages somebody else carries: how they fail, and what is refused.
#include "streams/collective/carrier.h"

#include "collective/ranks.h"
#include "support/memory_carrier.h"

namespace sluice::test {
namespace {

// Runs f on ranks whose messages lie in memory.
std::vector<std::string> in_memory(int size, const std::function<void(World&, Communicator&)>& f,
                                   milliseconds timeout = kSoon) {
  const std::string name = carrier_over(std::make_shared<Mailbox>());
  return in_world(size, f, [&](WorldOptions& options) {
    options.carrier = name;
    options.timeout = timeout;
  });
}

TEST(Carrier, GroupsAreIndependent) {
  EXPECT_THAT(in_memory(4,
                        [](World& w, Communicator& all) {
                          const bool odd = w.rank() % 2 == 1;
                          const auto pair = w.communicator(odd ? std::vector<int>{1, 3} : std::vector<int>{0, 2},
                                                           kFirstChannel + odd);
                          std::thread other([&] {
                            for (int i = 0; i < 50; ++i) {
                              int32_t sum = w.rank();
                              pair->all_reduce(&sum, 1, DType::kInt32, ReduceOp::kSum);
                              EXPECT_EQ(sum, odd ? 4 : 2);
                            }
                          });
                          for (int i = 0; i < 50; ++i) all.barrier();
                          other.join();
                        }),
              Each("no error"));
}

TEST(Carrier, AFailureReachesAllWhoWait) {
  const auto errors = in_memory(3, [](World& w, Communicator& c) {
    c.barrier();
    if (w.rank() == 1) return w.leave("rank 1 failed: boom");
    EXPECT_THAT(error_of([&] { c.barrier(); }), HasSubstr("barrier: rank 1 failed: boom"));
    EXPECT_EQ(w.failed_rank(), 1);
    c.barrier();
  });
  EXPECT_EQ(errors[0], "runtime: barrier: rank 1 failed: boom");
  EXPECT_EQ(errors[1], "no error");
}

TEST(Carrier, WhoMissesACallFailsItAndNoOther) {
  const auto errors = in_memory(3, [](World& w, Communicator& c) {
    int64_t sum = 1;
    if (w.rank() == 2)
      c.miss("rank 2: no memory");
    else
      EXPECT_EQ(error_of([&] { c.all_reduce(&sum, 1, DType::kInt64, ReduceOp::kSum); }),
                "runtime: all_reduce: rank 2: no memory");
    sum = 1;
    c.all_reduce(&sum, 1, DType::kInt64, ReduceOp::kSum);
    EXPECT_EQ(sum, 3);
  });
  EXPECT_THAT(errors, Each("no error"));
}

TEST(Carrier, WhoDoesNotComeIsNamed) {
  const auto errors = in_memory(
      2,
      [](World& w, Communicator& c) {
        if (w.rank() == 0) c.barrier();
      },
      milliseconds(20));
  EXPECT_EQ(errors[0], "timeout: barrier: rank 1 has sent nothing in time");
}

TEST(Carrier, SizesThatDifferAreNamed) {
  const auto errors = in_memory(2, [](World& w, Communicator& c) {
    std::vector<int64_t> part(static_cast<size_t>(1 + w.rank())), parts(4);
    c.all_gather(part.data(), parts.data(), part.size() * 8);
  });
  EXPECT_EQ(errors[0], "runtime: all_gather: rank 1 has sent 16 bytes; must be 8");
}

TEST(Carrier, NamesAreTakenOnceAndUnknownOnesListed) {
  const std::string name = carrier_over(std::make_shared<Mailbox>());
  for (const std::string& taken : {name, std::string(kGloo), std::string()})
    EXPECT_THAT(error_of([&] { register_carrier(taken, nullptr); }), HasSubstr("the name is taken"));
  WorldOptions options = world_options(0, 2, 0);
  options.carrier = "pigeons";
  EXPECT_THAT(error_of([&] { World world(options); }),
              AllOf(HasSubstr("carrier 'pigeons': there is none such; there are gloo"), HasSubstr(name)));
  options.carrier = name;
  options.rank = 2;
  EXPECT_THAT(error_of([&] { World world(options); }), HasSubstr("rank 2 of 2; it must be from 0 to 1"));
}

}  // namespace
}  // namespace sluice::test
