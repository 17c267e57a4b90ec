#pragma once
// Copies of variables in the order in which kernels read them, shared by the sessions of an engine. The variable stays
// the truth: whoever submits a step brings the copies up to date first.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "kernels/kernel.h"
#include "memory/storage.h"

namespace sluice {

class Engine;

// One of them. Thread-safe.
//
// Invariants
//  1. While nobody writes, the memory holds what `source` held at version packed_.
//  2. It is written only while no submitted step reads it: sessions attach to memory() as users. When memory is lent,
//     callers at the same time may each write the same bytes, as long as nobody changes them meanwhile.
class PackedWeight {
 public:
  // `what` names kernel and variable in errors. `cores` as the kernel was prepared for.
  PackedWeight(std::shared_ptr<Storage> source, std::shared_ptr<Storage> memory,
               std::shared_ptr<const PreparedKernel> kernel, std::string what, Engine& engine, int cores);
  // Makes it equal to what the writes submitted so far leave in the source, where that may have changed since it last
  // was. Waits for those, and for steps that read the copy. Throws what they and the kernel throw.
  void refresh();
  const std::shared_ptr<Storage>& memory() const { return memory_; }

 private:
  bool current() const { return !source_->lent() && source_->version() == packed_.load(std::memory_order_acquire); }

  const std::shared_ptr<Storage> source_, memory_;
  const std::shared_ptr<const PreparedKernel> kernel_;
  const std::string what_;
  Engine& engine_;
  const int cores_;
  Mutex mutex_;
  std::atomic<uint64_t> packed_{UINT64_MAX};
};

// Those of an engine that somebody holds, by source and format. Thread-safe.
class PackedWeights {
 public:
  // The source packed so, up to date. `make_memory` is asked for its bytes where nobody has it yet.
  std::shared_ptr<PackedWeight> get(Engine& engine, const std::shared_ptr<Storage>& source, const Packing& packing,
                                    const std::function<std::shared_ptr<Storage>(uint64_t bytes)>& make_memory,
                                    const std::string& what, int cores);

 private:
  Mutex mutex_;
  // A copy holds its source, so no other storage has its address while it lives.
  std::map<std::pair<const Storage*, std::string>, std::weak_ptr<PackedWeight>> known_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice
