// A kernel that fails, at any firing of any actor of random plans, at once or late on a device: the steps that depend
// on that firing report it by op and actor, every other step and variable is as in the sequential reading, every slot
// returns and every actor fires as often as it should.
#include <atomic>

#include "faults/machine.h"
#include "support/accelerator.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

struct Injected {
  Plan plan;
  HostFunctions functions;
  std::shared_ptr<std::atomic<uint64_t>> runs = std::make_shared<std::atomic<uint64_t>>(0);
  Sequential::Failure failure;
  int actor = 0;
};

Injected inject(Plan plan, uint64_t steps, std::mt19937_64& random) {
  Injected injected;
  std::vector<std::pair<int, int>> kernels;  // with their actors
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (const Instr& instr : plan.actors[a].program) {
      if (instr.kind != InstrKind::kRun || plan.kernels[instr.index].op != "host_function") continue;
      kernels.push_back({instr.index, static_cast<int>(a)});
    }
  }
  const auto late = [&](const auto& entry) {
    return plan.streams[plan.actors[entry.second].stream].device.kind == accelerator().kind;
  };
  if (std::any_of(kernels.begin(), kernels.end(), late)) {
    std::erase_if(kernels, [&](const auto& entry) { return !late(entry); });
  }
  if (kernels.empty()) return injected;
  const auto [kernel, actor] = kernels[random() % kernels.size()];
  const uint64_t firings = static_cast<uint64_t>(repetition_vector(plan)[actor]) * steps / period_of(plan);
  injected.failure = {kernel, random() % firings};
  injected.actor = actor;
  injected.functions = mixes();
  NamedAttrs& attrs = plan.kernels[kernel].attrs;
  const HostFunction healthy = mixes().at(get_attr<std::string>(attrs, "name"));
  attrs = Plans::named("picky");
  injected.functions["picky"] = [healthy, runs = injected.runs, at = injected.failure.firing](
                                    const KernelArgs& args, const std::vector<TensorSpec>& inputs,
                                    const std::vector<TensorSpec>& outputs) {
    if (runs->fetch_add(1) == at) fail(ErrorKind::kValue, "picky: run {} fails; be less picky", at);
    healthy(args, inputs, outputs);
  };
  injected.plan = std::move(plan);
  return injected;
}

void check(const Injected& injected, const RunResult& got, const Expected& expected, const std::string& where) {
  const Plan& plan = injected.plan;
  const Kernel& kernel = plan.kernels[injected.failure.kernel];
  const auto names_it = [&](const std::string& error) {
    return error.find(fmt::format("picky: run {} fails", injected.failure.firing)) != std::string::npos &&
           error.find(fmt::format("kernel '{}' (host_function) of actor '{}'", kernel.name,
                                  plan.actors[injected.actor].name)) != std::string::npos &&
           error.find(kernel.source.str()) != std::string::npos;
  };
  ASSERT_TRUE(got.error.empty() || names_it(got.error)) << where << ": " << got.error;
  ASSERT_EQ(got.steps.size(), expected.run.steps.size()) << where;
  // A step in which a kernel failed has failed, whether or not its outputs depend on that kernel.
  const uint64_t period = period_of(plan);
  const uint64_t per_period = static_cast<uint64_t>(repetition_vector(plan)[injected.actor]);
  const uint64_t first = injected.failure.firing / per_period * period;
  bool told = !got.error.empty();
  int own = 0;
  for (size_t s = 0; s < got.steps.size(); ++s) {
    const StepResult& step = got.steps[s];
    told |= !step.error.empty();
    if (!step.error.empty()) {
      EXPECT_TRUE(names_it(step.error)) << where << ", step " << s << ": " << step.error;
    }
    if (expected.fails[s]) {
      EXPECT_FALSE(step.error.empty()) << where << ", step " << s << " depends on what failed";
    } else if (!step.error.empty()) {
      EXPECT_TRUE(s >= first && s < first + period) << where << ", step " << s << ": " << step.error;
      ++own;
    } else {
      EXPECT_EQ(step.outputs, expected.run.steps[s].outputs) << where << ", step " << s;
    }
  }
  EXPECT_LE(own, 1) << where;
  EXPECT_TRUE(told) << where << ": nobody was told";
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    EXPECT_EQ(got.variables[v], expected.run.variables[v]) << where << ", " << plan.variables[v].name;
  }
  EXPECT_EQ(got.firings, expected.run.firings) << where;
}

TEST(SoakKernelFailures, StayWithTheStepsThatDependOnThem) {
  const int64_t plans = repetitions(400, 20000);
  Machine machine;
  Progress progress("kernel failures", plans);
  std::mt19937_64 random(3);
  int64_t done = 0, late = 0, failed_steps = 0;
  for (int64_t p = 1; p <= plans && !::testing::Test::HasFailure(); ++p) {
    const auto seed = static_cast<uint64_t>(p);
    RandomPlanOptions options;
    options.max_actors = seed % 40 == 0 ? 60 : 14;
    options.device = seed % 3 == 0;
    Plan plan = random_plan(seed, options);
    const uint64_t period = period_of(plan);
    const uint64_t steps = (5 + period - 1) / period * period;
    const Injected injected = inject(std::move(plan), steps, random);
    progress.step();
    if (injected.failure.kernel < 0) continue;
    const Inputs inputs = random_inputs(injected.plan, steps, seed);
    // In the sequential reading the failure is injected by number; the function itself must not count its runs.
    HostFunctions healthy = injected.functions;
    healthy["picky"] = [&injected](const KernelArgs& args, const std::vector<TensorSpec>& in,
                                   const std::vector<TensorSpec>& out) {
      const uint64_t before = injected.runs->exchange(injected.failure.firing + 1);
      injected.functions.at("picky")(args, in, out);
      *injected.runs = before;
    };
    const Expected expected = expected_of(injected.plan, healthy, inputs, injected.failure);
    for (int order = 0; order < 2; ++order) {
      *injected.runs = 0;
      machine.probe.every_token = machine.probe.check = order == 0;
      machine.probe.arm(actors::MessageFault::kNone, actors::ItemKind::kReady, 0);
      const RunResult got = machine.run(injected.plan, injected.functions, inputs, seed + static_cast<uint64_t>(order));
      check(injected, got, expected, fmt::format("plan {}, order {}", seed, order));
      EXPECT_THAT(machine.probe.breaches, ::testing::IsEmpty());
      for (const StepResult& step : got.steps) failed_steps += !step.error.empty();
    }
    ++done;
    late += injected.plan.streams[injected.plan.actors[injected.actor].stream].device.kind == accelerator().kind;
  }
  report_count("kernel failures", done, "plans");
  report_count("kernel failures", late, "of them late, on a device");
  report_count("kernel failures", failed_steps, "failed steps");
}

}  // namespace
}  // namespace sluice::test
