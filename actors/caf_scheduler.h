#pragma once
// Runs CAF's actors on one thread, and its timeouts on another. Of system.cpp, which with this is all that knows CAF.
//
// CAF's own scheduler starts its threads while the actor system is made, and ends the process when one of them cannot
// be had. These have been started before, and wait for it.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "caf/detail/thread_safe_actor_clock.hpp"
#include "caf/execution_unit.hpp"
#include "caf/scheduler/abstract_coordinator.hpp"

namespace sluice::actors {

// A thread that has been started and waits for what to run.
class WaitingThread {
 public:
  // Throws kRuntime when there is no thread to be had.
  WaitingThread(const std::string& where, const char* name);
  ~WaitingThread() { join(); }
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;

  void run(std::function<void()> body);
  // Returns once what it was to run has ended.
  void join();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
  std::function<void()> body_;
  std::thread thread_;
};

struct CafThreads {
  WaitingThread worker{"engine: supervision of actors", "caf.worker"};
  WaitingThread clock{"engine: watchdog of actors", "caf.clock"};
};

class CafScheduler final : public caf::scheduler::abstract_coordinator {
 public:
  // REQUIRES: `threads` outlive the scheduler.
  CafScheduler(caf::actor_system& system, CafThreads& threads);

  ~CafScheduler() override { stop(); }

  void start() override;
  void stop() final;
  void enqueue(caf::resumable* job) override;
  caf::actor_clock& clock() noexcept override { return clock_; }

 private:
  class Worker final : public caf::execution_unit {
   public:
    Worker(caf::actor_system& system, CafScheduler& scheduler) : execution_unit(&system), scheduler_(scheduler) {}
    void exec_later(caf::resumable* job) override { scheduler_.enqueue(job); }

   private:
    CafScheduler& scheduler_;
  };
  void work();

  CafThreads& threads_;
  caf::detail::thread_safe_actor_clock clock_;
  Worker worker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<caf::resumable*> jobs_;  // each with a reference
  bool started_ = false;              // of the thread that makes and ends it
  bool ending_ = false, ended_ = false;
};

}  // namespace sluice::actors
