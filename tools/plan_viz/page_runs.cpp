// Runs of a plan as the page draws them: forecast, recorded, or a server's.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "plan/firing/firing_counts.h"
#include "plan/json/json.h"
#include "plan/record/blame.h"
#include "plan/time/cores.h"
#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr int kSteps = 4;              // enough for the pipeline to fill
constexpr double kUnknownCost = 1000;  // ns drawn per kernel when the plan predicts none

void sort_by_begin(std::vector<RunFiring>& firings) {
  std::stable_sort(firings.begin(), firings.end(),
                   [](const RunFiring& a, const RunFiring& b) { return a.begin_ns < b.begin_ns; });
}

template <class Entities>
std::unordered_map<std::string, int> numbers_by_name(const Entities& entities) {
  std::unordered_map<std::string, int> numbers;
  for (size_t i = 0; i < entities.size(); ++i) numbers.emplace(entities[i].name, static_cast<int>(i));
  return numbers;
}

// Says where the time of each actor went: ["run", ns], ["input 'images' of 'prepare'", ns], ...
std::string blame_data(const Plan& plan, const Recording& recording) {
  const Timeline timeline = timeline_of(recording);
  const std::vector<BlameRow> rows = blame_of(recording.plan, timeline, BlameBy::kActor);
  std::unordered_map<std::string, std::string> of_actor;
  for (const BlameRow& row : rows) {
    std::string& s = of_actor[row.name];
    const auto add = [&](const std::string& what, int64_t ns) {
      if (ns > 0) s += fmt::format("{}[{},{}]", s.empty() ? "" : ",", quoted_json(what), ns);
    };
    std::array<int64_t, kSpent> rest = row.ns;  // what no wait tells more of
    for (const BlameWait& wait : row.waits) {
      add(wait_str(recording.plan, wait), wait.ns);
      rest[static_cast<size_t>(wait.spent)] -= wait.ns;
    }
    for (int i = 0; i < kSpent; ++i) add(spent_name(static_cast<Spent>(i)), rest[i]);
  }
  std::string s;
  for (const Actor& actor : plan.actors) s += fmt::format("{}[{}]", s.empty() ? "" : ",", of_actor[actor.name]);
  return fmt::format(",\"headline\":{},\"blame\":[{}],\"lost\":{}",
                     quoted_json(headline_str(recording.plan, timeline, rows)), s, recording.trace.lost);
}

std::string requests_data(const ServedTrace& served) {
  std::string steps, requests;
  for (const ServedStep& step : served.steps)
    steps +=
        fmt::format("{}[[{}],{},{}]", steps.empty() ? "" : ",", fmt::join(step.ids, ","), step.instance, step.number);
  for (const ServedRequest& r : served.requests) {
    std::string stamps;
    for (const auto& [name, ns] : r.stamps)
      stamps += fmt::format("{}[{},{}]", stamps.empty() ? "" : ",", quoted_json(name), ns);
    requests +=
        fmt::format("{}{{\"n\":{},\"id\":{},\"m\":{},\"s\":[{}],\"t\":[{}]}}", requests.empty() ? "" : ",", r.id,
                    quoted_json(r.request_id), quoted_json(r.model + " " + r.version), fmt::join(r.steps, ","), stamps);
  }
  return fmt::format(",\"steps\":[{}],\"requests\":[{}]", steps, requests);
}

}  // namespace

Run simulated_run(const Plan& plan, const Simulation& simulation) {
  Run run{.name = "predicted", .total_ns = std::llround(simulation.total_ns), .firings = {}, .more = ""};
  // A plan in which nothing is started has no steps.
  std::optional<FiringCounts> counts;
  if (!simulation.firings.empty() && std::ranges::any_of(plan.actors, is_started)) counts.emplace(plan);
  for (const SimFiring& f : simulation.firings)
    run.firings.push_back({f.actor, f.firing, std::llround(f.begin_ns), std::llround(f.end_ns),
                           plan.actors[f.actor].stream, -1, counts ? counts->step_of(f.actor, f.firing) : f.firing});
  for (const SimKernel& k : simulation.kernels)
    run.firings[k.firing].spans.push_back(
        {k.kernel, std::llround(k.begin_ns), std::llround(k.end_ns), std::llround(k.met_ns)});
  return run;
}

Run recorded_run(const Plan& plan, const Recording& recording) {
  Run run{.name = "measured", .measured = true, .firings = {}, .more = blame_data(plan, recording)};
  const FiringCounts counts(recording.plan);
  const auto actors = numbers_by_name(plan.actors), kernels = numbers_by_name(plan.kernels);
  std::vector<std::vector<RunSpan>> spans(recording.plan.actors.size());
  int64_t first = INT64_MAX;
  for (const TraceEvent& e : recording.trace.events) {  // by stream, in the order of their ends
    if (e.actor < 0 || e.wait || e.left_out) continue;
    first = std::min(first, e.begin_ns);
    if (e.kernel >= 0) {
      const auto kernel = kernels.find(recording.plan.kernels[e.kernel].name);
      if (kernel != kernels.end())
        spans[e.actor].push_back({kernel->second, e.begin_ns, e.end_ns, e.begin_ns, e.kernels});
      continue;
    }
    const auto actor = actors.find(recording.plan.actors[e.actor].name);
    if (actor == actors.end()) continue;
    RunFiring firing{actor->second,
                     counts.after(e.actor, e.step) + static_cast<uint64_t>(e.firing),
                     e.begin_ns,
                     e.end_ns,
                     plan.actors[actor->second].stream,
                     -1,
                     e.step};
    for (const RunSpan& span : spans[e.actor])
      if (span.begin_ns >= e.begin_ns && span.end_ns <= e.end_ns) firing.spans.push_back(span);
    spans[e.actor].clear();
    run.firings.push_back(std::move(firing));
  }
  for (RunFiring& firing : run.firings) {
    firing.begin_ns -= first;
    firing.end_ns -= first;
    run.total_ns = std::max(run.total_ns, firing.end_ns);
    for (RunSpan& span : firing.spans) span.begin_ns -= first, span.end_ns -= first, span.met_ns -= first;
  }
  sort_by_begin(run.firings);
  return run;
}

Run served_run(const Plan& plan, const ServedTrace& served) {
  Run run{.name = "served", .measured = true, .total_ns = served.end_ns, .firings = {}, .more = requests_data(served)};
  const int streams = static_cast<int>(plan.streams.size());
  for (size_t s = 0; s < served.steps.size(); ++s) {
    const ServedStep& step = served.steps[s];
    run.instances = std::max(run.instances, step.instance + 1);
    const size_t begin = run.firings.size();
    for (const ServedEvent& e : step.events) {
      if (e.kind != ServedEvent::Kind::kFiring) continue;
      run.firings.push_back({e.actor, step.number, e.begin_ns, e.end_ns,
                             step.instance * streams + plan.actors[e.actor].stream, static_cast<int>(s), step.number});
    }
    for (const ServedEvent& e : step.events) {
      if (e.kind != ServedEvent::Kind::kKernel) continue;
      for (size_t f = begin; f < run.firings.size(); ++f) {
        RunFiring& firing = run.firings[f];
        if (firing.actor != e.actor || e.begin_ns < firing.begin_ns || e.end_ns > firing.end_ns) continue;
        firing.spans.push_back({e.kernel, e.begin_ns, e.end_ns, e.begin_ns, e.kernels});
        break;
      }
    }
  }
  sort_by_begin(run.firings);
  return run;
}

// Writes numbers that follow from the rest in nearly every firing as differences from that, so that columns are mostly
// the same number. Numbers of firings and kernels are expected from the actor's program, a begin from the one before, a
// kernel's begin and a firing's end from the end of what came before.
std::string run_json(const Plan& plan, const Run& run, const std::string& panels) {
  std::vector<int64_t> items, actors, numbers, begins, tails, lanes, steps, counts, kernels, gaps, takes, met, more;
  std::vector<int64_t> programs, next(plan.actors.size(), 0);
  for (const Actor& actor : plan.actors)
    programs.push_back(std::ranges::count(actor.program, InstrKind::kRun, [](const Instr& i) { return i.kind; }));
  int64_t before = 0, kernel_before = 0, span_number = 0;
  for (const RunFiring& f : run.firings) {
    const auto number = static_cast<int64_t>(f.number);
    actors.push_back(f.actor);
    numbers.push_back(number - next[f.actor]);
    next[f.actor] = number + 1;
    begins.push_back(f.begin_ns - before);
    lanes.push_back(f.lane);
    steps.push_back(f.step);
    items.push_back(static_cast<int64_t>(f.item) - number);
    counts.push_back(static_cast<int64_t>(f.spans.size()) - programs[f.actor]);
    before = f.begin_ns;
    int64_t at = f.begin_ns;
    for (const RunSpan& span : f.spans) {
      kernels.push_back(span.kernel - kernel_before);
      gaps.push_back(span.begin_ns - at);
      takes.push_back(span.end_ns - span.begin_ns);
      if (span.met_ns > span.begin_ns) met.insert(met.end(), {span_number, span.met_ns - span.begin_ns});
      if (span.kernels > 1) more.insert(more.end(), {span_number, span.kernels - 1});
      kernel_before = span.kernel;
      at = span.end_ns;
      ++span_number;
    }
    tails.push_back(f.end_ns - at);
  }
  std::string s = fmt::format(
      "{{\"name\":{},\"measured\":{},\"instances\":{},\"total\":{},\"firings\":{},\"spans\":{},\"actor\":{}"
      ",\"number\":{},\"begin\":{},\"tail\":{},\"count\":{},\"kernel\":{},\"gap\":{},\"take\":{},\"met\":{},\"more\":{"
      "}",
      quoted_json(run.name), run.measured, run.instances, run.total_ns, actors.size(), kernels.size(), column(actors),
      column(numbers), column(begins), column(tails), column(counts), column(kernels), column(gaps), column(takes),
      plain(met), plain(more));
  if (std::ranges::any_of(steps, [](int64_t step) { return step >= 0; }))
    s += fmt::format(",\"lane\":{},\"step\":{}", column(lanes), column(steps));
  return s + fmt::format(",\"item\":{},\"panels\":{}", column(items), panels) + run.more + "}";
}

Drawn drawn(const Page& page, bool refused) {
  Drawn d{*page.simulated, {}, {}, false, {}, {}};
  for (const Kernel& k : d.plan.kernels) d.costs |= k.cost_ns > 0;
  if (!d.costs) {
    for (Kernel& k : d.plan.kernels) k.cost_ns = kUnknownCost;
  }
  if (!refused) {
    const int cores = cores_of_target(d.plan.target);
    d.sim = simulate(d.plan, {.steps = kSteps, .cores = cores});
    const Simulation steady = simulate(d.plan, {.steps = 8 * kSteps, .cores = cores});
    d.sim.period_ns = steady.period_ns;
    d.sim.critical = steady.critical;
    d.sim.peak_slots = steady.peak_slots;
    d.uses = device_use(d.plan, steady);
  }
  for (const CriticalHop& hop : d.sim.critical) d.critical.push_back(hop.actor);
  d.runs.push_back(simulated_run(d.plan, d.sim));
  if (page.recording != nullptr && !refused) d.runs.push_back(recorded_run(d.plan, *page.recording));
  if (page.served != nullptr) d.runs.push_back(served_run(d.plan, *page.served));
  return d;
}

}  // namespace sluice::plan_viz
