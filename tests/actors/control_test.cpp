// Every node is a CAF actor in identity and lifecycle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "actors/runner.h"
#include "caf/all.hpp"
#include "memory/core_lease.h"
#include "streams/devices.h"
#include "streams/stream.h"
#include "support/plan_builder.h"

namespace sluice::actors {
namespace {

using namespace sluice::plan;

class TestRun : public RunListener, public Supervised {
 public:
  explicit TestRun(Plan p) : plan(std::move(p)), device(make_device({})), leases(1) {
    Bindings bindings;
    for (const plan::Stream& stream : plan.streams) {
      executors.push_back(
          std::make_unique<StreamExecutor>(StreamExecutor::Options{stream.name, &leases, device.get(), false},
                                           device->create_stream(stream.kind, stream.index)));
      bindings.streams.push_back(executors.back().get());
    }
    runner = std::make_unique<Runner>(plan, bindings, *this);
    runner->activate();
  }
  ~TestRun() override {
    runner->stop();
    while (!runner->wait_done(std::chrono::seconds(1))) {
    }
    runner.reset();
  }

  void on_sink(int, uint64_t step, const Status& status, void* const*) override {
    std::lock_guard lock(mutex);
    steps = step + 1;
    cancelled += !status.ok();
    changed.notify_all();
  }
  void wait_steps(uint64_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return steps >= n; });
  }
  void on_input_slots(int, uint64_t w) override { writable = w; }
  void on_failure(uint64_t, const Status&) override {}
  void on_variables_done(bool) override {}
  void on_actor_down(int actor, const std::string& reason) override {
    std::lock_guard lock(mutex);
    down = plan.actors[actor].name + ": " + reason;
    runner->cancel();
    changed.notify_all();
  }
  uint64_t firings() const override { return runner->total_firings(); }
  bool busy() const override { return true; }
  void on_stall(std::chrono::milliseconds) override {
    std::lock_guard lock(mutex);
    ++stalls;
    changed.notify_all();
  }

  Plan plan;
  std::unique_ptr<Device> device;
  CoreLeases leases;
  std::vector<std::unique_ptr<StreamExecutor>> executors;
  std::unique_ptr<Runner> runner;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t steps = 0;
  int cancelled = 0, stalls = 0;
  std::atomic<uint64_t> writable{0};
  std::string down;
};

Plan line(int n, int streams) {
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

TEST(Runner, FiresEveryActorOncePerStepAndEnds) {
  for (const int streams : {1, 2, 3}) {
    TestRun run(line(20, streams));
    EXPECT_EQ(run.writable, 2u);
    run.runner->start(1000);
    run.wait_steps(1000);
    run.runner->stop();
    EXPECT_TRUE(run.runner->wait_done(std::chrono::seconds(10)));
    for (int a = 0; a < 20; ++a) EXPECT_EQ(run.runner->firings(a), 1000u);
    EXPECT_EQ(run.runner->wait_report(1000), "");
    EXPECT_EQ(run.writable, 1002u);
  }
}

TEST(Runner, CancelledFiringsStillPassTokensOn) {
  TestRun run(line(5, 2));
  run.runner->cancel();
  run.runner->start(10);
  run.wait_steps(10);
  EXPECT_EQ(run.cancelled, 10);
}

TEST(Control, ANodeAnswersAsksAndIsMonitored) {
  TestRun run(line(3, 2));
  System system(std::chrono::milliseconds(0));
  auto control = system.register_run(run, run.runner->nodes());
  // On a thread of its own, as system.h asks.
  std::thread([&] {
    caf::scoped_actor self{system.caf()};
    const caf::actor& node = System::handle(*control, 1);
    self->request(node, std::chrono::seconds(5), caf::atom("status"))
        .receive([](const std::string& line) { EXPECT_EQ(line, "0 firings, waits for data on 'r0'"); },
                 [&](const caf::error& e) { ADD_FAILURE() << system.caf().render(e); });
    // A message that it does not understand bounces.
    bool bounced = false;
    self->request(node, std::chrono::seconds(5), 42).receive([](int) {}, [&](const caf::error&) { bounced = true; });
    EXPECT_TRUE(bounced);
    self->monitor(System::handle(*control, 2));
    self->send_exit(System::handle(*control, 2), caf::exit_reason::user_shutdown);
    self->receive([&](caf::down_msg& down) { EXPECT_EQ(down.source, System::handle(*control, 2).address()); });
    std::unique_lock lock(run.mutex);
    run.changed.wait(lock, [&] { return !run.down.empty(); });
    EXPECT_THAT(run.down, ::testing::HasSubstr("a2: "));
    EXPECT_THAT(run.down, ::testing::HasSubstr("user_shutdown"));
  }).join();
  system.unregister_run(control);
}

TEST(Control, TheWatchdogReportsABusyRunInWhichNothingFires) {
  TestRun run(line(3, 1));
  System system(std::chrono::milliseconds(4));
  auto control = system.register_run(run, run.runner->nodes());
  {
    std::unique_lock lock(run.mutex);
    run.changed.wait(lock, [&] { return run.stalls > 0; });
  }
  system.unregister_run(control);
  EXPECT_EQ(run.runner->wait_report(1).substr(0, 60), "actor 'a0' on cpu:0/host0: 0 of 1 firings, waits for a start");
}

}  // namespace
}  // namespace sluice::actors
