// How sessions get cores and threads: as many as there are, at the same time where that is possible.
#include "streams/cores.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <latch>
#include <set>

#include "base/core_offer.h"
#include "kernels/kernel.h"
#include "runtime/bundle_fixture.h"

namespace sluice::test {
namespace {

Plan on_cores(int cores, const std::string& op = "host_function") {
  Plans b("cores");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  b.plan.streams[0].cores = cores;
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, op, {b.r(x)}, {b.r(y)}, 0, Plans::named("f"));
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// Passes on its input once `n` runs of it are under way at the same time.
class Meeting final : public PreparedKernel {
 public:
  Meeting(Gate& gate, int n) : gate_(gate), n_(n) {}
  void run(const KernelArgs& args) const override {
    std::thread last([this] {
      gate_.wait_arrived(n_);
      gate_.open();
    });
    gate_.pass();
    last.join();
    std::copy_n(static_cast<const float*>(args.inputs[0]), kN, static_cast<float*>(args.outputs[0]));
  }

 private:
  Gate& gate_;
  const int n_;
};

TEST(Cores, NarrowSessionsOfOneEngineRunAtTheSameTime) {
  Engine engine({.cores = 3});
  Gate gate;
  engine.kernels().add(DeviceKind::kCpu, {.op = "meet", .prepare = [&](const KernelQuery&, const PrepareContext&) {
                                            return std::make_unique<Meeting>(gate, 3);
                                          }});
  std::vector<Session> sessions;
  std::vector<StepHandle> steps;
  for (int i = 0; i < 3; ++i) sessions.push_back(Session::load(engine, on_cores(1, "meet")));
  for (int i = 0; i < 3; ++i) steps.push_back(submit(sessions[i], filled(static_cast<float>(i))));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i)));
}

// Loaded twice from one bundle, and from a copy of it: one computes while the others do, with the same weights.
TEST(Cores, SessionsThatRunAtTheSameTimeReadTheSameWeights) {
  Engine engine({.cores = 3});
  Gate gate;
  std::mutex mutex;
  std::set<const void*> read;
  class Reads final : public PreparedKernel {
   public:
    Reads(std::function<void(const KernelArgs&)> before, Gate& gate) : before_(std::move(before)), met_(gate, 3) {}
    void run(const KernelArgs& args) const override {
      before_(args);
      met_.run(args);
    }

   private:
    const std::function<void(const KernelArgs&)> before_;
    const Meeting met_;
  };
  const auto note = [&](const KernelArgs& args) {
    const std::lock_guard lock(mutex);
    read.insert(args.inputs[1]);
  };
  engine.kernels().add(DeviceKind::kCpu, {.op = "meet", .prepare = [&](const KernelQuery&, const PrepareContext&) {
                                            return std::make_unique<Reads>(note, gate);
                                          }});
  Plan plan = on_cores(1, "meet");
  plan.variables.push_back({"w", 0, PlanBuilder::f32({16}), false});
  plan.kernels[0].inputs.push_back(PlanBuilder::of_variable(0, {16}));
  const TestFolder folder("sluice_cores_"), copy("sluice_cores_copy_");
  for (const TestFolder* to : {&folder, &copy})
    save_bundle(to->path(), {plan, "graph text\n", {{"w", tensor(Floats(16, 5))}}, {}});
  std::vector<Session> sessions;
  for (const TestFolder* from : {&folder, &folder, &copy}) sessions.push_back(load_session(engine, from->path()));
  std::vector<StepHandle> steps;
  for (int i = 0; i < 3; ++i) steps.push_back(submit(sessions[i], filled(static_cast<float>(i))));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i)));
  EXPECT_EQ(read.size(), 1u);
}

TEST(Cores, AStreamHasAsManyThreadsAsCanHoldItsCores) {
  Engine engine({.cores = 4});
  const auto threads_with = [&](int sessions, int cores) {
    std::set<std::thread::id> threads;
    std::mutex mutex;
    HostFunctions f;
    f["f"] = [&](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    };
    std::vector<Session> all;
    for (int i = 0; i < sessions; ++i) all.push_back(Session::load(engine, on_cores(cores), {}, {.functions = f}));
    for (Session& session : all) submit(session, filled(1)).wait().throw_if_error();
    return threads.size();
  };
  EXPECT_EQ(threads_with(6, 4), 1u);
  EXPECT_EQ(threads_with(6, 3), 1u);
  EXPECT_EQ(threads_with(6, 2), 2u);
  EXPECT_EQ(threads_with(2, 1), 2u);
  EXPECT_EQ(threads_with(6, 1), 4u);
  EXPECT_EQ(threads_with(1, 1), 1u);
}

TEST(Cores, KernelsOfALoadedPlanArePreparedForThoseThatThereAre) {
  const std::vector<std::array<int, 3>> cases = {{8, 1, 1}, {8, 3, 3}, {2, 3, 2}, {1, 1, 1}};
  for (const auto& [planned, there, expected] : cases) {
    Engine engine({.cores = there});
    int threads = 0, cores = 0;
    Gate gate;
    engine.kernels().add(DeviceKind::kCpu,
                         {.op = "probe", .prepare = [&](const KernelQuery& query, const PrepareContext& context) {
                            threads = context.threads;
                            cores = query.cores;
                            return std::make_unique<Meeting>(gate, 0);
                          }});
    const Session session = Session::load(engine, on_cores(planned, "probe"));
    EXPECT_EQ(threads, expected);
    EXPECT_EQ(cores, expected);
  }
}

// It has all cores, and offers them between its parts: a kernel of another session has its turn meanwhile. What it
// waits for them is no part of the time that it takes.
TEST(Cores, ALongKernelThatOffersItsCoresLetsOthersRunWithinIt) {
  class Does final : public PreparedKernel {
   public:
    explicit Does(std::function<void()> what) : what_(std::move(what)) {}
    void run(const KernelArgs& args) const override {
      what_();
      std::copy_n(static_cast<const float*>(args.inputs[0]), kN, static_cast<float*>(args.outputs[0]));
    }

   private:
    const std::function<void()> what_;
  };
  Engine engine({.cores = 2});
  std::latch begun(1);
  std::atomic<bool> ran{false};
  bool within = false;
  const std::map<std::string, std::function<void()>> ops = {
      {"quick", [&] { ran = true; }}, {"patient", [&] {
                                         begun.count_down();
                                         const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
                                         while (!ran && std::chrono::steady_clock::now() < limit) {
                                           if (CoreOffer::here()->wanted())
                                             CoreOffer::here()->give_way();
                                           else
                                             std::this_thread::yield();
                                         }
                                         within = ran;
                                       }}};
  for (const auto& [op, what] : ops)
    engine.kernels().add(DeviceKind::kCpu, {.op = op, .prepare = [&](const KernelQuery&, const PrepareContext&) {
                                              return std::make_unique<Does>(what);
                                            }});
  Session patient = Session::load(engine, on_cores(2, "patient"), {}, {.trace = true});
  Session quick = Session::load(engine, on_cores(1, "quick"));
  StepHandle first = submit(patient, filled(1));
  begun.wait();
  StepHandle second = submit(quick, filled(2));
  EXPECT_EQ(result(second), filled(2));
  EXPECT_EQ(result(first), filled(1));
  EXPECT_TRUE(within);
  const Trace trace = patient.take_trace();
  const auto kernel = std::find_if(trace.events.begin(), trace.events.end(),
                                   [](const TraceEvent& event) { return event.kernel == 0 && !event.wait; });
  ASSERT_NE(kernel, trace.events.end());
  const auto before = [&](const TraceEvent& event) {
    return event.wait && event.cause.kind == TraceCause::Kind::kCores && event.actor == kernel->actor &&
           event.end_ns == kernel->begin_ns && event.begin_ns < event.end_ns;
  };
  EXPECT_TRUE(std::any_of(trace.events.begin(), trace.events.end(), before));
}

TEST(Cores, StreamsKeepToTheProcessorsTheyAreGiven) {
  int cpu = 0;
  while (!may_run_on(cpu)) ++cpu;
  Engine engine({.cpus = {cpu}});
  EXPECT_EQ(engine.cores(), 1);
  cpu_set_t seen;
  HostFunctions f;
  f["f"] = [&](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    sched_getaffinity(0, sizeof seen, &seen);
  };
  Session session = Session::load(engine, on_cores(1), {}, {.functions = f});
  submit(session, filled(1)).wait().throw_if_error();
  EXPECT_EQ(CPU_COUNT(&seen), 1);
  EXPECT_TRUE(CPU_ISSET(cpu, &seen));
  EXPECT_THAT(error_of([] { Engine({.cpus = {-1}}); }), HasSubstr("engine: cpus: -1; this process may not run on it"));
}

}  // namespace
}  // namespace sluice::test
