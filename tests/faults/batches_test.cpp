// Plans that answer steps in batches: what random plans found, by name.
#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

// A step's input alone, and the sum of both steps' of a pair.
Plan pairs(int order_quota) {
  Plans b("pairs");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), one = b.actor("one", 1), both = b.actor("both", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {one}, {.quota = 2, .bytes = 16});
  b.edge(x, both, 2, 1);
  b.reg("order", feed, {one}, {.quota = order_quota});
  const int y = b.reg("y", one, {sink}, {.quota = 2, .bytes = 16});
  const int z = b.reg("z", both, {}, {.quota = 2, .bytes = 16});
  b.edge(z, sink, 1, 2);
  b.call(one, "copy", {b.r(x)}, {b.r(y)});
  b.call(both, "copy", {b.r(x, 0), b.r(x, 1)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  b.output("z", b.r(z));
  return b.build();
}

TEST(Batches, EveryStepGetsItsOwnAnswer) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, pairs(2), {}, {.functions = functions()});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(values(steps[i].outputs()[0]), filled(static_cast<float>(i))) << i;
    EXPECT_EQ(values(steps[i].outputs()[1]), filled(static_cast<float>(4 * (i / 2) + 1))) << i;
  }
}

TEST(Batches, AsManyStepsAreAdmittedAsABatchNeeds) {
  Engine engine({.cores = 1, .manual_stepping = true});
  Session session = load_counted(engine, pairs(1), {}, {.functions = functions()});
  EXPECT_EQ(session.stats().max_in_flight, 2);
  std::vector<StepHandle> steps;
  for (int i = 0; i < 4; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  EXPECT_EQ(result(steps[3]), filled(3));
}

TEST(Batches, TooFewStepsInFlightAreRefused) {
  Engine engine({.cores = 1});
  EXPECT_EQ(error_of([&] { load_counted(engine, pairs(2), {}, {.functions = functions(), .max_in_flight = 1}); }),
            "value: session 'pairs': max_in_flight: 1; the plan finishes a step only once 2 are in flight, so it must "
            "be at least that");
}

// A token that two firings of a device make, read by an actor that holds it for two firings of its own.
Plan spanning() {
  Plans b("spanning");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream(accelerator().str(), StreamKind::kCopyIn);
  const int compute = b.stream(accelerator().str(), StreamKind::kCompute),
            out = b.stream(accelerator().str(), StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, accelerator().str());
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute);
  const int down = b.actor("down", out), pass = b.actor("pass", host), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = device});
  const int dy = b.reg("dy", net, {down}, {.quota = 1, .bytes = 16, .emit_every = 2, .space = device});
  const int y = b.reg("y", down, {}, {.quota = 1, .bytes = 16});
  b.edge(y, pass, 1, 2);
  const int z = b.reg("z", pass, {sink}, {.quota = 2, .bytes = 16});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, "picky", {b.r(dx)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.call(pass, "copy", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  return b.build();
}

TEST(Batches, ALateFailureOfAnyFiringFailsTheWholeToken) {
  for (const float bad : {2.0f, 3.0f}) {
    Engine engine({.cores = 2});
    HostFunctions f = functions();
    f["picky"] = failing(bad);
    Session session = load_counted(engine, spanning(), {}, {.functions = f});
    std::vector<StepHandle> steps;
    for (int i = 0; i < 6; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
    for (int i = 0; i < 6; ++i) {
      if (i == 2 || i == 3) {
        EXPECT_THAT(error_of([&] { result(steps[i]); }), HasSubstr("is not accepted")) << bad << ", step " << i;
      } else {
        EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i | 1))) << bad << ", step " << i;
      }
    }
  }
}

// On the device, `side` writes a variable and nothing of it reaches the sink.
TEST(Unseen, ALateFailureThatNoStepShowsIsThrownByWaitAll) {
  Plans b("side");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream(accelerator().str(), StreamKind::kCopyIn);
  const int compute = b.stream(accelerator().str(), StreamKind::kCompute),
            out = b.stream(accelerator().str(), StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, accelerator().str());
  const int feed = b.feed("feed", host), up = b.actor("up", in), side = b.actor("side", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int w = b.variable("w", {kN}, false, device);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {side, down}, {.quota = 2, .bytes = 16, .space = device});
  const int y = b.reg("y", down, {sink}, {.quota = 2, .bytes = 16});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(side, "picky", {b.r(dx)}, {b.v(w)});
  b.run(down, "copy", {b.r(dx)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  HostFunctions f = functions();
  f["picky"] = failing(3);
  Engine engine({.cores = 2});
  const Space space{SpaceKind::kDevice, accelerator()};
  const auto storage = std::make_shared<Storage>(engine.allocator(space), 64, space);
  Session session = load_counted(engine, b.build(), {{"w", storage}}, {.functions = f});
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(result(submit(session, filled(static_cast<float>(i)))), filled(static_cast<float>(i)));
  const std::string error = error_of([&] { session.wait_all(); });
  EXPECT_THAT(error, HasSubstr("picky: 3 is not accepted; give another"));
  EXPECT_THAT(error, HasSubstr("of actor 'side'"));
  session.wait_all();  // told once
  EXPECT_EQ(result(submit(session, filled(7))), filled(7));
  session.wait_all();
  result(submit(session, filled(3)));
  EXPECT_THAT(error_of([&] { session.wait_all(); }), HasSubstr("picky: 3 is not accepted; give another"));
}

}  // namespace
}  // namespace sluice::test
