// Plans run as their registers and rates say.
#include "plan/json/json.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

TEST(Session, RunsAPipelineOnSeveralStreams) {
  Engine engine({.cores = 2});
  for (const int streams : {1, 2, 3}) {
    Session session =
        load_counted(engine, pipeline({"add_one", "twice", "add_one"}, 2, streams), {}, {.functions = functions()});
    ASSERT_EQ(session.inputs().size(), 1u);
    EXPECT_EQ(session.inputs()[0].name, "x");
    EXPECT_EQ(session.outputs()[0].type.str(), "float32(4,)");
    std::vector<StepHandle> steps;
    for (int i = 0; i < 100; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(steps[i].step(), static_cast<uint64_t>(i));
      EXPECT_EQ(result(steps[i]), filled(2 * static_cast<float>(i + 1) + 1));
    }
    session.wait_all();
    session.stop();
    for (const ActorStats& actor : session.stats().actors) EXPECT_EQ(actor.firings, 100u) << actor.name;
  }
}

TEST(Session, CopiesInputsOfAnyLayout) {
  Engine engine;
  Session session = load_counted(engine, pipeline({"copy"}), {}, {.functions = functions()});
  const Floats wide = {0, 1, 2, 3, 4, 5, 6, 7};
  const InputTensor input{wide.data(), {DType::kFloat32, {kN}, {2}}};
  EXPECT_EQ(result(session.submit({&input, 1})), (Floats{0, 2, 4, 6}));
}

TEST(Session, NamesWrongInputs) {
  Engine engine;
  Session session = load_counted(engine, pipeline({"copy"}), {}, {.functions = functions()});
  EXPECT_EQ(error_of([&] { submit(session, Floats(3)); }),
            "value: graph 'pipeline': argument 'x' has shape (3,); expected (4,), as when the graph was compiled");
  EXPECT_EQ(error_of([&] { session.submit({}); }), "value: session 'pipeline': got 0 inputs; the plan takes 1");
  const int64_t ints[kN] = {};
  const InputTensor input{ints, TensorSpec::contiguous({DType::kInt64, {kN}})};
  EXPECT_EQ(error_of([&] {
              session.submit({&input, 1});
            }),
            "type: graph 'pipeline': argument 'x' has dtype int64; expected float32, as when the graph was compiled");
  EXPECT_EQ(result(submit(session, filled(1))), filled(1));
}

TEST(Session, QuotaHoldsTheProducerBack) {
  for (const int quota : {1, 2, 3}) {
    Engine engine({.cores = 2});
    Gate gate;
    HostFunctions f = functions();
    f["gate"] = gate.function();
    Plans b("quota");
    b.stream("cpu:0", StreamKind::kHost, 0);
    b.stream("cpu:0", StreamKind::kHost, 1);
    const int feed = b.feed("feed", 0), fast = b.actor("fast", 0), slow = b.actor("slow", 1), sink = b.sink("sink", 0);
    const int x = b.reg("x", feed, {fast}, {.quota = 8, .bytes = 16});
    const int y = b.reg("y", fast, {slow}, {.quota = quota, .bytes = 16});
    const int z = b.reg("z", slow, {sink}, {.quota = 8, .bytes = 16});
    b.call(fast, "copy", {b.r(x)}, {b.r(y)});
    b.call(slow, "gate", {b.r(y)}, {b.r(z)});
    b.input("x", x, b.f32({kN}));
    b.output("z", b.r(z));
    Session session = load_counted(engine, b.build(), {}, {.functions = f});
    std::vector<StepHandle> steps;
    for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
    gate.wait_arrived(1);
    while (firings(session, "fast") < static_cast<uint64_t>(quota)) std::this_thread::yield();
    // Asking makes every idle stream handle all it has before it answers.
    const std::string report = session.wait_report();
    EXPECT_EQ(firings(session, "fast"), static_cast<uint64_t>(quota));
    EXPECT_THAT(report, HasSubstr("actor 'slow' on cpu:0/host1: 0 of 8 firings, runs kernel 'slow/host_function' "
                                  "(host_function), net.py:11"));
    EXPECT_THAT(report, HasSubstr("a free slot of 'y', read by 'slow'"));
    gate.open();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i)));
  }
}

TEST(Session, ControlRegistersOrderSideEffects) {
  Engine engine({.cores = 2});
  std::mutex mutex;
  std::string log;
  const auto note = [&](char c) {
    return [&, c](const KernelArgs&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
      std::lock_guard lock(mutex);
      log += c;
    };
  };
  HostFunctions f;
  f["a"] = note('a'), f["b"] = note('b'), f["c"] = note('c');
  Plans b("order");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), first = b.actor("first", 1), second = b.actor("second", 0),
            third = b.actor("third", 1);
  const int sink = b.sink("sink", 0);
  b.reg("go", feed, {first, second, third}, {.quota = 2});
  b.reg("first_done", first, {second}, {.quota = 2});
  b.reg("second_done", second, {third}, {.quota = 2});
  b.reg("third_done", third, {sink}, {.quota = 2});
  b.reg("again", third, {first}, {.quota = 1, .initial_tokens = 1});
  b.call(first, "a", {}, {});
  b.call(second, "b", {}, {});
  b.call(third, "c", {}, {});
  Session session = load_counted(engine, b.build(), {}, {.functions = f});
  session.start(50);
  session.wait_all();
  session.stop();
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += "abc";
  EXPECT_EQ(log, expected);
}

TEST(Session, RefusesASinkThatAnswersBeforeItIsAsked) {
  Engine engine({.cores = 2});
  Plans b("early");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed", 0), sink = b.sink("sink", 0);
  b.reg("x", feed, {sink}, {.quota = 2, .initial_tokens = 1});
  try {
    load_counted(engine, b.build(), {}, {});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "plan 'early': steps: sink 'sink' can fire before a step is submitted; its way from the feeds must have a "
        "register without initial tokens");
  }
}

TEST(Session, InPlaceRegistersShareSlots) {
  Engine engine({.cores = 2});
  Plans b("in place");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), up = b.actor("up", 1), down = b.actor("down", 0), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", up, {down}, {.quota = 2, .bytes = 16, .in_place_of = b.edge_of(x, up)});
  const int z = b.reg("z", down, {sink}, {.quota = 2, .bytes = 16});
  b.call(up, "add_one", {b.r(x)}, {b.r(y)});
  b.call(down, "twice", {b.r(y)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("z", b.r(z));
  Session session = load_counted(engine, b.build(), {}, {.functions = functions()});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 64; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result(steps[i]), filled(2 * static_cast<float>(i + 1)));
}

TEST(Session, BatchesTokensThatAreTakenTogether) {
  Engine engine;
  Plans b("batch");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), sum = b.actor("sum"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {}, {.quota = 6, .bytes = 16});
  const int y = b.reg("y", sum, {sink}, {.quota = 1, .bytes = 16});
  b.edge(x, sum, 3, 1);
  b.call(sum, "copy", {b.r(x, 0), b.r(x, 1), b.r(x, 2)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Session session = load_counted(engine, b.build(), {}, {.functions = functions()});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 12; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(9 * (i / 3) + 3)));
  session.stop();
  EXPECT_EQ(firings(session, "sum"), 4u);
}

TEST(Session, AccumulatesAndHolds) {
  Engine engine;
  Plans b("accumulate");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), scale = b.actor("scale"), acc = b.actor("acc"), sink = b.sink("sink");
  const int w = b.variable("w", {kN});
  const int x = b.reg("x", feed, {acc}, {.quota = 4, .bytes = 16});
  const int every = b.reg("every", feed, {}, {.quota = 8});
  const int s = b.reg("s", scale, {}, {.quota = 1, .bytes = 16});
  const int done = b.reg("done", acc, {sink}, {.quota = 1, .bytes = 16, .emit_every = 4});
  b.edge(every, scale, 4, 1);
  b.edge(s, acc, 1, 4);  // one token serves four firings
  b.call(scale, "add_one", {}, {b.r(s)});
  b.call(acc, "copy", {b.v(w), b.r(x), b.r(s)}, {b.v(w)});
  b.call(acc, "copy", {b.v(w)}, {b.r(done)});
  b.input("x", x, b.f32({kN}));
  b.output("done", b.r(done));
  Session session =
      load_counted(engine, b.build(), {{"w", variable(engine, 0)}}, {.functions = functions(), .max_in_flight = 8});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 8; ++i) steps.push_back(submit(session, filled(1)));
  EXPECT_EQ(result(steps[3]), filled(8));  // four times 1 + 1
  EXPECT_EQ(result(steps[7]), filled(16));
  session.wait_all();
  session.stop();
  EXPECT_EQ(firings(session, "scale"), 2u);
  EXPECT_EQ(firings(session, "acc"), 8u);
}

// One call has the rows of all its micro-batches; each firing of the feed brings the next, and the sink answers once.
TEST(Session, AStepOfMicroBatchesIsOneCall) {
  constexpr int kBatches = 4, kSteps = 20;
  Engine engine;
  Plans b("batches");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), each = b.actor("each"), once = b.actor("once"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {each}, {.quota = 2 * kBatches, .bytes = 16});
  const int by = b.reg("by", feed, {each}, {.quota = 2 * kBatches, .bytes = 4});
  const int scaled = b.reg("scaled", each, {}, {.quota = kBatches, .bytes = 16});
  const int sum = b.reg("sum", each, {once}, {.quota = 2, .bytes = 16, .emit_every = kBatches});
  const int all = b.reg("all", once, {sink}, {.quota = 2, .bytes = 16 * kBatches});
  const int total = b.reg("total", once, {sink}, {.quota = 2, .bytes = 16});
  b.edge(scaled, once, kBatches, 1);
  b.run(each, "mul", {b.r(x), b.of_reg(by, {})}, {b.r(scaled)});
  b.run(each, "accumulate", {b.r(scaled)}, {b.r(sum)});
  std::vector<View> parts(kBatches, b.r(scaled));
  for (int i = 0; i < kBatches; ++i) parts[i].token = i;
  b.run(once, "concat", parts, {b.of_reg(all, {kBatches * kN})});
  b.plan.kernels.back().attrs = {{"dim", int64_t{0}}};
  b.run(once, "copy", {b.r(sum)}, {b.r(total)});
  b.input("x", x, b.f32({kN}));
  b.input("by", by, b.f32({}));
  b.output("all", b.of_reg(all, {kBatches * kN}));
  b.output("total", b.r(total));
  Plan plan = b.build();
  plan.actors[feed].starts = kBatches;
  EXPECT_EQ(plan::to_json(plan::from_json(plan::to_json(plan), "plan.json")), plan::to_json(plan));

  Session session = load_counted(engine, plan, {}, {});
  EXPECT_EQ(session.inputs()[0].type, (TensorType{DType::kFloat32, {kBatches * kN}}));
  EXPECT_EQ(session.inputs()[1].type, (TensorType{DType::kFloat32, {}}));
  EXPECT_EQ(session.stats().max_in_flight, 2);
  std::vector<StepHandle> steps;
  for (int step = 0; step < kSteps; ++step) {
    Floats rows(2 * kBatches * kN);  // every other one counts
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / 2);
    const float factor = static_cast<float>(step);
    const InputTensor inputs[] = {{rows.data(), {DType::kFloat32, {kBatches * kN}, {2}}}, {&factor, b.f32({})}};
    steps.push_back(session.submit(inputs));
  }
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<OutputTensor>& outputs = steps[step].outputs();
    Floats scaled_rows(kBatches * kN), sums(kN);
    for (int i = 0; i < kBatches * kN; ++i) sums[i % kN] += scaled_rows[i] = static_cast<float>(i * step);
    EXPECT_EQ(std::memcmp(outputs[0].storage->data(), scaled_rows.data(), scaled_rows.size() * 4), 0) << step;
    EXPECT_EQ(std::memcmp(outputs[1].storage->data(), sums.data(), sums.size() * 4), 0) << step;
  }
  session.wait_all();
  EXPECT_EQ(session.stats().finished, static_cast<uint64_t>(kSteps));
  session.stop();
  EXPECT_EQ(firings(session, "each"), static_cast<uint64_t>(kBatches * kSteps));
  EXPECT_EQ(firings(session, "once"), static_cast<uint64_t>(kSteps));

  plan.actors[feed].starts = 16;
  EXPECT_THAT(error_of([&] { load_counted(engine, plan, {}, {}); }),
              HasSubstr("steps: register 'x' of feed 'feed' has 8 slots; a step is 16 firings of it, each with one"));
}

TEST(Session, InitialTokensCarryStateFromStepToStep) {
  Engine engine;
  Plans b("state");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), add = b.actor("add"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {add}, {.quota = 2, .bytes = 16});
  const int state = b.reg("state", add, {add}, {.quota = 2, .bytes = 16, .initial_tokens = 1});
  const int y = b.reg("y", add, {sink}, {.quota = 2, .bytes = 16});
  b.call(add, "copy", {b.r(x), b.r(state)}, {b.r(y), b.r(state)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  Session session = load_counted(engine, b.build(), {}, {.functions = functions()});
  float sum = 0;
  for (int i = 0; i < 10; ++i) {
    sum += static_cast<float>(i);
    EXPECT_EQ(result(submit(session, filled(static_cast<float>(i)))), filled(sum));
  }
}

TEST(Session, ALoopCountsManyStepsAndNeedsATokenToBegin) {
  const auto counter = [](int tokens) {
    Plans b("counter");
    b.stream("cpu:0", StreamKind::kHost, 0);
    const int feed = b.feed("feed"), count = b.actor("count"), sink = b.sink("sink");
    const int x = b.reg("x", feed, {count}, {.quota = 2, .bytes = 16});
    const int state = b.reg("state", count, {count}, {.quota = 2, .bytes = 16, .initial_tokens = tokens});
    const int y = b.reg("y", count, {sink}, {.quota = 2, .bytes = 16});
    b.call(count, "add_one", {b.r(x), b.r(state)}, {b.r(y), b.r(state)});
    b.input("x", x, b.f32({kN}));
    b.output("y", b.r(y));
    return b.build();
  };
  constexpr int kSteps = 100'000;
  Engine engine;
  Session session = load_counted(engine, counter(1), {}, {.functions = functions()});
  StepHandle last;
  for (int i = 0; i < kSteps; ++i) last = submit(session, filled(0));
  EXPECT_EQ(result(last), filled(kSteps));
  EXPECT_THAT(error_of([&] { load_counted(engine, counter(0), {}, {.functions = functions()}); }),
              ::testing::AllOf(HasSubstr("deadlock: 'count' waits for data on 'state' from 'count'"),
                               HasSubstr("initial token")));
}

TEST(Session, KeepsUnreadResultsApart) {
  Engine engine;
  Session session = load_counted(engine, pipeline({"add_one"}, 1), {}, {.functions = functions()});
  std::vector<StepHandle> steps;
  for (int i = 0; i < 200; ++i) steps.push_back(submit(session, filled(static_cast<float>(i))));  // more than any quota
  for (int i = 199; i >= 0; --i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1)));
  std::shared_ptr<Storage> kept = steps[7].outputs()[0].storage;
  session = Session();
  EXPECT_EQ(static_cast<float*>(kept->data())[0], 8.0f);
  EXPECT_EQ(result(steps[9]), filled(10));
}

TEST(Session, ListsItsMemory) {
  Engine engine;
  const uint64_t before = engine.allocator_stats({}).current_bytes;
  Session session = load_counted(engine, pipeline({"add_one"}, 2), {}, {.functions = functions()});
  const SessionMemory memory = session.memory();
  ASSERT_EQ(memory.spaces.size(), 1u);
  EXPECT_EQ(memory.spaces[0].arenas, 4 * 64u);
  EXPECT_EQ(memory.spaces[0].outputs, 2 * 16u);
  EXPECT_EQ(engine.allocator_stats({}).current_bytes - before, memory.spaces[0].arenas);
  session.stop();
  EXPECT_EQ(engine.allocator_stats({}).current_bytes, before);
}

TEST(MemoryWatch, FindsWhatTheLedgerDoesNotList) {
  Engine engine;
  const Plan plan = pipeline({"add_one"}, 2);
  const SpaceBytes ledger = ledger_bytes(plan, true, false);
  const MemoryWatch watch(engine, plan.spaces);
  const Session session = load_counted(engine, plan, {}, {.functions = functions()});
  EXPECT_EQ(watch.held_but_for(ledger), "");
  {
    const Storage slot(engine.allocator({}), 64);
    EXPECT_EQ(watch.held_but_for(ledger), "memory of host: 320 bytes held; the ledger says 256\n");
  }
  EXPECT_EQ(watch.held_but_for(ledger), "");
  EXPECT_EQ(watch.peak_but_for(ledger), "memory of host: 320 bytes held at the peak; the ledger says 256\n");
}

TEST(Session, TracesFiringsKernelsAndWaits) {
  Engine engine;
  Session session =
      load_counted(engine, pipeline({"add_one", "twice"}, 2, 2), {}, {.functions = functions(), .trace = true});
  for (int i = 0; i < 10; ++i) result(submit(session, filled(0)));
  session.wait_all();
  const std::vector<TraceEvent> events = session.take_trace().events;
  int firings = 0, kernels = 0, waits = 0;
  for (const TraceEvent& e : events) {
    EXPECT_LE(e.begin_ns, e.end_ns);
    (e.wait ? waits : e.kernel >= 0 ? kernels : firings)++;
  }
  EXPECT_EQ(kernels, 20);
  EXPECT_GE(firings, 39);  // the feed's last firing may still be under way
  EXPECT_GT(waits, 0);
  EXPECT_EQ(session.trace_names().actors[1], "s0");
  session.set_trace(false);
  session.take_trace();
  result(submit(session, filled(0)));
  EXPECT_TRUE(session.take_trace().events.empty());
}

}  // namespace
}  // namespace sluice::test
