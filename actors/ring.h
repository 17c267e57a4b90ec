#pragma once
// A growable FIFO for one thread. Grows to the largest number of items ever pending and stays there.
#include <cstddef>
#include <memory>

#include "actors/message.h"

namespace sluice::actors {

class Ring {
 public:
  Ring() : block_(new Item[kInitial]), block_size_(kInitial), used_(kInitial), items_(block_.get()) {}
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void push(const Item& item) {
    if (tail_ - head_ > mask_) [[unlikely]]
      grow();
    items_[tail_++ & mask_] = item;
  }
  // REQUIRES, of both: !empty().
  const Item& front() const { return items_[head_ & mask_]; }
  Item pop() { return items_[head_++ & mask_]; }
  // From now on pushing allocates nothing while at most `n` items are pending. The memory that it reserves is not
  // touched, so costs nothing, until that many items are there.
  void reserve(size_t n) {
    size_t more = 0;
    for (size_t size = mask_ + 1; size < n; size *= 2) more += 2 * size;
    if (more > block_size_ - used_) move_to_block(mask_ + 1, mask_ + 1 + more);
  }

 private:
  static constexpr size_t kInitial = 1024;
  void grow() {
    const size_t larger = 2 * (mask_ + 1);
    if (block_size_ - used_ < larger) return move_to_block(larger, larger);
    Item* to = block_.get() + used_;
    used_ += larger;
    move_to(to, larger);
  }
  // A new block of `block_size` items, of which the first `size` serve for now.
  void move_to_block(size_t size, size_t block_size) {
    std::unique_ptr<Item[]> block(new Item[block_size]);
    move_to(block.get(), size);
    block_ = std::move(block);
    block_size_ = block_size;
    used_ = size;
  }
  void move_to(Item* to, size_t size) {
    const size_t n = tail_ - head_;
    for (size_t i = 0; i < n; ++i) to[i] = items_[(head_ + i) & mask_];
    items_ = to;
    mask_ = size - 1;
    head_ = 0;
    tail_ = n;
  }

  std::unique_ptr<Item[]> block_;
  size_t block_size_, used_;  // `used_` and before: outgrown or in use; behind: reserved
  Item* items_;
  size_t mask_ = kInitial - 1;
  size_t head_ = 0, tail_ = 0;
};

}  // namespace sluice::actors
