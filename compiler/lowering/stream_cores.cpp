#include "compiler/lowering/stream_cores.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "graph/ops/host.h"
#include "plan/time/costs.h"

namespace sluice::compiler {
namespace {

using graph::Placement;
using plan::StreamKind;

// Streams that take turns wait for each other, and kernels lose a little on many cores: turns have to pay for that.
constexpr double kTurns = 1.05;

struct Worker {
  Placement stream;
  double work_ns = 0;  // of a step, on one core
  int cores = 1;
  double time_ns() const { return work_ns / cores; }
};

// The streams of a device that need its cores. A function of the program may take any time: its stream keeps its core,
// unless it was measured.
struct Workers {
  std::vector<Worker> computing;
  double host_ns = 0, longest_host_ns = 0;
  int hosts = 0;
  bool unknown = false;
};

// Gives each worker a core, and every other core to the one that would take longest. Returns how long a step takes.
double share_out(Workers& workers, int cores) {
  const auto slower = [](const Worker& a, const Worker& b) { return a.time_ns() < b.time_ns(); };
  int left = cores - workers.hosts - static_cast<int>(workers.computing.size());
  for (; left > 0; --left) ++std::max_element(workers.computing.begin(), workers.computing.end(), slower)->cores;
  const double longest = std::max_element(workers.computing.begin(), workers.computing.end(), slower)->time_ns();
  const double oversubscribed = left < 0 ? static_cast<double>(cores - left) / cores : 1;
  return std::max(longest, workers.longest_host_ns) * oversubscribed;
}

double in_turns(const Workers& workers, int cores) {
  double work_ns = 0;
  for (const Worker& worker : workers.computing) work_ns += worker.work_ns;
  return work_ns / cores + workers.host_ns;
}

// The streams that run kernels, by device.
std::map<DeviceId, std::set<Placement>> streams_of(const graph::Graph& graph) {
  std::map<DeviceId, std::set<Placement>> found;
  for (const graph::Node& node : graph.nodes())
    if (!node.op->view) found[*node.placement.device].insert(node.placement);
  return found;
}

}  // namespace

std::map<Placement, int> stream_cores(const graph::Graph& graph, const PassContext& context, const Places& places) {
  const std::map<DeviceId, std::set<Placement>> streams = streams_of(graph);
  const plan::CostTable known(context.options.machine);
  std::map<Placement, double> work;
  std::map<DeviceId, Workers> devices;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->view) continue;
    double& work_ns = work[node.placement];
    // A stream without others on its device has all cores, whatever its work is, which takes time to find out.
    if (streams.at(*node.placement.device).size() == 1) continue;
    plan::KernelQuery query = context.query_of(graph, node);
    query.cost = graph.cost(node);
    const std::optional<double> measured = known.measured(query);
    work_ns += measured ? *measured : context.target.cost_ns(query);
    if (ops::is_host_function(*node.op) && !measured) devices[*node.placement.device].unknown = true;
  }
  for (const auto& [stream, work_ns] : work) {
    Workers& workers = devices[*stream.device];
    if (Places::stream_kind(stream) == StreamKind::kCompute) workers.computing.push_back({stream, work_ns});
    if (Places::stream_kind(stream) != StreamKind::kHost) continue;
    ++workers.hosts;
    workers.host_ns += work_ns;
    workers.longest_host_ns = std::max(workers.longest_host_ns, work_ns);
  }
  std::map<Placement, int> cores;
  for (auto& [device, workers] : devices) {
    if (workers.computing.empty()) continue;
    const int all = places.desc(device).cores;
    const bool turns = in_turns(workers, all) * kTurns < share_out(workers, all) && !workers.unknown;
    for (const Worker& worker : workers.computing)
      cores[worker.stream] = context.options.cores > 0 ? context.options.cores : turns ? all : worker.cores;
  }
  return cores;
}

}  // namespace sluice::compiler
