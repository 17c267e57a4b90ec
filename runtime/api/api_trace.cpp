// include/sluice/trace.h, forwarded.
#include <algorithm>

#include "base/trace.h"
#include "include/sluice/session.h"
#include "runtime/api/api_support.h"
#include "runtime/family/family.h"

namespace sluice::api {

namespace {

TraceEvent::Kind kind_of(const sluice::TraceEvent& event) {
  using Kind = TraceEvent::Kind;
  return event.wait ? Kind::kWait : event.left_out ? Kind::kLeftOut : event.kernel < 0 ? Kind::kFiring : Kind::kKernel;
}

}  // namespace

void Session::set_trace(bool on) {
  guarded([&] { inside(*this).set_trace(on); });
}

Trace Session::take_trace() {
  return guarded([&] {
    FamilyTrace taken = inside(*this).take_trace();
    Trace trace;
    trace.begin_ns = taken.members.front().begin_clock_ns;
    trace.begin_unix_ns = taken.members.front().begin_unix_ns;
    for (size_t m = 0; m < taken.members.size(); ++m) {
      const int64_t later_ns = taken.members[m].begin_clock_ns - trace.begin_ns;
      for (const sluice::TraceEvent& e : taken.members[m].events)
        trace.events.push_back({kind_of(e), static_cast<int>(m), e.stream, e.actor, e.kernel, e.kernels, e.step,
                                e.begin_ns + later_ns, e.end_ns + later_ns});
      trace.lost += taken.members[m].lost;
      TraceNames& names = taken.names[m];
      trace.plans.push_back({std::move(names.streams), std::move(names.actors), std::move(names.kernels)});
    }
    std::stable_sort(trace.events.begin(), trace.events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
    for (FamilyTrace::Step& step : taken.steps) trace.steps.push_back({step.step, std::move(step.tag), step.over});
    return trace;
  });
}

std::string Trace::chrome_json() const {
  return guarded([&] {
    // Streams, actors and kernels of all plans, those of a family's members as "<member>/<name>".
    TraceNames names;
    std::vector<int> streams, actors, kernels;  // where each plan's begin
    for (size_t p = 0; p < plans.size(); ++p) {
      const auto append = [&](const std::vector<std::string>& from, std::vector<std::string>& to,
                              std::vector<int>& begins) {
        begins.push_back(static_cast<int>(to.size()));
        for (const std::string& name : from) to.push_back(plans.size() > 1 ? fmt::format("{}/{}", p, name) : name);
      };
      append(plans[p].streams, names.streams, streams);
      append(plans[p].actors, names.actors, actors);
      append(plans[p].kernels, names.kernels, kernels);
    }
    for (const Step& step : steps)
      if (!step.tag.empty()) names.tags[step.step] = step.tag;
    sluice::Trace whole;
    whole.begin_unix_ns = begin_unix_ns;
    whole.lost = lost;
    for (const TraceEvent& e : events) {
      const auto p = static_cast<size_t>(e.plan);
      SLUICE_CHECK(e.plan >= 0 && p < plans.size(), "trace: an event of plan {}; there are {}", e.plan, plans.size());
      whole.events.push_back({.stream = e.stream + streams[p],
                              .actor = e.actor < 0 ? -1 : e.actor + actors[p],
                              .kernel = e.kernel < 0 ? -1 : e.kernel + kernels[p],
                              .kernels = e.kernels,
                              .step = e.step,
                              .begin_ns = e.begin_ns,
                              .end_ns = e.end_ns,
                              .wait = e.kind == TraceEvent::Kind::kWait,
                              .left_out = e.kind == TraceEvent::Kind::kLeftOut});
    }
    return chrome_trace_json(whole, names);
  });
}

}  // namespace sluice::api
