// A caller can say this of one step: give it up, name it, and give memory for its results.
#include <future>
#include <thread>

#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "memory/core_lease.h"
#include "runtime/api/api_support.h"
#include "runtime/bundle_fixture.h"
#include "support/what_of.h"

namespace sluice::test {
namespace {

struct Gated {
  Gate gate;
  std::atomic<int> later{0};
  HostFunctions with() {
    HostFunctions f = functions();
    f["gate"] = gate.function();
    f["later"] = elementwise([this](float x) {
      ++later;
      return x;
    });
    return f;
  }
};

TEST(Cancel, WhoWaitsIsToldThoughAKernelRuns) {
  Engine engine({.cores = 2});
  for (const int streams : {1, 3}) {
    Gated body;
    Session session = load_counted(engine, pipeline({"gate", "later"}, 3, streams), {}, {.functions = body.with()});
    StepHandle first = submit(session, filled(1)), second = submit(session, filled(2)),
               third = submit(session, filled(3));
    body.gate.wait_arrived(1);  // of the first: its kernel does not end before the gate opens
    auto waiter = std::async(std::launch::async, [&] { return error_of([&] { result(second); }); });
    EXPECT_TRUE(second.cancel());
    EXPECT_EQ(waiter.get(), "cancelled: session 'pipeline': step 1: cancelled by its caller");
    EXPECT_TRUE(first.cancel());
    EXPECT_FALSE(first.cancel()) << "it is over";
    EXPECT_THAT(error_of([&] { result(first); }), HasSubstr("step 0: cancelled by its caller"));
    EXPECT_FALSE(third.done());
    body.gate.open();
    EXPECT_EQ(result(third), filled(3));
    session.wait_all();
    EXPECT_EQ(body.later, kN) << "no kernel of the steps given up has started";
    EXPECT_FALSE(third.cancel());
    EXPECT_EQ(session.stats().failed, 2u);
    EXPECT_EQ(result(submit(session, filled(4))), filled(4));
    for (const ActorStats& actor : session.stats().actors) EXPECT_GE(actor.firings, 3u) << actor.name;
  }
}

TEST(Cancel, BetweenTheKernelsOfOneProgram) {
  Engine engine({.cores = 1});
  Gated body;
  Plans b("program");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16}),
            y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.call(net, "gate", {b.r(x)}, {b.r(y)});
  b.call(net, "later", {b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Session session = load_counted(engine, b.build(), {}, {.functions = body.with()});
  StepHandle step = submit(session, filled(1));
  body.gate.wait_arrived(1);
  EXPECT_TRUE(step.cancel());
  body.gate.open();
  session.wait_all();
  EXPECT_EQ(body.later, 0);
  EXPECT_EQ(result(submit(session, filled(2))), filled(2));
  EXPECT_EQ(body.later, kN);
}

// Waiting in the backlog, with no slots yet.
TEST(Cancel, OfAStepThatHasNotBegun) {
  Engine engine({.cores = 1});
  Gated body;
  Session session =
      load_counted(engine, pipeline({"gate", "later"}, 1), {}, {.functions = body.with(), .max_in_flight = 4});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 4; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  body.gate.wait_arrived(1);
  EXPECT_TRUE(steps[3].cancel());
  EXPECT_TRUE(steps[3].done());
  body.gate.open();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i)));
  session.wait_all();
  EXPECT_EQ(body.later, 3 * kN);
}

TEST(Cancel, FromManyThreadsWhileStepsRun) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, pipeline({"copy", "add_one", "copy"}, 2, 3), {},
                                 {.functions = functions(), .max_in_flight = 8});
  std::atomic<int> answered{0}, given_up{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        StepHandle step = submit(session, filled(static_cast<float>(i)));
        const bool cancelled = (i + t) % 3 == 0 && step.cancel();
        const Status status = step.wait();
        if (cancelled) {
          EXPECT_EQ(status.kind(), ErrorKind::kCancelled);
          ++given_up;
        } else {
          EXPECT_EQ(result(step), filled(static_cast<float>(i + 1)));
          ++answered;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  session.wait_all();
  EXPECT_EQ(answered + given_up, 1200);
  EXPECT_EQ(session.stats().finished, 1200u);
  EXPECT_EQ(session.stats().failed, static_cast<uint64_t>(given_up));
}

TEST(Tags, NameTheStepInItsErrors) {
  Engine engine({.cores = 1});
  HostFunctions f = functions();
  f["picky"] = failing(3);
  std::vector<std::string> told;
  SessionOptions options{.functions = f};
  options.on_output = [&](uint64_t, const Status& status, const std::vector<OutputTensor>&) {
    told.push_back(status.ok() ? "" : status.message());
  };
  Session session = load_counted(engine, pipeline({"picky"}), {}, options);
  const auto tagged_step = [&](const Floats& x, std::string_view tag) {
    const InputTensor input{x.data(), PlanBuilder::f32({kN})};
    return session.submit({&input, 1}, {.tag = tag});
  };
  EXPECT_THAT(error_of([&] { result(tagged_step(filled(3), "request 17")); }),
              HasSubstr("(of the step tagged 'request 17')"));
  EXPECT_EQ(result(tagged_step(filled(1), "request 18")), filled(1));
  EXPECT_EQ(error_of([&] { result(submit(session, filled(3))); }).find("tagged"), std::string::npos);
  session.wait_all();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[0], HasSubstr("request 17"));
}

class Into : public ::testing::Test {
 protected:
  Into() { save_plain(folder_.path()); }
  static api::Tensor row(float value) { return api::Tensor::from<float>(filled(value), {kN}); }
  static Floats of(const api::Tensor& tensor) { return {tensor.data<float>(), tensor.data<float>() + tensor.size()}; }
  const TestFolder folder_{"sluice_into_"};
  api::Engine engine_{{.cores = 1}};
};

TEST_F(Into, ResultsAreWhereTheCallerWantsThem) {
  for (const bool zero_copy : {false, true}) {
    api::Session session = api::Session::load(engine_, folder_.path(), {.zero_copy = zero_copy});
    alignas(64) float foreign[kN] = {};
    const std::vector<api::Tensor> y = {row(0), api::Tensor(api::DType::kFloat32, {kN}, {foreign, [](void*) {}})};
    for (int i = 0; i < 5; ++i) {
      session.run_into({row(static_cast<float>(i))}, y);
      EXPECT_EQ(of(y[0]), filled(static_cast<float>(i)));
      EXPECT_EQ(foreign[3], 4);
      foreign[3] = 0;
    }
    // Asynchronously the same: get() gives the caller's tensors.
    const std::vector<api::Tensor> z = {row(0), row(0)};
    api::Result later = session.submit({row(7)}, {.outputs = z});
    EXPECT_EQ(later.get()[0].raw(), z[0].raw());
    EXPECT_EQ(of(z[0]), filled(7));
    EXPECT_EQ(of(z[1]), (Floats{1, 2, 3, 4}));
    EXPECT_EQ(of(session.run({row(8)})[0]), filled(8)) << "others have memory of their own";
    EXPECT_EQ(of(z[0]), filled(7));
    EXPECT_EQ(of(session.hand_over({row(9)}, {.tag = "handed"}).get()[0]), filled(9));
  }
}

TEST_F(Into, MemoryIsLetGoOfWithTheStep) {
  api::Session session = api::Session::load(engine_, folder_.path());
  std::vector<float> a(kN), b(kN);
  std::atomic<int> released{0};
  const auto given = [&](std::vector<float>& memory) {
    return api::Tensor(api::DType::kFloat32, {kN}, {memory.data(), [&](void*) { ++released; }});
  };
  session.run_into({row(1)}, {given(a), given(b)});
  EXPECT_EQ(released, 2);
  {
    api::Result step = session.submit({row(1)}, {.outputs = {given(a), given(b)}});
    step.get();
    EXPECT_EQ(released, 2);
  }
  EXPECT_EQ(released, 4);
  // A result that nobody asks for keeps it until the session needs the step's state again.
  session.submit({row(1)}, {.outputs = {given(a), given(b)}});
  session.wait_all();
  for (int i = 0; i < 8; ++i) session.run({row(1)});
  EXPECT_EQ(released, 6);
}

TEST_F(Into, WrongMemoryIsRefusedBeforeAnythingRuns) {
  api::Session session = api::Session::load(engine_, folder_.path());
  const auto error = [&](std::vector<api::Tensor> outputs) {
    return what_of([&] { session.run_into({row(1)}, outputs); });
  };
  EXPECT_THAT(error({row(0)}), HasSubstr("memory for 1 results; the plan gives 2"));
  EXPECT_THAT(error({}), HasSubstr("memory for 0 results; the plan gives 2"));
  EXPECT_THAT(error({row(0), api::Tensor(api::DType::kFloat32, {2})}),
              HasSubstr("output 'w': memory for float32(2,); it is float32(4,)"));
  EXPECT_THAT(error({row(0), api::Tensor()}), HasSubstr("output 'w': memory for"));
  EXPECT_EQ(session.counters().submitted, 0u);
  EXPECT_EQ(of(session.run({row(1)})[0]), filled(1));
}

TEST_F(Into, InCTheSame) {
  sluice_engine* engine = nullptr;
  sluice_session* session = nullptr;
  ASSERT_EQ(sluice_engine_create(nullptr, &engine), nullptr);
  ASSERT_EQ(sluice_session_load(engine, folder_.path().c_str(), nullptr, &session), nullptr);
  const int64_t shape[] = {kN};
  const float values[] = {1, 2, 3, 4};
  sluice_tensor *x = nullptr, *y[2] = {}, *got[2] = {};
  ASSERT_EQ(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values, sizeof values, &x), nullptr);
  for (sluice_tensor*& tensor : y) ASSERT_EQ(sluice_tensor_create(SLUICE_FLOAT32, shape, 1, &tensor), nullptr);
  ASSERT_EQ(sluice_session_run_into(session, &x, 1, y, 2), nullptr);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y[0]))[2], 3);
  sluice_step_options options = SLUICE_STEP_OPTIONS_INIT;
  options.tag = "request 17";
  options.outputs = y;
  options.num_outputs = 2;
  sluice_step* step = nullptr;
  ASSERT_EQ(sluice_session_submit_with(session, &x, 1, &options, &step), nullptr);
  ASSERT_EQ(sluice_step_outputs(step, got, 2), nullptr);
  EXPECT_EQ(sluice_tensor_data(got[0]), sluice_tensor_data(y[0]));
  int cancelled = 7;
  ASSERT_EQ(sluice_step_cancel(step, &cancelled), nullptr);
  EXPECT_EQ(cancelled, 0);
  sluice_step_destroy(step);
  ASSERT_EQ(sluice_session_try_submit_with(session, &x, 1, &options, &step), nullptr);
  sluice_step_destroy(step);
  options.num_outputs = 1;
  sluice_status* status = sluice_session_hand_over_with(session, &x, 1, &options, &step);
  EXPECT_THAT(sluice_status_message(status), HasSubstr("memory for 1 results; the plan gives 2"));
  sluice_status_destroy(status);
  EXPECT_NE(sluice_tensor_data(x), nullptr) << "an error takes nothing";
  for (int i = 0; i < 2; ++i) {
    sluice_tensor_destroy(y[i]);
    sluice_tensor_destroy(got[i]);
  }
  sluice_tensor_destroy(x);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
}

// C++ too, through the public API: 50 ms are asked for, and no kernel's end is waited for.
TEST_F(Into, ACancelledResultAnswersWhileKernelsAreStuck) {
  api::Session session = api::Session::load(engine_, folder_.path());
  session.run({row(1)});
  CoreLease stuck(api::inside(engine_).leases(), engine_.cores());  // no kernel that uses cores starts
  api::Result step = session.submit({row(1)}, {.tag = "slow"});
  auto waiter = std::async(std::launch::async, [&] { return what_of([&] { step.get(); }); });
  EXPECT_TRUE(step.cancel());
  EXPECT_THAT(waiter.get(), HasSubstr("cancelled by its caller  (of the step tagged 'slow')"));
}

}  // namespace
}  // namespace sluice::test
