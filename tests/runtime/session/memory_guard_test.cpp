// SessionOptions::memory_guard: a kernel that writes beyond what it was given fails its step, and is named.
#include <cstring>

#include "kernels/guarded_kernel.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

// Copies its input, and then writes `bytes` bytes at `offset` from the end of one of its operands, or before it.
class Stray final : public PreparedKernel, public cpu::OfImplementation {
 public:
  Stray(std::string where, int64_t offset, size_t bytes) : where_(std::move(where)), offset_(offset), bytes_(bytes) {
    workspace_bytes_ = kWorkspace;
  }
  static constexpr uint64_t kWorkspace = 128;
  std::string implementation() const override { return "straying"; }
  void run(const KernelArgs& args) const override {
    const Floats x(static_cast<const float*>(args.inputs[0]), static_cast<const float*>(args.inputs[0]) + kN);
    std::copy(x.begin(), x.end(), static_cast<float*>(args.outputs[0]));
    std::memset(args.workspace, 0, kWorkspace);
    auto* const end = where_ == "workspace" ? static_cast<std::byte*>(args.workspace) + kWorkspace
                                            : static_cast<std::byte*>(args.outputs[0]) + kN * sizeof(float);
    std::memset(end + offset_, 0, bytes_);
  }

 private:
  std::string where_;
  int64_t offset_;
  size_t bytes_;
};

// feed -> first -> stray -> last -> sink, where the result of `stray` and its workspace lie between others; or it
// updates a variable in its place.
Plan straying_plan(bool updates) {
  Plans b("straying");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  const int w = b.variable("w", {kN});
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  const auto in = [&](int buffer) { return View{BaseKind::kBuffer, buffer, 0, 0, b.f32({kN})}; };
  const int before = b.buffer("before", 16), result = b.buffer("result", 16),
            room = b.buffer("room", Stray::kWorkspace), behind = b.buffer("behind", 16);
  b.call(net, "add_one", {b.r(x)}, {in(before)});
  b.call(net, "add_one", {b.r(x)}, {in(behind)});
  const int stray = updates ? b.run(net, "stray", {b.v(w)}, {b.v(w)}) : b.run(net, "stray", {in(before)}, {in(result)});
  b.plan.kernels[stray].workspace = room;
  b.plan.kernels[stray].source = {"net.py", 41};
  b.call(net, "add_one", {updates ? in(before) : in(result), in(behind)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

std::string outcome(const std::string& where, int64_t offset, size_t bytes, bool guard) {
  Engine engine({.cores = 2});
  engine.kernels().add(DeviceKind::kCpu, {.op = "stray", .prepare = [=](const KernelQuery&, const PrepareContext&) {
                                            return std::make_unique<Stray>(where, offset, bytes);
                                          }});
  const auto w = variable(engine, 3);
  Session session = load_counted(engine, straying_plan(where == "variable"), {{"w", w}},
                                 {.functions = functions(), .memory_guard = guard});
  const std::string error = error_of([&] {
    EXPECT_EQ(result(submit(session, filled(1))), filled(5));  // 1 + 1, twice, plus 1
  });
  session.wait_all();
  w->before_read();
  EXPECT_EQ(static_cast<float*>(w->data())[0], 3);
  return error;
}

TEST(MemoryGuard, NamesTheKernelThatWritesBeyondItsOperands) {
  constexpr const char* kWhere =
      "; it must stay within: mend it, or report it  (net.py:41, kernel 'net/stray' (stray) of "
      "actor 'net', step 0)";
  const std::string who = "runtime: stray: memory guard: the kernel (implementation 'straying') ";
  EXPECT_EQ(outcome("output", 0, 1, true), who + "wrote beyond its output 0, of 16 bytes, up to byte 17" + kWhere);
  EXPECT_EQ(outcome("output", 60, 8, true), who + "wrote beyond its output 0, of 16 bytes, up to byte 84" + kWhere);
  EXPECT_EQ(outcome("output", -20, 4, true), who + "wrote 4 bytes before its output 0, of 16 bytes" + kWhere);
  EXPECT_EQ(outcome("workspace", 0, 4, true),
            who + "wrote beyond its workspace, of 128 bytes, up to byte 132" + kWhere);
  EXPECT_EQ(outcome("workspace", 2000, 4, true),
            who + "wrote beyond its workspace, of 128 bytes, up to byte 2132" + kWhere);
  EXPECT_EQ(outcome("variable", 0, 64, true), who + "wrote beyond its output 0, of 16 bytes, up to byte 80" + kWhere);
}

TEST(MemoryGuard, LetsKernelsBeThatStayWithin) {
  for (const char* where : {"output", "workspace", "variable"}) {
    EXPECT_EQ(outcome(where, -4, 0, true), "no error") << where;
    EXPECT_EQ(outcome(where, -4, 0, false), "no error") << where;
  }
}

}  // namespace
}  // namespace sluice::test
