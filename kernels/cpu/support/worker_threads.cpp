#include "kernels/worker_threads.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/error.h"
#include "base/thread.h"
#include "kernels/cpu/support/core_use.h"

namespace sluice {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWindowNs = 200 * kMillisecond;  // between two looks of a thread
constexpr int64_t kStaleNs = 2 * kWindowNs;        // what others did while this thread slept says nothing
constexpr int64_t kEvidenceNs = 5 * kMillisecond;  // of wanting a core, to judge by
constexpr int64_t kHoldNs = 2'000 * kMillisecond;  // after the last sign of others
constexpr double kWaited = 0.1;                    // of the time that a thread wanted a core
constexpr double kOthers = 0.15;                   // of what the cores have

thread_local bool has_team = false, used_team = false, team_flushes = false;

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

// Threads that join a team later start with the mode of the thread whose team it is.
void WorkerThreads::take_team(int threads) noexcept {
  has_team = used_team = true;
  const bool flushes = flushes_denormals();
  if (std::exchange(team_flushes, flushes) == flushes) return;
#pragma omp parallel num_threads(threads)
  flush_denormals(flushes);
}

// A team that something else than kernels has made stays.
void WorkerThreads::leave_team(bool worth) const noexcept {
  const bool used = std::exchange(used_team, false);
  if (!has_team || (!worth && used) || spin_ == Spin::kNever) return;
  has_team = omp_pause_resource_all(omp_pause_soft) != 0;
  if (!has_team) team_flushes = false;
}

void WorkerThreads::look() noexcept {
  if (spin_ == Spin::kAlways || forks_ != fork_count()) return;
  if (spin_ == Spin::kNever) {
    if (spins()) set_braked(true);
    return;
  }
  struct Look {
    int64_t at_ns = 0;
    ThreadTime thread;
    CoreUse cores;
    bool crowded = false;
  };
  thread_local Look last;
  Look now{now_ns(), {}, {}};
  if (now.at_ns - last.at_ns < kWindowNs || !ThreadTime::read(&now.thread)) return;
  const auto waited = static_cast<double>(now.thread.waited_ns - last.thread.waited_ns);
  const double wanted = static_cast<double>(now.thread.had_ns - last.thread.had_ns) + waited;
  const bool fresh = now.at_ns - last.at_ns < kStaleNs;
  if ((fresh && wanted < kEvidenceNs) || !CoreUse::read(&now.cores)) return;
  const auto others = static_cast<double>(now.cores.others_ns - last.cores.others_ns);
  const auto all = static_cast<double>(now.cores.all_ns - last.cores.all_ns);
  // Threads of this process wait for each other, too: that alone is no reason.
  now.crowded = fresh && waited > kWaited * wanted && others > kOthers * all;
  // Once may be the end of what another process did while this one rested: two that take turns are not in each
  // other's way.
  const bool again = last.crowded || !spins();
  last = now;
  if (now.crowded && again) {
    busy_until_ns_.store(now.at_ns + kHoldNs, std::memory_order_relaxed);
    if (spins()) set_braked(true);
  } else if (fresh && !now.crowded && !spins() && now.at_ns > busy_until_ns_.load(std::memory_order_relaxed)) {
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
