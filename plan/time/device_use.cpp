#include <algorithm>
#include <map>

#include "plan/classes.h"
#include "plan/pack/ledger.h"
#include "plan/ranks.h"
#include "plan/time/simulator.h"

namespace sluice::plan {
namespace {

using Spans = std::vector<std::pair<double, double>>;

// How long at least one of them lasts.
double covered(Spans spans) {
  std::sort(spans.begin(), spans.end());
  double total = 0, until = 0;
  for (const auto& [from, to] : spans) {
    total += std::max(0.0, to - std::max(from, until));
    until = std::max(until, to);
  }
  return total;
}

}  // namespace

std::vector<DeviceUse> device_use(const Plan& plan, const Simulation& simulation) {
  const double from = simulation.steady_from_ns, to = simulation.steady_to_ns;
  struct Work {
    Spans compute, communication;
    uint64_t bytes = 0;
  };
  std::map<DeviceId, Work> devices;
  for (const Stream& stream : plan.streams) devices[stream.device];
  for (const SimKernel& k : simulation.kernels) {
    const Stream& stream = plan.streams[plan.actors[simulation.firings[k.firing].actor].stream];
    const std::pair span(std::max(from, k.met_ns), std::min(to, k.end_ns));
    if (span.first >= span.second) continue;
    const bool moves = plan.kernels[k.kernel].collective >= 0 || stream.kind == StreamKind::kCopyIn ||
                       stream.kind == StreamKind::kCopyOut || stream.kind == StreamKind::kCollective;
    Work& work = devices[stream.device];
    (moves ? work.communication : work.compute).push_back(span);
  }
  const std::optional<Classes> classes = classes_of(plan);
  for (int rank = 0; rank < rank_count(plan); ++rank) {
    const Plan part = part_of(plan, classes ? classes->rank_at(rank) : rank).plan;
    const Ledger bytes = ledger(part);
    for (size_t s = 0; s < part.spaces.size(); ++s) {
      if (bytes.space_bytes[s] == 0) continue;
      DeviceId device = part.spaces[s].kind == SpaceKind::kDevice ? part.spaces[s].device : DeviceId{};
      device.rank = rank;
      devices[device].bytes += bytes.space_bytes[s];
    }
  }
  std::vector<DeviceUse> uses;
  for (auto& [device, work] : devices) {
    DeviceUse use{device};
    use.bytes = work.bytes;
    if (to > from) {
      Spans either = work.compute;
      either.insert(either.end(), work.communication.begin(), work.communication.end());
      use.compute = covered(std::move(work.compute)) / (to - from);
      use.communication = covered(std::move(work.communication)) / (to - from);
      const double busy = covered(std::move(either)) / (to - from);
      use.exposed = busy - use.compute;
      use.bubble = 1 - busy;
    }
    uses.push_back(use);
  }
  return uses;
}

}  // namespace sluice::plan
