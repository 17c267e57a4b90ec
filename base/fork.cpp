#include "base/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace sluice {

// The process's, like the handlers that fork() calls; stays until it ends.
struct ForkListeners {
  std::mutex mutex;
  std::vector<ForkListener*> all;
  std::atomic<uint64_t> forks{0};

  static ForkListeners& list() {
    static auto* const made = [] {
      auto* listeners = new ForkListeners();
      pthread_atfork([] { list().before(); }, [] { list().after(false); }, [] { list().after(true); });
      return listeners;
    }();
    return *made;
  }
  void before() {
    mutex.lock();
    for (ForkListener* listener : all) listener->before_();
  }
  void after(bool in_child) {
    if (in_child) forks.fetch_add(1, std::memory_order_relaxed);
    for (ForkListener* listener : all) listener->after_(in_child);
    mutex.unlock();
  }
};

uint64_t fork_count() { return ForkListeners::list().forks.load(std::memory_order_relaxed); }

ForkListener::ForkListener(std::function<void()> before, std::function<void(bool in_child)> after)
    : before_(std::move(before)), after_(std::move(after)) {
  ForkListeners& listeners = ForkListeners::list();
  std::lock_guard lock(listeners.mutex);
  listeners.all.push_back(this);
}

ForkListener::~ForkListener() {
  ForkListeners& listeners = ForkListeners::list();
  std::lock_guard lock(listeners.mutex);
  std::erase(listeners.all, this);
}

}  // namespace sluice
