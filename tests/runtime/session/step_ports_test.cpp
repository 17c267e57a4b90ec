// Inputs of steps into slots, and results out of them, without a session: nothing fires here.
#include "runtime/session/step_ports.h"

#include "actors/runner.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

class Nobody : public actors::RunListener {
 public:
  void on_sink(int, uint64_t, const Status&, void* const*) override {}
  void on_input_slots(int, uint64_t) override {}
  void on_failure(uint64_t, const Status&) override {}
  void on_variables_done(bool) override {}
};

struct Ends {
  Ends(const Plan& plan, const plan::FiringCounts& counts)
      : ports(ports_of(plan, counts, {})), exchange(find_exchange(plan, counts, ports, {})) {}
  Ports ports;
  Exchange exchange;
};

// A plan that gives its input back, with two slots for it.
class StepPortsTest : public ::testing::Test {
 protected:
  explicit StepPortsTest(size_t backlog = 0)
      : plan_(pipeline({}, 2)),
        counts_(plan_),
        engine_({.manual_stepping = true}),
        ends_(plan_, counts_),
        ports_(engine_, plan_, std::move(ends_.ports), std::move(ends_.exchange), {2, backlog}),
        runner_(plan_, bindings(), nobody_) {}
  actors::Bindings bindings() {
    executors_ = engine_.executors(plan_.streams);
    actors::Bindings bindings;
    for (const auto& executor : executors_) bindings.streams.push_back(executor.get());
    for (const plan::Arena& arena : plan_.arenas) {
      arenas_.push_back(std::make_shared<Storage>(engine_.allocator({}), arena.bytes));
      bindings.arenas.push_back(static_cast<std::byte*>(arenas_.back()->data()));
    }
    return bindings;
  }
  float slot(size_t index) const { return reinterpret_cast<const float*>(runner_.slots(0)[index])[kN - 1]; }
  static InputTensor input(const Floats& x) { return {x.data(), PlanBuilder::f32({kN})}; }

  const Plan plan_;
  const plan::FiringCounts counts_;
  Engine engine_;
  Ends ends_;
  StepPorts ports_;
  Nobody nobody_;
  std::vector<std::shared_ptr<actors::StreamExecutor>> executors_;
  std::vector<std::shared_ptr<Storage>> arenas_;
  actors::Runner runner_;
};

class StepPortsWithABacklog : public StepPortsTest {
 protected:
  StepPortsWithABacklog() : StepPortsTest(3) {}
};

TEST_F(StepPortsTest, EachStepHasASlotInTurn) {
  for (uint64_t step = 0; step < 3; ++step) {
    const Floats x = filled(static_cast<float>(step) + 1);
    const InputTensor given = input(x);
    ports_.copy_in(step, {&given, 1}, runner_);
    EXPECT_EQ(slot(step % 2), static_cast<float>(step) + 1);
  }
  EXPECT_EQ(slot(1), 2) << "step 2 has the slot of step 0, and that of step 1 is as it was";
  EXPECT_EQ(ports_.input_copies(), 3u);
}

TEST_F(StepPortsTest, InputsOfAnyStridesBecomeContiguous) {
  const Floats x = {1, 9, 2, 9, 3, 9, 4, 9};
  InputTensor given{x.data(), PlanBuilder::f32({kN})};
  given.spec.strides[0] = 2;
  ports_.copy_in(0, {&given, 1}, runner_);
  EXPECT_EQ(slot(0), 4);
}

TEST_F(StepPortsTest, ResultsComeToTheStatesMemory) {
  const Floats x = filled(5);
  const InputTensor given = input(x);
  ports_.copy_in(1, {&given, 1}, runner_);
  StepState state;
  ports_.make_results(state, {});
  ASSERT_EQ(state.outputs.size(), 1u);
  const std::vector<int> outputs = {0};
  void* const slots[] = {runner_.slots(0)[1]};
  EXPECT_TRUE(ports_.bring_out(state, {outputs, slots, 1, 0}, runner_).ok());
  EXPECT_EQ(values(state.outputs[0]), x);
  EXPECT_EQ(ports_.output_copies(), 1u);
}

TEST_F(StepPortsTest, AStateKeepsItsResultsMemoryUnlessItsCallerHasIt) {
  StepState state;
  ports_.make_results(state, {});
  const Storage* const made = state.outputs[0].storage.get();
  ports_.make_results(state, {});
  EXPECT_EQ(state.outputs[0].storage.get(), made);
  const OutputTensor kept = state.outputs[0];
  ports_.make_results(state, {});
  EXPECT_NE(state.outputs[0].storage.get(), made) << "the caller still reads what it has";
  EXPECT_FALSE(ports_.is_lent(state, 0));
}

TEST_F(StepPortsTest, MemoryOfTheCallersIsLent) {
  StepState state;
  const OutputTensor own{{DType::kFloat32, {kN}}, std::make_shared<Storage>(engine_.allocator({}), kN * 4)};
  StepCall call;
  call.outputs = {&own, 1};
  ports_.check_outputs(call.outputs);
  ports_.make_results(state, call);
  EXPECT_EQ(state.outputs[0].storage, own.storage);
  EXPECT_TRUE(ports_.is_lent(state, 0));
}

TEST_F(StepPortsTest, WhatDoesNotFitIsRefusedByName) {
  const Floats x = filled(1);
  InputTensor wrong{x.data(), PlanBuilder::f32({kN - 1})};
  EXPECT_EQ(error_of([&] {
              ports_.check_inputs({&wrong, 1});
            }),
            "value: graph 'pipeline': argument 'x' has shape (3,); expected (4,), as when the graph was compiled");
  EXPECT_EQ(error_of([&] { ports_.check_inputs({}); }), "value: session 'pipeline': got 0 inputs; the plan takes 1");
}

TEST_F(StepPortsWithABacklog, KeepsInputsUntilThereAreSlots) {
  ASSERT_TRUE(ports_.has_backlog());
  EXPECT_GE(ports_.backlog_bytes(), 3u * kN * 4);
  for (uint64_t step = 2; step < 5; ++step) {
    const Floats x = filled(static_cast<float>(step));  // gone before it is copied to its slot
    const InputTensor given = input(x);
    ports_.put_in_backlog(step, {&given, 1});
  }
  for (uint64_t step = 2; step < 5; ++step) {
    ports_.copy_in_from_backlog(step, runner_);
    EXPECT_EQ(slot(step % 2), static_cast<float>(step));
  }
}

}  // namespace
}  // namespace sluice::test
