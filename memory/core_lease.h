#pragma once
// Cores of the machine, lent to whoever runs kernels: the sum never exceeds the machine.
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice {

// A first-come, first-served counting semaphore of cores. A stream takes its width before it runs kernels and gives it
// back when its queue is empty or others wait; eager ops take theirs for the call. Thread-safe; never allocates.
class CoreLeases {
 public:
  explicit CoreLeases(int cores);
  int cores() const { return cores_; }
  // Blocks until `n` cores are free (n is clamped to cores()). Served in arrival order.
  void acquire(int n);
  void release(int n);
  // Someone is waiting: a holder should give its cores back at its next firing.
  bool contended() const;

 private:
  const int cores_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  uint64_t next_ticket_ = 0, serving_ = 0;
};

}  // namespace sluice
