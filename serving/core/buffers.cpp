#include "serving/core/buffers.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace sluice::serving {

struct BufferPool::State {
  explicit State(size_t bytes) : limit(bytes) {}
  ~State() {
    for (const auto& [size, data] : free) std::free(data);
  }

  const size_t limit;
  std::mutex mutex;
  std::multimap<size_t, void*> free;
  size_t held = 0;

  void* find(size_t size) {
    const std::lock_guard lock(mutex);
    const auto found = free.find(size);
    if (found == free.end()) return nullptr;
    void* const data = found->second;
    free.erase(found);
    held -= size;
    return data;
  }
  void put(size_t size, void* data) noexcept {
    try {
      const std::lock_guard lock(mutex);
      if (size <= limit && held <= limit - size) {
        free.emplace(size, data);
        held += size;
        return;
      }
    } catch (...) {  // no memory for a note of it
    }
    std::free(data);
  }
};

BufferPool::BufferPool(size_t bytes) : state_(std::make_shared<State>(bytes)) {}

std::shared_ptr<void> BufferPool::take(size_t bytes) {
  if (bytes == 0) return nullptr;
  constexpr size_t kAlignment = 64;
  if (bytes > SIZE_MAX - kAlignment) throw std::bad_alloc();
  const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = state_->find(size);
  if (data == nullptr) data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) throw std::bad_alloc();
  return {data, [state = state_, size](void* p) { state->put(size, p); }};
}

}  // namespace sluice::serving
