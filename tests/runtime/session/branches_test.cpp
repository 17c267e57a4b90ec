// case and esac: a value goes in one of several directions; kernels of the others are left out, while messages flow as
// ever. ACT-07, ADR 24.
#include "collective/ranks.h"
#include "plan/time/simulator.h"
#include "plan/verify.h"
#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kBytes = kN * 4;

// Streams 0 to 2 of the host.
struct Branching : Plans {
  explicit Branching(const std::string& name = "branches") : Plans(name) {
    for (int s = 0; s < 3; ++s) stream("cpu:0", StreamKind::kHost, s);
  }
  static TensorSpec row() { return TensorSpec::contiguous({DType::kInt64, {1}}); }
  // The scalar in a register or buffer.
  static View index(int reg) { return {BaseKind::kRegister, reg, 0, 0, TensorSpec::contiguous({DType::kInt64, {}})}; }
  int split(int actor, const View& index, const View& x, const std::vector<View>& outputs) {
    return run(actor, "case", {index, x}, outputs, 0, {{"n", static_cast<int64_t>(outputs.size())}});
  }
  int join(int actor, const View& index, std::vector<View> values, const View& out) {
    values.insert(values.begin(), index);
    return run(actor, "esac", std::move(values), {out});
  }
};

// feed -> choose -> left, right -> meet -> sink: x goes left where i is 0, right where it is 1. With `apart` each on a
// stream of its own.
Plan two_ways(bool apart, bool in_place = false) {
  Branching b;
  const int feed = b.feed("feed"), choose = b.actor("choose", apart ? 1 : 0), left = b.actor("left", apart ? 1 : 0),
            right = b.actor("right", apart ? 2 : 0), meet = b.actor("meet", 0), sink = b.sink("sink");
  const int x = b.reg("x", feed, {choose}, {.quota = 3, .bytes = kBytes});
  const int i = b.reg("i", feed, {choose, meet}, {.quota = 3, .bytes = 8});
  const int l = b.reg("l", choose, {left}, {.quota = 2, .bytes = kBytes});
  const int r = b.reg("r", choose, {right}, {.quota = 2, .bytes = kBytes});
  RegOptions made{.quota = 2, .bytes = kBytes};
  if (in_place) made.in_place_of = b.edge_of(l, left);
  const int lm = b.reg("lm", left, {meet}, made);
  const int rm = b.reg("rm", right, {meet}, {.quota = 2, .bytes = kBytes});
  const int y = b.reg("y", meet, {sink}, {.quota = 2, .bytes = kBytes});
  b.split(choose, b.index(i), b.r(x), {b.r(l), b.r(r)});
  b.call(left, "left", {b.r(l)}, {b.r(lm)});
  b.call(right, "right", {b.r(r)}, {b.r(rm)});
  b.join(meet, b.index(i), {b.r(lm), b.r(rm)}, b.r(y));
  b.input("x", x, b.f32({kN}));
  b.input("i", i, b.row());
  b.output("y", b.r(y));
  return b.build();
}

// left adds 1, right 2; both count, and fail where they are given a negative number.
struct Counted {
  std::atomic<int> left{0}, right{0};
  HostFunctions functions() {
    HostFunctions f = test::functions();
    f["left"] = way(left, 1);
    f["right"] = way(right, 2);
    return f;
  }
  static HostFunction way(std::atomic<int>& count, float add) {
    return
        [&count, add](const KernelArgs& args, const std::vector<TensorSpec>& in, const std::vector<TensorSpec>& out) {
          ++count;
          const float first = static_cast<const float*>(args.inputs[0])[0];
          if (first < 0) fail(ErrorKind::kValue, "way {}: got {}", add, first);
          elementwise([add](float v) { return v + add; })(args, in, out);
        };
  }
};

StepHandle submit_case(Session& session, float x, std::vector<int64_t> i) {
  const Floats values = filled(x);
  const InputTensor inputs[] = {{values.data(), PlanBuilder::f32({kN})},
                                {i.data(), TensorSpec::contiguous({DType::kInt64, {static_cast<int64_t>(i.size())}})}};
  return session.submit(inputs);
}

uint64_t left_out(const Session& session, const std::string& actor) {
  for (const ActorStats& a : session.stats().actors)
    if (a.name == actor) return a.left_out;
  return UINT64_MAX;
}

void expect_verified(const Plan& plan) { EXPECT_TRUE(verify(plan).ok()) << verify(plan).str(); }

TEST(Branches, OnlyTheKernelsOfTheChosenOneRun) {  // ACT-07
  for (const bool apart : {false, true}) {
    for (const bool in_place : {false, true}) {
      Engine engine({.cores = 2});
      Counted counted;
      const Plan plan = two_ways(apart, in_place);
      expect_verified(plan);
      Session session = Session::load(engine, plan, {}, {.functions = counted.functions()});
      std::vector<StepHandle> steps;
      const int64_t ways[] = {0, 1, 1, 0, 1};
      for (int s = 0; s < 40; ++s) steps.push_back(submit_case(session, static_cast<float>(s), {ways[s % 5]}));
      for (int s = 0; s < 40; ++s)
        EXPECT_EQ(result(steps[s]), filled(static_cast<float>(s) + static_cast<float>(ways[s % 5]) + 1)) << s;
      session.wait_all();
      session.stop();
      EXPECT_EQ(counted.left, 16);
      EXPECT_EQ(counted.right, 24);
      EXPECT_EQ(left_out(session, "left"), 24u);
      EXPECT_EQ(left_out(session, "right"), 16u);
      EXPECT_EQ(left_out(session, "meet"), 0u);
      EXPECT_THAT(session.stats().str(), HasSubstr("left out"));
      // Every actor fires, whatever is chosen; a simulator, which does not know, counts every kernel.
      for (const char* actor : {"choose", "left", "right", "meet"}) EXPECT_EQ(firings(session, actor), 40u) << actor;
    }
  }
}

TEST(Branches, EveryOrderOfMessagesGivesTheSame) {
  Engine engine({.cores = 1, .manual_stepping = true});
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    engine.reseed(seed);
    Counted counted;
    Session session = Session::load(engine, two_ways(true, seed % 2 == 0), {}, {.functions = counted.functions()});
    std::vector<StepHandle> steps;
    for (int s = 0; s < 6; ++s) steps.push_back(submit_case(session, s == 3 ? -1.0F : static_cast<float>(s), {s % 2}));
    for (int s = 0; s < 6; ++s) {
      if (s == 3) {
        EXPECT_THAT(steps[s].wait().message(), HasSubstr("way 2: got -1")) << seed;
      } else {
        EXPECT_EQ(result(steps[s]), filled(static_cast<float>(s + s % 2 + 1))) << seed;
      }
    }
    session.stop();
    EXPECT_EQ(counted.left, 3);
    EXPECT_EQ(counted.right, 3);
  }
}

TEST(Branches, TracesShowWhatWasLeftOut) {
  Engine engine({.cores = 2});
  Counted counted;
  Session session = Session::load(engine, two_ways(true), {}, {.functions = counted.functions()});
  session.set_trace(true);
  for (int s = 0; s < 6; ++s) EXPECT_TRUE(submit_case(session, 1, {s < 4 ? 0 : 1}).wait().ok());
  session.wait_all();
  session.set_trace(false);
  const TraceNames names = session.trace_names();
  std::map<std::string, int> ran, skipped;
  const Trace trace = session.take_trace();
  for (const TraceEvent& event : trace.events) {
    if (event.kernel >= 0) ++(event.left_out ? skipped : ran)[names.kernels[event.kernel]];
  }
  EXPECT_EQ(ran["left/host_function"], 4);
  EXPECT_EQ(ran["right/host_function"], 2);
  EXPECT_EQ(skipped, (std::map<std::string, int>{{"left/host_function", 2}, {"right/host_function", 4}}));
  EXPECT_THAT(chrome_trace_json(trace, names), HasSubstr(R"("name":"right/host_function","cat":"left out")"));
}

TEST(Branches, AnIndexOutsideFailsItsStepOnly) {
  Engine engine({.cores = 2});
  Counted counted;
  Session session = Session::load(engine, two_ways(true), {}, {.functions = counted.functions()});
  EXPECT_THAT(submit_case(session, 1, {2}).wait().message(),
              HasSubstr("case: index 2; must be in [0, 2), the number of branches"));
  EXPECT_EQ(result(submit_case(session, 1, {1})), filled(3));
  EXPECT_EQ(counted.left + counted.right, 1);
}

TEST(Branches, AFailureOfTheChosenOneIsTheStepsAndPoisonWins) {
  Engine engine({.cores = 2});
  Counted counted;
  Session session = Session::load(engine, two_ways(true), {}, {.functions = counted.functions()});
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(submit_case(session, -1, {0}).wait().message(), HasSubstr("way 1: got -1"));
    EXPECT_EQ(result(submit_case(session, 5, {0})), filled(6));
    EXPECT_THAT(submit_case(session, -1, {1}).wait().message(), HasSubstr("way 2: got -1"));
    EXPECT_EQ(result(submit_case(session, 5, {1})), filled(7));
  }
}

// choose(i) -> left updates w -> out. Nothing joins the branches.
Plan one_way_out(int every = 1) {
  Branching b("open");
  const int feed = b.feed("feed"), choose = b.actor("choose", 1), left = b.actor("left", 2), sink = b.sink("sink");
  b.plan.actors[feed].starts = every;
  const int x = b.reg("x", feed, {choose}, {.quota = 2 * every, .bytes = kBytes});
  const int i = b.reg("i", feed, {choose}, {.quota = 2 * every, .bytes = 8});
  const int l = b.reg("l", choose, {left}, {.quota = 2, .bytes = kBytes});
  const int r = b.reg("r", choose, {left}, {.quota = 2, .bytes = kBytes});
  const int y = b.reg("y", left, {sink}, {.quota = 2, .bytes = kBytes, .emit_every = every});
  const int w = b.variable("w", {kN});
  b.split(choose, b.index(i), b.r(x), {b.r(l), b.r(r)});
  b.call(left, "copy", {b.r(l), b.v(w)}, {b.v(w)});
  b.run(left, every > 1 ? "accumulate" : "copy", {b.r(l)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.input("i", i, b.row());
  b.output("y", b.r(y));
  return b.build();
}

TEST(Branches, AVoidResultIsAnErrorThatNamesTheBranch) {
  Engine engine({.cores = 2});
  expect_verified(one_way_out());
  Session session = Session::load(engine, one_way_out(), {{"w", variable(engine, 0)}}, {.functions = functions()});
  EXPECT_EQ(result(submit_case(session, 3, {0})), filled(3));
  EXPECT_THAT(
      submit_case(session, 3, {1}).wait().message(),
      HasSubstr("output 'y' is void: it is made in branch 0 of kernel 'choose/case', which was not taken; esac must "
                "join the branches before a value leaves the plan"));
  EXPECT_EQ(result(submit_case(session, 4, {0})), filled(4));
  session.wait_all();
  EXPECT_EQ(session.stats().failed, 1u);
}

TEST(Branches, UpdatesWithinOneNotTakenDoNotHappen) {
  Engine engine({.cores = 2});
  const auto w = variable(engine, 0);
  Session session = Session::load(engine, one_way_out(), {{"w", w}}, {.functions = functions()});
  for (int s = 0; s < 12; ++s) EXPECT_EQ(submit_case(session, 1, {s % 3 == 0 ? 0 : 1}).wait().ok(), s % 3 == 0);
  session.wait_all();
  session.stop();
  EXPECT_EQ(static_cast<float*>(w->data())[0], 4);
}

TEST(Branches, VoidTokensAddNothingToASum) {
  Engine engine({.cores = 2});
  expect_verified(one_way_out(4));
  Session session = Session::load(engine, one_way_out(4), {{"w", variable(engine, 0)}}, {.functions = functions()});
  for (int mask = 0; mask < 16; ++mask) {
    Floats x;
    std::vector<int64_t> i;
    float sum = 0;
    for (int m = 0; m < 4; ++m) {
      x.insert(x.end(), kN, static_cast<float>(1 << m));
      i.push_back(mask >> m & 1);
      if (i.back() == 0) sum += static_cast<float>(1 << m);
    }
    const InputTensor inputs[] = {{x.data(), PlanBuilder::f32({4 * kN})},
                                  {i.data(), TensorSpec::contiguous({DType::kInt64, {4}})}};
    StepHandle step = session.submit(inputs);
    if (mask < 15) {
      EXPECT_EQ(result(step), filled(sum)) << mask;
    } else {  // nothing was added at all
      EXPECT_THAT(step.wait().message(), HasSubstr("output 'y' is void"));
    }
  }
}

// All in one program, on buffers; the right branch branches again by j.
TEST(Branches, NestWithinAProgram) {
  Engine engine({.cores = 2});
  Branching b("nested");
  const int feed = b.feed("feed"), net = b.actor("net", 1), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = kBytes});
  const int i = b.reg("i", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = kBytes});
  View outer = b.index(i), given = b.index(i);
  given.offset = 8;
  std::vector<View> at;
  for (int k = 0; k < 8; ++k) at.push_back(b.of_buffer(b.buffer("b" + std::to_string(k), kBytes), {kN}));
  const auto scalar = [&](const char* name) {
    return View{BaseKind::kBuffer, b.buffer(name, 8), 0, 0, TensorSpec::contiguous({DType::kInt64, {}})};
  };
  const View nowhere = scalar("nowhere"), inner = scalar("inner");
  b.split(net, outer, b.r(x), {at[0], at[1]});
  b.split(net, outer, given, {nowhere, inner});  // the inner index goes where the inner branches are
  b.call(net, "left", {at[0]}, {at[2]});
  b.split(net, inner, at[1], {at[3], at[4]});
  b.call(net, "left", {at[3]}, {at[5]});
  b.call(net, "right", {at[4]}, {at[6]});
  b.join(net, inner, {at[5], at[6]}, at[7]);
  b.join(net, outer, {at[2], at[7]}, b.r(y));
  b.input("x", x, b.f32({kN}));
  b.input("i", i, TensorSpec::contiguous({DType::kInt64, {2}}));
  b.output("y", b.r(y));
  const Plan plan = b.build();
  expect_verified(plan);
  Counted counted;
  Session session = Session::load(engine, plan, {}, {.functions = counted.functions()});
  for (int round = 0; round < 3; ++round) {
    for (const int64_t o : {0, 1}) {
      for (const int64_t n : {0, 1}) {
        const int before = counted.left + counted.right;
        const Floats expected = filled(10 + (o == 1 && n == 1 ? 2.0F : 1.0F));
        EXPECT_EQ(result(submit_case(session, 10, {o, n})), expected) << o << n;
        EXPECT_EQ(counted.left + counted.right, before + 1);
      }
    }
  }
  session.wait_all();
  session.stop();
  // By round: twice left (of three functions two are left out, and "case" and "esac" of the inner pair answer), twice
  // right.
  EXPECT_EQ(left_out(session, "net"), 3u * (2 * 2 + 2 * 2));
}

// A branch on a device: the copies to it and from it are left out with it.
TEST(Branches, OnADevice) {
  Engine engine({.cores = 2});
  Branching b("device");
  const std::string device = accelerator().str();
  const int in = b.stream(device, StreamKind::kCopyIn), compute = b.stream(device, StreamKind::kCompute),
            out = b.stream(device, StreamKind::kCopyOut);
  const int space = b.space(SpaceKind::kDevice, device);
  const int feed = b.feed("feed"), choose = b.actor("choose", 0), up = b.actor("up", in), net = b.actor("net", compute),
            down = b.actor("down", out), meet = b.actor("meet", 1), sink = b.sink("sink");
  const int x = b.reg("x", feed, {choose}, {.quota = 3, .bytes = kBytes});
  const int i = b.reg("i", feed, {choose, meet}, {.quota = 3, .bytes = 8});
  const int l = b.reg("l", choose, {up}, {.quota = 2, .bytes = kBytes});
  const int r = b.reg("r", choose, {meet}, {.quota = 2, .bytes = kBytes});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = kBytes, .space = space});
  const int dy = b.reg("dy", net, {down}, {.quota = 2, .bytes = kBytes, .space = space});
  const int lm = b.reg("lm", down, {meet}, {.quota = 2, .bytes = kBytes});
  const int y = b.reg("y", meet, {sink}, {.quota = 2, .bytes = kBytes});
  b.split(choose, b.index(i), b.r(x), {b.r(l), b.r(r)});
  b.run(up, "copy", {b.r(l)}, {b.r(dx)});
  b.call(net, "left", {b.r(dx)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(lm)});
  b.join(meet, b.index(i), {b.r(lm), b.r(r)}, b.r(y));
  b.input("x", x, b.f32({kN}));
  b.input("i", i, b.row());
  b.output("y", b.r(y));
  const Plan plan = b.build();
  expect_verified(plan);
  Counted counted;
  Session session = Session::load(engine, plan, {}, {.functions = counted.functions()});
  std::vector<StepHandle> steps;
  for (int s = 0; s < 30; ++s)
    steps.push_back(submit_case(session, s == 18 ? -1.0F : static_cast<float>(s), {s % 3 == 0 ? 0 : 1}));
  for (int s = 0; s < 30; ++s) {
    if (s == 18) {
      EXPECT_THAT(steps[s].wait().message(), HasSubstr("way 1: got -1"));
    } else {
      EXPECT_EQ(result(steps[s]), filled(static_cast<float>(s + (s % 3 == 0 ? 1 : 0)))) << s;
    }
  }
  session.wait_all();
  session.stop();
  EXPECT_EQ(counted.left, 10);
  for (const char* actor : {"up", "net", "down"}) EXPECT_EQ(left_out(session, actor), 20u) << actor;
}

// The host reads what a kernel says is void when run() returns: too early on a device.
TEST(Branches, OnlyKernelsOfTheCpuSayWhatIsVoid) {
  Engine engine({.cores = 1});
  EXPECT_TRUE(engine.kernels().get("case", DeviceKind::kCpu).branches);
  EXPECT_FALSE(engine.kernels().get("case", DeviceKind::kSim).branches);
  KernelTable table;
  EXPECT_EQ(error_of([&] { table.add(DeviceKind::kSim, engine.kernels().get("case", DeviceKind::kCpu)); }),
            "value: kernels: 'case' on sim says which outputs are void, which the host reads when run() returns; only "
            "kernels of cpu may");
}

// Ranks must all come to what they do together, so none of them may leave it out.
TEST(Branches, ACollectiveOfAVoidValueIsRefused) {
  Branching b("together");
  std::vector<int> actors;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string n = std::to_string(rank), on = n + "/cpu:0";
    const int host = b.stream(on, StreamKind::kHost), wire = b.stream(on, StreamKind::kCollective);
    const int feed = b.feed("feed" + n, host), choose = b.actor("choose" + n, host), meet = b.actor("meet" + n, wire),
              sink = b.sink("sink" + n, host);
    const int x = b.reg("x" + n, feed, {choose}, {.quota = 2, .bytes = kBytes});
    const int i = b.reg("i" + n, feed, {choose}, {.quota = 2, .bytes = 8});
    const int l = b.reg("l" + n, choose, {meet}, {.quota = 2, .bytes = kBytes});
    const int r = b.reg("r" + n, choose, {meet}, {.quota = 2, .bytes = kBytes});
    const int y = b.reg("y" + n, meet, {sink}, {.quota = 2, .bytes = kBytes});
    b.split(choose, b.index(i), b.r(x), {b.r(l), b.r(r)});
    b.plan.kernels[b.run(meet, "all_reduce", {b.r(l)}, {b.r(y)}, 0, {{"reduce", "sum"}})].collective = 0;
    b.input("x" + n, x, b.f32({kN}));
    b.input("i" + n, i, b.row());
    b.output("y" + n, b.r(y));
  }
  b.plan.streams.erase(b.plan.streams.begin(), b.plan.streams.begin() + 3);
  for (Actor& actor : b.plan.actors) actor.stream -= 3;
  const Plan plan = b.build();
  expect_verified(plan);
  const int port = free_port();
  const std::vector<std::string> errors = on_ranks(2, [&](int rank) {
    EngineOptions options;
    options.cores = 1;
    options.world = std::make_shared<World>(world_options(rank, 2, port));
    Engine engine(options);
    Session session = Session::load(engine, plan, {}, {.functions = functions()});
    EXPECT_EQ(result(submit_case(session, 3, {0})), filled(6));
    EXPECT_THAT(
        submit_case(session, 3, {rank == 0 ? 1 : 0}).wait().message(),
        HasSubstr("all_reduce: an input is void: branch 0 of kernel 'choose0/case' was not taken; what ranks do "
                  "together must stand outside of branches"));
  });
  EXPECT_THAT(errors, ElementsAre("no error", "no error"));
}

}  // namespace
}  // namespace sluice::test
