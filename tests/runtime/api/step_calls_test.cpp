// Tests what a service says of each of its calls: whom to tell, until when it may take, who goes first; and of an
// engine: whose memory it has.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "memory/core_lease.h"
#include "runtime/api/api_support.h"
#include "runtime/bundle_fixture.h"
#include "support/what_of.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class StepCalls : public ::testing::Test {
 protected:
  StepCalls() { save_plain(folder_.path()); }
  static api::Tensor row(float value) { return api::Tensor::from<float>(filled(value), {kN}); }
  const TestFolder folder_{"sluice_step_calls_"};
  api::Engine engine_{{.cores = 1}};
};

StepHandle submit_with(Session& session, float x, const StepCall& call) {
  const Floats values = filled(x);
  const InputTensor input{values.data(), PlanBuilder::f32({kN})};
  return session.submit({&input, 1}, call);
}

TEST_F(StepCalls, EachTellsItsOwnCallerOnceAndInOrder) {
  for (const bool also_session : {false, true}) {
    std::vector<float> told, told_session;
    std::vector<std::thread::id> threads;
    const auto held = std::make_shared<int>(0);
    api::SessionOptions options;
    if (also_session)
      options.on_output = [&](uint64_t step, const std::vector<api::Tensor>&, const std::string&) {
        EXPECT_EQ(told.size(), step) << "it comes before that of the step";
        told_session.push_back(static_cast<float>(step));
      };
    api::Session session = api::Session::load(engine_, folder_.path(), options);
    for (int i = 0; i < 20; ++i) {
      api::StepOptions of_step;
      of_step.on_done = [&, held](const std::vector<api::Tensor>& outputs, const std::string& error) {
        EXPECT_EQ(error, "");
        told.push_back(outputs.at(0).data<float>()[1]);
        threads.push_back(std::this_thread::get_id());
      };
      session.submit({row(static_cast<float>(i))}, of_step);
    }
    session.wait_all();
    std::vector<float> expected(20);
    for (int i = 0; i < 20; ++i) expected[static_cast<size_t>(i)] = static_cast<float>(i);
    EXPECT_EQ(told, expected);
    EXPECT_EQ(told_session.size(), also_session ? 20u : 0u);
    EXPECT_EQ(std::count(threads.begin(), threads.end(), std::this_thread::get_id()), 0)
        << "never within submit(), so that a lock held there and here does not block";
    EXPECT_EQ(held.use_count(), 1) << "what a callback holds goes with its step";
    EXPECT_EQ(session.run({row(7)})[0].data<float>()[0], 7);
    EXPECT_EQ(told.size(), 20u);
  }
}

TEST_F(StepCalls, ResultsInMemoryOfTheCallersAreTold) {
  api::Session session = api::Session::load(engine_, folder_.path());
  const std::vector<api::Tensor> y = {row(0), row(0)};
  const void* told = nullptr;
  api::StepOptions options{.outputs = y};
  options.on_done = [&](const std::vector<api::Tensor>& outputs, const std::string&) { told = outputs.at(0).raw(); };
  session.submit({row(3)}, options).get();
  EXPECT_EQ(told, y[0].raw());
  EXPECT_EQ(y[0].data<float>()[0], 3);
}

TEST_F(StepCalls, NobodyIsToldWhereNothingWasStarted) {
  api::Session session = api::Session::load(engine_, folder_.path());
  int told = 0;
  const auto held = std::make_shared<int>(0);
  api::StepOptions options;
  options.on_done = [&told, held](const std::vector<api::Tensor>&, const std::string&) { ++told; };
  EXPECT_THAT(what_of([&] { session.submit({}, options); }), HasSubstr("got 0 inputs"));
  session.submit({row(1)}, options);
  session.wait_all();
  options = {};
  EXPECT_EQ(told, 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(StepDone, TellsOfFailuresStepsGivenUpAndTheEnd) {
  Engine engine({.cores = 1});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  f["picky"] = failing(3);
  std::vector<std::string> told;
  const StepDone note = [&](const Status& status, const std::vector<OutputTensor>&) {
    told.push_back(status.ok() ? "" : std::string(error_kind_name(status.kind())));
  };
  {
    Session session = load_counted(engine, pipeline({"picky", "gate"}), {}, {.functions = f, .max_in_flight = 8});
    std::vector<StepHandle> steps;
    for (const float x : {1, 3, 5, 6}) steps.push_back(submit_with(session, x, {.on_done = note}));
    gate.wait_arrived(1);
    EXPECT_TRUE(steps[2].cancel());
    gate.open();
    session.wait_all();
    EXPECT_EQ(told, (std::vector<std::string>{"", "value", "cancelled", ""}));
    submit_with(session, 1, {.on_done = [](const Status&, const std::vector<OutputTensor>&) {
                  fail(ErrorKind::kIo, "no paper in the printer");
                }});
    EXPECT_THAT(error_of([&] { session.wait_all(); }), HasSubstr("thrown by on_done, which must not throw"));
  }
  told.clear();
  Gate shut;
  f["gate"] = shut.function();
  Session session = load_counted(engine, pipeline({"gate"}), {}, {.functions = f});
  submit_with(session, 1, {.on_done = note});
  submit_with(session, 2, {.on_done = note});
  shut.wait_arrived(1);
  std::thread opener([&] {
    while (error_of([&] { submit(session, filled(1)); }).find("stopped") == std::string::npos)
      std::this_thread::yield();
    shut.open();
  });
  session.stop();
  opener.join();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1], "cancelled");
}

TEST(Deadlines, AStepThatIsStuckIsGivenUp) {
  Engine engine({.cores = 1});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session session = load_counted(engine, pipeline({"gate"}), {}, {.functions = f});
  StepHandle step = submit_with(session, 1, {.tag = "slow", .deadline = Clock::now() + milliseconds(20)});
  EXPECT_THAT(
      error_of([&] { result(step); }),
      ::testing::AllOf(HasSubstr("timeout: session 'pipeline': step 0: given up, as it was not over by its deadline"),
                       HasSubstr("'s0'"), HasSubstr("(of the step tagged 'slow')")));
  gate.open();
  EXPECT_EQ(result(submit_with(session, 2, {.deadline = Clock::now() + std::chrono::hours(1)})), filled(2));
  session.wait_all();
  EXPECT_EQ(session.stats().failed, 1u);
}

// A state is used again: its deadline was that of another step.
TEST(Deadlines, OfAStepThatIsOverDoNothing) {
  Engine engine({.cores = 1});
  Gate gate;
  std::atomic<bool> stuck{false};
  HostFunctions f = functions();
  f["gate"] = [&](const KernelArgs& a, const std::vector<TensorSpec>& i, const std::vector<TensorSpec>& o) {
    if (stuck) gate.pass();
    elementwise([](float x) { return x; })(a, i, o);
  };
  Session session = load_counted(engine, pipeline({"gate"}, 4), {}, {.functions = f});
  for (int i = 0; i < 8; ++i) {  // some may be too late on a busy machine, and are over all the same
    StepHandle step = submit_with(session, 1, {.deadline = Clock::now() + milliseconds(30)});
    static_cast<void>(step.wait());
  }
  session.wait_all();
  stuck = true;
  StepHandle next = submit_with(session, 2, {});
  StepHandle last = submit_with(session, 3, {.deadline = Clock::now() + milliseconds(60)});
  EXPECT_EQ(last.wait().kind(), ErrorKind::kTimeout);  // those of before came first
  EXPECT_FALSE(next.done());
  gate.open();
  EXPECT_EQ(result(next), filled(2));
}

TEST(Deadlines, HoldForTheWaitForRoom) {
  Engine engine({.cores = 1});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session session = load_counted(engine, pipeline({"gate"}), {}, {.functions = f, .max_in_flight = 1});
  StepHandle first = submit_with(session, 1, {});
  EXPECT_THAT(error_of([&] { submit_with(session, 2, {.deadline = Clock::now() + milliseconds(10)}); }),
              HasSubstr("timeout: session 'pipeline': no room for another step, with 1 in flight,"));
  EXPECT_THAT(error_of([&] { submit_with(session, 2, {.deadline = Clock::now() - milliseconds(10)}); }),
              HasSubstr("no room for another step"));
  gate.open();
  EXPECT_EQ(result(first), filled(1));
}

TEST_F(StepCalls, DeadlinesOfThePublicApi) {
  api::Session session = api::Session::load(engine_, folder_.path());
  EXPECT_THAT(what_of([&] { session.submit({row(1)}, {.deadline = milliseconds(-1)}); }),
              HasSubstr("step: deadline: -1 ms; must not be negative"));
  session.run({row(1)});
  const CoreLease stuck(api::inside(engine_).leases(), engine_.cores());  // no kernel that uses cores starts
  EXPECT_THAT(what_of([&] { session.submit({row(1)}, {.deadline = milliseconds(10)}).get(); }),
              HasSubstr("not over by its deadline"));
}

TEST(Priorities, TheHighestThatWaitsGoesFirst) {
  Engine engine({.cores = 1});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  std::vector<float> order;
  SessionOptions options{.functions = f, .max_in_flight = 1};
  options.on_output = [&](uint64_t, const Status&, const std::vector<OutputTensor>& outputs) {
    order.push_back(values(outputs[0])[0]);
  };
  Session session = load_counted(engine, pipeline({"gate"}), {}, options);
  submit_with(session, 0, {});
  gate.wait_arrived(1);
  std::vector<std::thread> callers;
  const auto waits = [&](float x, int priority) {
    callers.emplace_back([&session, x, priority] { submit_with(session, x, {.priority = priority}); });
    while (session.stats().waiting < static_cast<int>(callers.size())) std::this_thread::yield();
  };
  waits(1, 0);
  waits(2, 0);
  waits(3, 5);
  waits(4, -1);
  waits(5, 5);
  const Floats x = filled(9);
  const InputTensor input{x.data(), PlanBuilder::f32({kN})};
  EXPECT_FALSE(session.try_submit({&input, 1}, {.priority = 9}).has_value()) << "there is no room";
  EXPECT_THAT(error_of([&] { session.submit({&input, 1}, milliseconds(5)); }), HasSubstr("no room"));
  gate.open();
  for (std::thread& caller : callers) caller.join();
  session.wait_all();
  EXPECT_EQ(order, (std::vector<float>{0, 3, 5, 1, 2, 4}));
  EXPECT_EQ(session.stats().waiting, 0);
}

TEST(Priorities, ManyCallersAllGetRoom) {
  Engine engine({.cores = 2});
  Session session =
      load_counted(engine, pipeline({"copy", "add_one"}, 2, 2), {}, {.functions = functions(), .max_in_flight = 2});
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto x = static_cast<float>(t * 1000 + i);
        EXPECT_EQ(result(submit_with(session, x, {.priority = (t + i) % 3})), filled(x + 1));
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(session.stats().waiting, 0);
}

TEST_F(StepCalls, StopTimeoutIsTheSessions) {
  Gate gate;
  api::Session session = api::Session::load(engine_, folder_.path(), {.stop_timeout = milliseconds(5)});
  session.submit({row(1)}, {.on_done = [&](const std::vector<api::Tensor>&, const std::string&) { gate.pass(); }});
  gate.wait_arrived(1);  // an actor is stuck
  EXPECT_THAT(what_of([&] { session.stop(); }), HasSubstr("is being stopped and still not at its end after 5 ms"));
  gate.open();
  EXPECT_THAT(what_of([&] { api::Session::load(engine_, folder_.path(), {.stop_timeout = milliseconds(-5)}); }),
              HasSubstr("session: stop_timeout: -5 ms; must not be negative"));
  EXPECT_THAT(what_of([] { api::Engine({.stop_timeout_ms = -1}); }), HasSubstr("stop_timeout_ms: -1"));
  api::Session patient = api::Session::load(engine_, folder_.path(), {.stop_timeout = milliseconds(0)});
  patient.run({row(1)});
  patient.stop();  // for ever, if it must be
}

// Memory of a program's own, counted.
struct Counting {
  std::mutex mutex;
  size_t now = 0, most = 0, calls = 0, misaligned = 0;
  api::HostMemory functions() {
    api::HostMemory memory;
    memory.allocate = [this](size_t bytes, size_t alignment) {
      const std::lock_guard lock(mutex);
      ++calls;
      most = std::max(most, now += bytes);
      void* const data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
      misaligned += reinterpret_cast<uintptr_t>(data) % 64 != 0;
      return data;
    };
    memory.release = [this](void* data, size_t bytes) {
      const std::lock_guard lock(mutex);
      now -= bytes;
      std::free(data);
    };
    return memory;
  }
};

TEST_F(StepCalls, AnEngineHasTheMemoryOfItsProgram) {
  Counting counting;
  std::vector<api::Tensor> kept;
  {
    api::Engine engine({.cores = 1, .memory = counting.functions()});
    api::Session session = api::Session::load(engine, folder_.path());
    EXPECT_GT(engine.memory_bytes(), 0u);
    EXPECT_GE(counting.now, engine.memory_bytes()) << "plans, and results beside them";
    kept = session.run({row(5)});
    const size_t warm = counting.calls;
    for (int i = 0; i < 10; ++i) session.run({row(1)});
    EXPECT_LE(counting.calls, warm + 4) << "results are kept for reuse";
  }
  EXPECT_GT(counting.now, 0u) << "results outlive the engine";
  EXPECT_EQ(kept[0].data<float>()[0], 5);
  kept.clear();
  EXPECT_EQ(counting.now, 0u);
  EXPECT_EQ(counting.misaligned, 0u);
}

TEST_F(StepCalls, MemoryThatIsNotGivenIsAnError) {
  api::HostMemory none;
  none.allocate = [](size_t, size_t) -> void* { return nullptr; };
  EXPECT_THAT(what_of([&] {
                api::Session::load(*std::make_unique<api::Engine>(api::EngineOptions{.memory = none}), folder_.path());
              }),
              HasSubstr("only one of allocate and release is given"));
  none.release = [](void*, size_t) {};
  const auto load = [&] {
    api::Engine engine({.cores = 1, .memory = none});
    return what_of([&] { api::Session::load(engine, folder_.path()); });
  };
  EXPECT_THAT(load(), HasSubstr("memory: out of memory in host"));
  alignas(64) static char block[1 << 16];
  none.allocate = [](size_t, size_t) -> void* { return block + 8; };
  EXPECT_THAT(load(), HasSubstr("it must be a multiple of 64"));
  none.allocate = [](size_t, size_t) -> void* { throw std::runtime_error("not today"); };
  EXPECT_THAT(load(), HasSubstr("the program's allocate() threw: not today; it must return null"));
  none.allocate = [](size_t, size_t) -> void* { throw 7; };
  EXPECT_THAT(load(), HasSubstr("threw: something that is no std::exception"));
}

TEST_F(StepCalls, FunctionsForMemoryThatThrowFailWhatAskedForIt) {
  Counting counting;
  api::HostMemory memory = counting.functions();
  std::atomic<bool> throws{false};
  memory.allocate = [&, usual = memory.allocate](size_t bytes, size_t alignment) {
    if (throws) throw 7;
    return usual(bytes, alignment);
  };
  memory.release = [&, usual = memory.release](void* data, size_t bytes) {
    usual(data, bytes);
    if (throws) throw std::runtime_error("nor that");
  };
  {
    api::Engine engine({.cores = 1, .memory = memory});
    api::Session session = api::Session::load(engine, folder_.path());
    throws = true;
    EXPECT_THAT(what_of([&] { api::Session::load(engine, folder_.path()); }), HasSubstr("allocate() threw"));
  }
  EXPECT_EQ(counting.now, 0u);
}

struct InC {
  std::atomic<int> calls{0};
  std::atomic<int64_t> bytes{0};
  float told = 0;
  std::string error;
};

TEST_F(StepCalls, InCTheSame) {
  InC seen;
  sluice_engine_options of_engine = SLUICE_ENGINE_OPTIONS_INIT;
  of_engine.cores = 1;
  of_engine.context = &seen;
  of_engine.stop_timeout_ms = 1000;
  of_engine.allocate = [](void* context, size_t bytes, size_t alignment) {
    static_cast<InC*>(context)->bytes += static_cast<int64_t>(bytes);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  };
  of_engine.release = [](void* context, void* data, size_t bytes) {
    static_cast<InC*>(context)->bytes -= static_cast<int64_t>(bytes);
    std::free(data);
  };
  sluice_engine* engine = nullptr;
  sluice_session* session = nullptr;
  sluice_step* step = nullptr;
  sluice_tensor* x = nullptr;
  ASSERT_EQ(sluice_engine_create(&of_engine, &engine), nullptr);
  sluice_session_options of_session = SLUICE_SESSION_OPTIONS_INIT;
  of_session.stop_timeout_ms = 1000;
  ASSERT_EQ(sluice_session_load(engine, folder_.path().c_str(), &of_session, &session), nullptr);
  EXPECT_GT(seen.bytes, 0);
  const int64_t shape[] = {kN};
  const float values[] = {1, 2, 3, 4};
  ASSERT_EQ(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values, sizeof values, &x), nullptr);
  sluice_step_options options = SLUICE_STEP_OPTIONS_INIT;
  options.on_done = [](void* context, sluice_tensor* const* results, size_t num_results, const char* error) {
    InC& to = *static_cast<InC*>(context);
    ++to.calls;
    to.error = error;
    if (num_results == 2) to.told = static_cast<float*>(sluice_tensor_data(results[0]))[3];
  };
  options.context = &seen;
  options.deadline_ms = 60000;
  options.priority = 3;
  ASSERT_EQ(sluice_session_submit_with(session, &x, 1, &options, &step), nullptr);
  ASSERT_EQ(sluice_step_wait(step, -1), nullptr);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.told, 4);
  EXPECT_EQ(seen.error, "");
  sluice_step_destroy(step);
  options.deadline_ms = -1;
  sluice_status* const status = sluice_session_submit_with(session, &x, 1, &options, &step);
  EXPECT_THAT(sluice_status_message(status), HasSubstr("deadline_ms"));
  sluice_status_destroy(status);
  sluice_tensor_destroy(x);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
  EXPECT_EQ(seen.bytes, 0);
}

}  // namespace
}  // namespace sluice::test
