#include "kernels/target.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/collectives.h"
#include "kernels/trials.h"
#include "plan/collectives.h"

namespace sluice {

KernelTarget::KernelTarget(KernelCache& kernels, std::vector<plan::DeviceDesc> devices, MachineRates rates,
                           KernelTrials* trials)
    : kernels_(kernels), table_(kernels.table()), devices_(std::move(devices)), rates_(rates), trials_(trials) {}

KernelTarget::KernelTarget(const KernelTable& table, std::vector<plan::DeviceDesc> devices, MachineRates rates)
    : own_(std::make_unique<KernelCache>(table)),
      kernels_(*own_),
      table_(table),
      devices_(std::move(devices)),
      rates_(rates) {}

bool KernelTarget::has_kernel(const std::string& op, DeviceKind kind) const {
  return table_.find(op, kind) != nullptr || has_collective(op, kind);
}

plan::LayoutPreference KernelTarget::layouts(const plan::KernelQuery& query) const {
  const KernelDef& def = table_.get(query.op, query.device.kind);
  if (def.layouts) return def.layouts(query);
  return {std::vector(query.inputs.size(), plan::Layout::kContiguous),
          std::vector(query.outputs.size(), plan::Layout::kContiguous)};
}

uint64_t KernelTarget::workspace_bytes(const plan::KernelQuery& query) const {
  const KernelDef& def = table_.get(query.op, query.device.kind);
  if (!def.function.empty()) return 0;  // its code is known only where the plan runs
  return kernels_.get(query)->workspace_bytes();
}

std::vector<plan::InPlacePair> KernelTarget::in_place(const plan::KernelQuery& query) const {
  std::vector<plan::InPlacePair> legal;
  for (const plan::InPlacePair& pair : table_.get(query.op, query.device.kind).in_place) {
    const bool known =
        pair.input < static_cast<int>(query.inputs.size()) && pair.output < static_cast<int>(query.outputs.size());
    if (known && query.inputs[pair.input] == query.outputs[pair.output]) legal.push_back(pair);
  }
  return legal;
}

bool KernelTarget::can_fuse(const plan::KernelQuery& query) const {
  const KernelDef* def = table_.find(query.op, query.device.kind);
  return def != nullptr && def->can_fuse != nullptr && def->can_fuse(query);
}

Ints KernelTarget::padded_sizes(const plan::KernelQuery& query) const {
  const KernelDef* def = table_.find(query.op, query.device.kind);
  return def == nullptr || def->padded_sizes == nullptr ? Ints{} : def->padded_sizes(query);
}

std::vector<plan::PackedInput> KernelTarget::packings(const plan::KernelQuery& query, bool kept) const {
  const KernelDef& def = table_.get(query.op, query.device.kind);
  if (!kept && def.packs_if_kept) return {};
  const std::vector<int>& packs = def.packs;
  plan::KernelQuery asked = query;
  std::erase_if(asked.packed, [&](int i) { return std::find(packs.begin(), packs.end(), i) == packs.end(); });
  if (asked.packed.empty()) return {};
  const std::shared_ptr<const PreparedKernel> kernel = kernels_.get(asked);
  return {kernel->packings().begin(), kernel->packings().end()};
}

std::string KernelTarget::implementation(const plan::KernelQuery& query) const {
  return trials_ == nullptr ? std::string() : trials_->fastest(query);
}

std::string KernelTarget::source(const plan::KernelQuery& query) const {
  const KernelDef* def = table_.find(query.op, query.device.kind);
  return def == nullptr || !def->source ? std::string() : def->source(query);
}

double KernelTarget::cost_ns(const plan::KernelQuery& query) const {
  const double cores = std::max(query.cores, 1);
  const double bandwidth = std::min(cores * rates_.bytes_per_core, rates_.bytes_total);
  const double moving = query.cost.bytes / bandwidth;
  const double computing = query.cost.flops / (cores * rates_.flops_per_core);
  return rates_.kernel_ns + std::max(moving, computing) * 1e9;
}

std::string KernelTarget::fingerprint() const {
  std::string text;
  for (const plan::DeviceDesc& d : devices_) {
    // Not its memory: no plan depends on it, and it differs between machines that are otherwise alike.
    text += fmt::format("{}[cores={} {}{}] ", d.device.str(), d.cores, d.host_memory ? "host" : "own",
                        d.asynchronous ? " async" : "");
  }
  // The kernels by name: FNV-1a, so that equal lists print equal numbers on every machine.
  uint64_t hash = 14695981039346656037ull;
  size_t count = 0;
  // A backend's kernels are known once one of its devices has been asked for: they count where one takes part.
  std::set<DeviceKind> kinds = {DeviceKind::kCpu, DeviceKind::kSim};
  for (const plan::DeviceDesc& d : devices_) kinds.insert(d.device.kind);
  for (const DeviceKind kind : kinds) {
    std::vector<std::string> ops = table_.ops(kind);
    for (const plan::Collective& collective : plan::collectives())
      if (has_collective(collective.op, kind)) ops.emplace_back(collective.op);
    for (const std::string& op : ops) {
      ++count;
      const KernelDef* def = table_.find(op, kind);  // null: a collective
      const std::string library = def == nullptr || def->library.empty() ? "" : "@" + def->library;
      for (char c : kind.str() + ":" + op + library + ";")
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    }
  }
  return text + fmt::format("kernels={}:{:016x} rates={}/{}/{}/{}", count, hash, rates_.flops_per_core,
                            rates_.bytes_per_core, rates_.bytes_total, rates_.kernel_ns);
}

}  // namespace sluice
