#include "kernels/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/guarded_kernel.h"
#include "plan/query.h"

namespace sluice {
namespace {

// Equal keys mean equal queries of one definition. A definition that has been replaced keeps its address.
std::string key_of(const KernelDef& def, const plan::KernelQuery& query) {
  return plan::key_of(query).add(reinterpret_cast<uintptr_t>(&def)).take();
}

}  // namespace

std::shared_ptr<const PreparedKernel> KernelCache::get(const plan::KernelQuery& query, const HostFunctions* functions) {
  const KernelDef& def = table_.get(query.op, query.device.kind);
  const PrepareContext context{.threads = std::max(query.cores, 1), .functions = functions, .kernels = &table_};
  const auto prepare = [&]() -> std::shared_ptr<const PreparedKernel> {
    std::shared_ptr<const PreparedKernel> kernel = def.prepare(query, context);
    return cpu::guards_all_memory() ? cpu::guarded(std::move(kernel), query) : kernel;
  };
  if (!def.function.empty()) return prepare();
  const std::string key = key_of(def, query);
  const std::shared_ptr<Slot> slot = slot_of(key);
  const auto found = [&] {
    const MutexLock lock(mutex_);
    if (slot->kernel != nullptr) ++stats_.hits;
    return slot->kernel;
  };
  if (auto kernel = found()) return kernel;
  const MutexLock preparing(slot->preparing);
  if (auto kernel = found()) return kernel;
  const auto start = std::chrono::steady_clock::now();
  const auto count = [&] {
    const auto took = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    const MutexLock lock(mutex_);
    ++stats_.misses;
    stats_.prepare_ns += static_cast<uint64_t>(took);
  };
  try {
    std::shared_ptr<const PreparedKernel> kernel = prepare();
    count();
    keep(key, slot, kernel);
    return kernel;
  } catch (...) {  // who waits for it tries itself, and is told why not
    count();
    forget(key, slot);
    throw;
  }
}

// The slot of the key, made where there is none, as the most recently used.
std::shared_ptr<KernelCache::Slot> KernelCache::slot_of(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto [at, fresh] = by_key_.try_emplace(key, order_.end());
  if (fresh) {
    try {
      order_.push_front({&at->first, std::make_shared<Slot>()});
    } catch (...) {
      by_key_.erase(at);
      throw;
    }
    at->second = order_.begin();
  } else {
    order_.splice(order_.begin(), order_, at->second);
    std::shared_ptr<Slot>& slot = at->second->slot;
    if (slot->kernel == nullptr && slot->forks != fork_count()) slot = std::make_shared<Slot>();
  }
  return order_.front().slot;
}

void KernelCache::keep(const std::string& key, const std::shared_ptr<Slot>& slot,
                       std::shared_ptr<const PreparedKernel> kernel) {
  Order dropped;  // goes after the lock
  const MutexLock lock(mutex_);
  const uint64_t bytes = kernel->held_bytes();
  slot->kernel = std::move(kernel);
  const auto at = by_key_.find(key);
  if (at == by_key_.end() || at->second->slot != slot) return;  // dropped meanwhile, or cleared
  at->second->bytes = bytes;
  stats_.bytes += bytes;
  if (bytes > limits_.bytes) order_.splice(order_.end(), order_, at->second);  // it alone goes, at once
  while (order_.size() > limits_.entries || stats_.bytes > limits_.bytes) drop_last(dropped);
}

void KernelCache::drop_last(Order& dropped) {
  stats_.bytes -= order_.back().bytes;
  by_key_.erase(by_key_.find(*order_.back().key));
  dropped.splice(dropped.end(), order_, std::prev(order_.end()));
}

void KernelCache::forget(const std::string& key, const std::shared_ptr<Slot>& slot) {
  const MutexLock lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end() || at->second->slot != slot) return;
  order_.erase(at->second);
  by_key_.erase(at);
}

void KernelCache::clear() {
  Order dropped;
  const MutexLock lock(mutex_);
  while (!order_.empty()) drop_last(dropped);
}

KernelCache::Stats KernelCache::stats() const {
  const MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.entries = static_cast<size_t>(
      std::count_if(order_.begin(), order_.end(), [](const Entry& e) { return e.slot->kernel != nullptr; }));
  return stats;
}

}  // namespace sluice
