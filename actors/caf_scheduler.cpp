#include "actors/caf_scheduler.h"

#include <deque>
#include <utility>

#include "base/thread.h"
#include "caf/actor_system.hpp"
#include "caf/detail/thread_safe_actor_clock.hpp"
#include "caf/execution_unit.hpp"
#include "caf/resumable.hpp"
#include "caf/scheduler/abstract_coordinator.hpp"

namespace sluice::actors {

WaitingThread::WaitingThread(const std::string& where, const char* name)
    : thread_(start_thread(where, name, [this] {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return given_; });
        lock.unlock();
        if (body_) body_();
      })) {}

void WaitingThread::run(std::function<void()> body) {
  std::lock_guard lock(mutex_);
  body_ = std::move(body);
  given_ = true;
  changed_.notify_all();
}

void WaitingThread::join() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    given_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

namespace {

class CafScheduler final : public caf::scheduler::abstract_coordinator {
 public:
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

CafScheduler::CafScheduler(caf::actor_system& system, CafThreads& threads)
    : abstract_coordinator(system), threads_(threads), worker_(system, *this) {}

// Without what the base does here: an actor that prints, with a thread of its own.
void CafScheduler::start() {
  started_ = true;
  threads_.worker.run([this] { work(); });
  threads_.clock.run([this] { clock_.run_dispatch_loop(); });
}

// The clock first, so that no timeout adds jobs; then what is there is done, exits of actors among it.
void CafScheduler::stop() {
  if (!std::exchange(started_, false)) return;
  clock_.cancel_dispatch_loop();
  threads_.clock.join();
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  threads_.worker.join();
}

void CafScheduler::enqueue(caf::resumable* job) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      jobs_.push_back(job);
      changed_.notify_all();
      return;
    }
  }
  cleanup_and_release(job);
}

void CafScheduler::work() {
  for (;;) {
    caf::resumable* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        ended_ = true;
        return;
      }
      job = jobs_.front();
      jobs_.pop_front();
    }
    if (job->resume(&worker_, max_throughput()) == caf::resumable::resume_later) {
      enqueue(job);
    } else {
      intrusive_ptr_release(job);
    }
  }
}

}  // namespace

caf::scheduler::abstract_coordinator* make_caf_scheduler(caf::actor_system& system, CafThreads& threads) {
  return new CafScheduler(system, threads);
}

}  // namespace sluice::actors
