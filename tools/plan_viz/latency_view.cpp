// latency: how long steps of a run took, and what they can take at most.
#include <utility>

#include "base/error.h"
#include "plan/json/json.h"
#include "plan/record/latency.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

// The certificate of a path, or why there is none.
struct Certified {
  PathLatency path;
  LatencyBound bound;
  std::string why;
};

std::vector<Certified> certified(const Recording& recording, double quantile) {
  const Plan& plan = recording.plan;
  const Timeline timeline = timeline_of(recording);
  std::vector<Certified> all;
  for (const PathLatency& path : latencies_of(plan, timeline)) {
    Certified& one = all.emplace_back(Certified{path, {}, ""});
    if (path.steps == 0) {
      one.why = "no step was recorded";
      continue;
    }
    try {
      one.bound = latency_bound(plan, path.from, path.to, measured_limits(plan, timeline, path.from, quantile));
    } catch (const Error& error) {
      one.why = error.what();
      continue;
    }
    if (one.bound.unheld < 0) continue;
    const Actor& actor = plan.actors[one.bound.unheld];
    one.why = fmt::format("'{}' shares stream {}, and nothing of the way holds it back", actor.name,
                          plan.streams[actor.stream].name);
  }
  return all;
}

// "feed to sink: at most 12 ms, of which a chain of firings 8 ms, what cpu:0/compute0 can do meanwhile 4 ms"
std::string bound_str(const Plan& plan, const Certified& one) {
  std::string s = fmt::format("{} to {}: ", plan.actors[one.path.from].name, plan.actors[one.path.to].name);
  if (!one.why.empty()) return s + "no bound: " + one.why + "\n";
  s += "at most " + time_str(one.bound.ns);
  if (one.bound.chain_ns > 0) s += ": a chain of firings " + time_str(one.bound.chain_ns);
  for (const auto& [stream, ns] : one.bound.streams)
    s += fmt::format("{} what {} can do meanwhile {}",
                     &stream == &one.bound.streams[0].first && one.bound.chain_ns == 0 ? ":" : ",",
                     plan.streams[stream].name, time_str(ns));
  return s + "\n";
}

}  // namespace

std::string latency_text(const Recording& recording, double quantile, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"from", "to", "steps", "min", "mean", "p50", "p99", "max", "bound"}};
  std::string bounds;
  for (const Certified& one : certified(recording, quantile)) {
    const PathLatency& path = one.path;
    std::vector<std::string>& row = rows.emplace_back();
    row = {recording.plan.actors[path.from].name, recording.plan.actors[path.to].name, std::to_string(path.steps)};
    for (const double ns : {static_cast<double>(path.min_ns), path.mean_ns, static_cast<double>(path.p50_ns),
                            static_cast<double>(path.p99_ns), static_cast<double>(path.max_ns)})
      row.push_back(path.steps > 0 ? time_str(ns) : "");
    row.push_back(one.why.empty() ? time_str(one.bound.ns) : "none");
    bounds += bound_str(recording.plan, one);
  }
  return paint(fmt::format("plan '{}': from the begin of a step to its end", recording.plan.name), Color::kBold,
               options) +
         "\n" + lost_str(recording) +
         table(rows, {false, false, true, true, true, true, true, true, true}, options.width) +
         fmt::format("\nno step takes longer than the bound, if no firing takes longer than {} recorded of its actor\n",
                     quantile == 1 ? "the longest" : fmt::format("{:g} % of those", 100 * quantile)) +
         bounds;
}

std::string latency_json(const Recording& recording, double quantile) {
  std::string s = fmt::format("{{\"name\": {}, \"lost\": {}, \"quantile\": {}, \"paths\": [",
                              quoted_json(recording.plan.name), recording.trace.lost, quantile);
  const char* comma = "";
  for (const auto& [p, bound, why] : certified(recording, quantile))
    s += fmt::format(
        "{}\n  {{\"from\": {}, \"to\": {}, \"steps\": {}, \"min_ns\": {}, \"mean_ns\": {}, \"p50_ns\": {}, "
        "\"p99_ns\": {}, \"max_ns\": {}, \"bound_ns\": {}, \"chain_ns\": {}, \"why\": {}}}",
        std::exchange(comma, ","), quoted_json(recording.plan.actors[p.from].name),
        quoted_json(recording.plan.actors[p.to].name), p.steps, p.min_ns, p.mean_ns, p.p50_ns, p.p99_ns, p.max_ns,
        why.empty() ? fmt::format("{}", bound.ns) : "null", bound.chain_ns, quoted_json(why));
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
