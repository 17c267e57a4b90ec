#pragma once
// A growable FIFO for one thread. Grows to the largest number of items ever pending and stays there.
#include <cstddef>
#include <memory>

#include "actors/message.h"

namespace sluice::actors {

class Ring {
 public:
  Ring() : items_(new Item[kInitial]), mask_(kInitial - 1) {}
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void push(const Item& item) {
    if (tail_ - head_ > mask_) [[unlikely]]
      grow();
    items_[tail_++ & mask_] = item;
  }
  // REQUIRES: !empty().
  Item pop() { return items_[head_++ & mask_]; }

 private:
  static constexpr size_t kInitial = 1024;
  void grow() {
    const size_t n = tail_ - head_;
    std::unique_ptr<Item[]> larger(new Item[2 * n]);
    for (size_t i = 0; i < n; ++i) larger[i] = items_[(head_ + i) & mask_];
    items_ = std::move(larger);
    mask_ = 2 * n - 1;
    head_ = 0;
    tail_ = n;
  }

  std::unique_ptr<Item[]> items_;
  size_t mask_;
  size_t head_ = 0, tail_ = 0;
};

}  // namespace sluice::actors
