#include "plan/costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/json.h"

namespace sluice::plan {

std::vector<KernelCost> measured_costs(const Plan& plan, std::span<const TraceEvent> events) {
  std::map<int, std::vector<int64_t>> runs;  // by kernel
  for (const TraceEvent& event : events) {
    if (event.wait || event.kernel < 0 || event.kernels != 1) continue;
    if (plan.streams[event.stream].device.kind == DeviceKind::kCpu)
      runs[event.kernel].push_back(event.end_ns - event.begin_ns);
  }
  std::vector<KernelCost> costs;
  for (auto& [kernel, times] : runs) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    costs.push_back({plan.kernels[kernel].name, static_cast<double>(*middle)});
  }
  return costs;
}

std::string to_json(const Machine& machine) {
  const auto number = [](double v) { return fmt::format("\"{}\"", v); };  // as text, which comes back bit for bit
  std::string s = "{\"links\": [";
  for (const LinkCost& l : machine.links) {
    s += fmt::format("{}\n  {{\"between\": [{}, {}], \"latency_ns\": {}, \"bytes_per_s\": {}}}",
                     &l == machine.links.data() ? "" : ",", quoted_json(l.one), quoted_json(l.other),
                     number(l.latency_ns), number(l.bytes_per_s));
  }
  s += "],\n\"kernels\": [";
  for (const KernelCost& k : machine.kernels) {
    s += fmt::format("{}\n  {{\"name\": {}, \"cost_ns\": {}}}", &k == machine.kernels.data() ? "" : ",",
                     quoted_json(k.name), number(k.cost_ns));
  }
  return s + "]}\n";
}

}  // namespace sluice::plan
