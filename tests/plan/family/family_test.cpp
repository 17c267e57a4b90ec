#include "plan/family/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/pack/ledger.h"
#include "support/error_of.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

using ::testing::ElementsAre;

// y: float32(batch, 3) = f(x: float32(batch, 8)).
Family batches(Fit fit, std::vector<Extents> members, int64_t max = 32) {
  const FamilyAxis batch{0, 0};
  return {"g",
          {{"batch", 1, max, fit}},
          {{"x", DType::kFloat32, {batch, {FamilyAxis::kFixed, 8}}}},
          {{"y", DType::kFloat32, {batch, {FamilyAxis::kFixed, 3}}}},
          std::move(members)};
}

Extents extents_of(const Family& family, std::vector<Shape> shapes) { return plan::extents_of(family, shapes); }

TEST(Family, BucketsArePowersOfTwo) {
  EXPECT_THAT(powers_of_two(1, 32), ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_THAT(powers_of_two(3, 20), ElementsAre(4, 8, 16, 20));
  EXPECT_THAT(powers_of_two(5, 7), ElementsAre(7));
  EXPECT_THAT(powers_of_two(1, 1), ElementsAre(1));
  EXPECT_EQ(powers_of_two(1, INT64_MAX).size(), 64u);
  EXPECT_EQ(test::message_of([] {
              check_dim({"b", 1, 8}, {2, 4});
            }),
            "dim 'b': buckets [2, 4]; must ascend from at least 1 and end with 8");
  EXPECT_EQ(test::message_of([] {
              check_dim({"b", 4, 2}, {2});
            }),
            "dim 'b': 4 to 2; must be at least 1, and max at least min");
  EXPECT_THAT(all_extents({{1, 2}, {5, 6}}),
              ElementsAre(ElementsAre(1, 5), ElementsAre(1, 6), ElementsAre(2, 5), ElementsAre(2, 6)));
  EXPECT_EQ(test::message_of([] {
              all_extents(std::vector<Extents>(11, {1, 2}));
            }),
            "family: 1024 x 2 members; at most 1024: give the dims fewer buckets");
}

TEST(Family, TheSmallestMemberThatFitsIsPadded) {
  const Family family = batches(Fit::kPad, {{1}, {32}, {8}});
  for (const auto& [n, member] : std::vector<std::pair<int64_t, int>>{{1, 0}, {2, 2}, {8, 2}, {9, 1}, {32, 1}})
    EXPECT_THAT(parts_of(family, {n}), ElementsAre(Part{member, {0}, {n}})) << n;
}

TEST(Family, ACallIsSplitIntoTheLongestPieces) {
  const Family powers = batches(Fit::kSplit, {{1}, {4}, {16}});
  EXPECT_THAT(parts_of(batches(Fit::kSplit, {{1}, {4}, {16}}, 16), {16}), ElementsAre(Part{2, {0}, {16}}));
  EXPECT_THAT(parts_of(powers, {26}), ElementsAre(Part{2, {0}, {16}}, Part{1, {16}, {4}}, Part{1, {20}, {4}},
                                                  Part{0, {24}, {1}}, Part{0, {25}, {1}}));
  // A call that is shorter than every member is padded.
  EXPECT_THAT(parts_of(batches(Fit::kSplit, {{8}, {32}}), {11}), ElementsAre(Part{0, {0}, {8}}, Part{0, {8}, {3}}));
}

TEST(Family, EveryCallIsCoveredOnceWhateverTheDims) {
  Family family = batches(Fit::kSplit, all_extents({{3, 8}, {2, 4, 7}}), 8);
  family.dims.push_back({"length", 1, 7, Fit::kPad});
  family.inputs[0].axes[1] = {1, 0};
  check_family(family);
  for (int64_t b = 1; b <= 8; ++b) {
    for (int64_t l = 1; l <= 7; ++l) {
      int64_t at = 0;
      for (const Part& part : parts_of(family, {b, l})) {
        const Extents& member = family.members[part.member];
        EXPECT_EQ(part.start, (Extents{at, 0}));
        EXPECT_EQ(part.extents[1], l);
        EXPECT_EQ(member[1], l <= 2 ? 2 : l <= 4 ? 4 : 7);
        EXPECT_LE(part.extents[0], member[0]);
        at += part.extents[0];
      }
      EXPECT_EQ(at, b);
    }
  }
}

TEST(Family, ExactDimsTakeWhatTheyHavePlansFor) {
  const Family family = batches(Fit::kExact, {{2}, {4}}, 4);
  EXPECT_THAT(parts_of(family, {4}), ElementsAre(Part{1, {0}, {4}}));
  EXPECT_EQ(test::message_of([&] { parts_of(family, {3}); }),
            "graph 'g': dim 'batch' is 3; there are plans for 2, 4, and its fit is exact");
}

TEST(Family, ErrorsOfShapesNameTheArgumentTheAxisAndTheDim) {
  Family family = batches(Fit::kPad, {{2}, {32}});
  family.dims[0].min = 2;
  family.inputs.push_back({"mask", DType::kBool, {{0, 0}}});
  EXPECT_THAT(extents_of(family, {{5, 8}, {5}}), ElementsAre(5));
  EXPECT_EQ(test::message_of([&] {
              extents_of(family, {{33, 8}, {33}});
            }),
            "graph 'g': argument 'x': axis 0 is 33; dim 'batch' is at most 32");
  EXPECT_EQ(test::message_of([&] {
              extents_of(family, {{1, 8}, {1}});
            }),
            "graph 'g': argument 'x': axis 0 is 1; dim 'batch' is at least 2");
  EXPECT_EQ(test::message_of([&] {
              extents_of(family, {{4, 9}, {4}});
            }),
            "graph 'g': argument 'x': axis 1 is 9; expected 8, as when the graph was compiled");
  EXPECT_EQ(test::message_of([&] {
              extents_of(family, {{4, 8}, {5}});
            }),
            "graph 'g': argument 'mask': axis 0 is 5; dim 'batch' is 4 in argument 'x'");
  EXPECT_EQ(test::message_of([&] {
              extents_of(family, {{4}, {4}});
            }),
            "graph 'g': argument 'x' has shape (4,); must have 2 axes");
  EXPECT_EQ(test::message_of([&] { extents_of(family, {{4, 8}}); }), "graph 'g': got 1 inputs; it takes 2");
}

std::vector<NamedType> outputs(std::vector<Shape> shapes) {
  std::vector<NamedType> types;
  for (const Shape& shape : shapes) types.push_back({"y" + std::to_string(types.size()), {DType::kFloat32, shape}});
  return types;
}

TEST(Family, AnOutputsAxesAreTheDimsTheyFollowInEveryMember) {
  Family family = batches(Fit::kPad, all_extents({{1, 32}, {5, 6}}));
  family.dims.push_back({"length", 5, 6});
  std::vector<std::vector<NamedType>> types;
  for (const Extents& e : family.members) types.push_back(outputs({{e[0], 32, e[1]}, {2 * e[0], e[0]}}));
  const auto ports = outputs_of(family, family.members, types);
  const int fixed = FamilyAxis::kFixed;
  EXPECT_EQ(ports[0].axes, (std::vector<FamilyAxis>{{0, 0}, {fixed, 32}, {1, 0}}));
  EXPECT_EQ(ports[1].axes, (std::vector<FamilyAxis>{{FamilyAxis::kOther, 0}, {0, 0}}));
  types[1][0].type.dtype = DType::kInt64;
  EXPECT_EQ(
      test::message_of([&] { outputs_of(family, family.members, types); }),
      "family 'g': output 'y0' is float32(1, 32, 5) in one member, and 'y0' int64(1, 32, 6) in another; names, dtypes "
      "and ranks must be equal");
}

TEST(Family, ADimWithOneMemberNeedsAProbe) {
  EXPECT_THAT(probes_of({{"b", 1, 32}, {"l", 1, 8}}, all_extents({{32}, {4, 8}})), ElementsAre(ElementsAre(31, 4)));
  EXPECT_THAT(probes_of({{"b", 1, 32, Fit::kExact}, {"l", 8, 8}}, {{32, 8}}), ElementsAre());
}

TEST(Family, WhatPaddingWouldSpoilIsRefused) {
  Family family = batches(Fit::kPad, {{1}, {32}});
  check_family(family);
  family.outputs.push_back({"mean", DType::kFloat32, {}});
  EXPECT_EQ(
      test::message_of([&] { check_family(family); }),
      "family 'g': output 'mean' has no axis of a dim that is padded: it mixes rows with those of the padding; give "
      "the dims fit=\"exact\"");
  family.outputs.back().axes = {{0, 0}, {FamilyAxis::kOther, 0}};
  EXPECT_THAT(test::message_of([&] { check_family(family); }),
              ::testing::StartsWith("family 'g': output 'mean' varies otherwise than any dim does"));
  family.dims[0].fit = Fit::kExact;
  EXPECT_EQ(test::message_of([&] { check_family(family); }), "no error");

  PlanBuilder b("update");
  b.stream();
  const int step = b.actor("step");
  const int w = b.variable("w", {4});
  b.run(step, "copy", {PlanBuilder::of_variable(w, {4})}, {PlanBuilder::of_variable(w, {4})});
  const Plan plan = b.build();
  EXPECT_EQ(test::message_of([&] { check_updates(family, plan); }), "no error");
  for (const auto& [fit, what] : {std::pair{Fit::kPad, "padding"}, std::pair{Fit::kSplit, "splitting"}}) {
    family.dims[0].fit = fit;
    EXPECT_EQ(
        test::message_of([&] { check_updates(family, plan); }),
        fmt::format("family 'g': its plans update variable 'w'; {} would change what becomes of it: give dim 'batch' "
                    "fit=\"exact\"",
                    what));
  }
}

TEST(Family, MembersAreHeldAgainstTheFamily) {
  Family family = batches(Fit::kPad, {{4}, {32}});
  const std::vector<NamedType> in = {{"x", {DType::kFloat32, {4, 8}}}}, out = {{"y", {DType::kFloat32, {4, 3}}}};
  check_member(family, 0, in, out);
  EXPECT_EQ(test::message_of([&] { check_member(family, 1, in, out); }),
            "family 'g': member (32): input 'x' of the plan is float32(4, 8); the family says otherwise of 'x'");
  EXPECT_EQ(test::message_of([&] { check_member(family, 0, in, {}); }),
            "family 'g': member (4): the plan has 0 outputs; the family 1");
  family.members.push_back({4});
  EXPECT_EQ(test::message_of([&] { check_family(family); }), "family 'g': two members (4); each must differ");
  family.members = {{4}, {16}};
  EXPECT_EQ(test::message_of([&] { check_family(family); }),
            "dim 'batch': buckets [4, 16]; must ascend from at least 1 and end with 32");
  family.dims.push_back({"length", 1, 1});
  family.members = {{32, 1}};
  EXPECT_EQ(test::message_of([&] { check_family(family); }),
            "family 'g': no input has an axis of dim 'length'; nothing would say how long it is");
}

// A plan whose register takes `bytes`, with variable "w" and constant "c".
Plan sized(uint64_t bytes, bool keeps) {
  PlanBuilder b("sized");
  b.stream();
  const int feed = b.feed("feed"), sink = b.sink("sink");
  b.reg("x", feed, {sink}, {.quota = 1, .bytes = bytes, .initial_tokens = keeps ? 1 : 0});
  b.variable("w", {16});
  b.variable("c", {32}, true);
  return b.build();
}

TEST(Family, TheLedgerCountsTheLargestMemberAndWhatIsNotShared) {
  const Plan small = sized(64, false), large = sized(640, false), keeping = sized(128, true);
  const std::vector<const Plan*> members = {&small, &large, &keeping};
  const FamilyLedger shared = family_ledger(members, true), apart = family_ledger(members, false);
  EXPECT_EQ(shared.arenas, 640u + 128);
  EXPECT_EQ(apart.arenas, 64u + 640 + 128);
  for (const FamilyLedger& l : {shared, apart}) {
    EXPECT_EQ(l.variables, 64u);
    EXPECT_EQ(l.constants, 3u * 128);
    EXPECT_EQ(l.total, l.arenas + l.variables + l.constants);
    EXPECT_EQ(l.shared, l.variables + l.constants);
    EXPECT_EQ(l.spaces, (std::map<std::string, uint64_t>{{"host", l.total}}));
  }
  EXPECT_EQ(family_ledger(members, true, {{"host", 1024}}).arenas, 1024u + 128);
  const std::vector<const Plan*> alone = {&large};
  EXPECT_EQ(family_ledger(alone, true).total, ledger(large).total);
}

TEST(Family, JsonComesBackAndIsReadStrictly) {
  Family family = batches(Fit::kExact, {{1}, {32}});
  family.outputs.push_back({"z \"q\"", DType::kInt64, {{FamilyAxis::kOther, 0}}});
  const std::string text = family_json(family);
  EXPECT_EQ(parse_family(text, "family.json"), family);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return test::message_of([&] { parse_family(other, "family.json"); });
  };
  EXPECT_EQ(changed("\"min\": 1", "\"min\": -1"),
            "family.json: dims[0].min: -1; must be a whole number from 0 to 2^48");
  EXPECT_EQ(changed("\"fit\": \"exact\"", "\"fit\": \"loose\""),
            "family.json: dims[0].fit: fit: got 'loose'; must be 'pad', 'split' or 'exact'");
  EXPECT_EQ(changed("[\"batch\", 8]", "[\"bunch\", 8]"),
            "family.json: inputs[0].shape: \"bunch\"; must be a size, the name of a dim, or null");
  EXPECT_EQ(changed("[\"batch\", 8]", "[null, 8]"),
            "family.json: family 'g': input 'x': axis 0 is neither a size nor of a dim");
  EXPECT_EQ(changed("[32]", "[31]"),
            "family.json: dim 'batch': buckets [1, 31]; must ascend from at least 1 and end with 32");
  EXPECT_EQ(changed("[32]", "[]"), "family.json: family 'g': member (): 0 extents; there are 1 dims");
  EXPECT_EQ(changed("\"schema_version\": 1", "\"schema_version\": 2"), "family.json: schema_version: 2; must be 1");
  EXPECT_EQ(changed("\"name\": \"g\",", "\"name\": \"g\", \"more\": 1,"), "family.json: family: 7 fields; there are 6");
  EXPECT_EQ(changed("\"name\": \"g\",", ""), "family.json: family: no 'name'; every field must be given");
  EXPECT_THAT(changed("}", ""), ::testing::StartsWith("family.json: not JSON: "));
}

TEST(FamilyTest, PlansForCertainShapesAreAFamily) {
  const auto f32 = [](const std::string& name, Shape shape) { return NamedType{name, {DType::kFloat32, shape}}; };
  const Family family = exact_family("g", {{f32("x", {4, 8}), f32("y", {4, 3})}, {f32("x", {2, 8}), f32("y", {2, 5})}},
                                     {{f32("z", {4, 1}), f32("other", {7})}, {f32("z", {2, 1}), f32("other", {9})}});
  EXPECT_EQ(family.dims, (std::vector<Dim>{{"x.0", 2, 4, Fit::kExact}, {"y.1", 3, 5, Fit::kExact}}));
  EXPECT_EQ(family.members, (std::vector<Extents>{{4, 3}, {2, 5}}));
  EXPECT_EQ(family.inputs[1].axes, (std::vector<FamilyAxis>{{0, 0}, {1, 0}}));
  EXPECT_EQ(family.outputs[0].axes, (std::vector<FamilyAxis>{{0, 0}, {FamilyAxis::kFixed, 1}}));
  EXPECT_EQ(family.outputs[1].axes[0].dim, FamilyAxis::kOther);
  EXPECT_EQ(parts_of(family, {2, 5})[0].member, 1);
  EXPECT_EQ(test::message_of([&] { parts_of(family, {2, 3}); }), "graph 'g': no member fits dims of (2, 3)");
  EXPECT_EQ(exact_family("g", {{f32("x", {4})}}, {{}}).members, std::vector<Extents>{{}});
  EXPECT_EQ(test::message_of([&] {
              exact_family("g", {{f32("x", {4})}, {f32("x", {4, 1})}}, {{}, {}});
            }),
            "family 'g': input 'x' is float32(4,) in one member, and 'x' float32(4, 1) in another; names, dtypes "
            "and ranks must be equal");
  EXPECT_EQ(test::message_of([&] {
              exact_family("g", {{f32("x", {4})}, {f32("x", {4})}}, {{}, {}});
            }),
            "family 'g': two members (); each must differ");
  EXPECT_THAT(test::message_of([&] { exact_family("g", {}, {}); }),
              testing::HasSubstr("must be those of at least one"));
}

}  // namespace
}  // namespace sluice::plan
