#pragma once
// Messages from other threads to one stream: many producers, one consumer, which may park.
//
// Invariants
//  1. A push never waits and never allocates: it links the producer's own cell.
//  2. Cells of one producer come out in the order they went in.
//  3. A consumer that is parked is woken by exactly the thread whose push finds it parked; no wake-up is lost, because
//     being parked and being empty are states of the one word that push() exchanges. Until then the consumer's part is
//     that thread's, which may also park it again.
#include <atomic>
#include <boost/atomic/atomic.hpp>
#include <cstdint>

#include "actors/message.h"

namespace sluice::actors {

class Inbox {
 public:
  // Any thread. `cell` must stay alive until it has been taken.
  void push(Cell* cell) {
    if (put(cell)) wake();
  }
  // The same, but true when the consumer is parked: the caller wakes it, or does its work and parks it again.
  [[nodiscard]] bool put(Cell* cell) {
    // Usually the box is empty and the cell unlinked: then neither line is written or fetched more than it must be.
    Cell* head = nullptr;
    if (cell->next != nullptr) cell->next = nullptr;
    while (!head_.compare_exchange_weak(head, cell, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      cell->next = head == &parked_ ? nullptr : head;
    }
    return head == &parked_;
  }
  void wake();

  // The consumer's side.
  bool empty() const { return head_.load(std::memory_order_relaxed) == nullptr; }
  // All cells, oldest first, linked by `next`; null when there are none. A cell may be pushed again once its item has
  // been handled, so read `next` before handling it.
  Cell* take() {
    if (empty()) return nullptr;
    Cell* newest = head_.exchange(nullptr, std::memory_order_acquire);
    if (newest->next == nullptr) return newest;  // not writing to it leaves the line with its producer
    Cell* oldest = nullptr;
    while (newest != nullptr) {
      Cell* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }
  // Blocks until something was pushed.
  void park();
  // A thread that has taken the parked consumer's part calls this to park it again: false when there is something to
  // take.
  bool park_again() {
    Cell* empty = nullptr;
    return head_.compare_exchange_strong(empty, &parked_, std::memory_order_acq_rel, std::memory_order_relaxed);
  }

 private:
  alignas(64) std::atomic<Cell*> head_{nullptr};
  // Boost's, since the standard library's gives its core away some times before it sleeps, which schedulers take as a
  // reason to let others run first when it is woken: on a busy machine for milliseconds.
  alignas(64) boost::atomic<int> wakes_{0};
  Cell parked_;  // its address marks a parked consumer
};

}  // namespace sluice::actors
