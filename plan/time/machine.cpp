#include "plan/time/machine.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/shape.h"
#include "plan/classes.h"
#include "plan/collectives.h"
#include "plan/query.h"
#include "plan/ranks.h"
#include "plan/time/costs.h"

namespace sluice::plan {
namespace {

std::string full_name(const DeviceId& d) { return fmt::format("{}/{}:{}", d.rank, d.kind.str(), d.index); }

// The devices of a group's ranks, ascending.
using Members = std::vector<DeviceId>;

class Costs {
 public:
  Costs(const Plan& plan, const Machine& machine)
      : plan_(plan), machine_(machine), known_(machine), classes_(classes_of(plan)) {
    for (const auto& [group, actors] : callers_of_groups(plan)) {
      std::map<int, DeviceId> devices;
      for (const int a : actors) devices.emplace(rank_of(plan, a), plan.streams[plan.actors[a].stream].device);
      if (classes_) devices = of_job(devices, classes_->groups.at(group));
      for (const auto& [rank, device] : devices) groups_[group].push_back(device);
    }
  }

  // REQUIRES: `stream` runs it.
  double of(const Kernel& k, const Stream& stream) {
    if (const std::optional<double> known = known_.find(k.name, query_of(plan_, k, stream))) return *known;
    if (k.collective >= 0) return meeting(k);
    if (k.inputs.size() == 1 && k.outputs.size() == 1 && !is_absent(k.inputs[0])) {  // what only moves a value
      const Space &from = space(k.inputs[0]), &to = space(k.outputs[0]);
      const DeviceId source = memory(from, to), target = memory(to, from);
      if (source != target) return hop(source, target, bytes_of(k.inputs[0]));
    }
    return k.cost_ns;
  }

 private:
  // Ranks of a class have equal devices; where two classes meet, each has its own.
  std::map<int, DeviceId> of_job(const std::map<int, DeviceId>& of_classes, const std::vector<int>& ranks) const {
    std::map<int, DeviceId> devices;
    for (const int rank : ranks) {
      const auto& own = of_classes.find(classes_->class_of(rank));
      DeviceId device = own == of_classes.end() ? of_classes.begin()->second : own->second;
      device.rank = rank;
      devices.emplace(rank, device);
    }
    return devices;
  }
  // Calls of one kind in a group with as many bytes take as long.
  double meeting(const Kernel& k) {
    double bytes = 0;
    for (const std::vector<View>* views : {&k.inputs, &k.outputs})
      for (const View& v : *views) bytes = std::max(bytes, bytes_of(v));
    const auto [known, fresh] = meetings_.try_emplace({k.op, k.collective, bytes}, 0.0);
    if (fresh || !k.attrs.empty()) known->second = collective(k, groups_.at(k.collective));
    return known->second;
  }

  static double bytes_of(const View& v) {
    return static_cast<double>(checked_bytes(v.spec.shape, dtype_size(v.spec.dtype)));
  }
  const Space& space(const View& v) const {
    if (v.base == BaseKind::kVariable) return plan_.spaces[plan_.variables[v.index].space];
    const int buffer = v.base == BaseKind::kBuffer ? v.index : plan_.registers[v.index].slots[0];
    return plan_.spaces[plan_.arenas[plan_.buffers[buffer].arena].space];
  }
  // Memory of the host, pinned or not, is its processor's: of the rank that the other end is on.
  static DeviceId memory(const Space& space, const Space& other) {
    return space.kind == SpaceKind::kDevice ? space.device : DeviceId{other.device.rank};
  }

  double hop(const DeviceId& from, const DeviceId& to, double bytes) {
    const auto [known, fresh] = links_.try_emplace({std::min(from, to), std::max(from, to)});
    if (fresh) known->second = &link(full_name(from), full_name(to));
    return known->second->latency_ns + bytes / known->second->bytes_per_s * 1e9;
  }
  const LinkCost& link(const std::string& a, const std::string& b) const {
    for (const LinkCost& l : machine_.links) {
      if ((fits(l.one, a) && fits(l.other, b)) || (fits(l.one, b) && fits(l.other, a))) return l;
    }
    fail(ErrorKind::kValue, "plan '{}': no link between {} and {}; name one in \"links\"", plan_.name, a, b);
  }
  // A round in which every rank sends to the one `distance` on takes as long as the slowest of them.
  double round(const Members& ranks, size_t distance, double bytes) {
    double slowest = 0;
    for (size_t r = 0; r < ranks.size(); ++r)
      slowest = std::max(slowest, hop(ranks[r], ranks[(r + distance) % ranks.size()], bytes));
    return slowest;
  }
  double ring(const Members& ranks, double rounds, double bytes) { return rounds * round(ranks, 1, bytes); }
  // Each rank has a part for every other: all are under way at once and share what the rank can send.
  double exchange(const Members& ranks, double part) {
    double slowest = 0;
    for (const DeviceId& from : ranks) {
      double latency = 0, sending = 0;
      for (const DeviceId& to : ranks) {
        if (from == to) continue;
        latency = std::max(latency, hop(from, to, 0));
        sending += hop(from, to, part) - hop(from, to, 0);
      }
      slowest = std::max(slowest, latency + sending);
    }
    return slowest;
  }
  // A binomial tree: in round i those that have it, from the root on, give it to those 2^i further.
  double tree(const Members& ranks, size_t root, double bytes) {
    double total = 0;
    const size_t n = ranks.size();
    for (size_t distance = 1; distance < n; distance *= 2) {
      double slowest = 0;
      for (size_t from = 0; from < distance && from + distance < n; ++from)
        slowest = std::max(slowest, hop(ranks[(root + from) % n], ranks[(root + from + distance) % n], bytes));
      total += slowest;
    }
    return total;
  }

  double collective(const Kernel& k, const Members& ranks) {
    const auto n = static_cast<double>(ranks.size());
    const Collective* known = find_collective(k.op);
    SLUICE_CHECK_KIND(kUnsupported, known != nullptr,
                      "kernel '{}': no such collective: {}; name its cost in \"kernels\"", k.name, k.op);
    if (known->of_two) {
      const std::vector<View>& views = known->kind == CollectiveKind::kSend ? k.inputs : k.outputs;
      return hop(ranks.front(), ranks.back(), views.empty() ? 0 : bytes_of(views[0]));
    }
    SLUICE_CHECK(k.inputs.size() == 1 && k.outputs.size() == 1,
                 "kernel '{}': {} inputs and {} outputs; a collective has one of each", k.name, k.inputs.size(),
                 k.outputs.size());
    if (ranks.size() == 1) return 0;
    const double in = bytes_of(k.inputs[0]);
    switch (known->kind) {
      case CollectiveKind::kAllReduce: return ring(ranks, 2 * (n - 1), in / n);
      case CollectiveKind::kAllGather: return ring(ranks, n - 1, in);
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllToAll: return exchange(ranks, in / n);
      default: break;  // broadcast
    }
    const int64_t root = get_attr<int64_t>(k.attrs, "root");
    SLUICE_CHECK(root >= 0 && root < static_cast<int64_t>(ranks.size()), "kernel '{}': root is {}; must be below {}",
                 k.name, root, ranks.size());
    return tree(ranks, static_cast<size_t>(root), in);
  }

  const Plan& plan_;
  const Machine& machine_;
  const CostTable known_;
  const std::optional<Classes> classes_;
  std::map<int, Members> groups_;
  std::map<std::tuple<std::string, int, double>, double> meetings_;  // by op, group and bytes
  std::map<std::pair<DeviceId, DeviceId>, const LinkCost*> links_;   // as far as asked for
};

}  // namespace

bool fits(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  for (size_t at = star; at <= text.size(); ++at) {
    if (fits(pattern.substr(star + 1), text.substr(at))) return true;
  }
  return false;
}

Plan on_machine(Plan plan, const Machine& machine) {
  Costs costs(plan, machine);
  const std::vector<int> streams = streams_of_kernels(plan);
  for (size_t k = 0; k < streams.size(); ++k) {
    if (streams[k] >= 0) plan.kernels[k].cost_ns = costs.of(plan.kernels[k], plan.streams[streams[k]]);
  }
  return plan;
}

}  // namespace sluice::plan
