// Messages lost, doubled, swapped or forged are found by the protocol's check, in every plan; messages that come late
// change nothing. Each fault is also what a wrong firing rule would do: forget an ack, give a slot back early, emit
// twice, emit out of order.
#include "faults/machine.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

using actors::ItemKind;
using actors::MessageFault;

constexpr uint64_t kFaultySteps = 4;

struct FaultCase {
  std::string name;
  MessageFault fault;
  ItemKind victim;
};

class SoakMessageFaults : public ::testing::TestWithParam<FaultCase> {};

RandomPlanOptions faulty_kind(uint64_t seed) {
  RandomPlanOptions options;
  options.dangling = seed % 3 == 0;
  options.device = seed % 8 == 0;
  options.max_actors = seed % 40 == 0 ? 60 : 14;
  return options;
}

struct Subject {
  explicit Subject(uint64_t seed)
      : plan(random_plan(seed, faulty_kind(seed))),
        inputs(random_inputs(plan, (kFaultySteps + period_of(plan) - 1) / period_of(plan) * period_of(plan), seed)) {}
  Plan plan;
  Inputs inputs;
};

TEST_P(SoakMessageFaults, AreFound) {
  const FaultCase& fault = GetParam();
  const int64_t plans = repetitions(200, 4000);
  Machine machine;
  Progress progress(fault.name, plans);
  std::mt19937_64 random(7);
  int64_t made = 0;
  for (int64_t p = 1; p <= plans; ++p) {
    const auto seed = static_cast<uint64_t>(p);
    const Subject subject(seed);
    // A forged ack takes the moment of a token.
    machine.probe.arm(MessageFault::kNone, fault.fault == MessageFault::kForge ? ItemKind::kReady : fault.victim, 0);
    const RunResult healthy = machine.run(subject.plan, mixes(), subject.inputs, seed);
    ASSERT_EQ(healthy.error, "") << "plan " << seed;
    ASSERT_THAT(machine.probe.breaches, ::testing::IsEmpty()) << "plan " << seed;
    ASSERT_GT(machine.probe.seen, 0u);
    const uint64_t at = random() % machine.probe.seen;
    machine.probe.arm(fault.fault, fault.victim, at);
    const RunResult broken = machine.run(subject.plan, mixes(), subject.inputs, seed);
    progress.step();
    if (machine.probe.faults == 0) {  // no two messages of an edge were under way after `at`
      ASSERT_EQ(fault.fault, MessageFault::kReorder);
      ASSERT_EQ(broken.error, "") << "plan " << seed;
      continue;
    }
    ++made;
    ASSERT_EQ(machine.probe.breaches.size(), 1u) << "plan " << seed << ", message " << at;
    const Register& reg = subject.plan.registers[subject.plan.edges[machine.probe.edge].reg];
    EXPECT_THAT(machine.probe.breaches[0], HasSubstr("register '" + reg.name + "' from '")) << "plan " << seed;
    if (!broken.error.empty()) {
      EXPECT_EQ(broken.error, fmt::format("session '{}': protocol: {}", subject.plan.name, machine.probe.breaches[0]));
    }
  }
  EXPECT_GT(made, plans / 4);
  report_count("message faults", made, fault.name + ", all found");
}

INSTANTIATE_TEST_SUITE_P(Kinds, SoakMessageFaults,
                         ::testing::Values(FaultCase{"LostTokens", MessageFault::kDrop, ItemKind::kReady},
                                           FaultCase{"LostAcks", MessageFault::kDrop, ItemKind::kAck},
                                           FaultCase{"LostEnds", MessageFault::kDrop, ItemKind::kEnd},
                                           FaultCase{"DoubleTokens", MessageFault::kDuplicate, ItemKind::kReady},
                                           FaultCase{"DoubleAcks", MessageFault::kDuplicate, ItemKind::kAck},
                                           FaultCase{"DoubleEnds", MessageFault::kDuplicate, ItemKind::kEnd},
                                           FaultCase{"SwappedTokens", MessageFault::kReorder, ItemKind::kReady},
                                           FaultCase{"SwappedAcks", MessageFault::kReorder, ItemKind::kAck},
                                           FaultCase{"EarlyAcks", MessageFault::kForge, ItemKind::kAck}),
                         [](const auto& info) { return info.param.name; });

TEST(SoakMessageFaultsDelay, ChangesNothing) {
  const int64_t plans = repetitions(100, 5000);
  Machine machine;
  int64_t delayed = 0;
  for (int64_t p = 1; p <= plans; ++p) {
    const auto seed = static_cast<uint64_t>(p);
    const Subject subject(seed);
    const Expected expected = expected_of(subject.plan, mixes(), subject.inputs);
    for (const ItemKind victim : {ItemKind::kReady, ItemKind::kAck, ItemKind::kEnd}) {
      machine.probe.arm(MessageFault::kDelay, victim, seed);
      const RunResult got = machine.run(subject.plan, mixes(), subject.inputs, seed);
      ASSERT_EQ(difference(subject.plan, got, expected), "") << "plan " << seed;
      ASSERT_THAT(machine.probe.breaches, ::testing::IsEmpty()) << "plan " << seed;
      delayed += static_cast<int64_t>(machine.probe.faults);
    }
  }
  EXPECT_GT(delayed, plans);
  report_count("message faults", delayed, "delayed messages, no difference");
}

// Reports are held to the letter.
TEST(MessageFaults, SayWhichMessageOfWhichEdge) {
  Machine machine;
  const Plan plan = pipeline({"mix1", "mix2"}, 2, 2);
  const Inputs inputs = random_inputs(plan, 4, 1);
  const auto report = [&](MessageFault fault, ItemKind victim, uint64_t at) {
    machine.probe.arm(fault, victim, at);
    const RunResult result = machine.run(plan, mixes(), inputs, 5);
    return result.error + " | " + (machine.probe.breaches.empty() ? "none" : machine.probe.breaches[0]);
  };
  EXPECT_EQ(report(MessageFault::kNone, ItemKind::kReady, 0), " | none");
  EXPECT_THAT(report(MessageFault::kDrop, ItemKind::kReady, 0),
              HasSubstr("session 'pipeline': protocol: register 'r0' from 'feed' to 's0': token "));
  EXPECT_THAT(report(MessageFault::kDrop, ItemKind::kEnd, 0),
              HasSubstr("register 'r0' from 'feed' to 's0': the end is missing: its producer has ended; none may be "
                        "lost"));
  EXPECT_THAT(report(MessageFault::kDuplicate, ItemKind::kEnd, 0),
              HasSubstr("register 'r0' from 'feed' to 's0': a second end; there is one"));
  EXPECT_THAT(report(MessageFault::kDuplicate, ItemKind::kReady, 0),
              HasSubstr("register 'r0' from 'feed' to 's0': token 1 is of slot 0; they come in the order of "
                        "production, so it must be of slot 1"));
}

}  // namespace
}  // namespace sluice::test
