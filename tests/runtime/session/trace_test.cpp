// A trace tells why firings began, and keeps waits for cores apart from the kernels that waited.
#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/clock.h"
#include "kernels/kernel.h"
#include "memory/core_lease.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

using Cause = TraceCause::Kind;

std::vector<TraceEvent> firings_of(const Trace& trace, int actor) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& e : trace.events)
    if (!e.wait && e.kernel < 0 && e.actor == actor) found.push_back(e);
  return found;
}

int actor_of(const plan::Plan& plan, const std::string& name) {
  const auto at = std::ranges::find(plan.actors, name, &plan::Actor::name);
  return static_cast<int>(at - plan.actors.begin());
}

// feed -> net, whose kernel takes cores -> sink
Plan computing() {
  Plans b("computing");
  b.stream("cpu:0", StreamKind::kHost);
  b.stream("cpu:0");
  const int feed = b.feed("feed"), net = b.actor("net", 1), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = kN * 4});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = kN * 4});
  b.run(net, "neg", {b.r(x)}, {b.r(y)}, 1e6);
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

TEST(Trace, TheWaitForCoresIsNoPartOfTheKernel) {
  Engine engine{{.cores = 2}};
  const plan::Plan plan = computing();
  Session session = Session::load(engine, plan, {}, {.trace = true});
  engine.leases().acquire(2);
  StepHandle step = submit(session, filled(1));
  while (!engine.leases().contended()) std::this_thread::yield();
  const int64_t waits_ns = now_ns();
  const int64_t released_ns = now_ns();
  engine.leases().release(2);
  EXPECT_EQ(result(std::move(step)), filled(-1));
  session.set_trace(false);
  const Trace trace = session.take_trace();
  int kernels = 0, waits = 0;
  for (const TraceEvent& e : trace.events) {
    if (e.kernel >= 0) {
      EXPECT_GE(trace.begin_clock_ns + e.begin_ns, released_ns);
      ++kernels;
    }
    if (!e.wait || e.cause.kind != Cause::kCores) continue;
    EXPECT_EQ(e.actor, actor_of(plan, "net"));
    EXPECT_LE(trace.begin_clock_ns + e.begin_ns, waits_ns);
    EXPECT_GE(trace.begin_clock_ns + e.end_ns, released_ns);
    ++waits;
  }
  EXPECT_EQ(kernels, 1);
  EXPECT_EQ(waits, 1);
  EXPECT_THAT(chrome_trace_json(trace, session.trace_names()), testing::HasSubstr("\"name\":\"wait for cores\""));
}

// The message that made an actor ready came by one of its own edges, or was a credit of one of its own registers.
TEST(Trace, SaysWhyEachFiringBegan) {
  Engine engine;
  constexpr int kSteps = 40;
  Session session =
      load_counted(engine, pipeline({"add_one", "twice"}, 1, 2), {}, {.functions = functions(), .trace = true});
  for (int i = 0; i < kSteps; ++i) submit(session, filled(0));
  session.wait_all();
  session.set_trace(false);
  const Trace trace = session.take_trace();
  const plan::Plan& plan = session.plan();
  std::set<Cause> seen;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    const std::vector<TraceEvent> firings = firings_of(trace, a);
    EXPECT_EQ(firings.size(), static_cast<size_t>(kSteps)) << plan.actors[a].name;
    for (const TraceEvent& e : firings) {
      seen.insert(e.cause.kind);
      EXPECT_EQ(e.firing, 0);
      switch (e.cause.kind) {
        case Cause::kData: EXPECT_EQ(plan.edges[e.cause.index].consumer, a); break;
        case Cause::kCredit: EXPECT_EQ(plan.registers[e.cause.index].producer, a); break;
        case Cause::kStart: EXPECT_TRUE(plan::is_started(plan.actors[a])); break;
        case Cause::kStream: break;
        default: ADD_FAILURE() << "actor " << plan.actors[a].name << " says no cause";
      }
    }
    if (!firings.empty() && !plan::is_started(plan.actors[a])) {
      EXPECT_EQ(firings[0].cause.kind, Cause::kData);  // slots are there from the start
    }
  }
  EXPECT_TRUE(seen.contains(Cause::kStart));
  EXPECT_THAT(chrome_trace_json(trace, session.trace_names()), testing::HasSubstr("\"cause\":\"data '"));
}

}  // namespace
}  // namespace sluice::test
