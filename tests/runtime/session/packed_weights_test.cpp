// Packed copies of variables: made once, shared, and never behind what they are copies of.
#include <shared_mutex>

#include "plan/pack/ledger.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

// "shift": y = x + w, elementwise. It reads w, its input 1, backwards where it may be packed, and then w takes
// `bytes`. `packed` counts how often one was packed; a first element of kBad cannot be.
constexpr float kBad = -77;
struct Shift {
  std::atomic<int> packed{0};
  uint64_t bytes = 128;
  std::string format = "backwards";  // "": it wants none packed

  class Kernel final : public PreparedKernel {
   public:
    Kernel(Shift& shift, bool may) : backwards_(may && !shift.format.empty()) {
      if (backwards_) packings_.push_back({{1, shift.format, shift.bytes}, std::make_shared<Pack>(shift)});
    }
    void run(const KernelArgs& args) const override {
      const auto *x = static_cast<const float*>(args.inputs[0]), *w = static_cast<const float*>(args.inputs[1]);
      for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[i] = x[i] + w[backwards_ ? kN - 1 - i : i];
    }

   private:
    const bool backwards_;
  };
  class Pack final : public PreparedKernel {
   public:
    explicit Pack(Shift& shift) : shift_(shift) { workspace_bytes_ = 4; }
    void run(const KernelArgs& args) const override {
      const auto* w = static_cast<const float*>(args.inputs[0]);
      ASSERT_NE(args.workspace, nullptr);
      if (w[0] == kBad) fail(ErrorKind::kValue, "shift: cannot pack {}; give another", w[0]);
      for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[kN - 1 - i] = w[i];
      ++shift_.packed;
    }

   private:
    Shift& shift_;
  };

  void add_to(Engine& engine) {
    engine.kernels().add(DeviceKind::kCpu, {.op = "shift",
                                            .prepare =
                                                [this](const plan::KernelQuery& q, const PrepareContext&) {
                                                  return std::make_unique<Kernel>(*this,
                                                                                  q.packed == std::vector<int>{1});
                                                },
                                            .packs = {1}});
  }
};

// y = x + w, with w packed as a machine packed it that wanted `format`.
Plan shift_plan(const std::string& format = "backwards", uint64_t bytes = 128) {
  Plans b("shift");
  b.stream("cpu:0");
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int w = b.variable("w", {kN});
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16}),
            y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, "shift", {b.r(x), b.v(w)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  b.plan.kernels[0].inputs[1].packed = packed_copy(b.plan, w, format, bytes);
  return b.build();
}

std::shared_ptr<Storage> ramp(Engine& engine, float first) {
  auto storage = std::make_shared<Storage>(engine.allocator({}), 64);
  for (int64_t i = 0; i < kN; ++i) static_cast<float*>(storage->data())[i] = first + static_cast<float>(i);
  return storage;
}
Floats ramp(float first) { return {first, first + 1, first + 2, first + 3}; }

void write(Storage& storage, float first) {
  const Writing writing(storage);
  for (int64_t i = 0; i < kN; ++i) static_cast<float*>(storage.data())[i] = first + static_cast<float>(i);
}

TEST(PackedWeights, ArePackedOnceAndAgainAfterAWrite) {
  Engine engine({.cores = 2});
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 10);
  Session session = Session::load(engine, shift_plan(), {{"w", w}});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(result(submit(session, filled(0))), ramp(10));
  EXPECT_EQ(shift.packed, 1);
  write(*w, 20);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(result(submit(session, filled(1))), ramp(21));
  EXPECT_EQ(shift.packed, 2);
}

TEST(PackedWeights, TakeTheBytesOfTheLedger) {
  Engine engine;
  Shift shift;
  shift.bytes = 200;
  shift.add_to(engine);
  const auto w = ramp(engine, 1);
  const uint64_t before = engine.allocator_stats({}).current_bytes;
  const Plan plan = shift_plan("backwards", 200);
  Session session = Session::load(engine, plan, {{"w", w}});
  const Ledger ledger = plan::ledger(plan);
  EXPECT_EQ(ledger.packed, 256u);
  EXPECT_EQ(engine.allocator_stats({}).current_bytes - before, ledger.total - ledger.variables);
  EXPECT_EQ(session.memory().spaces[0].packed, 256u);
  EXPECT_EQ(session.stats().bytes, ledger.total + session.memory().spaces[0].outputs);
  session.stop();
  session = {};
  EXPECT_EQ(engine.allocator_stats({}).current_bytes, before);
}

TEST(PackedWeights, AreSharedBySessions) {
  Engine engine({.cores = 2});
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 1);
  Session first = Session::load(engine, shift_plan(), {{"w", w}});
  const uint64_t before = engine.allocator_stats({}).current_bytes;
  Session second = Session::load(engine, shift_plan(), {{"w", w}});
  EXPECT_EQ(engine.allocator_stats({}).current_bytes - before, ledger(second.plan()).arenas);
  write(*w, 5);
  EXPECT_EQ(result(submit(second, filled(0))), ramp(5));
  EXPECT_EQ(result(submit(first, filled(0))), ramp(5));
  EXPECT_EQ(shift.packed, 2);
  first.stop();
  first = {};
  EXPECT_EQ(result(submit(second, filled(0))), ramp(5));
  const auto other = ramp(engine, 7);
  Session third = Session::load(engine, shift_plan(), {{"w", other}});
  EXPECT_EQ(result(submit(third, filled(0))), ramp(7));
  EXPECT_EQ(result(submit(second, filled(0))), ramp(5));
}

TEST(PackedWeights, FollowTheStepsOfASessionThatWrites) {
  Engine engine({.cores = 2});
  Shift shift;
  shift.add_to(engine);
  const auto w = variable(engine, 1), v = variable(engine, 0);
  Session reader = Session::load(engine, shift_plan(), {{"w", w}});
  Session writer = Session::load(engine, updating_plan("copy"), {{"w", w}, {"v", v}}, {.functions = functions()});
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(result(submit(reader, filled(0))), filled(static_cast<float>(1 + i)));
    submit(writer, filled(0));  // not waited for
  }
  // Read in flight, then written, then read.
  StepHandle last = submit(reader, filled(0));
  for (int i = 0; i < 5; ++i) submit(writer, filled(0));
  EXPECT_EQ(result(submit(reader, filled(0))), filled(56));
  EXPECT_EQ(result(last), filled(51));
}

TEST(PackedWeights, OfLentMemoryArePackedForEveryStep) {
  Engine engine;
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 1);
  Session session = Session::load(engine, shift_plan(), {{"w", w}});
  {
    const Lent lent(w);
    for (int i = 0; i < 3; ++i) {
      std::fill_n(static_cast<float*>(w->data()), kN, static_cast<float>(i));
      EXPECT_EQ(result(submit(session, filled(0))), filled(static_cast<float>(i)));
    }
    std::fill_n(static_cast<float*>(w->data()), kN, 9.f);
  }
  EXPECT_EQ(result(submit(session, filled(0))), filled(9));
  const int packed = shift.packed;
  EXPECT_EQ(result(submit(session, filled(0))), filled(9));
  EXPECT_EQ(shift.packed, packed);
}

// A plan of a machine that packs otherwise, or of one that packs where this one does not.
TEST(PackedWeights, AreThoseOfThisMachine) {
  Engine engine;
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 3);
  Session session = Session::load(engine, shift_plan("of elsewhere", 64), {{"w", w}});
  EXPECT_EQ(result(submit(session, filled(0))), ramp(3));
  ASSERT_EQ(session.plan().packed.size(), 1u);
  EXPECT_EQ(session.plan().packed[0].format, "backwards");
  EXPECT_EQ(session.plan().packed[0].bytes, 128u);

  Engine plain_engine;
  Shift plain;
  plain.format = "";
  plain.add_to(plain_engine);
  const auto v = ramp(plain_engine, 4);
  Session unpacked = Session::load(plain_engine, shift_plan(), {{"w", v}});
  EXPECT_EQ(result(submit(unpacked, filled(0))), ramp(4));
  EXPECT_TRUE(unpacked.plan().packed.empty());
  EXPECT_EQ(unpacked.plan().kernels[0].inputs[1].packed, -1);
  EXPECT_EQ(unpacked.memory().spaces[0].packed, 0u);
}

// y = x + w * s: the kernel reads a copy of the product, of variables that lie between steps as anybody leaves them.
Plan scaled_plan() {
  Plan plan = shift_plan();
  plan.variables.push_back({"s", plan.variables[0].space, plan.variables[0].spec});
  plan.packed.clear();
  const plan::Derivation product{"mul", {}, {0, 1}, plan.variables[0].spec};
  plan.kernels[0].inputs[1].packed = packed_copy(plan, 0, "backwards", 128, product);
  return plan;
}

TEST(DerivedCopies, FollowAllTheirVariablesPackedOrNot) {
  for (const char* format : {"backwards", ""}) {
    Engine engine({.cores = 2});
    Shift shift;
    shift.format = format;
    shift.add_to(engine);
    const auto w = ramp(engine, 1), s = variable(engine, 2);
    Session session = Session::load(engine, scaled_plan(), {{"w", w}, {"s", s}});
    const Floats twice = {2, 4, 6, 8}, later = {10, 12, 14, 16}, same = {5, 12, 21, 32};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(result(submit(session, filled(0))), twice);
    write(*w, 5);
    EXPECT_EQ(result(submit(session, filled(0))), later);
    write(*s, 1);
    EXPECT_EQ(result(submit(session, filled(0))), same);
    EXPECT_EQ(shift.packed, *format == 0 ? 0 : 3);
    ASSERT_EQ(session.plan().packed.size(), 1u);
    EXPECT_EQ(session.plan().packed[0].name, *format == 0 ? "w/mul" : "w/mul/packed");
    EXPECT_EQ(session.memory().spaces[0].packed, *format == 0 ? 64u : 128u);
  }
}

TEST(DerivedCopies, AreSharedWhereTheyAreTheSame) {
  Engine engine;
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 1), s = variable(engine, 2), other = variable(engine, 3);
  Session first = Session::load(engine, scaled_plan(), {{"w", w}, {"s", s}});
  const uint64_t before = engine.allocator_stats({}).current_bytes;
  Session second = Session::load(engine, scaled_plan(), {{"w", w}, {"s", s}});
  EXPECT_EQ(engine.allocator_stats({}).current_bytes - before, ledger(second.plan()).arenas);
  EXPECT_EQ(shift.packed, 1);
  Session third = Session::load(engine, scaled_plan(), {{"w", w}, {"s", other}});
  Session plain = Session::load(engine, shift_plan(), {{"w", w}});
  const Floats twice = {2, 4, 6, 8}, thrice = {3, 6, 9, 12};
  EXPECT_EQ(result(submit(second, filled(0))), twice);
  EXPECT_EQ(result(submit(third, filled(0))), thrice);
  EXPECT_EQ(result(submit(plain, filled(0))), ramp(1));
  EXPECT_EQ(shift.packed, 3);
}

TEST(DerivedCopies, FollowTheStepsOfASessionThatWrites) {
  Engine engine({.cores = 2});
  Shift shift;
  shift.add_to(engine);
  const auto w = variable(engine, 2), s = variable(engine, 1), v = variable(engine, 0);
  Session reader = Session::load(engine, scaled_plan(), {{"w", w}, {"s", s}});
  Session writer = Session::load(engine, updating_plan("copy"), {{"w", s}, {"v", v}}, {.functions = functions()});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(result(submit(reader, filled(0))), filled(2 * static_cast<float>(1 + i)));
    submit(writer, filled(0));  // not waited for
  }
}

TEST(PackedWeights, ThatCannotBePackedFailTheCallAndNoMore) {
  Engine engine;
  Shift shift;
  shift.add_to(engine);
  const auto w = ramp(engine, 1);
  Session session = Session::load(engine, shift_plan(), {{"w", w}});
  write(*w, kBad);
  const std::string message =
      "value: shift: cannot pack -77; give another  (packing 'w' for kernel 'net/shift' of actor 'net')";
  EXPECT_EQ(error_of([&] { submit(session, filled(0)); }), message);
  EXPECT_EQ(error_of([&] { submit(session, filled(0)); }), message);
  EXPECT_EQ(error_of([&] { Session::load(engine, shift_plan(), {{"w", w}}); }), message);
  write(*w, 2);
  EXPECT_EQ(result(submit(session, filled(0))), ramp(2));
}

// Callers of two sessions at once, between writes: each call gets what was last written.
TEST(PackedWeights, AreWholeWhereThreadsCallAndWrite) {
  Engine engine({.cores = 2});
  Shift shift;
  shift.add_to(engine);
  const auto w = variable(engine, 0);
  Session first = Session::load(engine, shift_plan(), {{"w", w}}),
          second = Session::load(engine, shift_plan(), {{"w", w}});
  constexpr int kRounds = 60;
  std::vector<std::thread> callers;
  std::shared_mutex turns;  // submissions together, writes alone; steps are still in flight then
  std::atomic<int> wrong{0}, calls{0};
  int round = 0;
  std::atomic<bool> done{false};
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      Session& session = t % 2 == 0 ? first : second;
      while (!done) {
        std::shared_lock turn(turns);
        const float written = static_cast<float>(round);
        const StepHandle step = submit(session, filled(0));
        turn.unlock();
        wrong += result(step) != filled(written);
        ++calls;
        calls.notify_all();
      }
    });
  }
  for (int i = 1; i <= kRounds; ++i) {
    const int before = calls;
    {
      const std::lock_guard turn(turns);
      const Writing now(*w);
      std::fill_n(static_cast<float*>(w->data()), kN, static_cast<float>(i));
      round = i;
    }
    calls.wait(before);  // the mutex is not fair
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(result(submit(first, filled(0))), filled(kRounds));
  EXPECT_EQ(result(submit(second, filled(0))), filled(kRounds));
}

}  // namespace
}  // namespace sluice::test
