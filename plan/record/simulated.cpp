#include "plan/record/simulated.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plan/firing/firing_counts.h"

namespace sluice::plan {
namespace {

TraceCause cause_of(const Plan& plan, const SimFiring& firing) {
  using Reason = CriticalHop::Reason;
  switch (firing.ready.reason) {
    case Reason::kData:
      for (size_t e = 0; e < plan.edges.size(); ++e) {
        if (plan.edges[e].reg == firing.ready.reg && plan.edges[e].consumer == firing.actor)
          return {TraceCause::Kind::kData, static_cast<int>(e)};
      }
      return {TraceCause::Kind::kStart, 0};  // the next step
    case Reason::kCredit: return {TraceCause::Kind::kCredit, firing.ready.reg};
    case Reason::kStream: return {TraceCause::Kind::kStream, 0};
    default: return {is_started(plan.actors[firing.actor]) ? TraceCause::Kind::kStart : TraceCause::Kind::kStream, 0};
  }
}

}  // namespace

Recording simulated_recording(const Plan& plan, const SimulateOptions& options) {
  const Simulation sim = simulate(plan, options);
  const FiringCounts counts(plan);
  Recording recording{plan, {}, -1};
  std::vector<int64_t> at;
  for (const SimFiring& f : sim.firings) at.push_back(std::llround(f.begin_ns));
  const auto add = [&](TraceEvent event, const SimFiring& f) {
    event.actor = f.actor;
    event.stream = plan.actors[f.actor].stream;
    event.step = counts.step_of(f.actor, f.firing);
    recording.trace.events.push_back(event);
  };
  for (const SimKernel& k : sim.kernels) {
    const SimFiring& f = sim.firings[k.firing];
    const int64_t begin = std::llround(k.begin_ns), end = std::llround(k.end_ns);
    if (begin > at[k.firing])
      add({.begin_ns = at[k.firing], .end_ns = begin, .wait = true, .cause = {TraceCause::Kind::kCores, 0}}, f);
    add({.kernel = k.kernel, .begin_ns = begin, .end_ns = end}, f);
    at[k.firing] = end;
  }
  for (const SimFiring& f : sim.firings) {
    const uint64_t nth = f.firing - counts.after(f.actor, counts.step_of(f.actor, f.firing));
    add({.begin_ns = std::llround(f.begin_ns),
         .end_ns = std::llround(f.end_ns),
         .firing = static_cast<int>(nth),
         .cause = cause_of(plan, f)},
        f);
  }
  // By stream, in the order of their ends; a firing behind its kernels, which may take no time.
  std::ranges::stable_sort(recording.trace.events, {},
                           [](const TraceEvent& e) { return std::tuple(e.stream, e.end_ns); });
  return recording;
}

}  // namespace sluice::plan
