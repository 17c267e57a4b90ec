// Actors that are predicted to take less than a wake-up run in the thread that brings their tokens.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <set>
#include <thread>

#include "kernels/kernel.h"
#include "memory/core_lease.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

constexpr double kBriefNs = 100, kLongNs = 1e6;

// feed -> actors that compute `op`, four on one stream, four on the other, and so on -> sink
Plan chain(const std::string& op, int actors, double cost_ns) {
  Plans b("brief");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  int from = b.feed("feed"), x = -1;
  for (int i = 0; i <= actors; ++i) {
    const int to = i < actors ? b.actor("a" + std::to_string(i), (i / 4) % 2) : b.sink("sink");
    const int reg = b.reg("r" + std::to_string(i), from, {to}, {.quota = 2, .bytes = kN * 4});
    if (i > 0) b.run(from, op, {b.r(x)}, {b.r(reg)}, cost_ns);
    if (i == 0) b.input("x", reg, b.f32({kN}));
    if (i == actors) b.output("y", b.r(reg));
    x = reg;
    from = to;
  }
  return b.build();
}

// A kernel that negates, in place of the engine's of this op if there is one; keeps who ran it.
class Watched {
 public:
  Watched(Engine& engine, const std::string& op) : leases_(engine.leases()) {
    KernelDef def{.op = op, .prepare = [this](const KernelQuery&, const PrepareContext&) {
                    return std::make_unique<Kernel>(*this);
                  }};
    if (engine.kernels().find(op, DeviceKind::kCpu) != nullptr) {
      engine.kernels().replace(DeviceKind::kCpu, std::move(def));
    } else {
      engine.kernels().add(DeviceKind::kCpu, std::move(def));
    }
  }
  // How many this thread has run since the last call.
  int here() {
    std::lock_guard lock(mutex_);
    const auto n = std::count(threads_.begin(), threads_.end(), std::this_thread::get_id());
    threads_.clear();
    return static_cast<int>(n);
  }
  // How often one has run while all cores were free.
  int without_cores() const { return without_cores_; }

 private:
  struct Kernel : PreparedKernel {
    explicit Kernel(Watched& all) : watched(all) {}
    void run(const KernelArgs& args) const override {
      {
        std::lock_guard lock(watched.mutex_);
        watched.threads_.push_back(std::this_thread::get_id());
      }
      if (watched.leases_.try_acquire(2)) {
        watched.leases_.release(2);
        ++watched.without_cores_;
      }
      for (int64_t i = 0; i < kN; ++i)
        static_cast<float*>(args.outputs[0])[i] = -static_cast<const float*>(args.inputs[0])[i];
    }
    Watched& watched;
  };
  CoreLeases& leases_;
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
  std::atomic<int> without_cores_{0};
};

class BriefActors : public testing::Test {
 protected:
  Engine engine_{{.cores = 2, .spin = Spin::kNever}};
};

TEST_F(BriefActors, RunInTheThreadThatSubmits) {
  constexpr int kTries = 20000;  // steps until one finds both streams parked
  Watched neg(engine_, "neg");
  Session session = Session::load(engine_, chain("neg", 6, kBriefNs));
  int most = 0;
  for (int i = 0; i < kTries && most < 6; ++i) {
    ASSERT_EQ(result(submit(session, filled(1))), filled(1));
    most = std::max(most, neg.here());
  }
  EXPECT_EQ(most, 6);
}

TEST_F(BriefActors, OthersRunOnTheirStreams) {
  Watched neg(engine_, "neg");
  for (const double cost_ns : {0.0, kLongNs}) {  // not predicted; long
    Session session = Session::load(engine_, chain("neg", 2, cost_ns));
    for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(1));
    EXPECT_EQ(neg.here(), 0) << cost_ns;
  }
}

// They hold cores while they run, as they do on their streams, and no longer.
TEST_F(BriefActors, OthersRunInTheThreadThatSubmitsWhereItIsAsked) {
  constexpr int kTries = 20000;
  Watched neg(engine_, "neg");
  SessionOptions options;
  options.inline_up_to = std::chrono::milliseconds(2);
  Session session = Session::load(engine_, chain("neg", 6, kLongNs), {}, std::move(options));
  int most = 0;
  for (int i = 0; i < kTries && most < 6; ++i) {
    ASSERT_EQ(result(submit(session, filled(1))), filled(1));
    most = std::max(most, neg.here());
  }
  EXPECT_EQ(most, 6);
  EXPECT_EQ(neg.without_cores(), 0);
  EXPECT_TRUE(engine_.leases().acquire_for(2, std::chrono::seconds(20)));
  engine_.leases().release(2);
}

TEST_F(BriefActors, OnlyAStreamWaitsForCores) {
  Watched neg(engine_, "neg");
  SessionOptions options;
  options.inline_up_to = std::chrono::milliseconds(2);
  Session session = Session::load(engine_, chain("neg", 2, kLongNs), {}, std::move(options));
  for (int i = 0; i < 100; ++i) {
    engine_.leases().acquire(2);
    std::future<StepHandle> step = std::async(std::launch::async, [&] { return submit(session, filled(2)); });
    const bool returned = step.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    const int ran = neg.here();
    engine_.leases().release(2);
    ASSERT_TRUE(returned) << i;
    ASSERT_EQ(ran, 0);
    ASSERT_EQ(result(step.get()), filled(2));
  }
}

TEST_F(BriefActors, TellOfOutputsInTheThreadThatSubmitsWhereTheyMay) {
  constexpr int kTries = 20000;
  Watched neg(engine_, "neg");
  for (const bool may : {false, true}) {
    std::atomic<int> here{0};
    SessionOptions options;
    options.on_output = [&here, submits = std::this_thread::get_id()](uint64_t, const Status&,
                                                                      const std::vector<OutputTensor>&) {
      here += std::this_thread::get_id() == submits;
    };
    options.on_output_inline = may;
    Session session = Session::load(engine_, chain("neg", 2, kBriefNs), {}, std::move(options));
    for (int i = 0; i < (may ? kTries : 300) && here == 0; ++i)
      ASSERT_EQ(result(submit(session, filled(1))), filled(1));
    EXPECT_EQ(here > 0, may);
  }
}

TEST_F(BriefActors, RunOnTheirStreamsWhereItIsAsked) {
  Watched neg(engine_, "neg");
  SessionOptions options;
  options.inline_up_to = {};
  Session session = Session::load(engine_, chain("neg", 2, kBriefNs), {}, std::move(options));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(1));
  EXPECT_EQ(neg.here(), 0);
}

// They may wait for anything, whatever is predicted.
TEST_F(BriefActors, KernelsOfOthersRunOnTheirStreams) {
  Watched stranger(engine_, "stranger");
  Session session = Session::load(engine_, chain("stranger", 2, kBriefNs));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(1));
  EXPECT_EQ(stranger.here(), 0);
}

// A thread that stands in has work of its own.
TEST_F(BriefActors, LongChainsAreHandedOver) {
  Watched neg(engine_, "neg");
  Session session = Session::load(engine_, chain("neg", 60, kBriefNs));
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(result(submit(session, filled(1))), filled(1));
    EXPECT_LT(neg.here(), 60);
  }
}

TEST_F(BriefActors, OnOutputIsCalledOnAStreamsThread) {
  std::mutex mutex;
  std::set<std::thread::id> callers;
  SessionOptions options;
  options.on_output = [&](uint64_t, const Status&, const std::vector<OutputTensor>&) {
    std::lock_guard lock(mutex);
    callers.insert(std::this_thread::get_id());
  };
  Session session = Session::load(engine_, chain("neg", 2, kBriefNs), {}, std::move(options));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(1));
  session.wait_all();
  EXPECT_FALSE(callers.empty());
  EXPECT_FALSE(callers.contains(std::this_thread::get_id()));
}

TEST_F(BriefActors, SeveralThreadsSubmit) {
  Session session = Session::load(engine_, chain("neg", 12, kBriefNs));
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto x = static_cast<float>(1000 * t + i);
        ASSERT_EQ(result(submit(session, filled(x))), filled(x));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  session.wait_all();
}

// A step that waits for slots is started by whoever finds them free, who may run it at once: then it must hold no lock.
TEST_F(BriefActors, StepsThatWaitForSlotsAreStarted) {
  SessionOptions options;
  options.max_in_flight = 16;
  Session session = Session::load(engine_, chain("neg", 6, kBriefNs), {}, std::move(options));
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&, t] {
      std::deque<std::pair<float, StepHandle>> steps;
      for (int i = 0; i < 2000; ++i) {
        const auto value = static_cast<float>(2000 * t + i);
        steps.emplace_back(value, submit(session, filled(value)));
        while (steps.size() > static_cast<size_t>(i % 6)) {
          ASSERT_EQ(result(steps.front().second), filled(steps.front().first));
          steps.pop_front();
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  session.wait_all();
}

// Some are handed over in the middle of a step while the session goes.
TEST_F(BriefActors, SessionsEndWhileTheyRun) {
  for (int i = 0; i < 100; ++i) {
    Session session = Session::load(engine_, chain("neg", 20, kBriefNs));
    std::vector<StepHandle> steps;
    for (int s = 0; s < i % 5; ++s) steps.push_back(submit(session, filled(1)));
  }
}

}  // namespace
}  // namespace sluice::test
