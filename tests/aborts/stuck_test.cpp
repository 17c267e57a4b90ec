// Kernels that do not return: who waits is told who is stuck, nothing hangs, the process works on.
#include "aborts/support.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

struct Stuck {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  HostFunctions functions() const {
    HostFunctions f = test::functions();
    f["gate"] = [gate = gate](const KernelArgs& a, const std::vector<TensorSpec>& i, const std::vector<TensorSpec>& o) {
      gate->function()(a, i, o);
    };
    return f;
  }
  ~Stuck() { gate->open(); }
};

TEST(Stuck, EveryCallHasATimeoutThatNamesTheActor) {
  Engine engine({.cores = 2});
  Stuck stuck;
  Session session = Session::load(engine, pipeline({"gate"}, 1, 2), {},
                                  {.functions = stuck.functions(),
                                   .submit_timeout = milliseconds(20),
                                   .wait_timeout = milliseconds(30),
                                   .stop_timeout = milliseconds(40)});
  StepHandle step = submit(session, filled(1));
  stuck.gate->wait_arrived(1);
  const auto who =
      HasSubstr("actor 's0' on cpu:0/host1: 0 of 1 firings, runs kernel 's0/host_function' (host_function), net.py:10");
  EXPECT_THAT(error_of([&] { submit(session, filled(2)); }),
              ::testing::AllOf(HasSubstr("timeout: session 'pipeline': no room for another step, with 1 in flight, "
                                         "after 20 ms; "),
                               who));
  EXPECT_THAT(error_of([&] { step.outputs(); }),
              ::testing::AllOf(HasSubstr("timeout: session 'pipeline': step 0 is not finished after 30 ms; "), who));
  EXPECT_THAT(error_of([&] { session.wait_all(milliseconds(10)); }), who);
  EXPECT_THAT(
      error_of([&] { session.stop(); }),
      ::testing::AllOf(
          HasSubstr("timeout: session 'pipeline': is being stopped and still not at its end after 40 ms; "), who));
  EXPECT_FALSE(step.done());
  stuck.gate->open();
  session.stop(std::chrono::seconds(20));
  EXPECT_EQ(step.wait().kind(), ErrorKind::kCancelled);
  Session next = Session::load(engine, pipeline({"add_one"}, 1, 2), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(next, filled(1))), filled(2));
}

TEST(Stuck, DestroyingTheSessionAbandonsItAndTheEngineWorksOn) {
  std::thread([] {}).join();
  const size_t threads = threads_at_rest();
  Stuck stuck;
  {
    Engine engine({.cores = 1});  // the stuck actor holds the only core
    const uint64_t before = engine.allocator_stats({}).current_bytes;
    std::vector<StepHandle> steps;
    const auto start = Clock::now();
    {
      Session session = Session::load(engine, pipeline({"gate", "add_one"}, 2, 2), {},
                                      {.functions = stuck.functions(), .stop_timeout = milliseconds(50)});
      for (int i = 0; i < 2; ++i) steps.push_back(submit(session, filled(1)));
      stuck.gate->wait_arrived(1);
    }
    EXPECT_LT(seconds_since(start), 4.5) << "it waited for the usual limit";
    for (StepHandle& step : steps) {
      EXPECT_TRUE(step.done());
      EXPECT_THAT(error_of([&] { result(step); }), HasSubstr("abandoned, since it did not end"));
    }
    EXPECT_GT(engine.allocator_stats({}).current_bytes, before) << "the stuck kernel may still write";
    // New plans get a stream that is not stuck, and the core.
    Session next = Session::load(engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
    EXPECT_EQ(result(submit(next, filled(1))), filled(2));
    next.stop();
    stuck.gate->open();
    // Once the kernel has returned, the next load frees what was kept.
    EXPECT_TRUE(eventually([&] {
      Session again = Session::load(engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
      again.stop();
      return engine.allocator_stats({}).current_bytes == before;
    }));
  }
  EXPECT_LE(threads_settled(threads), threads);
}

// A plan that is loaded while a stream is stuck waits for it no longer than until that is known.
TEST(Stuck, WhoLoadsAPlanMeanwhileGetsAnotherStream) {
  Engine engine({.cores = 1});
  Stuck stuck;
  auto session = std::make_unique<Session>(Session::load(
      engine, pipeline({"gate"}, 2, 2), {}, {.functions = stuck.functions(), .stop_timeout = milliseconds(300)}));
  submit(*session, filled(1));
  stuck.gate->wait_arrived(1);
  std::thread loader([&] {
    Session next = Session::load(engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
    EXPECT_EQ(result(submit(next, filled(1))), filled(2));
  });
  session.reset();
  loader.join();
  stuck.gate->open();
}

TEST(Stuck, DestroyingTheEngineDoesNotHang) {
  Stuck stuck;
  auto engine = std::make_unique<Engine>(EngineOptions{.cores = 2, .stop_timeout = milliseconds(50)});
  Session session = Session::load(*engine, pipeline({"gate"}, 2, 2), {}, {.functions = stuck.functions()});
  StepHandle step = submit(session, filled(1));
  stuck.gate->wait_arrived(1);
  Engine other({.cores = 1});
  Session beside = Session::load(other, pipeline({"add_one"}), {}, {.functions = functions()});
  const auto start = Clock::now();
  engine.reset();
  EXPECT_LT(seconds_since(start), 4.5) << "it waited for the usual limit";
  EXPECT_EQ(result(submit(beside, filled(1))), filled(2));
  EXPECT_THAT(error_of([&] { submit(session, filled(1)); }), HasSubstr("was stopped"));
  EXPECT_EQ(step.wait().kind(), ErrorKind::kCancelled);
}

TEST(Stuck, AVariableOfAnAbandonedSessionCanBeRead) {
  Engine engine({.cores = 2});
  Stuck stuck;
  const auto w = variable(engine, 5), v = variable(engine, 7);
  {
    Session session = Session::load(engine, updating_plan("gate"), {{"w", w}, {"v", v}},
                                    {.functions = stuck.functions(), .stop_timeout = milliseconds(20)});
    submit(session, filled(1));
    stuck.gate->wait_arrived(1);
  }
  w->before_read();
  v->before_write();
  EXPECT_EQ(*static_cast<float*>(w->data()), 6);
  EXPECT_EQ(*static_cast<float*>(v->data()), 7);
}

// MPP-11: the callback gets the status, the streams come to rest, the next step runs.
TEST(Failures, ReachTheOutputCallbackAndTheNextStepRuns) {
  Engine engine({.cores = 2});
  HostFunctions f = functions();
  f["picky"] = failing(3);
  std::mutex mutex;
  std::vector<std::pair<uint64_t, std::string>> told;
  Session session = Session::load(
      engine, pipeline({"copy", "picky", "add_one"}, 2, 3), {},
      {.functions = f, .on_output = [&](uint64_t step, const Status& status, const std::vector<OutputTensor>&) {
         std::lock_guard lock(mutex);
         told.emplace_back(step, status.ok() ? "" : status.message());
       }});
  for (int i = 0; i < 5; ++i) submit(session, filled(static_cast<float>(i)));
  session.wait_all();
  EXPECT_EQ(session.wait_report(), "") << "some stream is not at rest";
  ASSERT_EQ(told.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(told[i].first, i);
    EXPECT_EQ(told[i].second.find("picky: 3 is not accepted") == 0, i == 3) << told[i].second;
  }
  EXPECT_EQ(result(submit(session, filled(8))), filled(9));
}

TEST(Failures, AnOutputCallbackThatThrowsIsReported) {
  Engine engine({.cores = 2});
  Session session = Session::load(
      engine, pipeline({"copy"}), {},
      {.functions = functions(), .on_output = [](uint64_t step, const Status&, const std::vector<OutputTensor>&) {
         if (step == 1) throw std::runtime_error("no paper in the printer");
       }});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result(submit(session, filled(1))), filled(1));
  EXPECT_THAT(error_of([&] { session.wait_all(); }),
              HasSubstr("no paper in the printer  (thrown by on_output, which must not throw)"));
  session.wait_all();
}

TEST(Failures, StoppingOnAStreamsOwnThreadIsRefused) {
  Engine engine({.cores = 2});
  Session session;
  std::string error;
  session = Session::load(
      engine, pipeline({"copy"}), {},
      {.functions = functions(), .on_output = [&](uint64_t, const Status&, const std::vector<OutputTensor>&) {
         error = error_of([&] { session.stop(); });
       }});
  submit(session, filled(1)).wait().throw_if_error();
  session.stop();
  EXPECT_EQ(
      error,
      "runtime: session 'pipeline': stop() on a stream's own thread would never end; stop it from another thread");
}

TEST(Failures, AHostFunctionMayDestroyItsSessionAndItsEngine) {
  auto engine = std::make_unique<Engine>(EngineOptions{.cores = 2});
  std::unique_ptr<Session> session;
  std::atomic<bool> gone{false};
  HostFunctions f = functions();
  f["destroy"] = [&](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    session.reset();
    engine.reset();
    gone = true;
  };
  session = std::make_unique<Session>(Session::load(*engine, pipeline({"destroy"}, 1, 2), {}, {.functions = f}));
  StepHandle step = submit(*session, filled(1));
  EXPECT_EQ(step.wait().kind(), ErrorKind::kCancelled);
  while (!gone) std::this_thread::yield();
}

}  // namespace
}  // namespace sluice::test
