// Actors that are predicted to take less than a wake-up run in the thread that brings their tokens.
#include <algorithm>
#include <set>
#include <thread>

#include "kernels/kernel.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

constexpr double kBriefNs = 100, kLongNs = 1e6;
constexpr int kTries = 20000;  // steps until one finds its streams parked

// Adds one to each element, and keeps who ran it.
class Brief {
 public:
  Brief() {
    engine_.kernels().add(DeviceKind::kCpu,
                          {.op = "next", .prepare = [this](const KernelQuery&, const PrepareContext&) {
                             return std::make_unique<Next>(*this);
                           }});
  }
  // feed -> actors that take turns on two streams -> sink
  Session load(int actors, double cost_ns, SessionOptions options = {}) {
    Plans b("brief");
    for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
    int from = b.feed("feed"), x = -1;
    for (int i = 0; i <= actors; ++i) {
      const int to = i < actors ? b.actor("a" + std::to_string(i), (i / 4) % 2) : b.sink("sink");
      const int reg = b.reg("r" + std::to_string(i), from, {to}, {.quota = 2, .bytes = kN * 4});
      if (i > 0) b.run(from, "next", {b.r(x)}, {b.r(reg)}, cost_ns);
      if (i == 0) b.input("x", reg, b.f32({kN}));
      if (i == actors) b.output("y", b.r(reg));
      x = reg;
      from = to;
    }
    return Session::load(engine_, b.build(), {}, std::move(options));
  }
  // How many kernels this thread has run since the last call.
  int mine() {
    std::lock_guard lock(mutex_);
    const auto n = std::count(threads_.begin(), threads_.end(), std::this_thread::get_id());
    threads_.clear();
    return static_cast<int>(n);
  }

 private:
  struct Next : PreparedKernel {
    explicit Next(Brief& test) : brief(test) {}
    void run(const KernelArgs& args) const override {
      {
        std::lock_guard lock(brief.mutex_);
        brief.threads_.push_back(std::this_thread::get_id());
      }
      const auto* const in = static_cast<const float*>(args.inputs[0]);
      for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[i] = in[i] + 1;
      if (in[0] < 0) fail(ErrorKind::kValue, "next: {} is not accepted; give another", in[0]);
    }
    Brief& brief;
  };
  Engine engine_{{.cores = 2, .spin = Spin::kNever}};
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
};

TEST(BriefActors, RunInTheThreadThatSubmits) {
  Brief brief;
  Session session = brief.load(6, kBriefNs);
  int most = 0;
  for (int i = 0; i < kTries && most < 6; ++i) {
    ASSERT_EQ(result(submit(session, filled(1))), filled(7));
    most = std::max(most, brief.mine());
  }
  EXPECT_EQ(most, 6);  // those of the second stream, too
}

TEST(BriefActors, OthersRunOnTheirStreams) {
  for (const double cost_ns : {0.0, kLongNs}) {  // not predicted; long
    Brief brief;
    Session session = brief.load(3, cost_ns);
    for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(4));
    EXPECT_EQ(brief.mine(), 0) << cost_ns;
  }
}

// A thread that stands in has work of its own.
TEST(BriefActors, LongChainsAreHandedOver) {
  Brief brief;
  Session session = brief.load(60, kBriefNs);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(result(submit(session, filled(1))), filled(61));
    EXPECT_LT(brief.mine(), 60);
  }
}

TEST(BriefActors, OnOutputIsCalledOnAStreamsThread) {
  Brief brief;
  std::mutex mutex;
  std::set<std::thread::id> callers;
  SessionOptions options;
  options.on_output = [&](uint64_t, const Status&, const std::vector<OutputTensor>&) {
    std::lock_guard lock(mutex);
    callers.insert(std::this_thread::get_id());
  };
  Session session = brief.load(2, kBriefNs, std::move(options));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(result(submit(session, filled(1))), filled(3));
  session.wait_all();
  EXPECT_FALSE(callers.empty());
  EXPECT_FALSE(callers.contains(std::this_thread::get_id()));
}

TEST(BriefActors, FailuresReachTheStepAndNoOther) {
  Brief brief;
  Session session = brief.load(2, kBriefNs);
  for (int i = 0; i < 300; ++i) {
    EXPECT_THAT(error_of([&] { result(submit(session, filled(-5))); }), HasSubstr("next: -5 is not accepted"));
    ASSERT_EQ(result(submit(session, filled(1))), filled(3));
  }
}

TEST(BriefActors, SeveralThreadsSubmit) {
  Brief brief;
  Session session = brief.load(12, kBriefNs);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto x = static_cast<float>(1000 * t + i);
        ASSERT_EQ(result(submit(session, filled(x))), filled(x + 12));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  session.wait_all();
}

// Some are handed over in the middle of a step while the session goes.
TEST(BriefActors, SessionsEndWhileTheyRun) {
  Brief brief;
  for (int i = 0; i < 100; ++i) {
    Session session = brief.load(20, kBriefNs);
    std::vector<StepHandle> steps;
    for (int s = 0; s < i % 5; ++s) steps.push_back(submit(session, filled(1)));
  }
}

}  // namespace
}  // namespace sluice::test
