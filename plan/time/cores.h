#pragma once
// The cores that streams of a host share while their kernels run, in virtual time.
#include <deque>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

// Kernels of an actor that take no longer than this together hold no cores: to wake a thread would take as long.
inline constexpr double kTinyNs = 2000;

// How many cores each kernel of the plan holds while it runs: those of its stream, on a host. Functions of the program
// and collectives hold none, and give back what their stream holds; for kernels that leave that as it is, -1.
std::vector<int> cores_of_kernels(const Plan& plan);

// The cores of the machine that the plan was compiled for, as its target says, the fewest where ranks differ; 0 where
// it says nothing.
int cores_of_target(const std::string& target);

// A first-come, first-served counting semaphore, as memory/core_lease.h is in real time.
class VirtualCores {
 public:
  struct Waiter {
    int actor = 0, cores = 0;
  };
  explicit VirtualCores(int cores) : cores_(cores), free_(cores) {}
  // Takes `n` cores, at most all there are. False: the actor waits for them in the queue.
  bool take(int actor, int n);
  // Gives back what take() or give() gave. Returns those that have got their cores now, in their order.
  std::vector<Waiter> give(int n);
  bool contended() const { return !waiting_.empty(); }
  int clamp(int n) const { return n < cores_ ? n : cores_; }

 private:
  int cores_, free_;
  std::deque<Waiter> waiting_;
};

}  // namespace sluice::plan
