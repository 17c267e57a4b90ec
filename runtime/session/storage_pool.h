#pragma once
// Storages of one size that come back by being let go.
//
// Thread safety: any thread may call.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "memory/storage.h"

namespace sluice {

// True when nobody but `held` itself, and one more copy made here, refers to the object.
template <class T>
bool sole_owner(const std::shared_ptr<T>& held) {
  // Copying is a read-modify-write on the count: it orders us after the last owner's release.
  const std::shared_ptr<T> copy = held;
  return copy.use_count() == 2;
}

class StoragePool {
 public:
  // Remembers up to `most` storages.
  StoragePool(std::shared_ptr<Allocator> memory, uint64_t bytes, plan::Space space, size_t most)
      : memory_(std::move(memory)), bytes_(bytes), space_(space), most_(most) {
    made_.reserve(most);
  }
  // One that everybody has let go of, or a new one. Throws kMemory.
  std::shared_ptr<Storage> take() {
    const MutexLock lock(mutex_);
    // Whoever had one may have given its memory away for good.
    std::erase_if(made_, [](const std::shared_ptr<Storage>& known) { return known->gone(); });
    for (const std::shared_ptr<Storage>& known : made_)
      if (sole_owner(known)) return known;
    auto fresh = std::make_shared<Storage>(memory_, bytes_, space_);
    if (made_.size() < most_) made_.push_back(fresh);
    return fresh;
  }
  // Forgets all; they go with who has them.
  void clear() {
    const MutexLock lock(mutex_);
    made_.clear();
  }
  // The bytes of the storages that it remembers.
  uint64_t bytes() const {
    const MutexLock lock(mutex_);
    return made_.size() * bytes_;
  }

 private:
  const std::shared_ptr<Allocator> memory_;
  const uint64_t bytes_;
  const plan::Space space_;
  const size_t most_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Storage>> made_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice
