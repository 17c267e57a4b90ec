#pragma once
// Runs CAF's actors on one thread, and its timeouts on another. Only this file and system.cpp know CAF.
//
// CAF's own scheduler starts its threads while the actor system is made, and ends the process when one of them cannot
// be had. These have been started before, and wait for it.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace caf {
class actor_system;
namespace scheduler {
class abstract_coordinator;
}
}  // namespace caf

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

// For CAF's configuration; CAF destroys it. REQUIRES: `threads` outlive the system.
caf::scheduler::abstract_coordinator* make_caf_scheduler(caf::actor_system& system, CafThreads& threads);

}  // namespace sluice::actors
