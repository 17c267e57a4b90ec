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

size_t whole(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t rounded(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  return whole(bytes);
}

}  // namespace

// A sanitizer sees who reads beyond the end of what is the allocator's.
#if defined(__SANITIZE_ADDRESS__)
void* allocate_pages(size_t bytes) noexcept { return std::aligned_alloc(kAlignment, whole(bytes)); }
void release_pages(size_t, void* data) noexcept { std::free(data); }
#else
void* allocate_pages(size_t bytes) noexcept {
  if (bytes < kOwnPages) return std::aligned_alloc(kAlignment, whole(bytes));
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}
void release_pages(size_t bytes, void* data) noexcept {
  if (bytes < kOwnPages) return std::free(data);
  munmap(data, bytes);
}
#endif

struct BufferPool::State final : MemoryBudget::Keeper {
  struct Size {  // counts of buffers
    std::vector<void*> free;
    size_t used = 0;
    size_t most = 0, most_before = 0;  // used at once, in this window and the one before
    size_t wanted() const { return std::max(most, most_before) - used; }
  };

  State(size_t bytes, std::shared_ptr<MemoryBudget> given) : limit(bytes), budget(std::move(given)) {}
  ~State() override {
    for (auto& [size, of] : sizes) keep(of, size, 0);
  }

  const size_t limit;
  const std::shared_ptr<MemoryBudget> budget;
  mutable std::mutex mutex;
  std::map<size_t, Size> sizes;
  size_t held = 0;   // bytes that nobody uses
  size_t taken = 0;  // buffers, in this window

  void keep(Size& of, size_t size, size_t count) noexcept {
    for (; of.free.size() > count; of.free.pop_back(), held -= size) {
      release_pages(size, of.free.back());
      if (budget != nullptr) budget->free_kept(size);
    }
  }
  void let_go() override {
    const std::lock_guard lock(mutex);
    for (auto& [size, of] : sizes) keep(of, size, 0);
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
  // One that was kept and is counted, if `share` may have it; null otherwise.
  void* reuse(Size& of, size_t size, const MemoryPtr& share) noexcept {
    if (of.free.empty()) return nullptr;
    if (budget != nullptr && share != nullptr) {
      if (!share->adopt(size)) return nullptr;
      budget->use_kept(size);
    } else if (budget != nullptr) {
      budget->free_kept(size);
    }
    void* const data = of.free.back();
    of.free.pop_back();
    held -= size;
    return data;
  }
  // Whether it is one that was kept.
  std::pair<void*, bool> take(size_t size, const MemoryPtr& share) {
    const std::lock_guard lock(mutex);
    if (++taken == kWindow) begin_window();
    Size& of = sizes[size];
    void* data = reuse(of, size, share);
    const bool used_before = data != nullptr;
    if (!used_before) {
      if (of.free.capacity() <= of.used) of.free.reserve(2 * of.used + 1);  // put() allocates nothing
      if ((data = allocate_pages(size)) == nullptr) throw std::bad_alloc();
    }
    of.most = std::max(of.most, ++of.used);
    return {data, used_before};
  }
  void put(size_t size, void* data, Held& count) noexcept {
    const std::lock_guard lock(mutex);
    Size& of = sizes.at(size);
    --of.used;
    const bool counts = budget == nullptr || count.bytes() == size;
    if (!counts || of.free.size() >= of.wanted() || held > limit - size) return release_pages(size, data);
    of.free.push_back(data);
    held += size;
    if (budget == nullptr) return;
    budget->keep(size);
    count.hand_over();
  }
};

// A buffer and its count.
struct BufferPool::Arriving::Owner {
  Owner(std::shared_ptr<State> pool, size_t bytes) : state(std::move(pool)), size(bytes) {}
  ~Owner() {
    if (data == nullptr) return;
    if (state == nullptr)  // of a size that is not kept
      release_pages(size, data);
    else
      state->put(size, data, held);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  const std::shared_ptr<State> state;
  const size_t size;
  void* data = nullptr;
  Held held;           // given back last
  bool whole = false;  // it counts already
};

std::shared_ptr<void> BufferPool::Arriving::data() const {
  return owner_ == nullptr ? nullptr : std::shared_ptr<void>(owner_, owner_->data);
}

void BufferPool::Arriving::come(size_t bytes) {
  if (owner_ == nullptr || owner_->whole) return;
  // The bytes behind the last one, to the multiple that all buffers have, come with it.
  const size_t now = owner_->held.bytes() + bytes;
  owner_->held.grow(owner_->size - now < kAlignment ? owner_->size - owner_->held.bytes() : bytes);
}

BufferPool::BufferPool(size_t bytes, std::shared_ptr<MemoryBudget> budget)
    : state_(std::make_shared<State>(
          budget == nullptr ? bytes : static_cast<size_t>(std::min<uint64_t>(bytes, budget->limit() / 8)), budget)) {
  if (budget != nullptr) budget->add(state_);
}

BufferPool::Arriving BufferPool::take_arriving(size_t bytes, const MemoryPtr& share) {
  Arriving made;
  if (bytes == 0) return made;
  const size_t size = rounded(bytes);
  made.owner_ = std::make_shared<Arriving::Owner>(size > state_->limit ? nullptr : state_, size);
  Arriving::Owner& owner = *made.owner_;
  owner.held = Held(share, size < kOwnPages ? size : 0);  // small ones are no pages of their own
  owner.whole = share == nullptr || owner.held.bytes() > 0;
  if (owner.state == nullptr) {
    if ((owner.data = allocate_pages(size)) == nullptr) throw std::bad_alloc();
    return made;
  }
  const auto [data, used_before] = state_->take(size, owner.held.bytes() > 0 ? nullptr : share);
  owner.data = data;
  if (used_before && !owner.whole) {
    owner.held.adopt(size);
    owner.whole = true;
  }
  return made;
}

std::shared_ptr<void> BufferPool::take(size_t bytes, const MemoryPtr& share) {
  Arriving made = take_arriving(bytes, share);
  if (made.owner_ != nullptr && !made.owner_->whole) made.owner_->held.grow(made.owner_->size);
  return made.data();
}

size_t BufferPool::kept() const {
  const std::lock_guard lock(state_->mutex);
  return state_->held;
}

}  // namespace sluice::serving
