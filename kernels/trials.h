#pragma once
// With which of its implementations a kernel is fastest on this machine: each is run. Results are kept for the process,
// the least recently used goes first; and on disk for later ones, by the kernel, the processor, the versions of
// libraries and the build of Sluice.
//
// Thread safety: every method. One search runs at a time, on leased cores, so that no other disturbs it.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/files/file_cache.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "kernels/kernel.h"
#include "memory/core_lease.h"
#include "streams/stream.h"

namespace sluice {

class KernelTrials {
 public:
  struct Candidate {
    std::string name;
    double ns = 0;  // of a run, the least of several; of one that is hopelessly slow, of few
  };
  struct Trial {
    std::string kernel;                 // its signature, for people
    std::vector<Candidate> candidates;  // first the one that is taken without a trial
    std::string chosen;                 // "": the first
    uint64_t used = 0;                  // a number that grows whenever one is asked for
  };
  struct Stats {
    uint64_t searches = 0, read = 0, hits = 0;  // run here; found on disk; known to the process already
    size_t entries = 0;
  };

  // REQUIRES: table, leases and what `devices` gives outlive it. `most`: that are kept. directory: "" for none on disk.
  KernelTrials(const KernelTable& table, CoreLeases& leases, std::function<Device&(const DeviceId&)> devices,
               size_t most, const std::string& directory);

  // The implementation to ask for as plan::kImplementation; "" for the usual one, also where there is no other.
  std::string fastest(const plan::KernelQuery& query);
  // Asked for after used() was so much, in that order.
  std::vector<Trial> trials(uint64_t used = 0) const;
  uint64_t used() const;
  Stats stats() const;

 private:
  using Order = std::list<std::pair<std::string, Trial>>;  // by key, most recently used first

  std::optional<std::string> known(const std::string& key);
  // Gives what was chosen. `counter`: of stats_, or null for kernels that have one implementation.
  std::string keep(const std::string& key, Trial trial, uint64_t* counter);
  Trial search(const KernelDef& def, const plan::KernelQuery& query, const std::vector<std::string>& names) const;

  const KernelTable& table_;
  CoreLeases& leases_;
  const std::function<Device&(const DeviceId&)> devices_;
  const size_t most_;
  const std::unique_ptr<FileCache> files_;  // null: none
  Mutex searching_;
  const ForkLock searching_fork_lock_{searching_};
  mutable Mutex mutex_;  // never held while kernels run
  const ForkLock fork_lock_{mutex_};
  Order order_ SLUICE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Order::iterator> by_key_ SLUICE_GUARDED_BY(mutex_);
  uint64_t used_ SLUICE_GUARDED_BY(mutex_) = 0;
  Stats stats_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice
