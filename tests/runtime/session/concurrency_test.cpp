// Many callers, many sessions, many engines; capacity; manual stepping; no allocation in steady state.
#include <thread>

#include "runtime/fixture.h"
#include "support/alloc_counter.h"
#include "support/threads.h"

namespace sluice::test {
namespace {

TEST(Callers, EightThreadsAThousandStepsEach) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, pipeline({"add_one", "twice"}, 3, 2), {}, {.functions = functions()});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        const auto x = static_cast<float>(1000 * t + i);
        if (result(submit(session, filled(x))) != filled(2 * (x + 1))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(session.stats().finished, 8000u);
}

TEST(Callers, AtCapacityTheyWaitTryOrTimeOut) {
  Engine engine({.cores = 2});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session session = load_counted(engine, pipeline({"gate"}, 2, 2), {}, {.functions = f});
  StepHandle first = submit(session, filled(0)), second = submit(session, filled(1));
  gate.wait_arrived(1);
  const Floats x = filled(2);
  const InputTensor input{x.data(), PlanBuilder::f32({kN})};
  EXPECT_FALSE(session.try_submit({&input, 1}).has_value());
  EXPECT_THAT(
      error_of([&] {
        session.submit({&input, 1}, std::chrono::milliseconds(5));
      }),
      HasSubstr("timeout: session 'pipeline': no room for another step, with 2 in flight, after 5 ms; actor 's0' on "
                "cpu:0/host1: 0 of 2 firings, runs kernel 's0/host_function' (host_function), net.py:10"));
  EXPECT_THAT(error_of([&] { static_cast<void>(second.wait(std::chrono::milliseconds(5))); }),
              HasSubstr("timeout: session 'pipeline': step 1 is not finished after 5 ms; actor 's0'"));
  std::thread opener([&] { gate.open(); });
  StepHandle third = session.submit({&input, 1});
  opener.join();
  EXPECT_EQ(result(first), filled(0));
  EXPECT_EQ(result(second), filled(1));
  EXPECT_EQ(result(third), filled(2));
  const auto fourth = session.try_submit({&input, 1});
  ASSERT_TRUE(fourth.has_value());
}

TEST(Callers, AreToldOfResultsInOrder) {
  Engine engine({.cores = 2});
  std::vector<float> seen;
  std::vector<uint64_t> steps;
  SessionOptions options{.functions = functions()};
  options.functions["picky"] = failing(5);
  options.on_output = [&](uint64_t step, const Status& status, const std::vector<OutputTensor>& outputs) {
    steps.push_back(step);
    seen.push_back(status.ok() ? values(outputs[0])[0] : -1);
  };
  Session session = load_counted(engine, pipeline({"picky", "add_one"}, 2, 2), {}, options);
  for (int i = 0; i < 20; ++i) submit(session, filled(static_cast<float>(i)));
  session.wait_all();
  session.stop();
  ASSERT_EQ(seen.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(steps[i], static_cast<uint64_t>(i));
    EXPECT_EQ(seen[i], i == 5 ? -1 : static_cast<float>(i + 1));
  }
}

// Steps that have no slots yet keep their place among those of other callers, and end with the session.
TEST(Callers, MaySubmitMoreStepsThanThePlanHasSlots) {
  Engine engine({.cores = 2});
  SessionOptions options{.functions = functions(), .max_in_flight = 20};
  std::vector<float> seen;
  options.on_output = [&](uint64_t, const Status& status, const std::vector<OutputTensor>& outputs) {
    seen.push_back(status.ok() ? values(outputs[0])[0] : -1);
  };
  Session session = load_counted(engine, pipeline({"add_one", "twice"}, 1, 2), {}, options);
  EXPECT_EQ(session.memory().spaces[0].inputs, 19 * kN * 4);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<StepHandle> steps;
      for (int i = 0; i < 500; ++i) steps.push_back(submit(session, filled(static_cast<float>(1000 * t + i))));
      for (int i = 0; i < 500; ++i)
        if (result(steps[i]) != filled(2 * static_cast<float>(1000 * t + i + 1))) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  session.wait_all();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(seen.size(), 2000u);
  std::vector<StepHandle> cancelled;
  for (int i = 0; i < 20; ++i) cancelled.push_back(submit(session, filled(1)));
  session.stop();
  for (StepHandle& step : cancelled) EXPECT_TRUE(step.done());
  EXPECT_EQ(session.stats().in_flight, 0);
}

TEST(Sessions, ShareStreamsWithoutMixing) {
  Engine engine({.cores = 2});
  Session a = load_counted(engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
  Session b = load_counted(engine, pipeline({"twice", "twice"}, 2, 2), {}, {.functions = functions()});
  std::vector<StepHandle> as, bs;
  for (int i = 0; i < 200; ++i) {
    as.push_back(submit(a, filled(static_cast<float>(i))));
    bs.push_back(submit(b, filled(static_cast<float>(i))));
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(result(as[i]), filled(static_cast<float>(i + 1)));
    EXPECT_EQ(result(bs[i]), filled(static_cast<float>(4 * i)));
  }
}

// Reads or updates variable 'w' once per step.
Plan user_of_w(bool writes) {
  Plans b(writes ? "writer" : "reader");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, writes ? 1 : 2);
  const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  const int w = b.variable("w", {kN});
  b.reg("go", feed, {net}, {.quota = 4});
  const int y = b.reg("y", net, {sink}, {.quota = 4, .bytes = 16});
  if (writes) b.call(net, "add_one", {b.v(w)}, {b.v(w)});
  b.call(net, "copy", {b.v(w)}, {b.r(y)});
  b.output("y", b.r(y));
  return b.build();
}

TEST(Sessions, ReadAndWriteAVariableInProgramOrder) {
  Engine engine({.cores = 2});
  const auto w = variable(engine, 0);
  Session writer = load_counted(engine, user_of_w(true), {{"w", w}}, {.functions = functions()});
  Session reader = load_counted(engine, user_of_w(false), {{"w", w}}, {.functions = functions()});
  float writes = 0;
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 1 + i % 3; ++k, ++writes) writer.submit({});
    EXPECT_EQ(result(reader.submit({})), filled(writes));
    w->before_read();
    EXPECT_EQ(static_cast<float*>(w->data())[0], writes);
    w->before_write();
    static_cast<float*>(w->data())[0] += 0;
  }
}

TEST(Engines, LiveSideBySide) {
  Engine a({.cores = 1}), b({.cores = 1});
  Session sa = load_counted(a, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
  {
    Session sb = load_counted(b, pipeline({"twice"}, 2, 2), {}, {.functions = functions()});
    for (int i = 0; i < 50; ++i) {
      StepHandle x = submit(sa, filled(1)), y = submit(sb, filled(3));
      EXPECT_EQ(result(x), filled(2));
      EXPECT_EQ(result(y), filled(6));
    }
  }
  EXPECT_EQ(result(submit(sa, filled(1))), filled(2));
}

TEST(Engines, EndTheirThreads) {
  std::thread([] {}).join();  // a tool may add a thread of its own at the first
  const size_t before = threads_now();
  for (int i = 0; i < 5; ++i) {
    Engine engine({.cores = 2});
    Session session = load_counted(engine, pipeline({"add_one"}, 2, 3), {}, {.functions = functions()});
    EXPECT_EQ(result(submit(session, filled(1))), filled(2));
  }
  EXPECT_EQ(threads_now(), before);
}

TEST(ManualStepping, StepsOneMessageAtATime) {
  Engine engine({.cores = 1, .manual_stepping = true});
  EXPECT_FALSE(engine.step());
  Session session = load_counted(engine, pipeline({"add_one"}), {}, {.functions = functions()});
  StepHandle step = submit(session, filled(1));
  EXPECT_FALSE(step.done());
  EXPECT_EQ(firings(session, "feed"), 0u);
  EXPECT_TRUE(engine.step());  // the start credit
  EXPECT_EQ(firings(session, "feed"), 1u);
  EXPECT_EQ(firings(session, "s0"), 0u);
  while (engine.step()) {
  }
  EXPECT_TRUE(step.done());
}

TEST(SteadyState, AllocatesNothing) {
  Engine engine({.cores = 2, .watchdog = {}});  // whose timer allocates now and then, whatever the steps do
  Session session = load_counted(engine, pipeline({"copy", "copy", "copy"}, 2, 3), {}, {.functions = functions()});
  const Floats x = filled(1);
  const InputTensor input{x.data(), PlanBuilder::f32({kN})};
  const auto run = [&](int n) {
    for (int i = 0; i < n; ++i) {
      StepHandle step = session.submit({&input, 1});
      ASSERT_EQ(static_cast<float*>(step.outputs()[0].storage->data())[0], 1);
    }
  };
  // Timing decides how many handles are alive at once, so the pool of them may grow a little at first.
  uint64_t made = 1;
  for (int round = 0; round < 10 && made > 0; ++round) {
    const uint64_t before = allocations();
    run(1000);
    session.wait_all();
    made = allocations() - before;
  }
  EXPECT_EQ(made, 0u);
}

}  // namespace
}  // namespace sluice::test
