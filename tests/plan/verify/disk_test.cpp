// Bytes of a stream's arena that another stream uses: the verifier wants to see that the stream says when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/verify.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

// v goes to the disk, and comes back as w; between these the stream works in their bytes.
struct Spilled {
  // `waits`: the stream waits for the disk to have v. `lets_go`: the disk waits for the stream before it brings w.
  explicit Spilled(bool waits = true, bool lets_go = true) {
    const int compute = b.stream(), disk = b.stream("cpu:0", StreamKind::kHost, 1);
    const int feed = b.feed("feed", compute), make = b.actor("make", compute);
    put = b.actor("put", disk);
    const int work = b.actor("work", compute), get = b.actor("get", disk), use = b.actor("use", compute),
              sink = b.sink("sink", compute);
    const int x = b.reg("x", feed, {make}, {.bytes = 64}), v = b.reg("v", make, {put}, {.bytes = 64});
    b.reg("place", put, {waits ? work : sink});
    b.reg("go", lets_go ? work : put, {get});
    const int w = b.reg("w", get, {use}, {.bytes = 64}), y = b.reg("y", use, {sink}, {.bytes = 64});
    b.reg("first", make, {work});
    b.reg("then", work, {use});
    b.reg("again", use, {make}, {.initial_tokens = 1});
    b.plan.arenas.push_back({"stream", 0, compute, 64, 64});
    const int arena = static_cast<int>(b.plan.arenas.size()) - 1;
    const auto buffer = [&](const char* name) {
      b.plan.buffers.push_back({name, arena, 0, 64});
      return static_cast<int>(b.plan.buffers.size()) - 1;
    };
    b.plan.registers[v].slots = {buffer("v")};
    b.plan.registers[w].slots = {buffer("w")};
    const int scratch = buffer("scratch");
    const auto reg = [](int r) { return PlanBuilder::of_reg(r, {16}); };
    b.run(make, "make", {reg(x)}, {reg(v)});
    b.run(put, "spill", {reg(v)}, {});
    b.run(work, "work", {}, {PlanBuilder::of_buffer(scratch, {16})});
    b.run(get, "fetch", {}, {reg(w)});
    b.run(use, "use", {reg(w)}, {reg(y)});
  }
  PlanBuilder b;
  int put = 0;
};

std::string fault(const Plan& plan) {
  const VerifyReport report = verify(plan);
  return report.ok() ? "" : report.problems[0].concern + ": " + report.problems[0].text;
}

TEST(VerifyDisk, BytesAreFreeWhileAValueIsOnTheDisk) { EXPECT_EQ(fault(Spilled().b.build()), ""); }

TEST(VerifyDisk, TheStreamMustWaitForWhoReads) {
  EXPECT_THAT(fault(Spilled(false).b.build()), HasSubstr("overlap while both are alive"));
}

TEST(VerifyDisk, WhoWritesMustWaitForTheStream) {
  EXPECT_THAT(fault(Spilled(true, false).b.build()), HasSubstr("overlap while both are alive"));
}

TEST(VerifyDisk, WhatIsToldBeforeTheLastUseSaysNothing) {
  Plan plan = Spilled().b.build();
  std::vector<Instr>& program = plan.actors[Spilled().put].program;
  const auto emit =
      std::find_if(program.begin(), program.end(), [](const Instr& i) { return i.kind == InstrKind::kEmit; });
  ASSERT_NE(emit, program.end());
  std::rotate(program.begin(), emit, emit + 1);  // the place is told, and then v is read
  EXPECT_THAT(fault(plan), HasSubstr("overlap while both are alive"));
}

}  // namespace
}  // namespace sluice::plan
