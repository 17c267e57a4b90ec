#pragma once
// Prepared kernels by what was asked for: each is prepared once, and shared by everybody who asks for the same while it
// is kept. The least recently used go first; whoever has one keeps it.
//
// Thread safety: every method may be called from any thread. A thread that asks for a kernel which another one is
// preparing waits for that; nobody waits for the preparing of other kernels.
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/fork.h"
#include "base/mutex.h"
#include "kernels/kernel.h"

namespace sluice {

class KernelCache {
 public:
  struct Limits {
    size_t entries = 8192;
    uint64_t bytes = uint64_t{256} << 20;  // that the kernels hold (PreparedKernel::held_bytes)
  };
  struct Stats {
    uint64_t hits = 0, misses = 0;  // found; prepared here, or not to be had
    uint64_t prepare_ns = 0;        // taken by the misses, waiting for a kernel not counted
    size_t entries = 0;             // kept now
    uint64_t bytes = 0;             // that these hold
  };

  // REQUIRES: the table outlives it.
  explicit KernelCache(const KernelTable& table) : KernelCache(table, Limits{}) {}
  KernelCache(const KernelTable& table, Limits limits) : table_(table), limits_(limits) {}

  const KernelTable& table() const { return table_; }

  // The kernel that the table has now for the query, on query.cores threads. One that calls a function of the program
  // (KernelDef::function), one of `functions`, is made for the caller alone. Throws what KernelTable::get and prepare()
  // throw.
  std::shared_ptr<const PreparedKernel> get(const plan::KernelQuery& query, const HostFunctions* functions = nullptr);

  // Before a device goes, whose memory or code kernels may hold.
  void clear();
  Stats stats() const;

 private:
  struct Slot {
    Mutex preparing;                               // held by the thread that is at it
    const uint64_t forks = fork_count();           // a fork has left the thread that was at it behind
    std::shared_ptr<const PreparedKernel> kernel;  // null until prepared; guarded by mutex_
  };
  struct Entry {
    const std::string* key = nullptr;  // in by_key_
    std::shared_ptr<Slot> slot;
    uint64_t bytes = 0;
  };
  using Order = std::list<Entry>;

  std::shared_ptr<Slot> slot_of(const std::string& key);
  void keep(const std::string& key, const std::shared_ptr<Slot>& slot, std::shared_ptr<const PreparedKernel> kernel);
  void forget(const std::string& key, const std::shared_ptr<Slot>& slot);
  void drop_last(Order& dropped) SLUICE_REQUIRES(mutex_);

  const KernelTable& table_;
  const Limits limits_;
  mutable Mutex mutex_;  // never held while a kernel is prepared or destroyed
  const ForkLock fork_lock_{mutex_};
  Order order_ SLUICE_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, Order::iterator> by_key_ SLUICE_GUARDED_BY(mutex_);
  Stats stats_ SLUICE_GUARDED_BY(mutex_);  // but for `entries`
};

}  // namespace sluice
