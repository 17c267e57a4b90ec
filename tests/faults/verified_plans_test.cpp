// A plan that verify() accepts can be loaded: random changes to random plans are refused by it, or by nobody.
#include <set>

#include "faults/machine.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

// One random change of a plan, mostly to what loading looks at. Indices stay in range, slots fit to quotas.
class PlanMutator {
 public:
  explicit PlanMutator(uint64_t seed) : random_(seed) {}

  void change(Plan& plan) {
    plan.certificate.clear();
    switch (below(16)) {
      case 0: any(plan.registers).emit_every = small(); break;
      case 1: any(plan.registers).initial_tokens = below(3); break;
      case 2: any(plan.registers).producer = index(plan.actors); break;
      case 3: any(plan.registers).in_place_of = below(2) == 0 ? -1 : index(plan.edges); break;
      case 4: resize(plan, any(plan.registers), small()); break;
      case 5: any(plan.edges).take = small(); break;
      case 6: any(plan.edges).hold = small(); break;
      case 7: any(plan.edges).consumer = index(plan.actors); break;
      case 8: any(plan.actors).role = static_cast<ActorRole>(below(4)); break;
      case 9: any(plan.actors).stream = index(plan.streams); break;
      case 10: any(plan.actors).starts = small(); break;
      case 11:
        if (!plan.inputs.empty()) any(plan.inputs).reg = index(plan.registers);
        break;
      case 12:
        if (!plan.outputs.empty()) any(plan.outputs).view.index = index(plan.registers);
        break;
      case 13: shuffle(any(plan.actors).program); break;
      case 14: any(plan.arenas).space = index(plan.spaces); break;
      case 15: any(plan.streams).device.rank = below(2); break;
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int small() { return 1 + below(4); }
  template <class T>
  int index(const std::vector<T>& all) {
    return below(static_cast<int>(all.size()));
  }
  template <class T>
  T& any(std::vector<T>& all) {
    return all[static_cast<size_t>(index(all))];
  }
  void shuffle(std::vector<Instr>& program) {
    if (program.size() > 1) std::swap(any(program), any(program));
  }
  static void resize(Plan& plan, Register& reg, int quota) {
    reg.quota = quota;
    if (reg.bytes == 0) return;
    while (static_cast<int>(reg.slots.size()) < quota) {
      Arena& arena = plan.arenas[static_cast<size_t>(plan.buffers[static_cast<size_t>(reg.slots[0])].arena)];
      Buffer more = plan.buffers[static_cast<size_t>(reg.slots[0])];
      more.name += "+";
      more.offset = arena.bytes;
      arena.bytes += align_up(more.bytes, kAlignment);
      plan.buffers.push_back(more);
      reg.slots.push_back(static_cast<int>(plan.buffers.size()) - 1);
    }
    reg.slots.resize(static_cast<size_t>(quota));
  }

  std::mt19937_64 random_;
};

std::string load_error(Engine& engine, const Plan& plan) {
  VariableBindings variables;
  for (const Variable& v : plan.variables) variables[v.name] = variable(engine, 0);
  return error_of([&] { Session::load(engine, plan, variables, {.functions = mixes()}).stop(); });
}

TEST(SoakVerifiedPlans, WhatVerifyAcceptsLoads) {
  const int64_t total = repetitions(6000, 100000);
  Engine engine({.cores = 1});
  Progress progress("changed plans", total);
  int64_t accepted = 0;
  std::set<std::string> concerns;
  for (int64_t n = 0; n < total; ++n, progress.step()) {
    const auto seed = static_cast<uint64_t>(n);
    RandomPlanOptions options;
    options.max_actors = 10;
    options.device = n % 4 == 0;
    Plan plan = random_plan(seed % 300, options);
    PlanMutator mutator(seed);
    for (uint64_t changes = 1 + seed % 2; changes > 0; --changes) mutator.change(plan);
    const VerifyReport report = verify(plan);
    if (!report.ok()) {
      concerns.insert(report.problems[0].concern);
      continue;
    }
    ++accepted;
    const std::string error = load_error(engine, plan);
    // On which ranks a variable may be used in one process depends on how the plan is run.
    if (error.find("each of which has one of its own") != std::string::npos) continue;
    ASSERT_EQ(error, "no error") << "plan " << n;
  }
  report_count("changed plans", accepted, "accepted by verify, and loaded");
  EXPECT_GT(accepted, total / 20);
  EXPECT_EQ(concerns.size(), 6u) << "structure, sizes, rates, liveness, arenas, steps";
}

}  // namespace
}  // namespace sluice::test
