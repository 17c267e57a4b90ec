#pragma once
// How eager calls are carried out, by op, attributes, operand specs and threads, found without an allocation; least
// recently used ones go first. Their kernels are those of the engine's KernelCache.
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/fork.h"
#include "graph/op_def.h"
#include "kernels/kernel.h"

namespace sluice {

// The key of a look-up; it owns nothing, so a hit copies nothing.
struct CallKey {
  const OpDef* op = nullptr;
  const Attrs* attrs = nullptr;
  std::span<const TensorSpec* const> inputs;  // null: absent
  DeviceId device;
  int threads = 1;
  uint64_t kernels = 0;   // KernelTable::version(): with others the call is carried out anew
  uint64_t hash() const;  // without the version, so that a call has one place
};

// How a call is carried out; immutable once made.
struct CallPlan {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorSpec> inputs;
  std::vector<char> present;
  DeviceId device;
  int threads = 1;
  uint64_t kernels = 0;

  bool decompose = false;
  std::shared_ptr<const PreparedKernel> kernel;  // null when decomposed
  std::vector<TensorSpec> operands;              // as the kernel takes them
  std::vector<char> copied;                      // whether a copy must be made, since an input lies otherwise
  std::vector<TensorSpec> results;               // as the kernel gives them
  std::vector<TensorType> outputs;
  std::vector<plan::InPlacePair> in_place;  // which operands the kernel may overwrite
  std::vector<Value> numbers;               // further operands, behind the inputs, which are the same in each call

  bool matches(const CallKey& key) const;
};

// Thread-safe.
class CallCache {
 public:
  explicit CallCache(size_t capacity) : capacity_(capacity) {}
  std::shared_ptr<const CallPlan> find(const CallKey& key, uint64_t hash);
  void insert(uint64_t hash, std::shared_ptr<const CallPlan> plan);
  size_t size() const;

 private:
  struct Entry {
    uint64_t hash;
    std::shared_ptr<const CallPlan> plan;
  };
  const size_t capacity_;
  mutable std::mutex mutex_;
  const ForkLock fork_lock_{mutex_};
  std::list<Entry> order_;  // most recently used first
  std::unordered_map<uint64_t, std::list<Entry>::iterator> by_hash_;
};

}  // namespace sluice
