#pragma once
// The threads that kernels on several cores compute with beside their caller. They are OpenMP's, as oneDNN's are.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/fork.h"

namespace sluice {

// Says how a thread waits for the others of its kernel, or for the next kernel: it spins for some milliseconds and then
// sleeps, or sleeps at once. kAuto: spin while nobody else wants the cores.
enum class Spin : uint8_t { kAuto, kNever, kAlways };

// Spinning is fastest on cores of one's own. Beside other busy processes it is ruinous: a thread spins through its
// share of a core while the one that it waits for has none. libgomp reads its policy once, as it is loaded, but hardly
// spins while it manages more threads than there are cores. So threads that stay idle, started here, change the policy
// of a process in which it was loaded long ago, and their end changes it back. Under kAuto a policy that the
// environment sets (OMP_WAIT_POLICY, GOMP_SPINCOUNT) is left alone.
//
// At fork() it ends the forking thread's team, which the child would wait for in vain.
//
// Thread safety: every method.
class WorkerThreads {
 public:
  explicit WorkerThreads(Spin spin);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // From a thread that is about to run kernels on several cores, as often as it likes: from time to time it sees
  // whether this thread has waited for a core and other processes used them.
  void look() noexcept;
  // The calling thread is about to run a part of a kernel on so many cores, for which it gets a team of threads, and
  // whose threads treat denormal numbers as it does (base/denormals.h). Said by who opens a parallel region:
  // parallel_ranges() and parallel_jobs() do it for their callers.
  static void take_team(int threads) noexcept;
  // The calling thread gives work on several cores to another one. The team that it got for kernels of its own ends: it
  // counts although it is idle, and while libgomp manages more threads than there are cores none of them spins, so that
  // a graph could take longer than the same program run eagerly. To get another team takes less than 100 us, which is
  // `worth` it for steps of two milliseconds or more. For shorter work a team stays that has been of use since this was
  // last said: programs that alternate between eager kernels and such steps would be a tenth to a fifth slower without.
  // Only teams of threads that ran kernels of ours end, not those of a program's own OpenMP code.
  void leave_team(bool worth) const noexcept;
  bool spins() const { return !braked_.load(std::memory_order_relaxed); }

 private:
  void set_braked(bool on) noexcept;

  const Spin spin_;
  const uint64_t forks_ = fork_count();
  std::atomic<bool> braked_{false};
  std::atomic<int64_t> busy_until_ns_{0};
  std::mutex setting_;  // of idle_
  std::thread idle_;
  std::mutex mutex_;  // of end_
  std::condition_variable changed_;
  bool end_ = false;
  const ForkListener on_fork_;
};

}  // namespace sluice
