// Sources: actors without inputs from callers, whose data may end.
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

// Gives 1, 2, ... `n` and then says that there is no more; again from 1 after it has said so.
HostFunction counting(int n) {
  return [n, at = std::make_shared<int>(0)](const KernelArgs& args, const std::vector<TensorSpec>&,
                                            const std::vector<TensorSpec>&) {
    if (*at == n) {
      *at = 0;
      fail(ErrorKind::kEndOfData, "counting: that was all");
    }
    ++*at;
    for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[i] = static_cast<float>(*at);
  };
}

// source "data" -> net -> sink, on two streams; with a feed whose "x" is added, if wanted. The source fires `starts`
// times for a step.
Plan source_plan(bool feeds, int starts = 1) {
  Plans b("sources");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int data = b.source("data", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  b.plan.actors[data].starts = starts;
  const int d = b.reg("d", data, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  const int w = b.variable("w", {kN});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  b.call(data, "data", {}, {b.r(d)});
  std::vector<View> in{b.r(d)};
  if (feeds) {
    const int feed = b.feed("feed", 0);
    b.plan.actors[feed].starts = starts;
    const int x = b.reg("x", feed, {net}, {.quota = 2 * starts, .bytes = 16});
    in.push_back(b.r(x));
    b.input("x", x, b.f32({kN}));
  }
  b.call(net, "copy", in, {b.r(y)});
  b.call(net, "add_one", {b.v(w)}, {b.v(w)});
  b.output("y", b.r(y));
  return b.build();
}

Session load(Engine& engine, const Plan& plan, int n, const std::shared_ptr<Storage>& w) {
  HostFunctions f = functions();
  f["data"] = counting(n);
  return Session::load(engine, plan, {{"w", w}}, {.functions = f});
}

std::string kind_of(StepHandle step) {
  const Status status = step.wait();
  return status.ok() ? "ok" : error_kind_name(status.kind());
}

TEST(Source, TheStepAfterTheLastTellsTheEndOfData) {
  Engine engine({.cores = 2});
  const auto w = variable(engine, 0);
  Session session = load(engine, source_plan(false), 3, w);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 1; i <= 3; ++i) EXPECT_EQ(result(session.submit({})), filled(static_cast<float>(i)));
    StepHandle last = session.submit({});
    EXPECT_EQ(kind_of(last), "end of data");
    EXPECT_EQ(last.wait().message(), "session 'sources': step 3: the data of a source has ended; reset() begins anew");
    EXPECT_EQ(error_of([&] { session.submit({}); }),
              "end of data: session 'sources': step 4: the data of a source has ended; reset() begins anew");
    EXPECT_EQ(error_of([&] { session.try_submit({}); }).substr(0, 11), "end of data");
    session.wait_all();
    EXPECT_EQ(session.stats().finished, 4u);
    EXPECT_EQ(session.stats().failed, 0u);
    EXPECT_EQ(static_cast<float*>(w->data())[0], static_cast<float>(3 * round));
    session.reset();
    EXPECT_EQ(session.stats().submitted, 0u);
  }
  session.stop();
}

TEST(Source, StepsInFlightAreAnsweredOrEnded) {
  Engine engine({.cores = 2});
  for (int steps = 1; steps <= 6; ++steps) {
    Session session = load(engine, source_plan(true), 4, variable(engine, 0));
    std::vector<StepHandle> handles;
    std::string refused = "no error";
    for (int i = 0; i < steps && refused == "no error"; ++i) {
      const Floats x = filled(static_cast<float>(10 * i));
      const InputTensor input{x.data(), PlanBuilder::f32({kN})};
      refused = error_of([&] { handles.push_back(session.submit({&input, 1})); });
    }
    EXPECT_TRUE(refused == "no error" || refused.starts_with("end of data")) << refused;
    for (size_t i = 0; i < handles.size(); ++i) {
      EXPECT_EQ(kind_of(handles[i]), i < 4 ? "ok" : "end of data");
      if (i < 4) {
        EXPECT_EQ(result(handles[i]), filled(static_cast<float>(10 * i + i + 1)));
      }
    }
    session.wait_all();
    session.stop();
  }
}

TEST(Source, AStepThatIsOnlyPartlyThereHasEnded) {
  Engine engine({.cores = 2});
  Session session = load(engine, source_plan(true, 2), 5, variable(engine, 0));
  EXPECT_EQ(session.inputs()[0].type, (TensorType{DType::kFloat32, {2 * kN}}));
  EXPECT_EQ(session.outputs()[0].type, (TensorType{DType::kFloat32, {2 * kN}}));
  const Floats x(2 * kN, 0);
  for (int i = 0; i < 2; ++i) {
    Floats rows = filled(static_cast<float>(2 * i + 1));
    rows.resize(2 * kN, static_cast<float>(2 * i + 2));
    EXPECT_EQ(result(submit(session, x)), rows);
  }
  EXPECT_EQ(kind_of(submit(session, x)), "end of data");
  session.wait_all();
}

TEST(Source, ResetWithoutAnEndBeginsAnewToo) {
  Engine engine({.cores = 2});
  Plans b("state");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), add = b.actor("add"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {add}, {.quota = 2, .bytes = 16});
  const int state = b.reg("state", add, {add}, {.quota = 2, .bytes = 16, .initial_tokens = 1});
  const int y = b.reg("y", add, {sink}, {.quota = 2, .bytes = 16});
  b.call(add, "copy", {b.r(x), b.r(state)}, {b.r(y), b.r(state)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Session session = Session::load(engine, b.build(), {}, {.functions = functions()});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(result(submit(session, filled(1))), filled(1));
    EXPECT_EQ(result(submit(session, filled(2))), filled(3));
    StepHandle third = submit(session, filled(3));
    session.reset();
    EXPECT_EQ(result(third), filled(6));
  }
  session.stop();
  EXPECT_EQ(error_of([&] { session.reset(); }), "runtime: session 'state' was stopped; load the plan again");
}

TEST(Source, StepsInTheBacklogRunBeforeAResetAndEndWithTheData) {
  constexpr int kSteps = 9;
  Engine engine({.cores = 2});
  for (const int n : {3, 100}) {
    HostFunctions f = functions();
    f["data"] = counting(n);
    Session session = Session::load(engine, source_plan(true), {{"w", variable(engine, 0)}},
                                    {.functions = f, .max_in_flight = kSteps});
    for (int round = 0; round < 3; ++round) {
      std::vector<StepHandle> handles;
      std::string refused = "no error";
      const Floats x = filled(0);
      const InputTensor input{x.data(), PlanBuilder::f32({kN})};
      for (int i = 0; i < kSteps && refused == "no error"; ++i)
        refused = error_of([&] { handles.push_back(session.submit({&input, 1})); });
      EXPECT_EQ(refused == "no error" || (n < kSteps && refused.starts_with("end of data")), true) << refused;
      EXPECT_GE(handles.size(), static_cast<size_t>(std::min(n, kSteps)));
      session.reset();
      for (size_t i = 0; i < handles.size(); ++i)
        EXPECT_EQ(kind_of(handles[i]), static_cast<int>(i) < n ? "ok" : "end of data") << i;
    }
  }
}

TEST(Source, OthersThanSourcesFailTheirStepByIt) {
  Engine engine({.cores = 2});
  HostFunctions f = functions();
  f["once"] = [](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    if (static_cast<const float*>(args.inputs[0])[0] == 2) fail(ErrorKind::kEndOfData, "no more");
    static_cast<float*>(args.outputs[0])[0] = 5;
  };
  Session session = Session::load(engine, pipeline({"once"}), {}, {.functions = f});
  EXPECT_EQ(kind_of(submit(session, filled(1))), "ok");
  EXPECT_EQ(kind_of(submit(session, filled(2))), "end of data");
  EXPECT_EQ(kind_of(submit(session, filled(3))), "ok");
}

TEST(Source, AnyThreadThatWaitsForRoomHearsOfTheEnd) {
  Engine engine({.cores = 2});
  Gate gate;
  HostFunctions f = functions();
  f["data"] = [&gate, at = std::make_shared<int>(0)](const KernelArgs& args, const std::vector<TensorSpec>&,
                                                     const std::vector<TensorSpec>&) {
    gate.pass();
    if (++*at > 1) fail(ErrorKind::kEndOfData, "no more");
    std::fill_n(static_cast<float*>(args.outputs[0]), kN, 1.0f);
  };
  Session session = Session::load(engine, source_plan(false), {{"w", variable(engine, 0)}}, {.functions = f});
  std::vector<StepHandle> handles;
  for (int i = 0; i < session.stats().max_in_flight; ++i) handles.push_back(session.submit({}));
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::string& error : errors) {
    threads.emplace_back([&] {
      error = error_of([&] {
        for (;;) session.submit({});
      });
    });
  }
  gate.open();
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error.substr(0, 11), "end of data");
  EXPECT_EQ(kind_of(handles[0]), "ok");
  EXPECT_EQ(kind_of(handles[1]), "end of data");
}

}  // namespace
}  // namespace sluice::test
