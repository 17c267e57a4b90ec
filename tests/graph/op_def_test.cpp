#include "graph/op_def.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice {
namespace {

std::vector<TensorType> infer_same(Types inputs, std::span<const bool>, const Attrs&) { return {inputs[0]}; }

const OpDef kOp{
    .name = "stretch",
    .doc = "",
    .inputs = {"x", "bias?"},
    .params = {{"factor", 1.0}, {"sizes", Ints{}}, {"mode", std::string("a")}, {"dim", int64_t{0}, false, true}},
    .infer = infer_same};
const OpDef kVariadic{
    .name = "join", .doc = "", .inputs = {"xs*"}, .params = {{"n", int64_t{0}, true}}, .infer = infer_same};

TEST(ValidateAttrs, FillsDefaultsAndWidens) {
  EXPECT_EQ(validate_attrs(kOp, {}), (Attrs{1.0, Ints{}, std::string("a"), int64_t{0}}));
  EXPECT_EQ(validate_attrs(kOp, {int64_t{2}, int64_t{3}, Attr(), Attr()}),
            (Attrs{2.0, Ints{3}, std::string("a"), Attr()}));
}

TEST(ValidateAttrs, NamesWhatIsWrong) {
  EXPECT_EQ(test::message_of([] { validate_attrs(kOp, {std::string("x")}); }),
            "stretch: parameter 'factor': wrong type: \"x\" (str); must be float");
  EXPECT_EQ(test::message_of([] {
              validate_attrs(kOp, {1.0, Ints{}, std::string(), 0.5});
            }),
            "stretch: parameter 'dim': wrong type: 0.5 (float); must be int or none");
  EXPECT_EQ(test::message_of([] { validate_attrs(kVariadic, {}); }), "join: parameter 'n': missing; it has no default");
  EXPECT_EQ(test::message_of([] {
              validate_attrs(kVariadic, {int64_t{1}, true});
            }),
            "join: too many parameters: 2; it has 1");
}

TEST(NamedAttrs, GoThereAndBack) {
  const Attrs attrs = validate_attrs(kOp, {0.5});
  EXPECT_EQ(order_attrs(kOp, name_attrs(kOp, attrs)), attrs);
  EXPECT_EQ(order_attrs(kOp, {{"mode", std::string("b")}})[2], Attr(std::string("b")));
  EXPECT_EQ(test::message_of([] {
              order_attrs(kOp, {{"speed", true}});
            }),
            "stretch: unknown parameter: 'speed'; see the op's documentation");
  EXPECT_EQ(test::message_of([] { order_attrs(kVariadic, {}); }), "join: parameter 'n': missing; it has no default");
}

TEST(InputCount, OptionalAndVariadic) {
  EXPECT_EQ(kOp.min_inputs(), 1);
  EXPECT_EQ(kVariadic.min_inputs(), 1);
  EXPECT_NO_THROW(check_input_count(kVariadic, 40));
  EXPECT_EQ(test::message_of([] { check_input_count(kOp, 0); }), "stretch: too few inputs: 0; it takes at least 1");
  EXPECT_EQ(test::message_of([] { check_input_count(kOp, 3); }), "stretch: too many inputs: 3; it takes at most 2");
}

TEST(Registry, SuggestsTheNearestNames) {
  OpRegistry ops;
  ops.add(&kOp);
  ops.add(&kVariadic);
  EXPECT_EQ(ops.find("join"), &kVariadic);
  EXPECT_EQ(ops.find("nothing"), nullptr);
  EXPECT_EQ(test::message_of([&] { ops.get("strech"); }), "ops: unknown op: 'strech'; did you mean 'stretch'?");
  EXPECT_EQ(test::message_of([&] { ops.get("quite_different"); }),
            "ops: unknown op: 'quite_different'; there are 2 ops and none has a similar name");
  EXPECT_EQ(test::message_of([&] { ops.add(&kOp); }), "ops: 'stretch' is registered twice; names must be unique");
}

TEST(Cost, IsTheDefinitionsOwnOrCountsElements) {
  const TensorType x{DType::kFloat32, {8, 3, 10, 10}}, w{DType::kFloat32, {4, 3, 3, 3}},
      y{DType::kFloat32, {8, 4, 8, 8}};
  const TensorType conv_in[] = {x, w, {}};
  EXPECT_EQ(cost_of(builtin_ops().get("conv"), conv_in, {&y, 1}, {}).flops, 2.0 * 8 * 4 * 8 * 8 * 3 * 3 * 3);
  const TensorType table{DType::kFloat32, {50000, 64}}, index{DType::kInt64, {5}}, rows{DType::kFloat32, {5, 64}};
  const TensorType lookup[] = {table, index};
  EXPECT_EQ(cost_of(builtin_ops().get("embedding"), lookup, {&rows, 1}, {}).bytes, 2 * 5 * 64 * 4 + 5 * 8);
  const Cost exp = cost_of(builtin_ops().get("exp"), {&x, 1}, {&x, 1}, {});
  EXPECT_EQ(exp.flops, 2400);
  EXPECT_EQ(exp.bytes, 2 * 2400 * 4);
}

TEST(InferTypes, ErrorsStartWithTheOp) {
  static const OpDef failing{.name = "failing",
                             .doc = "",
                             .inputs = {"x"},
                             .infer = [](Types, std::span<const bool>, const Attrs&) -> std::vector<TensorType> {
                               fail(ErrorKind::kIndex, "axis out of range: 7; must be less than 2");
                             }};
  const TensorType type;
  const bool present = true;
  EXPECT_EQ(test::message_of([&] {
              infer_types(failing, {&type, 1}, {&present, 1}, {});
            }),
            "failing: axis out of range: 7; must be less than 2");
}

}  // namespace
}  // namespace sluice
