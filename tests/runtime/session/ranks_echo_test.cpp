// Calls that go to another rank and come back, as services make them.
#include <csignal>
#include <deque>

#include "collective/ranks.h"
#include "runtime/fixture.h"
#include "support/processes.h"

namespace sluice::test {
namespace {

// feed and sink on rank 0, and between them one actor that adds one on each rank.
Plan echo(const std::string& name, int quota = 2) {
  PlanBuilder b(name);
  const int home = b.stream("0/cpu:0", StreamKind::kHost), away = b.stream("1/cpu:0", StreamKind::kHost);
  const int feed = b.feed("feed", home), there = b.actor("there", away), back = b.actor("back", home),
            sink = b.sink("sink", home);
  const plan::RegOptions slots{.quota = quota, .bytes = kN * 4};
  const int x = b.reg("x", feed, {there}, slots), y = b.reg("y", there, {back}, slots),
            z = b.reg("z", back, {sink}, slots);
  b.run(there, "host_function", {b.of_reg(x, {kN})}, {b.of_reg(y, {kN})}, 0, {{"name", std::string("add_one")}});
  b.run(back, "host_function", {b.of_reg(y, {kN})}, {b.of_reg(z, {kN})}, 0, {{"name", std::string("add_one")}});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.of_reg(z, {kN}));
  return b.build();
}

SessionOptions options_of(int max_in_flight) {
  SessionOptions options;
  options.functions = functions();
  options.max_in_flight = max_in_flight;
  return options;
}

StepHandle submit_value(Session& session, float value) {
  const Floats x(kN, value);
  const InputTensor input{x.data(), PlanBuilder::f32({kN})};
  return session.submit({&input, 1});
}
float value_of(StepHandle& step) { return static_cast<const float*>(step.outputs()[0].storage->data())[0]; }

std::string with_two(const std::function<void(Engine&, World&)>& f) {
  const int port = free_port();
  const auto errors = on_ranks(2, [&](int rank) {
    EngineOptions options;
    options.cores = 1;
    options.world = std::make_shared<World>(world_options(rank, 2, port));
    Engine engine(options);
    f(engine, *options.world);
  });
  return errors[0] == "no error" ? errors[1] : errors[0];
}

class EchoInFlight : public testing::TestWithParam<std::pair<int, int>> {};

// Some steps are always in flight, more than there are slots; the other rank has all its steps from the start.
TEST_P(EchoInFlight, AnswersComeInOrder) {
  const auto [in_flight, quota] = GetParam();
  constexpr int kSteps = 400;
  EXPECT_EQ(with_two([&](Engine& engine, World& world) {
              Session session = Session::load(engine, echo("echo", quota), {}, options_of(in_flight));
              if (world.rank() == 1) {
                session.start(kSteps);
                return session.wait_all();
              }
              std::deque<StepHandle> steps;
              for (int i = 0, answered = 0; answered < kSteps; ++answered) {
                for (; i < kSteps && i - answered < in_flight; ++i)
                  steps.push_back(submit_value(session, static_cast<float>(i)));
                ASSERT_EQ(value_of(steps.front()), static_cast<float>(answered + 2));
                steps.pop_front();
              }
              session.wait_all();
            }),
            "no error");
}

INSTANTIATE_TEST_SUITE_P(Steps, EchoInFlight,
                         testing::Values(std::pair(1, 1), std::pair(1, 2), std::pair(3, 1), std::pair(8, 2),
                                         std::pair(16, 12)));

// Each session has its registers and its calls; what they grant travels together, on one connection.
TEST(Echo, SeveralSessionsOverOneConnection) {
  constexpr int kSessions = 3, kSteps = 150;
  EXPECT_EQ(with_two([](Engine& engine, World& world) {
              std::vector<Session> sessions;
              for (int s = 0; s < kSessions; ++s)
                sessions.push_back(Session::load(engine, echo("echo" + std::to_string(s)), {}, options_of(4)));
              std::vector<std::thread> callers;
              for (int s = 0; s < kSessions; ++s) {
                callers.emplace_back([&, s] {
                  if (world.rank() == 1) {
                    sessions[s].start(kSteps);
                    return sessions[s].wait_all();
                  }
                  for (int i = 0; i < kSteps; ++i) {
                    StepHandle step = submit_value(sessions[s], static_cast<float>(1000 * s + i));
                    EXPECT_EQ(value_of(step), static_cast<float>(1000 * s + i + 2));
                  }
                  sessions[s].wait_all();
                });
              }
              for (std::thread& caller : callers) caller.join();
            }),
            "no error");
}

// A session ends with slots granted for steps that never come; the next one on the same connection works.
TEST(Echo, SessionsOneAfterTheOther) {
  EXPECT_EQ(with_two([](Engine& engine, World& world) {
              for (int s = 0; s < 12; ++s) {
                Session session = Session::load(engine, echo("echo", 1 + s % 4), {}, options_of(4));
                for (int i = 0; i < s; ++i) {
                  StepHandle step =
                      world.rank() == 0 ? submit_value(session, static_cast<float>(i)) : session.submit({});
                  ASSERT_TRUE(step.wait().ok()) << step.wait().message();
                  if (world.rank() == 0) {
                    ASSERT_EQ(value_of(step), static_cast<float>(i + 2));
                  }
                }
                session.wait_all();
              }
              EXPECT_TRUE(world.failure().ok());
            }),
            "no error");
}

// The other rank dies with steps in flight and slots granted on both sides: who waits is told who it was.
TEST(Echo, ARankThatDiesInBetweenIsNamed) {
  const int port = free_port();
  const auto codes = in_processes(2, [&](int rank) {
    EngineOptions options;
    options.cores = 1;
    options.world = std::make_shared<World>(world_options(rank, 2, port));
    Engine engine(options);
    SessionOptions session_options = options_of(4);
    std::atomic<int> seen{0};
    if (rank == 1) {
      session_options.functions["add_one"] = elementwise([&](float x) {
        if (++seen == 20 * kN) raise(SIGKILL);
        return x + 1;
      });
    }
    Session session = Session::load(engine, echo("echo"), {}, session_options);
    if (rank == 1) {
      session.start(40);
      session.wait_all();
      return 1;
    }
    std::vector<StepHandle> steps;
    for (int i = 0; i < 40; ++i) {
      const std::string error = error_of([&] { steps.push_back(submit_value(session, static_cast<float>(i))); });
      if (error != "no error") return 2;
      const Status status = steps.back().wait();
      if (i < 19 && !status.ok()) return 3;
      if (i == 19) return status.message().find("rank 1 is gone") != std::string::npos ? 0 : 4;
    }
    return 5;
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

}  // namespace
}  // namespace sluice::test
