// Counters of a session: exact at rest, never falling and within bounds while steps run.
#include <deque>
#include <thread>

#include "plan/firing/firing.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;

// The firing rule of all actors, run until nothing can happen: what the counters at rest must say.
class Reference {
 public:
  explicit Reference(const Plan& plan) : plan_(plan), adjacency_(plan) {
    for (size_t a = 0; a < plan.actors.size(); ++a) rules_.emplace_back(plan, adjacency_, static_cast<int>(a));
  }
  void run(uint64_t steps) {
    for (FiringRule& rule : rules_) rule.on_start(steps);
    for (size_t a = 0; a < rules_.size(); ++a) fire(static_cast<int>(a));
    while (!messages_.empty()) {
      const auto [ready, edge, slot] = messages_.front();
      messages_.pop_front();
      const int reg = plan_.edges[edge].reg;
      const int actor = ready ? plan_.edges[edge].consumer : plan_.registers[reg].producer;
      if (ready) {
        rules_[actor].on_ready(port(adjacency_.in_edges[actor], edge), slot, *this);
      } else {
        rules_[actor].on_ack(port(adjacency_.out_registers[actor], reg), slot, *this);
      }
      fire(actor);
    }
  }
  uint64_t firings(int actor) const { return rules_[actor].firings(); }
  int used(int reg) const {
    const int actor = plan_.registers[reg].producer;
    return plan_.registers[reg].quota - rules_[actor].free_slots(port(adjacency_.out_registers[actor], reg));
  }
  int ready(int reg) const {
    int most = 0;
    for (const int edge : adjacency_.register_edges[reg]) {
      const int actor = plan_.edges[edge].consumer;
      most = std::max(most, rules_[actor].tokens(port(adjacency_.in_edges[actor], edge)));
    }
    return most;
  }

  void ready(int edge, int slot) { messages_.push_back({true, edge, slot}); }
  void ack(int edge, int slot) { messages_.push_back({false, edge, slot}); }
  void end(int) {}

 private:
  struct Message {
    bool ready;
    int edge, slot;
  };
  static int port(const std::vector<int>& ports, int index) {
    return static_cast<int>(std::find(ports.begin(), ports.end(), index) - ports.begin());
  }
  void fire(int actor) {
    FiringRule& rule = rules_[actor];
    while (rule.can_fire()) {
      rule.begin();
      for (const Instr& instr : plan_.actors[actor].program) {
        if (instr.kind == InstrKind::kEmit) rule.emit(port(adjacency_.out_registers[actor], instr.index), *this);
        if (instr.kind == InstrKind::kRelease) rule.release(port(adjacency_.in_edges[actor], instr.index), *this);
      }
      rule.finish(*this);
    }
  }
  const Plan& plan_;
  const Adjacency adjacency_;
  std::vector<FiringRule> rules_;
  std::deque<Message> messages_;
};

// Takes three at a time, holds, emits every second time, works in place, feeds back: at rest tokens stay behind.
Plan rates() {
  Plans b("rates");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), three = b.actor("three", 1), half = b.actor("half", 0), up = b.actor("up", 1);
  const int sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {up}, {.quota = 7, .bytes = 16});
  b.edge(x, three, 3, 1);
  b.edge(x, half, 1, 1);
  const int y = b.reg("y", three, {}, {.quota = 2, .bytes = 16});
  const int pair = b.reg("pair", half, {}, {.quota = 3, .bytes = 16, .emit_every = 2});
  const int z = b.reg("z", up, {sink}, {.quota = 7, .bytes = 16, .in_place_of = -1});
  b.reg("again", up, {up}, {.quota = 2, .initial_tokens = 1});
  const int last = b.actor("last", 1);
  b.edge(y, last, 1, 1);
  const int slow = b.actor("slow", 0);
  b.edge(pair, slow, 1, 1);
  b.call(three, "copy", {b.r(x, 0), b.r(x, 1), b.r(x, 2)}, {b.r(y)});
  b.call(half, "copy", {b.r(x)}, {b.r(pair)});
  b.call(up, "copy", {b.r(x)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  return b.build();
}

Plan in_place_chain() {
  Plans b("in place");
  for (int s = 0; s < 2; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  const int feed = b.feed("feed", 0), up = b.actor("up", 1), down = b.actor("down", 0), pair = b.actor("pair", 1);
  const int sink = b.sink("sink", 1);
  const int x = b.reg("x", feed, {up}, {.quota = 4, .bytes = 16});
  const int y = b.reg("y", up, {down}, {.quota = 4, .bytes = 16, .in_place_of = b.edge_of(x, up)});
  const int z = b.reg("z", down, {sink}, {.quota = 4, .bytes = 16, .in_place_of = b.edge_of(y, down)});
  b.edge(z, pair, 2, 1);
  b.call(up, "copy", {b.r(x)}, {b.r(y)});
  b.call(down, "copy", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  return b.build();
}

void expect_at_rest(const Session& session, const Plan& plan, uint64_t steps) {
  Reference expected(plan);
  expected.run(steps);
  const auto firings_due = [&](const SessionStats& stats) {
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      if (stats.actors[a].firings < expected.firings(static_cast<int>(a))) return true;
    }
    return false;
  };
  // A step is finished within its sink's firing.
  SessionStats stats = session.stats();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (firings_due(stats) && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
    stats = session.stats();
  }
  EXPECT_EQ(stats.submitted, steps);
  EXPECT_EQ(stats.finished, steps);
  EXPECT_EQ(stats.in_flight, 0);
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    EXPECT_EQ(stats.actors[a].firings, expected.firings(static_cast<int>(a))) << plan.actors[a].name;
    EXPECT_EQ(stats.actors[a].stream, plan.actors[a].stream);
  }
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const RegisterStats& reg = stats.registers[r];
    const int index = static_cast<int>(r);
    const auto every = static_cast<uint64_t>(plan.registers[r].emit_every);
    EXPECT_EQ(reg.tokens, expected.firings(plan.registers[r].producer) / every) << reg.name;
    EXPECT_EQ(reg.used, expected.used(index)) << reg.name << " after " << steps;
    EXPECT_EQ(reg.ready, expected.ready(index)) << reg.name << " after " << steps;
    EXPECT_GE(reg.peak, reg.used) << reg.name;
    EXPECT_LE(reg.peak, reg.quota) << reg.name;
  }
}

TEST(Counters, AreExactAtRest) {
  for (const Plan& plan : {pipeline({"copy", "add_one"}, 2, 2), rates(), in_place_chain()}) {
    for (const bool manual : {true, false}) {
      Engine engine({.cores = 2, .manual_stepping = manual, .seed = 7});
      Session session = load_counted(engine, plan, {}, {.functions = functions()});
      for (uint64_t steps = 1; steps <= 12; ++steps) {
        result(submit(session, filled(1)));
        session.wait_all();
        while (manual && engine.step()) {
        }
        expect_at_rest(session, plan, steps);
      }
      session.stop();
      const SessionStats last = session.stats();
      EXPECT_EQ(last.finished, 12u);
      for (const RegisterStats& reg : last.registers) {
        EXPECT_EQ(reg.used, 0) << reg.name;
        EXPECT_GT(reg.peak, 0) << reg.name;
      }
    }
  }
}

TEST(Counters, SayWhatIsHeldUpWhileAKernelRuns) {
  Engine engine({.cores = 2});
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session session = load_counted(engine, pipeline({"copy", "gate"}, 3, 3), {}, {.functions = f, .max_in_flight = 8});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 6; ++i) steps.push_back(submit(session, filled(1)));  // as many as r0 and r1 hold
  gate.wait_arrived(1);
  while (firings(session, "s0") < 3) std::this_thread::yield();
  const uint64_t busy = session.stats().streams[2].busy_ns;
  const SessionStats held = session.stats();
  EXPECT_EQ(held.submitted, 6u);
  EXPECT_EQ(held.finished, 0u);
  EXPECT_EQ(held.in_flight, 6);
  EXPECT_GT(held.bytes, 0u);
  ASSERT_EQ(held.registers[1].name, "r1");  // from s0 to s1, which is in its first firing
  EXPECT_EQ(held.registers[1].tokens, 3u);
  EXPECT_EQ(held.registers[1].used, 3);
  EXPECT_EQ(held.registers[1].ready, 3);
  EXPECT_EQ(held.registers[1].peak, 3);
  EXPECT_EQ(held.registers[2].used, 0);
  EXPECT_EQ(held.actors[2].firings, 0u);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_GE(session.stats().streams[2].busy_ns, busy + 5'000'000);  // a stream in a kernel is busy
  gate.open();
  for (StepHandle& step : steps) result(step);
  session.wait_all();
  EXPECT_GE(session.stats().actors[2].busy_ns, 5'000'000u);  // and its actor was
}

TEST(Counters, AreReadFromOtherThreadsWhileStepsRun) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, pipeline({"copy", "add_one", "twice"}, 2, 3), {},
                                 {.functions = functions(), .max_in_flight = 4});
  std::atomic<bool> done{false};
  std::atomic<int> reads{0};
  const auto watch = [&] {
    SessionStats last = session.stats();
    while (!done.load()) {
      const SessionStats now = session.stats();
      EXPECT_GE(now.finished, last.finished);
      EXPECT_LE(now.finished, now.submitted);
      EXPECT_LE(now.in_flight, now.max_in_flight);
      for (size_t a = 0; a < now.actors.size(); ++a) {
        EXPECT_GE(now.actors[a].firings, last.actors[a].firings);
        EXPECT_GE(now.actors[a].waits, last.actors[a].waits);
        EXPECT_GE(now.actors[a].busy_ns, last.actors[a].busy_ns);
      }
      for (size_t s = 0; s < now.streams.size(); ++s) {
        EXPECT_GE(now.streams[s].busy_ns, last.streams[s].busy_ns);
        EXPECT_GE(now.streams[s].parks, last.streams[s].parks);
      }
      for (size_t r = 0; r < now.registers.size(); ++r) {
        const RegisterStats& reg = now.registers[r];
        EXPECT_GE(reg.tokens, last.registers[r].tokens);
        EXPECT_GE(reg.peak, last.registers[r].peak);
        EXPECT_GE(reg.used, 0);
        EXPECT_LE(reg.used, reg.quota);
        EXPECT_GE(reg.ready, 0);
        EXPECT_LE(reg.ready, reg.quota);
      }
      last = now;
      reads.fetch_add(1);
    }
  };
  std::thread first(watch), second(watch);
  const uint64_t steps = 400;
  for (uint64_t i = 0; i < steps || reads.load() < 20; ++i) submit(session, filled(1));
  session.wait_all();
  done = true;
  first.join();
  second.join();
  const SessionStats stats = session.stats();
  expect_at_rest(session, session.plan(), stats.submitted);
}

TEST(Counters, MayBeReadWhileTheSessionEnds) {
  Engine engine({.cores = 2});
  for (int i = 0; i < 20; ++i) {
    Session session = load_counted(engine, pipeline({"copy"}, 2, 2), {}, {.functions = functions()});
    std::atomic<bool> done{false};
    std::thread reader([&] {
      while (!done.load()) EXPECT_EQ(session.stats().max_in_flight, 2);
    });
    result(submit(session, filled(1)));
    session.stop();
    done = true;
    reader.join();
    EXPECT_EQ(session.stats().finished, 1u);
  }
}

TEST(Counters, PrintAsTables) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, pipeline({"copy"}, 2, 2), {}, {.functions = functions()});
  for (int i = 0; i < 3; ++i) result(submit(session, filled(1)));
  session.wait_all();
  EXPECT_THAT(session.stats().str(),
              AllOf(ContainsRegex("^steps: 3 submitted, 3 finished, 0 failed, 0 of 2 in flight; [0-9]+ bytes\n"),
                    ContainsRegex("\nstream +busy ms +parks\ncpu:0/host0 +[0-9.]+ +[0-9]+\n"),
                    ContainsRegex("\nactor +busy ms +firings +waits\nfeed +0.000 +3 +[0-9]+\ns0 +[0-9.]+ +3 "),
                    ContainsRegex("\nregister +tokens +quota +used +ready +peak\nr0 +3 +2 +0 +0 +[12]\n")));
}

}  // namespace
}  // namespace sluice::test
