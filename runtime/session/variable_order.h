#pragma once
// Orders the accesses of a session to its variables among those of eager code and of other sessions.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/storage.h"
#include "plan/firing/firing_counts.h"
#include "runtime/session/packed_weights.h"

namespace sluice {

// The storages that a session reads and writes as its variables, and the packed copies that its kernels read.
//
// Thread safety: every method; it does not change.
class BoundVariables {
 public:
  BoundVariables(std::vector<std::shared_ptr<Storage>> storages, std::vector<bool> written,
                 std::vector<std::shared_ptr<PackedWeight>> packed)
      : storages_(std::move(storages)), written_(std::move(written)), packed_(std::move(packed)) {}

  // From now on others wait for `user` before they touch the variables; until it is detached.
  void attach(const std::weak_ptr<StorageUser>& user) const;
  void detach(const StorageUser* user) const;
  // Accesses of others that were submitted before come first. Then packed copies show what those have written. Waits,
  // so that no lock may be held.
  void wait_for_others(const StorageUser* self) const;
  // Steps that write them have just been submitted: who sees the new version also waits for them.
  void count_writes() const;

 private:
  const std::vector<std::shared_ptr<Storage>> storages_;
  const std::vector<bool> written_;  // per storage
  const std::vector<std::shared_ptr<PackedWeight>> packed_;
};

// Counts the firings that are done with variables, so that others know when those that were submitted are.
//
// Thread safety: every method, but for reset().
//
// Invariants
//  1. A firing counts once its accesses are done, or launched where its stream is asynchronous.
//  2. Whoever waits has announced it (Waiting) before looking, and a firing counts before it asks whether somebody
//     waits: so none is missed, and where nobody waits a firing costs no lock.
class VariableAccesses {
 public:
  // The actors whose firings read or write variables, and of these those that write.
  VariableAccesses(std::vector<int> touching, std::vector<int> writing)
      : touching_(std::move(touching)), writing_(std::move(writing)) {}

  const std::vector<int>& actors(bool writes_only) const { return writes_only ? writing_ : touching_; }
  // Returns whether somebody waits, and is to be told.
  bool add_done(bool writes) {
    touches_.fetch_add(1);
    if (writes) writes_.fetch_add(1);
    return waiting_.load() != 0;
  }
  uint64_t done(bool writes_only) const { return (writes_only ? writes_ : touches_).load(); }
  // How many there are once all that `steps` steps start is done.
  uint64_t due(const plan::FiringCounts& counts, uint64_t steps, bool writes_only) const;
  // REQUIRES: nothing fires.
  void reset() { touches_ = writes_ = 0; }

  // Lives while a thread waits.
  class Waiting {
   public:
    explicit Waiting(VariableAccesses& accesses) : accesses_(accesses) { ++accesses_.waiting_; }
    ~Waiting() { --accesses_.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    VariableAccesses& accesses_;
  };

 private:
  const std::vector<int> touching_, writing_;
  std::atomic<uint64_t> touches_{0}, writes_{0};
  std::atomic<int> waiting_{0};
};

}  // namespace sluice
