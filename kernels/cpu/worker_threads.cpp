#include "kernels/worker_threads.h"

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

namespace sluice {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWindowNs = 20 * kMillisecond;   // between two looks of a thread
constexpr int64_t kEvidenceNs = 2 * kMillisecond;  // of wanting a core, to judge by
constexpr int64_t kHoldNs = 2'000 * kMillisecond;  // after the last sign of others
constexpr int64_t kBusy = 10;                      // waiting for more than a tenth of the time it wanted a core

struct CoreTime {
  int64_t had_ns = 0, waited_ns = 0;  // by a thread so far: a core; for one, able to run
};

// Allocates nothing. False where the system does not tell.
bool read_core_time(CoreTime* time) {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[96];
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  if (size <= 0) return false;
  const char* const end = text + size;
  const auto [rest, error] = std::from_chars(text, end, time->had_ns);
  if (error != std::errc() || rest == end) return false;
  return std::from_chars(rest + 1, end, time->waited_ns).ec == std::errc();
}

bool environment_decides() {
  const char* const names[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
  return std::any_of(std::begin(names), std::end(names), [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

WorkerThreads::WorkerThreads(Spin spin)
    : spin_(spin == Spin::kAuto && environment_decides() ? Spin::kAlways : spin),
      on_fork_([] { omp_pause_resource_all(omp_pause_soft); }, [](bool) {}) {}

WorkerThreads::~WorkerThreads() {
  set_braked(false);
  if (idle_.joinable()) idle_.join();
}

void WorkerThreads::look() noexcept {
  if (spin_ == Spin::kAlways || forks_ != fork_count()) return;
  if (spin_ == Spin::kNever) {
    if (spins()) set_braked(true);
    return;
  }
  struct Look {
    int64_t at_ns = 0;
    CoreTime time;
  };
  thread_local Look last;
  Look now{now_ns(), {}};
  if (now.at_ns - last.at_ns < kWindowNs || !read_core_time(&now.time)) return;
  const int64_t waited = now.time.waited_ns - last.time.waited_ns;
  const int64_t wanted = now.time.had_ns - last.time.had_ns + waited;
  const bool first = last.at_ns == 0;
  if (!first && wanted < kEvidenceNs) return;
  last = now;
  if (first) return;
  if (waited * kBusy > wanted) {
    busy_until_ns_.store(now.at_ns + kHoldNs, std::memory_order_relaxed);
    if (spins()) set_braked(true);
  } else if (!spins() && now.at_ns > busy_until_ns_.load(std::memory_order_relaxed)) {
    set_braked(false);
  }
}

void WorkerThreads::set_braked(bool on) noexcept {
  const std::unique_lock setting(setting_, std::try_to_lock);
  if (!setting.owns_lock() || on == !spins()) return;
  if (!on) {
    std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
    braked_.store(false, std::memory_order_relaxed);
    return;
  }
  try {
    if (idle_.joinable()) idle_.join();  // was told to end some time ago
    end_ = false;
    idle_ = start_thread("kernels", "sluice idle", [this] {
      const int more = std::max(omp_get_num_procs(), static_cast<int>(std::thread::hardware_concurrency())) + 1;
      std::atomic<int> arrived{0};
#pragma omp parallel num_threads(more)
      ++arrived;
      // Its team lives, asleep, for as long as this thread does.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return end_; });
    });
    braked_.store(true, std::memory_order_relaxed);
  } catch (const std::exception&) {
    // Without a thread for it they go on spinning.
  }
}

}  // namespace sluice
