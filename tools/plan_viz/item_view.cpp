// item: the way of one step through the graph of a run.
#include <algorithm>
#include <array>
#include <utility>

#include "plan/json/json.h"
#include "plan/record/blame.h"
#include "plan/record/item.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

int sink_named(const Plan& plan, const std::string& name) {
  if (name.empty()) return -1;
  std::string sinks;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    if (plan.actors[a].role != ActorRole::kSink) continue;
    if (plan.actors[a].name == name) return static_cast<int>(a);
    sinks += (sinks.empty() ? "'" : ", '") + plan.actors[a].name + "'";
  }
  fail(ErrorKind::kValue, "item: '{}': no sink of plan '{}' is called so; its sinks are {}", name, plan.name,
       sinks.empty() ? "none" : sinks);
}

// Sums of what a hop did before it began, and from then on.
struct HopSums {
  std::array<int64_t, kSpent> wait{}, run{};
  std::vector<BlameWait> waits;  // for input, credit and its stream, by whom; the longest first
};

HopSums sums_of(const ItemHop& hop) {
  HopSums sums;
  for (const Segment& s : hop.did) {
    const int64_t waited = std::max<int64_t>(0, std::min(s.end_ns, hop.begin_ns) - s.begin_ns);
    sums.wait[static_cast<int>(s.spent)] += waited;
    sums.run[static_cast<int>(s.spent)] += s.end_ns - s.begin_ns - waited;
    if (waited == 0 || (s.spent != Spent::kInput && s.spent != Spent::kCredit && s.spent != Spent::kStream)) continue;
    const auto known = std::ranges::find_if(
        sums.waits, [&](const BlameWait& wait) { return wait.spent == s.spent && wait.who == s.who; });
    if (known == sums.waits.end()) {
      sums.waits.push_back({s.spent, s.who, waited});
    } else {
      known->ns += waited;
    }
  }
  std::ranges::stable_sort(sums.waits, std::ranges::greater{}, &BlameWait::ns);
  return sums;
}

// "'images' of 'prepare' 1.2 ms; host 3 us": for what a hop waited.
std::string waits_str(const Plan& plan, const HopSums& sums) {
  std::string text;
  const auto add = [&](const std::string& what, int64_t ns) {
    if (ns > 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, time_str(static_cast<double>(ns)));
  };
  std::array<int64_t, kSpent> rest = sums.wait;
  for (const BlameWait& wait : sums.waits) {
    add(wait_str(plan, wait), wait.ns);
    rest[static_cast<size_t>(wait.spent)] -= wait.ns;
  }
  for (int i = 0; i < kSpent; ++i) {
    const auto spent = static_cast<Spent>(i);
    add(spent == Spent::kRun || spent == Spent::kRanks ? "its firings before" : spent_name(spent), rest[i]);
  }
  return text;
}

std::string sums_json(const std::array<int64_t, kSpent>& sums) {
  std::string s = "{";
  for (int i = 0; i < kSpent; ++i)
    if (sums[i] != 0)
      s += fmt::format("{}\"{}\": {}", s.size() > 1 ? ", " : "", spent_name(static_cast<Spent>(i)), sums[i]);
  return s + "}";
}

struct Totals {
  int64_t wait_ns = 0, run_ns = 0;
};
Totals totals_of(const ItemWay& way) {
  Totals totals;
  for (const ItemHop& hop : way.hops) totals.wait_ns += hop.wait_ns(), totals.run_ns += hop.run_ns();
  return totals;
}

std::string register_name(const Plan& plan, int edge) {
  return edge < 0 ? "" : plan.registers[plan.edges[edge].reg].name;
}

}  // namespace

std::string item_text(const Recording& recording, uint64_t step, const std::string& sink, const TextOptions& options) {
  const Plan& plan = recording.plan;
  const ItemWay way = way_of_item(recording, step, sink_named(plan, sink));
  const Totals totals = totals_of(way);
  const auto text = [](int64_t ns) { return time_str(static_cast<double>(ns)); };
  std::string s =
      paint(fmt::format("plan '{}', step {}: {} from '{}' to '{}'", plan.name, step, text(way.end_ns - way.begin_ns),
                        plan.actors[way.hops.front().actor].name, plan.actors[way.hops.back().actor].name),
            Color::kBold, options) +
      "\n";
  s += fmt::format("  {}: waited {}, ran {}\n", count_str(way.hops.size(), "hop"), text(totals.wait_ns),
                   text(totals.run_ns));
  if (recording.trace.lost > 0) s += fmt::format("  {} events are missing: they came too fast\n", recording.trace.lost);
  std::vector<std::vector<std::string>> rows = {{"at", "actor", "took", "wait", "run", "waited for"}};
  for (const ItemHop& hop : way.hops)
    rows.push_back({text(hop.arrived_ns - way.begin_ns), plan.actors[hop.actor].name, register_name(plan, hop.edge),
                    text(hop.wait_ns()), text(hop.run_ns()), waits_str(plan, sums_of(hop))});
  return s + table(rows, {true, false, false, true, true, false}, options.width);
}

std::string item_json(const Recording& recording, uint64_t step, const std::string& sink) {
  const Plan& plan = recording.plan;
  const ItemWay way = way_of_item(recording, step, sink_named(plan, sink));
  const Totals totals = totals_of(way);
  std::string s = fmt::format(
      "{{\"name\": {}, \"step\": {}, \"from\": {}, \"to\": {}, \"begin_ns\": {}, \"end_ns\": {}, \"latency_ns\": {}, "
      "\"wait_ns\": {}, \"run_ns\": {}, \"lost\": {}, \"hops\": [",
      quoted_json(plan.name), step, quoted_json(plan.actors[way.hops.front().actor].name),
      quoted_json(plan.actors[way.hops.back().actor].name), way.begin_ns, way.end_ns, way.end_ns - way.begin_ns,
      totals.wait_ns, totals.run_ns, recording.trace.lost);
  const char* comma = "";
  for (const ItemHop& hop : way.hops) {
    const HopSums sums = sums_of(hop);
    s += fmt::format(
        "{}\n  {{\"actor\": {}, \"register\": {}, \"arrived_ns\": {}, \"begin_ns\": {}, \"left_ns\": {}, \"wait_ns\": "
        "{}, \"run_ns\": {}, \"waited\": {}, \"ran\": {}}}",
        std::exchange(comma, ","), quoted_json(plan.actors[hop.actor].name), quoted_json(register_name(plan, hop.edge)),
        hop.arrived_ns, hop.begin_ns, hop.left_ns, hop.wait_ns(), hop.run_ns(), sums_json(sums.wait),
        sums_json(sums.run));
  }
  s += "],\n\"flows\": [";
  comma = "";
  for (const ItemFlow& flow : way.flows) {
    const Register& reg = plan.registers[plan.edges[flow.way.edge].reg];
    s += fmt::format("{}\n  {{\"register\": {}, \"from\": {}, \"to\": {}, \"made_ns\": {}, \"taken_ns\": {}}}",
                     std::exchange(comma, ","), quoted_json(reg.name), quoted_json(plan.actors[reg.producer].name),
                     quoted_json(plan.actors[plan.edges[flow.way.edge].consumer].name), flow.made_ns, flow.taken_ns);
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
