#pragma once
// Handles of the C API. A handle is a number that is never used twice, dressed as a pointer: a destroyed, foreign or
// made-up one is not found here, and nothing is ever read through it.
//
// Thread safety: every method. An object lives until its handle is removed and the last call that uses it returns.
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace sluice::api {

class HandleTable {
 public:
  // `T` is the C type of the handle, which also tells the kinds apart.
  template <class T, class Object>
  T* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const uintptr_t id = next_;
    next_ += 16;
    entries_.emplace(id, Entry{kind<T>(), std::move(object)});
    return reinterpret_cast<T*>(id);
  }
  // Null when `handle` is none of this kind.
  template <class Object, class T>
  std::shared_ptr<Object> find(const T* handle) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(reinterpret_cast<uintptr_t>(handle));
    if (it == entries_.end() || it->second.kind != kind<T>()) return nullptr;
    return std::static_pointer_cast<Object>(it->second.object);
  }
  template <class T>
  void remove(const T* handle) {
    std::shared_ptr<void> last;  // declared before the lock, so destroyed after it: an engine's end takes a while
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(reinterpret_cast<uintptr_t>(handle));
    if (it == entries_.end() || it->second.kind != kind<T>()) return;
    last = std::move(it->second.object);
    entries_.erase(it);
  }

 private:
  struct Entry {
    const void* kind;
    std::shared_ptr<void> object;
  };
  template <class T>
  static const void* kind() {
    static const char tag = 0;
    return &tag;
  }
  mutable std::mutex mutex_;
  uintptr_t next_ = 0x1000;
  std::unordered_map<uintptr_t, Entry> entries_;
};

}  // namespace sluice::api
