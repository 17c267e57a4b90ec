// Sources of random plans end after any number of firings: the steps they suffice for have the bits of the sequential
// reading, the others say so, every slot comes back, and the plan can begin anew.
#include <functional>

#include "faults/machine.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

// The functions with "source<n>" ending after `firings` calls.
HostFunctions ending(int source, uint64_t firings) {
  HostFunctions functions = mixes();
  HostFunction& function = functions.at("source" + std::to_string(source));
  function = [function, firings, calls = std::make_shared<uint64_t>(0)](const KernelArgs& args,
                                                                        const std::vector<TensorSpec>& inputs,
                                                                        const std::vector<TensorSpec>& outputs) {
    if (*calls == firings) {
      *calls = 0;
      fail(ErrorKind::kEndOfData, "that was all");
    }
    ++*calls;
    function(args, inputs, outputs);
  };
  return functions;
}

// "" when each step is as expected; submitting stops at the end. `read`: what is expected of so many inputs.
std::string ended_difference(Session& session, const Inputs& inputs, const Expected& all,
                             const std::function<Expected(const Inputs&)>& read) {
  std::vector<StepHandle> handles;
  try {
    for (const std::vector<Bytes>& step : inputs) handles.push_back(submit_step(session, step));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEndOfData) return error.what();
  }
  // A step may need firings of later ones, of which there are none where they were refused.
  const auto submitted = static_cast<std::ptrdiff_t>(handles.size());
  const Expected expected =
      handles.size() == inputs.size() ? all : read(Inputs(inputs.begin(), inputs.begin() + submitted));
  for (size_t s = 0; s < handles.size(); ++s) {
    const StepResult got = result_of(handles[s]);
    const bool ended = !got.error.empty() && handles[s].wait().kind() == ErrorKind::kEndOfData;
    if (ended != expected.ends[s]) return fmt::format("step {}: {}", s, got.error.empty() ? "not ended" : got.error);
    if (!ended && got != expected.run.steps[s]) return fmt::format("step {} differs: {}", s, got.error);
  }
  for (size_t s = handles.size(); s < inputs.size(); ++s) {
    if (!all.ends[s]) return fmt::format("step {} was refused", s);
  }
  try {
    session.wait_all();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SoakRandomEnds, StepsAreAnsweredOrEndedInEveryOrder) {
  const int64_t total = repetitions(400, 20000);
  Machine machine;
  Engine threads({.cores = 2});
  int64_t runs = 0, ended = 0;
  for (uint64_t seed = 1; runs < total; ++seed) {
    RandomPlanOptions options;
    options.max_actors = 12;
    options.device = seed % 6 == 0;
    options.variables = false;
    const Plan plan = random_plan(seed, options);
    std::vector<int> sources;
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      if (plan.actors[a].role == ActorRole::kSource) sources.push_back(static_cast<int>(a));
    }
    if (sources.empty()) continue;
    const uint64_t period = period_of(plan), steps = (5 + period) / period * period;
    const int actor = sources[seed % sources.size()], source = plan.actors[actor].name.back() - '0';
    const uint64_t firings = seed % (steps * static_cast<uint64_t>(plan.actors[actor].starts));
    const Inputs inputs = random_inputs(plan, steps, seed);
    const auto read = [&](const Inputs& of) { return expected_of(plan, mixes(), of, {-1, 0}, {actor, firings}); };
    const Expected expected = read(inputs);
    if (std::none_of(expected.ends.begin(), expected.ends.end(), [](bool e) { return e; })) continue;  // leads nowhere
    ++ended;
    for (int order = 0; order < 4; ++order, ++runs) {
      Engine& engine = order == 3 ? threads : machine.engine;
      machine.probe.every_token = machine.probe.check = order % 2 == 0;
      machine.probe.arm(actors::MessageFault::kNone, actors::ItemKind::kReady, 0);
      if (order < 3) machine.engine.reseed(seed * 10 + static_cast<uint64_t>(order));
      Session session = Session::load(engine, plan, {}, {.functions = ending(source, firings)});
      for (int round = 0; round < 2; ++round) {
        ASSERT_EQ(ended_difference(session, inputs, expected, read), "")
            << "plan " << seed << ", order " << order << ", round " << round;
        session.reset();
      }
      session.stop();
      ASSERT_THAT(machine.probe.breaches, ::testing::IsEmpty()) << "plan " << seed << ", order " << order;
    }
  }
  report_count("random ends", ended, "plans");
  report_count("random ends", runs, "runs, each answered as far as its data went, and again after reset()");
}

}  // namespace
}  // namespace sluice::test
