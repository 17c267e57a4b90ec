// bound: how far runs are from the time that no order of their kernels can go below.
#include <algorithm>

#include "plan/firing/firing_counts.h"
#include "plan/json/json.h"
#include "plan/time/cores.h"
#include "plan/verify.h"
#include "tools/plan_viz/summary.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr int kPredictedSteps = 20;

// Each kernel has its stream, so the linear program of what is done where has one solution: the busiest stream's work.
struct Bound {
  std::string run;
  size_t steps = 0;
  int64_t total_ns = 0;
  int64_t critical_path_ns = 0;  // the longest chain of one step, each kernel as fast as it ever was
  int64_t area_ns = 0;           // of the busiest stream
  int area_stream = -1;
  int cores = 0;  // of the host; 0: not said, or the run was measured, where kernels hold other cores than planned
  int64_t cores_ns = 0;
  int64_t bound_ns() const { return std::max({critical_path_ns, area_ns, cores_ns}); }
  double achieved() const { return total_ns > 0 ? static_cast<double>(bound_ns()) / static_cast<double>(total_ns) : 0; }
};

// The plan at what each kernel took least in the run.
Plan at_its_fastest(const Plan& plan, const Run& run) {
  std::vector<int64_t> least(plan.kernels.size(), -1);
  for (const RunFiring& firing : run.firings) {
    for (const RunSpan& span : firing.spans) {
      const int64_t ns = span.end_ns - std::max(span.begin_ns, span.met_ns);
      if (least[span.kernel] < 0 || ns < least[span.kernel]) least[span.kernel] = ns;
    }
  }
  Plan fastest = plan;
  for (size_t k = 0; k < least.size(); ++k)
    fastest.kernels[k].cost_ns = static_cast<double>(std::max<int64_t>(0, least[k]));
  return fastest;
}

// Steps that some sink has ended in the run.
size_t steps_of(const Plan& plan, const Run& run) {
  std::vector<uint64_t> steps;
  for (const RunFiring& firing : run.firings)
    if (plan.actors[firing.actor].role == ActorRole::kSink) steps.push_back(firing.item);
  std::ranges::sort(steps);
  return static_cast<size_t>(std::unique(steps.begin(), steps.end()) - steps.begin());
}

Bound bound_of(const Plan& plan, const Run& run) {
  Bound bound{.run = run.name, .steps = steps_of(plan, run), .total_ns = run.total_ns};
  const RunSummary summary = summary_of(plan, run, {});
  for (size_t lane = 0; lane < summary.lanes.size(); ++lane) {
    if (summary.lanes[lane].kernels_ns <= bound.area_ns) continue;
    bound.area_ns = summary.lanes[lane].kernels_ns;
    bound.area_stream = static_cast<int>(lane % plan.streams.size());
  }
  if (bound.steps > 0) {
    const auto period = static_cast<int>(FiringCounts(plan).period());
    if (bound.steps >= static_cast<size_t>(period))
      bound.critical_path_ns = static_cast<int64_t>(simulate(at_its_fastest(plan, run), {.steps = period}).total_ns);
  }
  bound.cores = run.measured ? 0 : cores_of_target(plan.target);
  if (bound.cores == 0) return bound;
  const std::vector<int> held = cores_of_kernels(plan);
  double held_ns = 0;
  for (const RunSummary::Task& task : summary.tasks)
    held_ns += static_cast<double>(task.total_ns) * std::clamp(held[task.kernel], 0, bound.cores);
  bound.cores_ns = static_cast<int64_t>(held_ns / bound.cores);
  return bound;
}

std::vector<Bound> bounds_of(const Page& page) {
  const Plan& plan = *page.simulated;
  const VerifyReport report = verify(plan);
  SLUICE_CHECK(report.ok(), "bound: plan '{}' is refused: {}; `plan-viz verify` lists all faults", plan.name,
               report.problems[0].text);
  std::vector<Bound> bounds;
  if (std::ranges::any_of(plan.kernels, [](const Kernel& k) { return k.cost_ns > 0; }))
    bounds.push_back(bound_of(
        plan, simulated_run(plan, simulate(plan, {.steps = kPredictedSteps, .cores = cores_of_target(plan.target)}))));
  if (page.recording != nullptr) bounds.push_back(bound_of(plan, recorded_run(plan, *page.recording)));
  SLUICE_CHECK(!bounds.empty(),
               "bound: plan '{}': its kernels have no predicted costs; give a recorded run, or a plan that has them",
               plan.name);
  return bounds;
}

}  // namespace

std::string bound_text(const Page& page, const TextOptions& options) {
  const Plan& plan = *page.simulated;
  const auto text = [](int64_t ns) { return time_str(static_cast<double>(ns)); };
  std::string s;
  for (const Bound& bound : bounds_of(page)) {
    s += paint(fmt::format("plan '{}', {} run: {} in {}", plan.name, bound.run, count_str(bound.steps, "step"),
                           text(bound.total_ns)),
               Color::kBold, options) +
         "\n";
    std::vector<std::vector<std::string>> rows = {
        {"critical path", text(bound.critical_path_ns), "the longest chain of one step"},
        {"area", text(bound.area_ns),
         bound.area_stream < 0 ? "" : fmt::format("the kernels of '{}'", plan.streams[bound.area_stream].name)}};
    if (bound.cores > 0)
      rows.push_back({"cores", text(bound.cores_ns),
                      fmt::format("what kernels hold of {}", count_str(static_cast<size_t>(bound.cores), "core"))});
    rows.push_back({"bound", text(bound.bound_ns()), "the most of these: no order of these kernels takes less"});
    rows.push_back({"achieved", fmt::format("{:.1f}%", 100 * bound.achieved()), "the bound, of the time it took"});
    s += table(rows, {false, true, false}, options.width);
  }
  return s;
}

std::string bound_json(const Page& page) {
  std::string s = fmt::format("{{\"name\": {}, \"runs\": [", quoted_json(page.simulated->name));
  const char* comma = "";
  for (const Bound& b : bounds_of(page))
    s += fmt::format(
        "{}\n  {{\"run\": {}, \"steps\": {}, \"total_ns\": {}, \"critical_path_ns\": {}, \"area_ns\": {}, "
        "\"area_stream\": {}, \"cores\": {}, \"cores_ns\": {}, \"bound_ns\": {}, \"achieved\": {}}}",
        std::exchange(comma, ","), quoted_json(b.run), b.steps, b.total_ns, b.critical_path_ns, b.area_ns,
        quoted_json(b.area_stream < 0 ? "" : page.simulated->streams[b.area_stream].name), b.cores, b.cores_ns,
        b.bound_ns(), b.achieved());
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
