#pragma once
// A variable that lies in parts, or copies, on several devices, while eager code sees it whole.
//
// The tensor keeps its memory on the host. A step works on the parts and leaves the whole behind; the next eager read
// brings it up to date, and what eager code, or another session, writes into the whole goes to the parts ahead of the
// next step. All of it hangs on Storage::before_read and before_write, which every access of the whole calls. Sessions
// own it, and gather as they end. In a job of several ranks the tensor keeps its component, of which the part on this
// rank's device is a copy.
//
// Invariants: at most one of `stale_` and `ahead_` is true for whoever may access the variable now.
//
// Thread safety: as a storage's users: any thread may call wait_idle().
#include <memory>
#include <mutex>
#include <vector>

#include "compiler/compiler.h"
#include "memory/storage.h"

namespace sluice {

class Device;
class EagerExecutor;
class EagerImpl;

class ShardedVariable final : public StorageUser {
 public:
  struct Part {
    plan::Shard shard;
    std::shared_ptr<Storage> storage;
    Device* device = nullptr;  // the storage keeps it
  };
  ShardedVariable(std::shared_ptr<Storage> whole, const TensorType& type, std::vector<Part> parts);
  // The parts of `tensor` that lie as `shards` say: those that another session uses already, or new ones.
  // REQUIRES: contiguous host memory of its own.
  static std::shared_ptr<ShardedVariable> of(EagerExecutor& eager, EagerImpl& tensor,
                                             const std::vector<plan::Shard>& shards);

  const std::vector<Part>& parts() const { return parts_; }
  // Ahead of a step that reads the parts, and writes them if it `updates`: what was written into the whole goes there.
  void before_step(bool updates);
  // A step that updates the parts has been submitted.
  void step_submitted();
  // Brings the whole up to date; waits for the steps submitted so far.
  void gather();
  void wait_idle(bool writes_only) override;

 private:
  void copy_part(const Part& part, bool to_whole);

  const std::shared_ptr<Storage> whole_;
  const TensorType type_;
  const std::vector<Part> parts_;
  std::mutex mutex_;
  bool stale_ = false;  // the parts hold newer content than the whole
  bool ahead_ = true;   // the whole holds newer content than the parts
};

}  // namespace sluice
