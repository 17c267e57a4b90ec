#pragma once
// Copies of variables in the order in which kernels read them, shared by the sessions of an engine. The variables stay
// the truth: whoever submits a step brings the copies up to date first.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "kernels/kernel.h"
#include "memory/storage.h"

namespace sluice {

class Engine;

// What a copy holds, and how it is made.
struct CopyRecipe {
  std::vector<std::shared_ptr<Storage>> sources = {};      // null: an absent optional input of `derive`
  std::shared_ptr<const PreparedKernel> derive = nullptr;  // makes what is copied of all sources; null: the first is it
  uint64_t derived_bytes = 0;
  std::string words = {};  // of what `derive` computes, and of the order: equal words, equal copies
  std::shared_ptr<const PreparedKernel> order = nullptr;  // writes the copy; null: it is what `derive` makes
  uint64_t bytes = 0;                                     // of the copy
};

// One of them. Thread-safe.
//
// Invariants
//  1. While nobody writes, the memory holds what the sources held when their versions were `made_of_`.
//  2. It is written only while no submitted step reads it: sessions attach to memory() as users. When memory is lent,
//     callers at the same time may each write the same bytes, as long as nobody changes them meanwhile.
class PackedWeight {
 public:
  // `what` names kernel and variable in errors. `cores` as the kernels were prepared for.
  PackedWeight(CopyRecipe recipe, std::shared_ptr<Storage> memory, std::string what, Engine& engine, int cores);
  // Makes it equal to what the writes submitted so far leave in the sources, where that may have changed since it last
  // was. Waits for those, and for steps that read the copy. Throws what they and the kernels throw.
  void refresh();
  const std::shared_ptr<Storage>& memory() const { return memory_; }

 private:
  bool current() const;
  void make() const;

  const CopyRecipe recipe_;
  const std::shared_ptr<Storage> memory_;
  const std::string what_;
  Engine& engine_;
  const int cores_;
  Mutex mutex_;
  std::vector<std::atomic<uint64_t>> made_of_;  // versions, per source
};

// Those of an engine that somebody holds, by sources and words. Thread-safe.
class PackedWeights {
 public:
  // Such a copy, up to date. `make_memory` is asked for its bytes where nobody has it yet.
  std::shared_ptr<PackedWeight> get(Engine& engine, const CopyRecipe& recipe,
                                    const std::function<std::shared_ptr<Storage>(uint64_t bytes)>& make_memory,
                                    const std::string& what, int cores);

 private:
  Mutex mutex_;
  // A copy holds its sources, so no other storage has the address of one while it lives.
  std::map<std::pair<std::vector<const Storage*>, std::string>, std::weak_ptr<PackedWeight>> known_
      SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice
