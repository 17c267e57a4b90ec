// Messages within a stream take no lock. This program counts the locks that are taken, since it stands in front of
// them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "actors/runner.h"
#include "memory/core_lease.h"
#include "streams/devices.h"
#include "streams/stream.h"
#include "support/plan_builder.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which stand there themselves

namespace {
std::atomic<uint64_t> locks{0};
using Lock = int (*)(pthread_mutex_t*);
}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<Lock> real{nullptr};
  Lock lock = real.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    real.store(lock, std::memory_order_relaxed);
  }
  locks.fetch_add(1, std::memory_order_relaxed);
  return lock(mutex);
}

namespace sluice::actors {
namespace {

using namespace sluice::plan;

// A line of actors on streams of their own, or all on one, without kernels.
class LineRun : public RunListener {
 public:
  LineRun(int actors, int streams) : plan_(line(actors, streams)), device_(make_device({})), leases_(1) {
    Bindings bindings;
    for (const plan::Stream& stream : plan_.streams) {
      executors_.push_back(
          std::make_unique<StreamExecutor>(StreamExecutor::Options{stream.name, &leases_, device_.get(), false},
                                           device_->create_stream(stream.kind, stream.index)));
      bindings.streams.push_back(executors_.back().get());
    }
    runner_ = std::make_unique<Runner>(plan_, bindings, *this);
    runner_->activate();
  }
  ~LineRun() override {
    runner_->stop();
    while (!runner_->wait_done(std::chrono::seconds(1))) {
    }
  }

  // The locks that so many steps take, in all threads.
  uint64_t locks_of(uint64_t steps) {
    const uint64_t before = locks.load();
    wanted_ = steps;
    runner_->start(steps);
    over_.wait(false);
    return locks.load() - before;
  }

  void on_sink(int, uint64_t step, const Status&, void* const*) override {
    if (step + 1 != wanted_) return;
    over_ = true;
    over_.notify_all();
  }
  void on_input_slots(int, uint64_t) override {}
  void on_failure(uint64_t, const Status&) override {}
  void on_variables_done(bool) override {}

 private:
  static Plan line(int n, int streams) {
    PlanBuilder b("line");
    for (int s = 0; s < streams; ++s) b.stream("cpu:0", StreamKind::kHost, s);
    std::vector<int> actors;
    for (int i = 0; i < n; ++i) {
      const ActorRole role = i == 0 ? ActorRole::kFeed : i == n - 1 ? ActorRole::kSink : ActorRole::kNormal;
      actors.push_back(b.actor("a" + std::to_string(i), i % streams, role));
    }
    for (int i = 0; i + 1 < n; ++i) b.reg("r" + std::to_string(i), actors[i], {actors[i + 1]}, {.quota = 2});
    return b.build();
  }

  Plan plan_;
  std::unique_ptr<Device> device_;
  CoreLeases leases_;
  std::vector<std::unique_ptr<StreamExecutor>> executors_;
  std::unique_ptr<Runner> runner_;
  std::atomic<uint64_t> wanted_{0};
  std::atomic<bool> over_{false};
};

TEST(Locks, AreCounted) {
  std::mutex mutex;
  const uint64_t before = locks.load();
  { const std::lock_guard lock(mutex); }
  EXPECT_GT(locks.load(), before);
}

TEST(Locks, MessagesWithinAStreamTakeNone) {  // ACT-10
  constexpr uint64_t kSteps = 1000;
  LineRun run(200, 1);
  const uint64_t taken = run.locks_of(kSteps);
  RecordProperty("locks", static_cast<int>(taken));
  // A ready and an ack between each two actors make 398 messages of a step. The end of a step may lock.
  EXPECT_LE(taken, kSteps);
}

}  // namespace
}  // namespace sluice::actors

#endif
