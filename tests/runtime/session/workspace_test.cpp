// Kernels that need more workspace here than where their plan was made.
#include <cstring>

#include "plan/pack/ledger.h"
#include "plan/verify.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

constexpr uint64_t kPlanned = 128;

// Copies its input by way of the last bytes of its workspace.
class Detour final : public PreparedKernel {
 public:
  explicit Detour(uint64_t workspace) { workspace_bytes_ = workspace; }
  void run(const KernelArgs& args) const override {
    auto* const room = static_cast<std::byte*>(args.workspace);
    std::memset(room, 0xff, workspace_bytes_);
    std::byte* const last = room + workspace_bytes_ - kN * sizeof(float);
    std::memcpy(last, args.inputs[0], kN * sizeof(float));
    std::memcpy(args.outputs[0], last, kN * sizeof(float));
  }
};

// feed -> net -> sink: add one, a detour with a planned workspace between two values, another with none, add one.
Plan detours() {
  Plans b("detours");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  const auto in = [&](int buffer) { return View{BaseKind::kBuffer, buffer, 0, 0, b.f32({kN})}; };
  const int one = b.buffer("one", 16), room = b.buffer("room", kPlanned), two = b.buffer("two", 16),
            three = b.buffer("three", 16);
  b.call(net, "add_one", {b.r(x)}, {in(one)});
  b.plan.kernels[b.run(net, "detour", {in(one)}, {in(two)})].workspace = room;
  b.run(net, "detour", {in(two)}, {in(three)});
  b.call(net, "add_one", {in(three), in(one)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

TEST(Workspaces, ThatAPlanHasTooSmallLieBesideIt) {
  for (const uint64_t needed : {kPlanned - 64, kPlanned, kPlanned + 1, uint64_t{100'000}}) {
    Engine engine({.cores = 2});
    engine.kernels().add(DeviceKind::kCpu, {.op = "detour", .prepare = [=](const KernelQuery&, const PrepareContext&) {
                                              return std::make_unique<Detour>(needed);
                                            }});
    const Plan planned = detours();
    Session session = Session::load(engine, planned, {}, {.functions = functions()});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(result(submit(session, filled(1))), filled(5));  // twice 1 + 1, and 1
    const Plan& loaded = session.plan();
    EXPECT_TRUE(plan::verify(loaded).ok());
    const uint64_t more = plan::ledger(loaded).arenas - plan::ledger(planned).arenas;
    EXPECT_EQ(more, align_up(needed, plan::kAlignment)) << needed << ": both detours have one arena, a stream's";
    for (const plan::Kernel& kernel : loaded.kernels) {
      if (kernel.op == "detour") {
        EXPECT_GE(loaded.buffers.at(kernel.workspace).bytes, needed);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
