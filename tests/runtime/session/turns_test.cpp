// Sessions that share arenas: whose turn it is, what each wait ends with, and what all of it takes of the process.
#include <unistd.h>

#include <fstream>

#include "include/sluice/sluice.hpp"
#include "runtime/session/shared_arenas.h"
#include "runtime/wide_plan.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::StartsWith;

Plan named(Plan plan, const std::string& name) {
  plan.name = name;
  return plan;
}

Floats turn(Session& session, float x) { return result(submit(session, filled(x))); }

class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() { options_.functions["gate"] = gate_.function(); }
  // y = x + 1, once the gate is open.
  Session stuck(SessionOptions options) {
    return Session::load(engine_, named(pipeline({"gate", "add_one"}), "stuck"), {}, options);
  }
  Session waiting(SessionOptions options) {
    return Session::load(engine_, named(pipeline({"twice", "twice"}), "waiting"), {}, options);
  }
  static std::string submit_error(Session& session, Timeout timeout) {
    const Floats x = filled(1);
    const InputTensor input{x.data(), PlanBuilder::f32({kN})};
    return error_of([&] { session.submit({&input, 1}, timeout); });
  }
  static bool try_submit(Session& session) {
    const Floats x = filled(1);
    const InputTensor input{x.data(), PlanBuilder::f32({kN})};
    return session.try_submit({&input, 1}).has_value();
  }

  Engine engine_{{.cores = 2}};
  Gate gate_;
  SessionOptions options_{.functions = functions(), .arenas = std::make_shared<SharedArenas>(engine_)};
};

// Were two at work at a time, one would overwrite what the other's kernels have yet to read.
TEST_F(TurnsTest, ThreadsOfSeveralSessionsNeedNotKnowOfEachOther) {
  std::vector<Session> sessions;
  for (const char* op : {"add_one", "twice", "copy"}) {
    options_.arenas->reserve(pipeline({op, op, op, op}, 3, 2));
    sessions.push_back(Session::load(engine_, pipeline({op, op, op, op}, 3, 2), {}, options_));
  }
  const auto expected = [](int session, float x) { return session == 0 ? x + 4 : session == 1 ? 16 * x : x; };
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::pair<StepHandle, float>> steps;
      for (int i = 0; i < 100; ++i) {
        const auto x = static_cast<float>(100 * t + i);
        steps.emplace_back(submit(sessions[t % 3], filled(x)), x);
        if (i % 5 == t % 5) std::this_thread::yield();
      }
      for (const auto& [step, x] : steps) ASSERT_EQ(result(step), filled(expected(t % 3, x)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Session& session : sessions) {
    session.wait_all();
    EXPECT_EQ(session.stats().finished, 200u);
  }
}

TEST_F(TurnsTest, EveryWaitForAnotherSessionHasALimitAndNamesIt) {
  Session a = stuck(options_), b = waiting(options_), c = waiting(options_);
  const StepHandle step = submit(a, filled(1));
  gate_.wait_arrived(1);
  EXPECT_FALSE(try_submit(b));
  EXPECT_THAT(submit_error(b, milliseconds(20)),
              AllOf(StartsWith("timeout: session 'stuck': 1 steps in flight are not finished after "),
                    HasSubstr("actor 's0'")));
  // While one waits for the other's steps, a third stands in line behind it.
  std::thread first([&] { EXPECT_EQ(turn(b, 3), filled(12)); });
  while (b.stats().submitted == 0 && c.stats().submitted == 0 &&
         submit_error(c, milliseconds(5)).find("its turn has not come after 5 ms") == std::string::npos) {
  }
  EXPECT_FALSE(try_submit(a));  // it would be in front of those who wait
  gate_.open();
  first.join();
  EXPECT_EQ(result(step), filled(2));
  EXPECT_EQ(turn(c, 1), filled(4));
  EXPECT_TRUE(try_submit(c));
}

TEST_F(TurnsTest, ErrorsReachOnlyTheCallersOfTheirSession) {
  SessionOptions options = options_;
  options.functions["picky"] = failing(7);
  Session a = Session::load(engine_, pipeline({"picky"}), {}, options), b = waiting(options_);
  const StepHandle failed = submit(a, filled(7));
  EXPECT_EQ(turn(b, 1), filled(4));
  EXPECT_THAT(error_of([&] { result(failed); }), HasSubstr("7 is not accepted"));
  EXPECT_EQ(turn(a, 1), filled(1));
  a.wait_all();
  b.wait_all();
}

TEST_F(TurnsTest, WhatEndsIsNotWaitedFor) {
  Session b = waiting(options_);
  {
    Session a = stuck(options_);
    static_cast<void>(submit(a, filled(1)));
    gate_.wait_arrived(1);
    gate_.open();
  }  // cancelled, or finished
  EXPECT_EQ(turn(b, 1), filled(4));
  Session a = stuck(options_);
  EXPECT_EQ(turn(a, 1), filled(2));
  a.stop();
  EXPECT_EQ(turn(b, 2), filled(8));
  EXPECT_THAT(submit_error(a, milliseconds(20)), HasSubstr("was stopped"));
  EXPECT_EQ(turn(b, 3), filled(12));
  b.reset();
  EXPECT_EQ(turn(b, 4), filled(16));
}

TEST_F(TurnsTest, AnAbandonedSessionKeepsTheMemoryUntilItsKernelReturns) {
  options_.stop_timeout = milliseconds(10);
  Session b = waiting(options_);
  {
    Session a = stuck(options_);
    static_cast<void>(submit(a, filled(1)));
    gate_.wait_arrived(1);
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(submit_error(b, milliseconds(1000)),
              "runtime: session 'stuck': was abandoned in a kernel that has not returned and uses the arenas it "
              "shares; load others with arenas of their own");
  EXPECT_FALSE(try_submit(b));
  Session apart = waiting({.functions = functions()});
  EXPECT_EQ(turn(apart, 1), filled(4));
  gate_.open();
  while (submit_error(b, milliseconds(1000)) != "no error") std::this_thread::yield();
  EXPECT_EQ(turn(b, 1), filled(4));
}

TEST_F(TurnsTest, ArenasAreOfOneEngine) {
  Engine other({.cores = 1});
  EXPECT_EQ(error_of([&] { Session::load(other, pipeline({"copy"}), {}, options_); }),
            "value: session 'pipeline': arenas: of another engine; they must be of its own");
}

TEST(Turns, StepByStepToo) {
  Engine engine({.cores = 1, .manual_stepping = true, .seed = 3});
  const SessionOptions options{.functions = functions(), .arenas = std::make_shared<SharedArenas>(engine)};
  Session a = Session::load(engine, pipeline({"add_one"}), {}, options);
  Session b = Session::load(engine, pipeline({"twice"}), {}, options);
  for (int i = 0; i < 10; ++i) {
    const auto x = static_cast<float>(i);
    const StepHandle first = submit(a, filled(x)), second = submit(b, filled(x));
    EXPECT_TRUE(first.done());  // the other's turn had to wait for it
    EXPECT_EQ(result(second), filled(2 * x));
    EXPECT_EQ(result(first), filled(x + 1));
  }
}

int64_t resident_now() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Sessions of one bundle, and of bundles with the same arenas: weights are there once, and so is what steps compute.
TEST(Turns, TwoSessionsTakeLittleMoreThanOne) {
  constexpr int64_t kElements = 8 << 20;
  constexpr double kWeights = 4.0 * kElements, kArenas = 4.0 * kElements;
  const TestFolder folder("sluice_two_sessions_");
  save_wide(folder.path(), {kElements}, 3);
  api::Engine engine({.cores = 1});
  const auto x = std::vector<api::Tensor>{api::Tensor::from<float>(filled(1), {kN})};
  const auto run = [&](api::Session& session) { EXPECT_EQ(session.run(x)[0].data<float>()[3], 4); };
  {
    const TestFolder small("sluice_small_session_");  // what a first session brings is there
    save_wide(small.path(), {1024}, 3);
    api::Session session = api::Session::load(engine, small.path());
    run(session);
  }
  const auto held = [&] { return static_cast<double>(engine.memory_bytes()); };
  const double before = resident_now(), held_before = held();
  api::SharedArenas arenas(engine);
  api::Session first = api::Session::load(engine, folder.path(), {.arenas = arenas});
  run(first);
  [[maybe_unused]] const double one = resident_now() - before;
  EXPECT_EQ(first.counters().mapped, kWeights);
  EXPECT_EQ(static_cast<double>(arenas.bytes()), held() - held_before);
  const double held_one = held() - held_before;
  api::Session second = api::Session::load(engine, folder.path(), {.arenas = arenas});
  for (int i = 0; i < 5; ++i) {
    run(second);
    run(first);
  }
  EXPECT_EQ(held() - held_before, held_one);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GT(one, 0.95 * (kWeights + kArenas));
  EXPECT_LT(resident_now() - before, 1.2 * one);
#endif
  {
    api::Session apart = api::Session::load(engine, folder.path());
    run(apart);
    EXPECT_GE(held() - held_before, held_one + kArenas);
  }
  EXPECT_EQ(held() - held_before, held_one);
}

TEST(Turns, RoomIsMadeForWhatComesLater) {
  const TestFolder small("sluice_small_"), large("sluice_large_");
  save_wide(small.path(), {1024}, 3);
  save_wide(large.path(), {4096}, 5);
  api::Engine engine({.cores = 1});
  api::SharedArenas arenas(engine);
  EXPECT_EQ(arenas.bytes(), 0u);
  arenas.reserve(api::Plan::load(small.path()));
  const uint64_t bytes = arenas.bytes();
  arenas.reserve(api::Plan::load(large.path()));
  EXPECT_GT(arenas.bytes(), bytes);
  const uint64_t held = engine.memory_bytes();
  api::Session a = api::Session::load(engine, small.path(), {.arenas = arenas});
  api::Session b = api::Session::load(engine, large.path(), {.arenas = arenas});
  EXPECT_EQ(engine.memory_bytes(), held);
  const auto x = std::vector<api::Tensor>{api::Tensor::from<float>(filled(1), {kN})};
  std::vector<api::Result> results;
  for (int i = 0; i < 10; ++i) results.push_back((i % 2 ? b : a).submit(x));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(results[i].get()[0].data<float>()[0], i % 2 ? 6 : 4);
  EXPECT_THROW(api::SharedArenas().reserve(api::Plan::load(small.path())), api::Error);
  EXPECT_EQ(api::SharedArenas().bytes(), 0u);
}

}  // namespace
}  // namespace sluice::test
