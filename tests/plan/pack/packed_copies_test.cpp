// Packed copies in plans: their file form, what must hold of them, and the bytes they take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/family/family.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;

// y = conv(x, w), twice, and b beside it: w is read packed, b as it is.
Plan packed_plan(const std::string& format = "in blocks") {
  PlanBuilder b("packed");
  b.stream();
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int bias = b.variable("b", {4}), w = b.variable("w", {4});
  const int x = b.reg("x", feed, {net}, {.bytes = 16}), y = b.reg("y", net, {sink}, {.bytes = 16});
  b.run(net, "conv", {b.of_reg(x, {4}), b.of_variable(w, {4}), b.of_variable(bias, {4})}, {b.of_reg(y, {4})});
  b.run(net, "conv", {b.of_reg(x, {4}), b.of_variable(w, {4})}, {b.of_reg(y, {4})});
  b.input("x", x, b.f32({4}));
  b.output("y", b.of_reg(y, {4}));
  for (Kernel& kernel : b.plan.kernels) kernel.inputs[1].packed = packed_copy(b.plan, w, format, 100);
  return b.build();
}

std::string report_of(const Plan& plan) { return verify(plan).ok() ? "" : verify(plan).str(); }

TEST(PackedCopies, AreOnePerVariableAndFormat) {
  Plan plan = packed_plan();
  ASSERT_EQ(plan.packed.size(), 1u);
  EXPECT_EQ(plan.packed[0].name, "w/packed");
  EXPECT_EQ(packed_copy(plan, 1, "otherwise", 8), 1);
  EXPECT_EQ(plan.packed[1].name, "w/packed#2");
  EXPECT_EQ(packed_copy(plan, 0, "in blocks", 8), 2);
  EXPECT_EQ(packed_copy(plan, 1, "otherwise", 8), 1);
  EXPECT_EQ(read_plain(plan), (std::vector<bool>{true, false}));
}

TEST(PackedCopies, RoundTripAndMayBeLeftOut) {
  const Plan plan = packed_plan();
  const std::string text = to_json(plan);
  EXPECT_THAT(text, HasSubstr(R"("packed": [
  {"name": "w/packed", "variable": 1, "format": "in blocks", "bytes": 100}
])"));
  EXPECT_EQ(to_json(from_json(text, "plan.json")), text);
  Plan plain = plan;
  plain.packed.clear();
  for (Kernel& kernel : plain.kernels) kernel.inputs[1].packed = -1;
  EXPECT_EQ(to_json(plain).find("packed\":"), std::string::npos);  // as files say that know of none
  EXPECT_EQ(report_of(plain), "");
}

TEST(PackedCopies, MustBeOfVariablesThatNobodyWrites) {
  EXPECT_EQ(report_of(packed_plan()), "");
  const auto refused = [](auto spoil) {
    Plan plan = packed_plan();
    spoil(plan);
    return report_of(plan);
  };
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].variable = 2; }),
              HasSubstr("packed copy 'w/packed': variable out of range: 2; must be less than 2"));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[1].packed = 1; }),
              HasSubstr("kernel 'net/conv': packed copy out of range: 1; must be less than 1, or -1"));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[1].packed = -2; }), HasSubstr("packed copy out of range: -2"));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[2] = {BaseKind::kBuffer, -1, 0, 0, {}, 7}; }),
              HasSubstr("packed copy out of range: 7"));
  const std::string in_place_of = "must be of the variable that it reads, from its start";
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[2] = {BaseKind::kBuffer, -1, 0, 0, {}, 0}; }),
              HasSubstr(in_place_of));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[2].packed = 0; }), HasSubstr(in_place_of));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].inputs[0].packed = 0; }), HasSubstr(in_place_of));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[0].outputs[0].packed = 0; }), HasSubstr(in_place_of));
  EXPECT_THAT(refused([](Plan& p) { p.outputs[0].view.packed = 0; }), HasSubstr(in_place_of));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[1].outputs[0] = PlanBuilder::of_variable(1, {4}); }),
              HasSubstr("packed copy 'w/packed': of variable 'w', which a kernel writes; only others are packed"));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].format.clear(); }), HasSubstr("must have a format, and bytes"));
  EXPECT_THAT(refused([](Plan& p) { p.packed.push_back(p.packed[0]); }),
              HasSubstr("packed copy 'w/packed': the name appears twice"));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].bytes = UINT64_MAX; }), HasSubstr("packed copy 'w/packed'"));
  EXPECT_THAT(refused([](Plan& p) {
                p.spaces.push_back({SpaceKind::kDevice, parse_device("sim:0")});
                p.variables[1].space = 1;
              }),
              HasSubstr("of variable 'w' in device memory; only those of the host are packed"));
}

// As packed_plan(), with w * b in the place of w.
Plan derived_plan(const std::string& format = "in blocks") {
  Plan plan = packed_plan();
  plan.packed.clear();
  const Derivation product{"mul", {{"alpha", 0.5}}, {1, -1, 0}, plan.variables[1].spec};
  for (Kernel& kernel : plan.kernels)
    kernel.inputs[1].packed = format.empty() ? derived_copy(plan, product) : packed_copy(plan, 1, format, 100, product);
  return plan;
}

TEST(DerivedCopies, AreOnePerDerivationAndFormat) {
  Plan plan = derived_plan();
  ASSERT_EQ(plan.packed.size(), 1u);
  EXPECT_EQ(plan.packed[0].name, "w/mul/packed");
  EXPECT_EQ(derivation_str(plan, plan.packed[0]), "mul(w, none, b) {alpha = 0.5}");
  EXPECT_EQ(sources_of(plan.packed[0]), (std::vector<int>{1, 0}));
  Derivation other = *plan.packed[0].derived;
  other.attrs[0].second = 0.25;
  EXPECT_EQ(packed_copy(plan, 1, "in blocks", 100, other), 1);
  EXPECT_EQ(plan.packed[1].name, "w/mul/packed#2");
  EXPECT_EQ(packed_copy(plan, 1, "in blocks", 100), 2);  // of w itself
  EXPECT_EQ(plan.packed[2].name, "w/packed");
  EXPECT_EQ(derived_copy(plan, other), 3);
  EXPECT_EQ(plan.packed[3].name, "w/mul");
  EXPECT_EQ(packed_copy(plan, 1, "in blocks", 100, other), 1);
}

TEST(DerivedCopies, RoundTrip) {
  for (const char* format : {"in blocks", ""}) {
    const Plan plan = derived_plan(format);
    EXPECT_EQ(report_of(plan), "");
    const std::string text = to_json(plan);
    EXPECT_EQ(to_json(from_json(text, "plan.json")), text);
    EXPECT_EQ(from_json(text, "plan.json").packed[0].derived, plan.packed[0].derived);
  }
}

TEST(DerivedCopies, MustBeOfVariablesThatNobodyWrites) {
  const auto refused = [](auto spoil) {
    Plan plan = derived_plan("");
    spoil(plan);
    return report_of(plan);
  };
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->inputs[2] = 2; }),
              HasSubstr("packed copy 'w/mul': source out of range: 2; must be less than 2"));
  EXPECT_THAT(refused([](Plan& p) { p.kernels[1].outputs[0] = PlanBuilder::of_variable(0, {4}); }),
              HasSubstr("packed copy 'w/mul': of variable 'b', which a kernel writes; only others are packed"));
  const std::string must = "must have an op, and its variable as the first of them";
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->op.clear(); }), HasSubstr(must));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->inputs = {-1}; }), HasSubstr(must));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->inputs = {0, 1}; }), HasSubstr(must));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].bytes = 8; }), HasSubstr("8 bytes; what is derived has 16"));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->spec.strides = {2}; }), HasSubstr("must be contiguous"));
  EXPECT_THAT(refused([](Plan& p) {
                p.packed[0].derived->spec = TensorSpec::contiguous({DType::kFloat32, {3}});
              }),
              HasSubstr("a view of 16 bytes at offset 0 leaves variable 'w/mul' of 12 bytes"));
  EXPECT_THAT(refused([](Plan& p) { p.packed[0].derived->spec.dtype = DType::kInt32; }),
              HasSubstr("reads packed copy 'w/mul' as float32; it holds int32"));
}

TEST(DerivedCopies, AreInTheLedger) {
  const Plan plan = derived_plan("");
  const Ledger l = ledger(plan);
  EXPECT_EQ(l.packed, 64u);
  EXPECT_EQ(line_note(plan, l.lines.back()), "as 2 kernels read it: mul(w, none, b) {alpha = 0.5}");
  EXPECT_THAT(line_note(derived_plan(), ledger(derived_plan()).lines.back()), HasSubstr("{alpha = 0.5}, in blocks"));
  for (const LedgerLine& variable : l.lines) {
    if (variable.kind != LedgerLine::Kind::kVariable) continue;
    EXPECT_EQ(line_note(plan, variable), variable.index == 1 ? "kernels read it packed only" : "");  // b, as it is, too
  }
}

TEST(PackedCopies, AreInTheLedger) {
  const Plan plan = packed_plan();
  const Ledger l = ledger(plan);
  EXPECT_EQ(l.packed, 128u);
  EXPECT_EQ(l.total, l.arenas + l.variables + l.constants + l.packed);
  EXPECT_EQ(l.shared, l.variables + l.packed);
  const LedgerLine& line = l.lines.back();
  EXPECT_EQ(line_name(plan, line), "w/packed");
  EXPECT_STREQ(line_kind_name(line.kind), "packed");
  EXPECT_EQ(line_note(plan, line), "as 2 kernels read it: in blocks");
  for (const LedgerLine& variable : l.lines) {
    if (variable.kind != LedgerLine::Kind::kVariable) continue;
    EXPECT_EQ(line_note(plan, variable), variable.index == 1 ? "kernels read it packed only" : "");
  }
}

TEST(PackedCopies, AreSharedByTheMembersOfAFamily) {
  const Plan a = packed_plan(), b = packed_plan(), c = packed_plan("otherwise");
  const std::vector<const Plan*> equal = {&a, &b}, all = {&a, &b, &c};
  EXPECT_EQ(family_ledger(equal, true).packed, 128u);
  const FamilyLedger l = family_ledger(all, true);
  EXPECT_EQ(l.packed, 256u);
  EXPECT_EQ(l.total, l.arenas + l.variables + l.constants + l.packed);
  EXPECT_EQ(l.shared, l.variables + l.packed);
  Plan writing = packed_plan();  // "b": then no session may have it from another
  writing.kernels[1].outputs[0] = PlanBuilder::of_variable(0, {4});
  const std::vector<const Plan*> with_one = {&a, &writing};
  EXPECT_EQ(ledger(writing).shared, ledger(a).shared - 64);
  EXPECT_EQ(family_ledger(with_one, true).shared, family_ledger(equal, true).shared - 64);
}

}  // namespace
}  // namespace sluice::plan
