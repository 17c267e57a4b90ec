#include "act/futex_hop.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace sluice::bench {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void futex(std::atomic<int>& word, int operation, int value) {
  syscall(SYS_futex, reinterpret_cast<int*>(&word), operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

}  // namespace

std::vector<double> futex_hops_ns(int samples, int idle_us) {
  std::atomic<int> round{0};
  std::atomic<int64_t> woken_ns{0};
  std::thread sleeper([&] {
    for (int i = 0; i < samples; ++i) {
      while (round.load() == i) futex(round, FUTEX_WAIT, i);
      woken_ns.store(now_ns());
    }
  });
  std::vector<double> taken;
  for (int i = 0; i < samples; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_us));
    woken_ns.store(0);
    const int64_t begin = now_ns();
    round.store(i + 1);
    futex(round, FUTEX_WAKE, 1);
    while (woken_ns.load() == 0) std::this_thread::yield();
    taken.push_back(static_cast<double>(woken_ns.load() - begin));
  }
  sleeper.join();
  return taken;
}

}  // namespace sluice::bench
