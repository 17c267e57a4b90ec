// Steps: what callers submit and are answered must fit to how feeds and sinks fire.
#include <algorithm>
#include <map>

#include "base/shape.h"
#include "plan/firing/firing_counts.h"
#include "plan/firing/untimed.h"
#include "plan/ranks.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

class Steps {
 public:
  Steps(const Plan& plan, VerifyReport& report) : plan_(plan), report_(report), counts_(plan) {}

  void run() {
    ended();
    for (const Register& reg : plan_.registers) {
      const Actor& producer = plan_.actors[reg.producer];
      if (producer.role != ActorRole::kFeed || reg.quota >= producer.starts) continue;
      problem("register '{}' of feed '{}' has {} slots; a step is {} firings of it, each with one", reg.name,
              producer.name, reg.quota, producer.starts);
    }
    if (report_.ok() && counts_.period() > 0) slots();
    for (const Input& input : plan_.inputs)
      rows("input", input.name, input.spec, plan_.actors[plan_.registers[input.reg].producer].starts);
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      if (plan_.actors[a].role == ActorRole::kSink) sink(a);
    }
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"steps", fmt::format(format, std::forward<Args>(args)...)});
  }
  void rows(const char* what, const std::string& name, const TensorSpec& spec, int64_t firings) {
    int64_t rows = spec.shape.rank() == 0 ? 0 : spec.shape[0];
    if (__builtin_mul_overflow(rows, firings, &rows))
      problem("{} '{}': {} firings of {} rows; too many", what, name, firings, spec.shape[0]);
  }

  // When nothing can happen any more, the slots of one more step are free: it is submitted as a whole.
  void slots() {
    uint64_t most = 0;
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) most += counts_.after(a, counts_.period());
    Untimed run(plan_, most);
    const auto exhaust = [&run] { run.exhaust([](int) {}); };
    exhaust();
    for (uint64_t step = 0; step < counts_.period(); ++step) {
      for (int a = 0; a < run.network().actors(); ++a) {
        const Actor& actor = plan_.actors[a];
        if (!is_started(actor)) continue;
        const std::vector<int>& registers = run.network().adjacency().out_registers[a];
        for (size_t p = 0; p < registers.size() && actor.role == ActorRole::kFeed; ++p) {
          const int free = run.network().rules[a].free_slots(static_cast<int>(p));
          if (free >= actor.starts) continue;
          const Register& reg = plan_.registers[registers[p]];
          return problem(
              "register '{}' of feed '{}' has {} slots, {} of them free when step {} comes; it is {} firings, each "
              "with one",
              reg.name, actor.name, reg.quota, free, step, actor.starts);
        }
        run.start(a);
      }
      exhaust();
    }
  }

  // Ranks that send to others or receive are told by those when a step is over.
  void ended() {
    std::map<int, bool> ends{{0, false}};  // by rank
    for (const Stream& s : plan_.streams) ends[s.device.rank];
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a)
      ends[rank_of(plan_, a)] |= plan_.actors[a].role == ActorRole::kSink;
    for (const Edge& e : plan_.edges) {
      const int from = rank_of(plan_, plan_.registers[e.reg].producer), to = rank_of(plan_, e.consumer);
      if (from != to) ends[from] = ends[to] = true;
    }
    if (static_cast<int>(ends.size()) != rank_count(plan_))
      problem("{} ranks have streams; all {} must", ends.size(), rank_count(plan_));
    const bool none = std::none_of(plan_.actors.begin(), plan_.actors.end(),
                                   [](const Actor& a) { return a.role == ActorRole::kSink; });
    for (const auto& [rank, ended] : ends) {
      if (ended && !none) continue;
      problem("no sink{}, so no step would ever be finished; a plan needs one",
              rank == 0 ? "" : fmt::format(" on rank {}", rank));
    }
  }

  void sink(int a) {
    const std::string& name = plan_.actors[a].name;
    const uint64_t steps = counts_.period(), firings = counts_.per_period(a);
    if (counts_.after(a, 0) != 0) {
      problem(
          "sink '{}' can fire before a step is submitted; its way from the feeds must have a register without initial "
          "tokens",
          name);
    }
    if (firings <= steps) return;
    if (firings % steps != 0) {
      problem("sink '{}' fires {} times in {} steps; it must fire equally often in each, or at most once per step",
              name, firings, steps);
      return;
    }
    const Adjacency adjacency(plan_);
    for (const Output& output : plan_.outputs) {
      for (const int e : adjacency.register_edges[output.view.index]) {
        if (plan_.edges[e].consumer != a) continue;
        rows("output", output.name, output.view.spec, static_cast<int64_t>(firings / steps));
        if (output.view.spec.shape.rank() == 0)
          problem("output '{}': sink '{}' gives {} of it per step; one of several has rows", output.name, name,
                  firings / steps);
      }
    }
  }

  const Plan& plan_;
  VerifyReport& report_;
  const FiringCounts counts_;
};

}  // namespace

void verify_steps(const Plan& plan, VerifyReport& report) { Steps(plan, report).run(); }

}  // namespace sluice::plan
