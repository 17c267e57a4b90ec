#pragma once
// Runs plans, on threads or stepped by hand, and says all that can be seen of a run.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "actors/message_probe.h"
#include "faults/random_plan.h"
#include "plan/firing/firing_counts.h"
#include "plan/verify.h"
#include "runtime/fixture.h"
#include "support/sequential.h"

namespace sluice::test {

using Bytes = Sequential::Bytes;
using Inputs = std::vector<std::vector<Bytes>>;  // per step and input

inline Inputs random_inputs(const Plan& plan, uint64_t steps, uint64_t seed) {
  std::mt19937_64 random(seed);
  Inputs inputs(steps);
  for (std::vector<Bytes>& step : inputs) {
    for (const plan::Input& input : plan.inputs) {
      const int64_t firings = plan.actors[plan.registers[input.reg].producer].starts;
      Bytes& data = step.emplace_back(input.spec.extent_bytes() * static_cast<uint64_t>(firings));
      for (int64_t i = 0; i < kN * firings; ++i) {
        const float x = 1 + static_cast<float>(random() % 1000) / 1000;
        std::memcpy(data.data() + i * 4, &x, 4);
      }
    }
  }
  return inputs;
}

struct StepResult {
  std::string error;  // "" when it went well
  std::vector<Bytes> outputs;
  bool operator==(const StepResult&) const = default;
};

struct RunResult {
  std::vector<StepResult> steps;
  std::vector<Bytes> variables;
  std::vector<uint64_t> firings;  // per actor
  std::string error;              // of the run as a whole: a stall, a breach, a failure no step could show
};

// Steps after which `plan` is back where it began.
inline uint64_t period_of(const Plan& plan) {
  return static_cast<uint64_t>(steps_of_period(plan, repetition_vector(plan)));
}

inline StepResult result_of(StepHandle& handle) {
  StepResult result;
  const Status status = handle.wait();
  if (!status.ok()) {
    result.error = status.message();
    return result;
  }
  for (const OutputTensor& output : handle.outputs()) {
    const auto* data = static_cast<const std::byte*>(output.storage->data());
    result.outputs.emplace_back(data, data + checked_bytes(output.type.shape, dtype_size(output.type.dtype)));
  }
  return result;
}

inline StepHandle submit_step(Session& session, const std::vector<Bytes>& step) {
  std::vector<InputTensor> tensors;
  const std::vector<PortInfo> ports = session.inputs();
  for (size_t i = 0; i < step.size(); ++i) tensors.push_back({step[i].data(), TensorSpec::contiguous(ports[i].type)});
  return session.submit(tensors);
}

// The engine's memory is the ledger's all the while: that of `part`, where the plan is of several ranks.
inline RunResult run_on(Engine& engine, const Plan& plan, const HostFunctions& functions, const Inputs& inputs,
                        const Plan* part = nullptr) {
  RunResult result;
  const Plan& held = part != nullptr ? *part : plan;
  const MemoryWatch watch(engine, held.spaces);
  std::map<std::string, std::shared_ptr<Storage>> variables;
  for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
  Session session = Session::load(engine, plan, variables, {.functions = functions});
  EXPECT_EQ(watch.held_but_for(ledger_bytes(held, true, true)), "") << plan.name;
  std::vector<StepHandle> handles;
  try {
    for (const std::vector<Bytes>& step : inputs) handles.push_back(submit_step(session, step));
    for (StepHandle& handle : handles) result.steps.push_back(result_of(handle));
    session.wait_all();
  } catch (const Error& error) {
    result.error = error.what();
  }
  session.stop();
  EXPECT_EQ(watch.peak_but_for(ledger_bytes(held, true, true)), "") << plan.name;
  EXPECT_EQ(watch.held_but_for(ledger_bytes(held, false, true)), "") << plan.name << ", stopped";
  for (const ActorStats& actor : session.stats().actors) result.firings.push_back(actor.firings);
  for (const Variable& v : plan.variables) {
    const auto* data = static_cast<const std::byte*>(variables[v.name]->data());
    result.variables.emplace_back(data, data + v.spec.extent_bytes());
  }
  return result;
}

// An engine that is stepped by hand.
class Machine {
 public:
  actors::MessageProbe probe;
  Engine engine;

  Machine() : engine({.cores = 1, .manual_stepping = true, .probe = &probe}) {}

  // The order of messages follows from `seed` alone.
  RunResult run(const Plan& plan, const HostFunctions& functions, const Inputs& inputs, uint64_t seed) {
    engine.reseed(seed);
    return run_on(engine, plan, functions, inputs);
  }
};

// The results that a run must show by the sequential reading of its plan.
struct Expected {
  std::vector<bool> fails;  // per step: it depends on a firing that failed
  std::vector<bool> ends;   // per step: it depends on data that there is not
  RunResult run;            // without errors' texts
};

inline Expected expected_of(const Plan& plan, const HostFunctions& functions, const Inputs& inputs,
                            Sequential::Failure failure = {-1, 0}, Sequential::End end = {-1, 0}) {
  Sequential sequential(plan, functions, failure, end);
  for (const std::vector<Bytes>& step : inputs) sequential.step(step);
  Expected expected;
  expected.run.variables = sequential.variables;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    expected.run.firings.push_back(sequential.firings(static_cast<int>(a)));
  }
  // Firing j of the sink answers the steps whose share of its firings it is, or gives a step its next rows.
  const FiringCounts counts(plan);
  uint64_t per_period = 1;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    if (plan.actors[a].role == ActorRole::kSink) per_period = counts.per_period(static_cast<int>(a));
  }
  const uint64_t parts = std::max<uint64_t>(1, per_period / counts.period());
  for (uint64_t s = 0; s < inputs.size(); ++s) {
    const uint64_t first = s * per_period / counts.period();
    StepResult& step = expected.run.steps.emplace_back();
    expected.ends.push_back(first + parts > sequential.answers().size());
    expected.fails.push_back(false);
    for (uint64_t part = 0; part < parts && !expected.ends.back(); ++part) {
      const Sequential::Answer& answer = sequential.answers()[first + part];
      if (answer.failed) expected.fails.back() = true;
      step.outputs.resize(std::max(step.outputs.size(), answer.outputs.size()));
      for (size_t o = 0; o < answer.outputs.size(); ++o)
        step.outputs[o].insert(step.outputs[o].end(), answer.outputs[o].begin(), answer.outputs[o].end());
    }
    if (expected.fails.back()) step.outputs.clear();
  }
  return expected;
}

// The first difference; "" when there is none. Steps that fail are those with void results.
inline std::string difference(const Plan& plan, const RunResult& got, const Expected& expected) {
  if (!got.error.empty()) return got.error;
  for (size_t s = 0; s < expected.run.steps.size(); ++s) {
    const bool is_void = got.steps[s].error.find(" is void: ") != std::string::npos;
    if (expected.fails[s] ? !is_void : got.steps[s] != expected.run.steps[s])
      return fmt::format("step {} differs: {}", s, got.steps[s].error);
  }
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    if (got.variables[v] != expected.run.variables[v]) return "variable " + plan.variables[v].name + " differs";
  }
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    if (got.firings[a] == expected.run.firings[a]) continue;
    return fmt::format("actor {} fired {} times, not {}", plan.actors[a].name, got.firings[a], expected.run.firings[a]);
  }
  return "";
}

}  // namespace sluice::test
