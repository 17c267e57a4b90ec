#pragma once
// Kernels that sleep, so that the machine's cores do not matter.
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/kernel.h"

namespace sluice::test {

// How much later than asked the machine wakes a thread: what a busy one adds to every kernel and message.
struct Lateness {
  std::atomic<int64_t> ns{0}, calls{0};
  double mean_ns() const { return static_cast<double>(ns) / static_cast<double>(calls); }
};

inline HostFunction sleeping(double ns, Lateness& late) {
  return [ns, &late](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    const auto begin = std::chrono::steady_clock::now();
    const auto asked = std::chrono::nanoseconds(static_cast<int64_t>(ns));
    std::this_thread::sleep_for(asked);
    late.ns += (std::chrono::steady_clock::now() - begin - asked).count();
    ++late.calls;
  };
}

}  // namespace sluice::test
