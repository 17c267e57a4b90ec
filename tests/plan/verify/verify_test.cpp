#include "plan/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

// The first problem, as "concern: text".
std::string fault(const Plan& plan) {
  const VerifyReport report = verify(plan);
  return report.ok() ? "" : report.problems[0].concern + ": " + report.problems[0].text;
}

TEST(Verify, AcceptsAGoodPlan) {
  const Plan plan = two_stage_plan();
  const VerifyReport report = verify(plan);
  EXPECT_EQ(report.str(), "");
  EXPECT_EQ(report.repetitions, (std::vector<int>{1, 1, 1, 1}));
  EXPECT_TRUE(report.certificate_given);
  EXPECT_EQ(report.certificate, plan.certificate);
  EXPECT_NO_THROW(check(plan));
}

TEST(Verify, CheckThrowsWithThePlansName) {
  Plan plan = two_stage_plan();
  plan.edges[1].consumer = 99;
  try {
    check(plan);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "plan 'two_stage': structure: edge 1: consumer out of range: 99; must be less than 4");
  }
}

struct Bad {
  const char* name;
  void (*spoil)(Plan&);
  const char* message;
};

class VerifyBad : public ::testing::TestWithParam<Bad> {};

TEST_P(VerifyBad, NamesTheFault) {
  Plan plan = two_stage_plan();
  GetParam().spoil(plan);
  EXPECT_THAT(fault(plan), HasSubstr(GetParam().message));
}

const Bad kBad[] = {
    {"version", [](Plan& p) { p.schema_version = 2; }, "structure: schema version: 2; must be 1"},
    {"stream_index", [](Plan& p) { p.actors[1].stream = 9; },
     "structure: actor 'prepare': stream out of range: 9; must be less than 2"},
    {"negative_index", [](Plan& p) { p.buffers[0].arena = -1; }, "structure: buffer 'hidden': arena out of range: -1"},
    {"view_index", [](Plan& p) { p.kernels[0].inputs[0].index = 77; },
     "structure: kernel 'prepare/shift': register out of range: 77"},
    {"name_twice", [](Plan& p) { p.actors[1].name = "net"; }, "structure: actor 'net': the name appears twice"},
    {"no_sink",
     [](Plan& p) {
       p.actors[3].role = ActorRole::kNormal;
       p.outputs.clear();
     },
     "steps: no sink, so no step would ever be finished; a plan needs one"},
    {"input_not_of_every_step",
     [](Plan& p) {
       p.inputs = {{"x", 0, p.kernels[0].inputs[0].spec}};
       p.registers[0].emit_every = 2;
     },
     "structure: input 'x': register 'raw' has emit_every 2 and 0 initial tokens; the feed must emit it at every "
     "firing"},
    {"steps_of_more_slots", [](Plan& p) { p.actors[0].starts = 3; },
     "steps: register 'raw' of feed 'feed' has 2 slots; a step is 3 firings of it, each with one"},
    {"starts_of_a_net", [](Plan& p) { p.actors[2].starts = 2; },
     "structure: actor 'net': starts is 2; must be in 1 to 1"},
    {"parts_of_a_scalar", [](Plan& p) { p.actors[0].starts = 2; },
     "steps: output 'loss': sink 'sink' gives 2 of it per step; one of several has rows"},
    {"quota_zero", [](Plan& p) { p.registers[0].quota = 0; },
     "structure: register 'raw': quota is 0; must be in 1 to 65536"},
    {"hold_zero", [](Plan& p) { p.edges[0].hold = 0; }, "structure: edge 0: hold is 0"},
    {"take_too_many", [](Plan& p) { p.edges[0].take = 3; }, "takes 3 tokens of a register of quota 2"},
    {"too_many_initial", [](Plan& p) { p.registers[1].initial_tokens = 3; },
     "structure: register 'images': initial_tokens is 3; must be in 0 to 2"},
    {"slots_missing", [](Plan& p) { p.registers[1].slots.pop_back(); },
     "structure: register 'images': 1 slots; a register of 64 bytes and quota 2 has 2"},
    {"never_emits", [](Plan& p) { p.actors[0].program.clear(); }, "structure: actor 'feed': never emits 'raw'"},
    {"never_releases", [](Plan& p) { p.actors[3].program.clear(); }, "structure: actor 'sink': never releases 'loss'"},
    {"emits_twice", [](Plan& p) { p.actors[0].program.push_back(p.actors[0].program[0]); },
     "structure: actor 'feed': emits 'raw' twice"},
    {"emits_foreign",
     [](Plan& p) {
       p.actors[3].program.push_back({InstrKind::kEmit, 0});
     },
     "structure: actor 'sink': emits 'raw', which 'feed' produces"},
    {"emit_unwritten", [](Plan& p) { std::swap(p.actors[1].program[0], p.actors[1].program[1]); },
     "structure: actor 'prepare': emits 'images' before any kernel has written it"},
    {"read_after_release", [](Plan& p) { std::swap(p.actors[2].program[0], p.actors[2].program[1]); },
     "structure: kernel 'net/mul' of actor 'net': reads 'images' after its release"},
    {"reads_foreign", [](Plan& p) { p.kernels[1].inputs[0].index = 0; },
     "reads register 'raw', which its actor neither produces nor consumes"},
    {"writes_foreign", [](Plan& p) { p.kernels[1].outputs[0] = p.kernels[1].inputs[0]; },
     "structure: kernel 'net/mul' of actor 'net': writes register 'images', which 'prepare' produces"},
    {"writes_constant",
     [](Plan& p) {
       p.variables[0].constant = true;
       p.kernels[1].outputs[0] = PlanBuilder::of_variable(0, {16});
     },
     "structure: kernel 'net/mul' of actor 'net': writes 'model.weight', which is constant"},
    {"kernel_twice", [](Plan& p) { p.actors[1].program.insert(p.actors[1].program.begin(), p.actors[1].program[0]); },
     "is in several places"},
    {"output_of_foreign", [](Plan& p) { p.outputs[0].view.index = 0; },
     "structure: output 'loss': the sink does not consume 'raw'"},
    {"axes_twice",
     [](Plan& p) {
       p.outputs[0].axes = {0, 0};
     },
     "structure: output 'loss': axes (0, 0) of "},
    {"input_of_foreign", [](Plan& p) { p.inputs[0].reg = 1; },
     "structure: input 'x': register 'images' is produced by 'prepare'"},
    {"two_sinks", [](Plan& p) { p.actors[2].role = ActorRole::kSink; }, "structure: 2 sink actors"},
    {"unstarted",
     [](Plan& p) {
       p.actors[0].role = ActorRole::kNormal;
       p.inputs.clear();
       p.registers[0].bytes = 0;
       p.registers[0].slots.clear();
       p.kernels[0].inputs.clear();
     },
     "no source or feed is upstream of it"},
    {"offset_unaligned", [](Plan& p) { p.buffers[0].offset = 4; },
     "sizes: buffer 'hidden': offset 4; must be a multiple of 64"},
    {"buffer_leaves", [](Plan& p) { p.buffers[1].bytes = 1 << 20; }, "leave arena 'host'"},
    {"slot_small", [](Plan& p) { p.registers[0].bytes = 128; },
     "sizes: register 'raw': slot 'raw.0' has 64 bytes; needs 128"},
    {"view_leaves", [](Plan& p) { p.kernels[0].inputs[0].offset = 4; },
     "sizes: kernel 'prepare/shift': a view of 64 bytes at offset 4 leaves register 'raw' of 64 bytes; each of its "
     "slots, 2 by quota, must have 68"},
    {"negative_stride", [](Plan& p) { p.kernels[0].inputs[0].spec.strides[0] = -1; },
     "strides (-1,); must not be negative"},
    {"stride_rank", [](Plan& p) { p.kernels[0].inputs[0].spec.strides = {}; }, "must be equally many"},
    {"overflow",
     [](Plan& p) {
       p.variables[0].spec = {DType::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}, {1, 1}};
     },
     "sizes: variable 'model.weight': "},
    {"strides_overflow",
     [](Plan& p) {
       p.variables[0].spec = {DType::kFloat32, {3, 3}, {int64_t{1} << 62, int64_t{1} << 62}};
     },
     "sizes: variable 'model.weight': "},
    {"absent_with_shape",
     [](Plan& p) {
       View& absent = p.kernels[0].inputs.emplace_back();
       absent.index = -1;
       absent.spec = PlanBuilder::f32({2});
     },
     "an absent input has shape (2,)"},
    {"cost", [](Plan& p) { p.kernels[0].cost_ns = -1; }, "cost is -1 ns"},
    {"rates",
     [](Plan& p) {
       p.edges.push_back({0, 3, 2, 1});
       p.actors[3].program.push_back({InstrKind::kRelease, 3});
     },
     "rates: inconsistent: "},
    {"arena_overlap", [](Plan& p) { p.buffers[1].offset = p.buffers[2].offset; }, "arenas: arena 'host': "},
    {"certificate_order", [](Plan& p) { std::swap(p.certificate[0], p.certificate[1]); },
     "liveness: certificate: step 0: 'prepare' cannot fire, it waits for data on 'raw'"},
    {"certificate_short", [](Plan& p) { p.certificate.pop_back(); }, "liveness: certificate: actor 'sink' never fires"},
    {"certificate_no_return", [](Plan& p) { p.certificate.push_back(0); },
     "liveness: certificate: its end is not its beginning"},
    {"certificate_index", [](Plan& p) { p.certificate.push_back(44); },
     "structure: certificate: actor out of range: 44"},
};

INSTANTIATE_TEST_SUITE_P(Plans, VerifyBad, ::testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Verify, InconsistentRatesNameTheCycleOfEdges) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  b.reg("x", feed, {net}, {.quota = 2});
  b.reg("y", net, {sink}, {.emit_every = 4});
  b.reg("labels", feed, {sink}, {.quota = 2});
  EXPECT_EQ(
      fault(b.build(false)),
      "rates: inconsistent: 'feed' -('x': 1 per 1 firing, 1 taken per 1)-> 'net' -('y': 1 per 4 firings, 1 taken per "
      "1)-> "
      "'sink' <-('labels': 1 per 1 firing, 1 taken per 1)- 'feed': 'sink' would fire 1/1 and 1/4 times as often as "
      "'feed'; the rates around a cycle must agree");
}

TEST(Verify, RepetitionsOfAccumulation) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), forward = b.actor("forward"), update = b.sink("update");
  const int w = b.reg("weights", feed, {}, {.quota = 1});
  b.edge(w, forward, 1, 4);  // one copy of the weights for four micro-batches
  b.reg("gradient", forward, {update}, {.emit_every = 4});
  EXPECT_EQ(repetition_vector(b.plan), (std::vector<int>{1, 4, 1}));
  EXPECT_EQ(fault(b.build()), "");
}

TEST(Verify, ACycleWithoutTokensIsRefused) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), one = b.actor("one"), two = b.sink("two");
  b.reg("x", feed, {one});
  b.reg("a", one, {two});
  const int back = b.reg("b", two, {one});
  EXPECT_EQ(
      fault(b.build(false)),
      "liveness: deadlock: 'one' waits for data on 'b' from 'two'; 'two' waits for data on 'a' from 'one'; a register "
      "of the cycle needs more slots or initial tokens");
  b.plan.registers[back].initial_tokens = 1;
  EXPECT_EQ(fault(b.build()), "");
}

TEST(Verify, TooFewSlotsForTheRatesAreRefused) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), self = b.sink("self");
  b.reg("x", feed, {self});
  const int state = b.reg("state", self, {self}, {.quota = 1, .initial_tokens = 1});
  EXPECT_EQ(fault(b.build(false)), "rates: register 'state': quota 1; its rates and initial tokens need at least 2");
  b.plan.registers[state].quota = 2;
  EXPECT_EQ(fault(b.build()), "");
}

// Two actors on one stream that share an arena.
struct SharedArena {
  explicit SharedArena(int y_quota = 1) {
    b.stream();
    feed = b.feed("feed"), one = b.actor("one"), two = b.actor("two"), sink = b.sink("sink");
    x = b.reg("x", feed, {one, two}, {.quota = 2, .bytes = 64});
    y = b.reg("y", one, {sink}, {.quota = y_quota, .bytes = 64});
    z = b.reg("z", two, {sink}, {.bytes = 64});
    b.plan.arenas.push_back({"stream", 0, 0, 128, 128});
    arena = static_cast<int>(b.plan.arenas.size()) - 1;
    s1 = plain("s1", 0, 128);
    s2 = plain("s2", 64, 64);
    b.run(one, "first", {b.of_reg(x, {16})}, {b.of_buffer(s1, {32})});
    b.run(one, "last", {b.of_buffer(s1, {32})}, {b.of_reg(y, {16})});
    b.run(two, "first", {b.of_reg(x, {16})}, {b.of_buffer(s2, {16})});
    b.run(two, "last", {b.of_buffer(s2, {16})}, {b.of_reg(z, {16})});
  }
  int plain(const std::string& name, uint64_t offset, uint64_t bytes) {
    b.plan.buffers.push_back({name, arena, offset, bytes});
    return static_cast<int>(b.plan.buffers.size()) - 1;
  }
  // Something that `one` leaves in the arena for `two`.
  SharedArena& keep(int quota) {
    const int kept = b.reg("kept", one, {two}, {.quota = quota, .bytes = 64});
    b.run(one, "keep", {b.of_reg(x, {16})}, {b.of_reg(kept, {16})});
    for (int i = 0; i < quota; ++i)
      b.plan.registers[kept].slots.push_back(plain(fmt::format("kept.{}", i), 128 + 64 * i, 64));
    b.plan.arenas[arena].bytes = b.plan.arenas[arena].lower_bound = 128 + 64 * quota;
    return *this;
  }
  PlanBuilder b;
  int feed, one, two, sink, x, y, z, arena, s1, s2;
};

TEST(Verify, AnArenaSharedAcrossActorsNeedsAFixedOrder) {
  // The second `one` may overtake the first `two`.
  EXPECT_THAT(fault(SharedArena(2).keep(4).b.build()),
              HasSubstr("nothing makes 'two' (firing 0) come before 'one' (firing 1), which reuse its bytes"));
  // y's only slot comes back when the sink has z, so `two` is first.
  EXPECT_EQ(fault(SharedArena().keep(4).b.build()), "");
  EXPECT_EQ(fault(SharedArena(2).keep(1).b.build()), "");
}

TEST(Verify, WhatNoFiringLeavesBehindSharesAnArenaInAnyOrder) { EXPECT_EQ(fault(SharedArena(2).b.build()), ""); }

TEST(Verify, OverlapWhileBothAreAliveIsRefused) {
  SharedArena s;
  const int third = s.plain("third", 64, 64);
  s.b.plan.kernels[1].workspace = third;  // while s1 is read
  s.b.reg("order", s.one, {s.two}, {.quota = 1});
  EXPECT_EQ(
      fault(s.b.build()),
      "arenas: arena 'stream': 's1' (bytes 0 to 128) and 'third' (bytes 64 to 128) overlap while both are alive (at "
      "kernel 'one/last' of 'one')");
}

TEST(Verify, RegistersOfOneStreamLiveUntilTheirLastConsumer) {
  // y lies in the stream's arena; s2 may lie over it only if `two` runs after the sink of y.
  SharedArena s;
  s.b.plan.buffers.push_back({"y.0", s.arena, 64, 64});
  s.b.plan.registers[s.y].slots = {static_cast<int>(s.b.plan.buffers.size()) - 1};
  s.b.plan.buffers[s.s1].bytes = 64;
  s.b.plan.kernels[0].outputs = {PlanBuilder::of_buffer(s.s1, {16})};
  s.b.plan.kernels[1].inputs = {PlanBuilder::of_buffer(s.s1, {16})};
  s.b.reg("order", s.one, {s.two}, {.quota = 1});
  EXPECT_THAT(fault(s.b.build()), HasSubstr("'s2' (bytes 64 to 128)"));
}

TEST(Verify, InPlaceRegistersMustMoveInStep) {
  const auto plan = [](RegOptions options, int consumers) {
    PlanBuilder b;
    b.stream();
    const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink"), other = b.actor("other");
    const int first = b.actor("first");
    b.reg("x", feed, {first}, {.bytes = 64});
    const int h = b.reg("h", first, {net}, {.quota = 2, .bytes = 64});
    if (consumers == 2) b.edge(h, other);
    if (consumers == 1) b.reg("to_other", feed, {other});
    options.in_place_of = b.edge_of(h, net);
    const int y = b.reg("y", net, {sink}, options);
    b.run(first, "one", {}, {b.of_reg(h, {16})});
    b.run(net, "relu", {b.of_reg(h, {16})}, {b.of_reg(y, {16})});
    return b.build(false);
  };
  EXPECT_EQ(fault(plan({.quota = 2, .bytes = 64}, 1)), "");
  EXPECT_THAT(fault(plan({.quota = 2, .bytes = 64}, 2)),
              HasSubstr("it has 2 consumers; only a sole consumer may overwrite it"));
  EXPECT_THAT(fault(plan({.quota = 2, .bytes = 64, .emit_every = 2}, 1)),
              HasSubstr("must take 1 and emit as it takes"));
}

}  // namespace
}  // namespace sluice::plan
