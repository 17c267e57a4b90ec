// Ports that exchange memory with callers: what is handed over is moved, a result is a slot of the plan.
#include <cstdlib>
#include <cstring>

#include "runtime/fixture.h"
#include "support/alloc_counter.h"

namespace sluice::test {
namespace {

// Memory that tells how often it was let go of.
class Lender {
 public:
  // `floats` of them, at `skip` floats from a multiple of 64 bytes.
  std::shared_ptr<Storage> lend(float x, int64_t floats = kN, int64_t skip = 0) {
    auto* const block = static_cast<float*>(std::aligned_alloc(64, (floats + skip + 15) / 16 * 64));
    std::fill_n(block + skip, floats, x);
    ++lent_;
    return std::make_shared<Storage>(block + skip, static_cast<uint64_t>(floats) * 4, [this, block] {
      std::free(block);
      ++released_;
    });
  }
  int lent() const { return lent_; }
  int released() const { return released_; }
  // Once `n` are back; whoever was last may need a moment.
  int settled(int n) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (released_ < n && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return released_;
  }

 private:
  std::atomic<int> lent_{0}, released_{0};
};

InputTensor handed(std::shared_ptr<Storage> storage) {
  const auto floats = static_cast<int64_t>(storage->bytes() / 4);
  const void* data = storage->data();
  return {data, PlanBuilder::f32({floats}), std::move(storage)};
}

StepHandle hand_over(Session& session, std::shared_ptr<Storage> storage) {
  const InputTensor input = handed(std::move(storage));
  return session.submit({&input, 1});
}

// The first of what lies in it.
StepHandle hand_over_floats(Session& session, std::shared_ptr<Storage> storage) {
  const void* data = storage->data();
  const InputTensor input{data, PlanBuilder::f32({kN}), std::move(storage)};
  return session.submit({&input, 1});
}

SessionOptions exchanging(HostFunctions f = functions(), int max_in_flight = 0) {
  SessionOptions options;
  options.functions = std::move(f);
  options.max_in_flight = max_in_flight;
  options.zero_copy = true;
  return options;
}

// feed "x" -> up, whose "y" is in place of it -> sink.
Plan in_place_plan(const std::string& stage) {
  Plans b("in place");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), up = b.actor("up", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", up, {sink}, {.quota = 2, .bytes = 16, .in_place_of = b.edge_of(x, up)});
  b.call(up, stage, {b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

uint64_t bytes_of(const Session& session) {
  uint64_t bytes = 0;
  for (const SessionMemory::Space& space : session.memory().spaces) bytes += space.total();
  return bytes;
}

TEST(Exchange, KernelsWorkInTheMemoryOfCallers) {
  Engine engine({.cores = 2});
  Lender lender;
  std::vector<const void*> read, written;
  HostFunctions f;
  f["note"] = [&](const KernelArgs& args, const std::vector<TensorSpec>& in, const std::vector<TensorSpec>& out) {
    read.push_back(args.inputs[0]);
    written.push_back(args.outputs[0]);
    elementwise([](float x) { return x + 1; })(args, in, out);
  };
  std::vector<const void*> given, got;
  {
    Session session = load_counted(engine, pipeline({"note"}, 2, 2), {}, exchanging(f));
    EXPECT_EQ(session.inputs()[0].copied, "");
    EXPECT_EQ(session.outputs()[0].copied, "");
    EXPECT_EQ(session.inputs()[0].space.str(), "host");
    for (int i = 0; i < 100; ++i) {
      std::shared_ptr<Storage> memory = lender.lend(static_cast<float>(i));
      given.push_back(memory->data());
      StepHandle step = hand_over(session, std::move(memory));
      EXPECT_EQ(result(step), filled(static_cast<float>(i + 1)));
      got.push_back(step.outputs()[0].storage->data());
    }
    session.wait_all();
    EXPECT_EQ(lender.settled(100), 100) << "its last reader is done";
    EXPECT_EQ(session.stats().input_copies, 0u);
    EXPECT_EQ(session.stats().output_copies, 0u);
  }
  EXPECT_EQ(lender.released(), 100);
  EXPECT_EQ(read, given);
  EXPECT_EQ(written, got);
}

TEST(Exchange, WhatIsBorrowedOrDoesNotFitIsCopied) {
  Engine engine({.cores = 2});
  Lender lender;
  Session session = load_counted(engine, pipeline({"add_one"}), {}, exchanging());
  EXPECT_EQ(result(submit(session, filled(1))), filled(2));
  EXPECT_EQ(session.stats().input_copies, 1u);
  // Not at a multiple of 64 bytes.
  EXPECT_EQ(result(hand_over(session, lender.lend(2, kN, 1))), filled(3));
  EXPECT_EQ(lender.settled(1), 1);
  // Not contiguous.
  std::shared_ptr<Storage> wide = lender.lend(3, 2 * kN);
  const InputTensor strided{wide->data(), {DType::kFloat32, {kN}, {2}}, std::move(wide)};
  EXPECT_EQ(result(session.submit({&strided, 1})), filled(4));
  EXPECT_EQ(session.stats().input_copies, 3u);
  // A part of more, at a multiple of 64 bytes, fits.
  std::shared_ptr<Storage> large = lender.lend(4, 64);
  const InputTensor part{static_cast<float*>(large->data()) + 16, PlanBuilder::f32({kN}), std::move(large)};
  EXPECT_EQ(result(session.submit({&part, 1})), filled(5));
  EXPECT_EQ(session.stats().input_copies, 3u);
  EXPECT_EQ(session.stats().output_copies, 0u);
}

TEST(Exchange, WithoutTheOptionPortsCopyAndLetGoAtOnce) {
  Engine engine({.cores = 2});
  Lender lender;
  Session session = load_counted(engine, pipeline({"add_one"}), {}, {.functions = functions()});
  EXPECT_EQ(session.inputs()[0].copied, "the session copies at its ports");
  StepHandle step = hand_over(session, lender.lend(1));
  EXPECT_EQ(lender.released(), 1);
  EXPECT_EQ(result(step), filled(2));
  EXPECT_EQ(session.stats().input_copies, 1u);
  EXPECT_EQ(session.stats().output_copies, 1u);
}

TEST(Exchange, WrongMemoryIsRefusedAndNothingIsTaken) {
  Engine engine({.cores = 2});
  Lender lender;
  Session session = load_counted(engine, pipeline({"add_one"}), {}, exchanging());
  const std::shared_ptr<Storage> small = lender.lend(1, 2);
  const InputTensor short_of{small->data(), PlanBuilder::f32({kN}), small};
  EXPECT_EQ(error_of([&] {
              session.submit({&short_of, 1});
            }),
            "value: session 'pipeline': input 'x': 16 bytes at 0 of the 8 handed over; it must lie within them");
  const std::shared_ptr<Storage> other = lender.lend(1, 64);
  const InputTensor elsewhere{static_cast<float*>(other->data()) + 64, PlanBuilder::f32({kN}), other};
  EXPECT_THAT(error_of([&] { session.submit({&elsewhere, 1}); }), HasSubstr("16 bytes at 256 of the 256 handed over"));
  const Space sim{SpaceKind::kDevice, parse_device("sim:0")};
  const auto device = std::make_shared<Storage>(engine.allocator(sim), 64, sim);
  const InputTensor on_device{device->data(), PlanBuilder::f32({kN}), device};
  EXPECT_EQ(error_of([&] {
              session.submit({&on_device, 1});
            }),
            "value: session 'pipeline': input 'x': handed over in sim:0; it must lie in host memory");
  EXPECT_EQ(small.use_count(), 2);
  EXPECT_EQ(device.use_count(), 2);
  EXPECT_EQ(lender.released(), 0);
  EXPECT_EQ(result(submit(session, filled(1))), filled(2));
}

TEST(Exchange, TellsWhyAPortCopies) {
  Engine engine({.cores = 2});
  Plans b("reasons");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), spy = b.actor("spy"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int wide = b.reg("wide", feed, {net}, {.quota = 2, .bytes = 128});
  const int y = b.reg("y", net, {spy, sink}, {.quota = 2, .bytes = 16});
  const int z = b.reg("z", net, {sink}, {.quota = 2, .bytes = 32});
  b.call(net, "add_one", {b.r(x), b.r(wide)}, {b.r(y), b.r(z)});
  b.call(spy, "copy", {b.r(y)}, {});
  b.input("x", x, b.f32({kN}));
  b.input("wide", wide, b.f32({kN}));
  b.output("y", b.r(y));
  View tail = b.r(z);
  tail.offset = 16;
  b.output("tail", tail);
  Session session = load_counted(engine, b.build(), {}, exchanging());
  const std::vector<PortInfo> in = session.inputs(), out = session.outputs();
  EXPECT_EQ(in[0].copied, "");
  EXPECT_EQ(in[1].copied, "its slots are larger than it");
  EXPECT_EQ(out[0].copied, "others than the sink read its register");
  EXPECT_EQ(out[1].copied, "it is a view of its register");
}

// Its reader may write to it as soon as the sink has handed it out.
TEST(Exchange, AResultThatItsProducerStillReadsIsCopied) {
  Engine engine({.cores = 2});
  for (const int stream : {0, 1}) {
    Plans b("read on");
    b.stream("cpu:0", StreamKind::kHost, 0);
    b.stream("cpu:0", StreamKind::kHost, 1);
    const int feed = b.feed("feed", 0), net = b.actor("net", stream), sink = b.sink("sink", 0);
    const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
    const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
    const int z = b.reg("z", net, {sink}, {.quota = 2, .bytes = 16});
    b.call(net, "add_one", {b.r(x)}, {b.r(y)});
    b.emit(net, y);
    b.call(net, "add_one", {b.r(y)}, {b.r(z)});
    b.input("x", x, b.f32({kN}));
    b.output("y", b.r(y));
    b.output("z", b.r(z));
    Session session = load_counted(engine, b.build(), {}, exchanging());
    EXPECT_EQ(session.outputs()[0].copied, stream == 0 ? "" : "its producer reads it after its emit");
    EXPECT_EQ(session.outputs()[1].copied, "");
    for (int i = 0; i < 20; ++i) {
      StepHandle step = submit(session, filled(static_cast<float>(i)));
      const std::vector<OutputTensor>& got = step.outputs();
      EXPECT_EQ(values(got[0]), filled(static_cast<float>(i + 1)));
      EXPECT_EQ(values(got[1]), filled(static_cast<float>(i + 2)));
    }
  }
}

TEST(Exchange, SlotsThatAStreamsOtherValuesMayOverlapStay) {
  Engine engine({.cores = 2});
  Plan plan = pipeline({"add_one"});
  plan.arenas[0].stream = 0;
  Session session = load_counted(engine, plan, {}, exchanging());
  EXPECT_EQ(session.inputs()[0].copied, "other values of a stream lie in its slots, too");
  EXPECT_EQ(session.outputs()[0].copied, "other values of a stream lie in its slots, too");
  Lender lender;
  EXPECT_EQ(result(hand_over(session, lender.lend(1))), filled(2));
  EXPECT_EQ(lender.settled(1), 1);
}

TEST(Exchange, ADonatedInputBecomesTheResult) {
  Engine engine({.cores = 2});
  Lender lender;
  const auto bytes = [&](bool zero_copy) {
    SessionOptions options = exchanging();
    options.zero_copy = zero_copy;
    return bytes_of(Session::load(engine, in_place_plan("add_one"), {}, std::move(options)));
  };
  EXPECT_GE(bytes(false), 4 * 16u) << "two slots, and results of two steps";
  EXPECT_EQ(bytes(true), 0u);
  Session session = load_counted(engine, in_place_plan("add_one"), {}, exchanging());
  for (int i = 0; i < 50; ++i) {
    std::shared_ptr<Storage> memory = lender.lend(static_cast<float>(i));
    const void* const given = memory->data();
    StepHandle step = hand_over(session, std::move(memory));
    EXPECT_EQ(result(step), filled(static_cast<float>(i + 1)));
    EXPECT_EQ(step.outputs()[0].storage->data(), given);
    EXPECT_LE(lender.released(), i) << "the result is in use";
  }
  EXPECT_EQ(bytes_of(session), 0u);
  // It may not lie within other memory, since the result would not begin where its storage does.
  std::shared_ptr<Storage> large = lender.lend(1, 64);
  const InputTensor part{static_cast<float*>(large->data()) + 16, PlanBuilder::f32({kN}), std::move(large)};
  EXPECT_EQ(result(session.submit({&part, 1})), filled(2));
  EXPECT_EQ(session.stats().input_copies, 1u);
  // Borrowed memory is not written to.
  const Floats mine = filled(7);
  EXPECT_EQ(result(submit(session, mine)), filled(8));
  EXPECT_EQ(mine, filled(7));
}

TEST(Exchange, OneStepsResultIsTheNextOnesInput) {
  Engine engine({.cores = 2});
  Lender lender;
  {
    Session session = load_counted(engine, in_place_plan("add_one"), {}, exchanging());
    std::shared_ptr<Storage> state = lender.lend(0);
    const void* const address = state->data();
    for (int i = 0; i < 200; ++i) {
      StepHandle step = hand_over(session, std::move(state));
      state = step.outputs()[0].storage;
    }
    EXPECT_EQ(state->data(), address);
    EXPECT_EQ(*static_cast<float*>(state->data()), 200.0f);
  }
  EXPECT_EQ(lender.settled(1), 1);
}

TEST(Exchange, FailedStepsReleaseOnce) {
  Engine engine({.cores = 2});
  for (const bool in_place : {false, true}) {
    Lender lender;
    HostFunctions f = functions();
    f["picky"] = failing(3, 1);
    {
      Session session = load_counted(engine, in_place ? in_place_plan("picky") : pipeline({"picky"}, 2, 2), {},
                                     exchanging(f, in_place ? 0 : 5));
      for (int i = 0; i < 60; ++i) {
        const float x = static_cast<float>(i % 6);
        StepHandle step = hand_over(session, lender.lend(x));
        if (x != 3) {
          EXPECT_EQ(result(step), filled(x + 1));
        } else {
          EXPECT_THAT(error_of([&] { step.outputs(); }), HasSubstr("picky: 3 is not accepted"));
        }
      }
    }
    EXPECT_EQ(lender.settled(60), 60);
    EXPECT_EQ(lender.released(), 60);
  }
}

TEST(Exchange, SessionsThatEndEarlyReleaseOnce) {
  Engine engine({.cores = 2});
  for (const bool in_place : {false, true}) {
    Lender lender;
    Gate gate;
    HostFunctions f = functions();
    f["gate"] = gate.function();
    std::vector<StepHandle> steps;
    {
      Session session =
          load_counted(engine, in_place ? in_place_plan("gate") : pipeline({"gate"}, 2, 2), {}, exchanging(f, 8));
      for (int i = 0; i < 8; ++i) steps.push_back(hand_over(session, lender.lend(1)));  // two slots, six wait
      gate.wait_arrived(1);
      EXPECT_EQ(lender.released(), 0);
      std::thread opener([&] {
        while (error_of([&] { submit(session, filled(1)); }).find("was stopped") == std::string::npos)
          std::this_thread::yield();
        gate.open();
      });
      session.stop();
      opener.join();
    }
    for (StepHandle& step : steps) EXPECT_TRUE(step.done());
    steps.clear();
    EXPECT_EQ(lender.settled(8), 8);
    EXPECT_EQ(lender.released(), 8);
  }
}

TEST(Exchange, AnAbandonedSessionKeepsWhatItsKernelReads) {
  Lender lender;
  Gate gate;
  {
    Engine engine({.cores = 2});
    HostFunctions f = functions();
    f["gate"] = gate.function();
    {
      SessionOptions options = exchanging(f);
      options.stop_timeout = std::chrono::milliseconds(1);
      Session session = Session::load(engine, pipeline({"gate"}, 2, 2), {}, std::move(options));
      hand_over(session, lender.lend(1));
      gate.wait_arrived(1);
    }
    EXPECT_EQ(lender.released(), 0);
    gate.open();
  }
  EXPECT_EQ(lender.settled(1), 1);
}

TEST(Exchange, ResultsOutliveTheirSession) {
  Lender lender;
  std::vector<OutputTensor> kept;
  {
    Engine engine({.cores = 2});
    for (const bool in_place : {false, true}) {
      Session session = load_counted(engine, in_place ? in_place_plan("twice") : pipeline({"twice"}), {}, exchanging());
      for (int i = 0; i < 20; ++i) kept.push_back(hand_over(session, lender.lend(static_cast<float>(i))).outputs()[0]);
    }
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(values(kept[i]), filled(static_cast<float>(2 * (i % 20))));
  kept.clear();
  EXPECT_EQ(lender.settled(40), 40);
}

TEST(Exchange, ManyThreadsHandOver) {
  Engine engine({.cores = 2});
  for (const bool in_place : {false, true}) {
    Lender lender;
    {
      Session session = load_counted(engine, in_place ? in_place_plan("add_one") : pipeline({"add_one"}, 3, 2), {},
                                     exchanging(functions(), 6));
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          for (int i = 0; i < 300; ++i) {
            const float x = static_cast<float>(1000 * t + i);
            EXPECT_EQ(result(i % 3 == 0 ? submit(session, filled(x)) : hand_over(session, lender.lend(x))),
                      filled(x + 1));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(lender.settled(800), 800);
    EXPECT_EQ(lender.lent(), 800);
  }
}

TEST(Exchange, MicroBatchesTakeRowsOfWhatWasHandedOver) {
  Engine engine({.cores = 2});
  constexpr int64_t kRow = 16;  // floats: 64 bytes
  for (const int64_t row : {kRow, kN}) {
    Lender lender;
    {
      Plans b("micro-batches");
      b.stream("cpu:0", StreamKind::kHost, 0);
      b.stream("cpu:0", StreamKind::kHost, 1);
      const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
      b.plan.actors[feed].starts = 3;
      const auto bytes = static_cast<uint64_t>(row) * 4;
      const int x = b.reg("x", feed, {net}, {.quota = 6, .bytes = bytes});
      const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = bytes});
      b.call(net, "add_one", {b.of_reg(x, {1, row})}, {b.of_reg(y, {1, row})});
      b.input("x", x, b.f32({1, row}));
      b.output("y", b.of_reg(y, {1, row}));
      Session session = load_counted(engine, b.build(), {}, exchanging());
      EXPECT_EQ(session.inputs()[0].copied,
                row == kRow ? "" : "its parts are not each contiguous at a multiple of 64 bytes");
      EXPECT_EQ(session.outputs()[0].copied, "a step is not one of its register's tokens");
      for (int i = 0; i < 20; ++i) {
        std::shared_ptr<Storage> memory = lender.lend(static_cast<float>(i), 3 * row);
        static_cast<float*>(memory->data())[row] = 77;
        const InputTensor input{memory->data(), PlanBuilder::f32({3, row}), std::move(memory)};
        const Floats got = result(session.submit({&input, 1}));
        ASSERT_EQ(got.size(), static_cast<size_t>(3 * row));
        EXPECT_EQ(got[0], static_cast<float>(i + 1));
        EXPECT_EQ(got[static_cast<size_t>(row)], 78.0f);
        EXPECT_EQ(got.back(), static_cast<float>(i + 1));
      }
      EXPECT_EQ(session.stats().input_copies, row == kRow ? 0u : 20u);
    }
    EXPECT_EQ(lender.settled(20), 20);
  }
}

TEST(Exchange, ADeviceReadsAndWritesTheMemoryOfCallers) {
  Engine engine({.cores = 2});
  Lender lender;
  {
    Session session = load_counted(engine, device_plan("add_one"), {}, exchanging());
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(result(hand_over(session, lender.lend(static_cast<float>(i)))), filled(static_cast<float>(i + 1)));
    EXPECT_EQ(session.stats().input_copies, 0u);
    EXPECT_EQ(session.stats().output_copies, 0u);
  }
  EXPECT_EQ(lender.settled(100), 100);
}

// feed -> net -> sink, whose registers lie in the memory of sim:0.
Plan ports_on_device(const std::string& stage) {
  Plans b("device ports");
  const int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream("sim:0", StreamKind::kCompute);
  const int device = b.space(SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed", host), net = b.actor("net", compute), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16, .space = device});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16, .space = device});
  b.call(net, stage, {b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

TEST(Exchange, DevicePortsCopyFromAndToTheHostUnlessAsked) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, ports_on_device("add_one"), {}, exchanging());
  EXPECT_EQ(session.inputs()[0].copied, "the session copies at its ports");
  EXPECT_EQ(session.outputs()[0].space.str(), "host");
  const Floats wide = {0, 9, 1, 9, 2, 9, 3, 9};
  const InputTensor strided{wide.data(), {DType::kFloat32, {kN}, {2}}};
  EXPECT_EQ(result(session.submit({&strided, 1})), (Floats{1, 2, 3, 4}));
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(result(submit(session, filled(static_cast<float>(i)))), filled(static_cast<float>(i + 1)));
}

TEST(Exchange, DevicePortsNeedNotVisitTheHost) {
  const Space sim{SpaceKind::kDevice, parse_device("sim:0")};
  std::shared_ptr<Storage> state;
  {
    Engine engine({.cores = 2});
    SessionOptions options = exchanging(functions(), 4);
    options.device_ports = true;
    Session session = Session::load(engine, ports_on_device("add_one"), {}, std::move(options));
    EXPECT_EQ(session.inputs()[0].copied, "");
    EXPECT_EQ(session.inputs()[0].space, sim);
    EXPECT_EQ(session.outputs()[0].space, sim);
    // From the host once, then from step to step.
    state = submit(session, filled(0)).outputs()[0].storage;
    EXPECT_EQ(state->space(), sim);
    for (int i = 0; i < 100; ++i) state = hand_over_floats(session, std::move(state)).outputs()[0].storage;
    session.wait_all();
    EXPECT_EQ(session.stats().input_copies, 1u);
    EXPECT_EQ(session.stats().output_copies, 0u);
    const std::shared_ptr<Storage> other = std::make_shared<Storage>(engine.allocator(sim), 64, sim);
    const InputTensor strided{other->data(), {DType::kFloat32, {kN}, {2}}, other};
    EXPECT_EQ(error_of([&] {
                session.submit({&strided, 1});
              }),
              "value: session 'device ports': input 'x': handed over in sim:0; it must lie in sim:0, contiguous at a "
              "multiple of 64 bytes, or in host memory");
    // The session ends with steps in flight.
    for (int i = 0; i < 4; ++i) submit(session, filled(1));
  }
  // Memory of a device may outlive the engine that has made it.
  Engine engine({.cores = 1});
  Floats got(kN);
  engine.device(sim.device);
  std::memcpy(got.data(), state->data(), 16);  // simulated memory is the host's
  EXPECT_EQ(got, filled(101));
}

TEST(Exchange, TheSameMemoryTwiceIsOnesOwnFault) {
  Engine engine({.cores = 2});
  Lender lender;
  {
    Session session = load_counted(engine, in_place_plan("add_one"), {}, exchanging(functions(), 4));
    const std::shared_ptr<Storage> memory = lender.lend(0);
    std::vector<StepHandle> steps;
    for (int i = 0; i < 20; ++i) steps.push_back(hand_over(session, memory));
    for (StepHandle& step : steps) EXPECT_EQ(step.outputs()[0].storage, memory);
  }
  EXPECT_EQ(lender.settled(1), 1);
  EXPECT_EQ(lender.released(), 1);
}

TEST(Exchange, ResultsWhoseMemoryIsGivenAwayDoNotComeBack) {
  Engine engine({.cores = 2});
  for (const bool exchange : {true, false}) {
    Session session = load_counted(engine, pipeline({"add_one"}, 2, 2), {},
                                   exchange ? exchanging() : SessionOptions{.functions = functions()});
    for (int i = 0; i < 50; ++i) {
      StepHandle step = submit(session, filled(static_cast<float>(i)));
      EXPECT_EQ(result(step), filled(static_cast<float>(i + 1)));
      if (i % 3 == 0) step.outputs()[0].storage->give_away("donated");
    }
  }
}

TEST(Exchange, ResetBeginsAnew) {
  Engine engine({.cores = 2});
  Lender lender;
  {
    Session session = load_counted(engine, pipeline({"add_one"}, 3, 2), {}, exchanging(functions(), 5));
    for (int round = 0; round < 5; ++round) {
      std::vector<StepHandle> steps;
      for (int i = 0; i < 7; ++i) steps.push_back(hand_over(session, lender.lend(static_cast<float>(i))));
      session.reset();
      for (int i = 0; i < 7; ++i) EXPECT_EQ(result(steps[i]), filled(static_cast<float>(i + 1)));
    }
    EXPECT_EQ(lender.settled(35), 35);
  }
  EXPECT_EQ(lender.released(), 35);
}

TEST(Exchange, SteadyStateAllocatesNothing) {
  EngineOptions options;
  options.cores = 2;
  options.watchdog = {};  // its timer allocates now and then
  Engine engine(options);
  for (const bool in_place : {false, true}) {
    Session session =
        Session::load(engine, in_place ? in_place_plan("add_one") : pipeline({"add_one"}, 2, 2), {}, exchanging());
    Lender lender;
    const std::shared_ptr<Storage> memory = lender.lend(1);
    const Floats mine = filled(1);
    // Timing decides how many results are alive at once, so pools may grow a little at first.
    uint64_t made = 1;
    for (int round = 0; round < 10 && made > 0; ++round) {
      const uint64_t before = allocations();
      for (int i = 0; i < 500; ++i) {
        const InputTensor borrowed{mine.data(), PlanBuilder::f32({kN})};
        EXPECT_TRUE(session.submit({&borrowed, 1}).wait().ok());
        const InputTensor given{memory->data(), PlanBuilder::f32({kN}), memory};
        EXPECT_TRUE(session.submit({&given, 1}).wait().ok());
      }
      made = allocations() - before;
    }
    EXPECT_EQ(made, 0u) << (in_place ? "in place" : "");
  }
}

TEST(Exchange, CountsItsMemory) {
  Engine engine({.cores = 2});
  const auto host = [](const Session& session) { return session.memory().spaces[0]; };
  Session copying = load_counted(engine, pipeline({"add_one"}), {}, {.functions = functions()});
  Session session = load_counted(engine, pipeline({"add_one"}), {}, exchanging());
  EXPECT_EQ(host(copying).arenas, 4 * 64u) << "of two registers, two slots each";
  EXPECT_EQ(host(session).arenas, 0u);
  EXPECT_EQ(host(session).inputs, 0u);
  EXPECT_EQ(host(session).outputs, 4 * 16u) << "two slots, results of two steps";
  result(submit(session, filled(1)));
  session.wait_all();
  EXPECT_EQ(host(session).inputs, 16u) << "a copy of what was borrowed, kept for the next";
}

}  // namespace
}  // namespace sluice::test
