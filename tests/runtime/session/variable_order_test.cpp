// Accesses of a session to its variables, among those of others.
#include "runtime/session/variable_order.h"

#include <gtest/gtest.h>

#include "runtime/fixture.h"

namespace sluice::test {
namespace {

class User : public StorageUser {
 public:
  void wait_idle(bool writes_only) override { waits.push_back(writes_only); }
  std::vector<bool> waits;
};

std::shared_ptr<Storage> storage() { return std::make_shared<Storage>(make_host_allocator(), 64); }

TEST(BoundVariables, WaitForWritersWhereTheyReadAndForAllWhereTheyWrite) {
  const auto read = storage(), written = storage();
  const BoundVariables variables({read, written}, {false, true}, {});
  const auto other = std::make_shared<User>();
  read->attach(other, true);
  written->attach(other, false);
  variables.wait_for_others(nullptr);
  EXPECT_EQ(other->waits, (std::vector<bool>{true, false}));
}

TEST(BoundVariables, DoNotWaitForTheSessionItself) {
  const auto both = storage();
  const BoundVariables variables({both}, {true}, {});
  const auto self = std::make_shared<User>();
  variables.attach(self);
  variables.wait_for_others(self.get());
  EXPECT_TRUE(self->waits.empty());
  both->before_read();
  EXPECT_EQ(self->waits, std::vector<bool>{true}) << "others wait for its writes";
  variables.detach(self.get());
  both->before_read();
  EXPECT_EQ(self->waits.size(), 1u) << "it is detached";
}

TEST(BoundVariables, CountTheWritesOfAStep) {
  const auto read = storage(), written = storage();
  const BoundVariables variables({read, written}, {false, true}, {});
  const uint64_t before_read = read->version(), before_written = written->version();
  variables.count_writes();
  EXPECT_EQ(read->version(), before_read);
  EXPECT_EQ(written->version(), before_written + 1);
}

TEST(VariableAccesses, AreDueForEachFiringOfTheStepsAndAreToldOnlyToThoseWhoWait) {
  const Plan plan = pipeline({"copy", "copy"});
  const plan::FiringCounts counts(plan);
  VariableAccesses accesses({1, 2}, {2});
  EXPECT_EQ(accesses.due(counts, 3, false), 6u);
  EXPECT_EQ(accesses.due(counts, 3, true), 3u);
  EXPECT_FALSE(accesses.add_done(false));
  {
    const VariableAccesses::Waiting waiting(accesses);
    EXPECT_TRUE(accesses.add_done(true));
  }
  EXPECT_FALSE(accesses.add_done(true));
  EXPECT_EQ(accesses.done(false), 3u);
  EXPECT_EQ(accesses.done(true), 2u);
  accesses.reset();
  EXPECT_EQ(accesses.done(false) + accesses.done(true), 0u);
}

}  // namespace
}  // namespace sluice::test
