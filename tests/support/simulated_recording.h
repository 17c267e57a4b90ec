#pragma once
// A run in virtual time, as if it had been recorded: with exact times.
#include <algorithm>

#include "plan/firing/firing_counts.h"
#include "plan/record/recording.h"
#include "plan/time/simulator.h"

namespace sluice::plan {

inline TraceCause simulated_cause(const Plan& plan, const SimFiring& firing) {
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

// Makes its registers carry no bytes, so that no kernel has to write them.
inline void as_control(Plan& plan) {
  for (Register& r : plan.registers) {
    r.bytes = 0;
    r.slots.clear();
  }
}

// Whatever is between the kernels of a firing is a wait for cores.
inline Recording simulated_recording(const Plan& plan, const SimulateOptions& options) {
  const Simulation sim = simulate(plan, options);
  const FiringCounts counts(plan);
  Recording recording{plan, {}, -1};
  std::vector<int64_t> at;
  for (const SimFiring& f : sim.firings) at.push_back(static_cast<int64_t>(f.begin_ns));
  const auto add = [&](TraceEvent event, const SimFiring& f) {
    event.actor = f.actor;
    event.stream = plan.actors[f.actor].stream;
    event.step = counts.step_of(f.actor, f.firing);
    recording.trace.events.push_back(event);
  };
  for (const SimKernel& k : sim.kernels) {
    const SimFiring& f = sim.firings[k.firing];
    const auto begin = static_cast<int64_t>(k.begin_ns), end = static_cast<int64_t>(k.end_ns);
    if (begin > at[k.firing])
      add({.begin_ns = at[k.firing], .end_ns = begin, .wait = true, .cause = {TraceCause::Kind::kCores, 0}}, f);
    add({.kernel = k.kernel, .begin_ns = begin, .end_ns = end}, f);
    at[k.firing] = end;
  }
  for (const SimFiring& f : sim.firings) {
    const uint64_t nth = f.firing - counts.after(f.actor, counts.step_of(f.actor, f.firing));
    add({.begin_ns = static_cast<int64_t>(f.begin_ns),
         .end_ns = static_cast<int64_t>(f.end_ns),
         .firing = static_cast<int>(nth),
         .cause = simulated_cause(plan, f)},
        f);
  }
  // By stream, in the order of their ends; a firing behind its kernels, which may take no time.
  std::ranges::stable_sort(recording.trace.events, {},
                           [](const TraceEvent& e) { return std::tuple(e.stream, e.end_ns); });
  return recording;
}

}  // namespace sluice::plan
