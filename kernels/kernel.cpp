#include "kernels/kernel.h"

#include <algorithm>
#include <utility>

#include "base/layout.h"

namespace sluice {
namespace {

// A kernel chooses its loops and its library's descriptors by strides. Those that mean nothing must not count, and are
// made canonical here, so that no kernel has to think of them.
plan::KernelQuery canonical_query(plan::KernelQuery query) {
  for (TensorSpec& spec : query.inputs) spec = canonical(spec);
  for (TensorSpec& spec : query.outputs) spec = canonical(spec);
  return query;
}

template <class Result, class... Rest>
void read_canonical(std::function<Result(const plan::KernelQuery&, Rest...)>& of) {
  if (!of) return;
  of = [of = std::move(of)](const plan::KernelQuery& query, Rest... rest) -> Result {
    const bool as_it_is = std::all_of(query.inputs.begin(), query.inputs.end(), is_canonical) &&
                          std::all_of(query.outputs.begin(), query.outputs.end(), is_canonical);
    return as_it_is ? of(query, rest...) : of(canonical_query(query), rest...);
  };
}

std::shared_ptr<const KernelDef> kept(KernelDef def) {
  read_canonical(def.prepare);
  read_canonical(def.layouts);
  read_canonical(def.implementations);
  read_canonical(def.source);
  return std::make_shared<const KernelDef>(std::move(def));
}

}  // namespace

KernelTable::KernelTable(const KernelTable& other) {
  const MutexLock lock(other.mutex_);
  defs_ = other.defs_;
  left_out_by_ = other.left_out_by_;
}

void KernelTable::add(DeviceKind kind, KernelDef def) {
  const std::string op = def.op;
  SLUICE_CHECK(
      !def.branches || kind == DeviceKind::kCpu,
      "kernels: '{}' on {} says which outputs are void, which the host reads when run() returns; only kernels of "
      "cpu may",
      op, kind.str());
  const MutexLock lock(mutex_);
  const bool added = defs_.try_emplace({kind, op}, kept(std::move(def))).second;
  SLUICE_CHECK(added, "kernels: '{}' on {} is registered twice; an op has one kernel per kind of device", op,
               kind.str());
  version_.fetch_add(1, std::memory_order_release);
}

void KernelTable::replace(DeviceKind kind, KernelDef def) {
  const std::string op = def.op;
  std::shared_ptr<const KernelDef> fresh = kept(std::move(def));
  const MutexLock lock(mutex_);
  const auto it = defs_.find({kind, op});
  SLUICE_CHECK(it != defs_.end(), "kernels: '{}' on {} has no kernel to replace; add one", op, kind.str());
  replaced_.push_back(std::exchange(it->second, std::move(fresh)));
  version_.fetch_add(1, std::memory_order_release);
}

void KernelTable::keep_only(DeviceKind kind, const std::set<std::string>& ops, const std::string& option) {
  const MutexLock lock(mutex_);
  std::erase_if(defs_,
                [&](const auto& entry) { return entry.first.first == kind && !ops.contains(entry.first.second); });
  left_out_by_ = option;
  version_.fetch_add(1, std::memory_order_release);
}

const KernelDef* KernelTable::find(const std::string& op, DeviceKind kind) const {
  const MutexLock lock(mutex_);
  const auto it = defs_.find({kind, op});
  return it == defs_.end() ? nullptr : it->second.get();
}

const KernelDef& KernelTable::get(const std::string& op, DeviceKind kind) const {
  if (const KernelDef* def = find(op, kind)) return *def;
  std::string others, option;
  {
    const MutexLock lock(mutex_);
    option = left_out_by_;
    for (const auto& [key, def] : defs_)
      if (key.second == op) others += (others.empty() ? "" : ", ") + key.first.str();
  }
  SLUICE_CHECK_KIND(kUnsupported, option.empty() || !others.empty(),
                    "{}: no kernel on {}: this build has those of the models in {} alone; build it with this one there",
                    op, kind.str(), option);
  fail(ErrorKind::kUnsupported, "{}: no kernel on {}; {}", op, kind.str(),
       others.empty() ? "no device has one" : "place it on " + others);
}

std::vector<std::string> KernelTable::ops(DeviceKind kind) const {
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const auto& [key, def] : defs_) {
    if (key.first == kind) names.push_back(key.second);
  }
  return names;
}

}  // namespace sluice
