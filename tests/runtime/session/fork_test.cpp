// Children of fork() have no threads but their own: every call that needs some says so, and none hangs.
#include <cstdio>
#include <thread>

#include "memory/core_lease.h"
#include "runtime/fixture.h"
#include "support/processes.h"

namespace sluice::test {
namespace {

// 0 when `f` throws an error that names fork().
template <class F>
int refused(F&& f) {
  const std::string error = error_of(f);
  if (error.find("before fork(), and threads do not survive that") != std::string::npos) return 0;
  std::fprintf(stderr, "got: %s\n", error.c_str());
  return 1;
}

TEST(Fork, SessionsOfTheParentAreRefusedAndLetGo) {
  auto engine = std::make_unique<Engine>(EngineOptions{.cores = 2});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session idle = Session::load(*engine, pipeline({"add_one"}), {}, {.functions = f});
  Session busy = Session::load(*engine, pipeline({"gate"}, 2, 2), {}, {.functions = f});
  const auto weight = variable(*engine, 1);
  Session training =
      Session::load(*engine, updating_plan("gate"), {{"w", weight}, {"v", variable(*engine, 1)}}, {.functions = f});
  StepHandle done = submit(idle, filled(1)), pending = submit(busy, filled(1)), step = submit(training, filled(1));
  done.wait().throw_if_error();
  gate.wait_arrived(2);
  const Floats x = filled(1);
  const InputTensor input{x.data(), PlanBuilder::f32({kN})};
  const std::vector<int> codes = in_processes(1, [&](int) {
    int wrong = result(done) != filled(2);
    for (Session* const session : {&idle, &busy}) {
      wrong += refused([&] { session->submit({&input, 1}); });
      wrong += refused([&] { session->try_submit({&input, 1}); });
      wrong += refused([&] { session->wait_all(); });
      wrong += refused([&] { session->wait_all(std::chrono::seconds(1)); });
      wrong += refused([&] { session->stop(); });
      wrong += refused([&] { session->stats(); });
      wrong += refused([&] { session->wait_report(); });
      wrong += refused([&] { session->set_trace(true); });
      wrong += refused([&] { session->take_trace(); });
    }
    wrong += refused([&] { pending.outputs(); });
    wrong += refused([&] { static_cast<void>(step.wait(std::chrono::seconds(1))); });
    wrong += refused([&] { weight->before_read(); });
    wrong += refused([&] { Session::load(*engine, pipeline({"add_one"}), {}, {.functions = f}); });
    wrong += refused([&] { engine->load_extension("none.so"); });
    idle = Session();
    busy = Session();
    training = Session();
    engine.reset();
#if !defined(__SANITIZE_THREAD__)  // which lets no child of a process with threads start any
    Engine own({.cores = 2});
    Session fresh = Session::load(own, pipeline({"add_one"}), {}, {.functions = f});
    wrong += result(submit(fresh, filled(1))) != filled(2);
#endif
    return wrong;
  });
  EXPECT_EQ(codes, std::vector<int>{0});
  gate.open();
  EXPECT_EQ(result(pending), filled(1));
  step.wait().throw_if_error();
  EXPECT_EQ(result(submit(idle, filled(2))), filled(3));
}

TEST(Fork, WhatIsIdleMayBeReadInTheChild) {
  Engine engine({.cores = 1});
  const auto weight = variable(engine, 1);
  HostFunctions f = functions();
  Session session =
      Session::load(engine, updating_plan("copy"), {{"w", weight}, {"v", variable(engine, 1)}}, {.functions = f});
  submit(session, filled(1));
  session.wait_all();
  const std::vector<int> codes = in_processes(1, [&](int) {
    weight->before_write();
    return *static_cast<float*>(weight->data()) == 2 ? 0 : 1;
  });
  EXPECT_EQ(codes, std::vector<int>{0});
}

// At any moment of what other threads do with them.
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator a thread that the child does not have may hold locked
TEST(Fork, CoresAndMemoryCanBeHadInTheChild) {
  CoreLeases leases(2);
  const auto memory = make_caching_allocator(make_host_allocator());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        const CoreLease lease(leases, 1 + t % 2);
        memory->deallocate(memory->allocate(100), 100);
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    const std::vector<int> codes = in_processes(1, [&](int) {
      for (int i = 0; i < 10; ++i) {
        const CoreLease lease(leases, 2);
        memory->deallocate(memory->allocate(100), 100);
      }
      return leases.contended() ? 1 : 0;
    });
    ASSERT_EQ(codes, std::vector<int>{0});
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

}  // namespace
}  // namespace sluice::test
