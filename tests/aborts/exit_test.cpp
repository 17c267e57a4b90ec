// Ways to leave a program while engines live and steps are in flight: each ends with its own exit code, soon.
#include <cstdlib>

#include "aborts/child.h"

namespace sluice::test {
namespace {

// Sessions with steps in flight on an engine that nobody destroys, or a static one.
struct Program {
  std::unique_ptr<Engine> engine = std::make_unique<Engine>(EngineOptions{.cores = 2});
  Session host, device;
  explicit Program(HostFunction stage) {
    HostFunctions f = functions();
    f["stage"] = std::move(stage);
    host = Session::load(*engine, pipeline({"copy", "stage", "add_one"}, 4, 3), {},
                         {.functions = f, .stop_timeout = std::chrono::milliseconds(100)});
    device = Session::load(*engine, device_plan("copy"), {}, {.functions = f});
  }
  void submit_some() {
    for (int i = 0; i < 4; ++i) submit(host, filled(1));
    for (int i = 0; i < 2; ++i) submit(device, filled(1));
  }
};

HostFunction slow(int turns) {
  return giving_way(turns, [](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {});
}

TEST(SoakExits, LeaveWithTheirOwnCode) {
  const int64_t n = repetitions(4, 60);
  for (int64_t i = 0; i < n && !HasFailure(); ++i) {
    const int turns = static_cast<int>(i * 131 % 1000);
    EXPECT_EQ(outcome_of([turns] {
                static Program program(slow(turns));
                program.submit_some();
              }),
              "exit code 7")
        << "a static engine and its sessions, at exit()";
    EXPECT_EQ(outcome_of([turns] {
                auto* program = new Program(slow(turns));
                program->submit_some();
              }),
              "exit code 7")
        << "an engine that is never destroyed";
    EXPECT_EQ(outcome_of([turns] {
                Program program(slow(turns));
                program.submit_some();
                std::exit(3);
              }),
              "exit code 3")
        << "exit() with an engine on the stack";
    EXPECT_EQ(outcome_of([turns] {
                static Program program(slow(turns));
                std::thread([] {
                  program.submit_some();
                  std::exit(4);
                }).join();
              }),
              "exit code 4")
        << "exit() on another thread, while main waits";
    EXPECT_EQ(outcome_of([] {
                static Program program([](const KernelArgs&, const std::vector<TensorSpec>&,
                                          const std::vector<TensorSpec>&) { std::exit(5); });
                static_cast<void>(submit(program.host, filled(1)).wait());
                pause();
              }),
              "exit code 5")
        << "exit() in a host function, while main waits for the step";
    EXPECT_EQ(outcome_of([turns] {
                static thread_local Program program(slow(turns));
                program.submit_some();
              }),
              "exit code 7")
        << "a thread-local engine of the main thread";
  }
  report_count("process exits in C++", 6 * n, "processes");
}

TEST(Exits, AreNotHeldUpByAKernelThatDoesNotReturn) {
  const auto start = Clock::now();
  EXPECT_EQ(outcome_of([] {
              static Program program(
                  [](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) { pause(); });
              submit(program.host, filled(1));
            }),
            "exit code 7");
  EXPECT_LT(seconds_since(start), 10.0);
}

TEST(Exits, AnEngineMayBeMadeAndDestroyedOnDifferentThreads) {
  std::unique_ptr<Engine> engine = std::make_unique<Engine>(EngineOptions{.cores = 2});
  Session session = Session::load(*engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(session, filled(1))), filled(2));
  std::thread([&] {
    session.stop();
    engine.reset();
  }).join();
  engine = std::make_unique<Engine>(EngineOptions{.cores = 2});
  Session next = Session::load(*engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(next, filled(1))), filled(2));
}

}  // namespace
}  // namespace sluice::test
