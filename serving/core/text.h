#pragma once
// Text of a request or an answer, whose memory counts from before it is there until it is gone.
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "serving/core/buffers.h"
#include "serving/core/memory_budget.h"

namespace sluice::serving {

template <class T>
class CountedAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  CountedAllocator() = default;  // counts nothing
  CountedAllocator(MemoryPtr share) : share_(std::move(share)) {}
  template <class U>
  CountedAllocator(const CountedAllocator<U>& other) : share_(other.share()) {}

  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    Held held(share_, bytes);
    void* const data = allocate_pages(bytes);
    if (data == nullptr) throw std::bad_alloc();
    held.release();
    return static_cast<T*>(data);
  }
  void deallocate(T* data, size_t n) noexcept {
    release_pages(n * sizeof(T), data);
    if (share_ != nullptr) share_->give(n * sizeof(T));
  }
  const MemoryPtr& share() const { return share_; }
  template <class U>
  bool operator==(const CountedAllocator<U>& other) const {
    return share_ == other.share();
  }

 private:
  MemoryPtr share_;
};

using Text = std::basic_string<char, std::char_traits<char>, CountedAllocator<char>>;

}  // namespace sluice::serving
