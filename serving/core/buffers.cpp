#include "serving/core/buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace sluice::serving {
namespace {

constexpr size_t kAlignment = 64;
// What is kept has pages of its own from here on, which go back to the system whatever lies around them.
constexpr size_t kOwnPages = 32 << 10;

void* allocate(size_t size) {
  if (size < kOwnPages) return std::aligned_alloc(kAlignment, size);
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}
void release(size_t size, void* data) noexcept {
  if (size < kOwnPages) return std::free(data);
  munmap(data, size);
}

}  // namespace

struct BufferPool::State {
  struct Size {  // counts of buffers
    std::vector<void*> free;
    size_t used = 0;
    size_t most = 0, most_before = 0;  // used at once, in this window and the one before
    size_t wanted() const { return std::max(most, most_before) - used; }
  };

  explicit State(size_t bytes) : limit(bytes) {}
  ~State() {
    for (auto& [size, of] : sizes) keep(of, size, 0);
  }

  const size_t limit;
  std::mutex mutex;
  std::map<size_t, Size> sizes;
  size_t held = 0;   // bytes that nobody uses
  size_t taken = 0;  // buffers, in this window

  void keep(Size& of, size_t size, size_t count) noexcept {
    for (; of.free.size() > count; of.free.pop_back(), held -= size) release(size, of.free.back());
  }
  void begin_window() noexcept {
    taken = 0;
    for (auto next = sizes.begin(); next != sizes.end();) {
      auto& [size, of] = *next;
      of.most_before = std::exchange(of.most, of.used);
      keep(of, size, of.wanted());
      next = of.most_before == 0 ? sizes.erase(next) : std::next(next);
    }
  }
  void* take(size_t size) {
    const std::lock_guard lock(mutex);
    if (++taken == kWindow) begin_window();
    Size& of = sizes[size];
    void* data = nullptr;
    if (of.free.empty()) {
      if (of.free.capacity() <= of.used) of.free.reserve(2 * of.used + 1);  // put() allocates nothing
      if ((data = allocate(size)) == nullptr) throw std::bad_alloc();
    } else {
      data = of.free.back();
      of.free.pop_back();
      held -= size;
    }
    of.most = std::max(of.most, ++of.used);
    return data;
  }
  void put(size_t size, void* data) noexcept {
    const std::lock_guard lock(mutex);
    Size& of = sizes.at(size);
    --of.used;
    if (of.free.size() >= of.wanted() || held > limit - size) return release(size, data);
    of.free.push_back(data);
    held += size;
  }
};

BufferPool::BufferPool(size_t bytes) : state_(std::make_shared<State>(bytes)) {}

std::shared_ptr<void> BufferPool::take(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size > state_->limit) {  // is not kept
    void* const data = std::aligned_alloc(kAlignment, size);
    if (data == nullptr) throw std::bad_alloc();
    return {data, std::free};
  }
  return {state_->take(size), [state = state_, size](void* p) { state->put(size, p); }};
}

size_t BufferPool::kept() const {
  const std::lock_guard lock(state_->mutex);
  return state_->held;
}

}  // namespace sluice::serving
