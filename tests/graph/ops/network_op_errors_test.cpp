// Tests the errors of the network ops about operands that do not fit.
#include <gtest/gtest.h>

#include "graph/op_def.h"

namespace sluice {
namespace {

TensorType f32(Shape shape) { return {DType::kFloat32, shape}; }

std::string error_of(const char* name, std::vector<TensorType> inputs, Attrs attrs = {}) {
  const OpDef& op = builtin_ops().get(name);
  const std::vector<char> all(inputs.size(), 1);
  const bool* present = reinterpret_cast<const bool*>(all.data());
  try {
    op.infer(inputs, {present, inputs.size()}, validate_attrs(op, std::move(attrs)));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(NetworkOpErrorsTest, Matmul) {
  EXPECT_EQ(error_of("matmul", {f32({4, 3}), f32({2, 5})}),
            "matmul: inner dimensions differ: a is (4, 3), b is (2, 5); a.shape[-1] must equal b.shape[-2]");
  EXPECT_EQ(error_of("matmul", {f32({4, 3}), f32({2, 5})}, {true, true}),
            "matmul: inner dimensions differ: a is (4, 3) transposed, b is (2, 5) transposed; a.shape[-2] must equal "
            "b.shape[-1]");
  EXPECT_EQ(error_of("matmul", {f32({3}), f32({3, 5})}),
            "matmul: operands are not matrices: a is (3,), b is (3, 5); both must have 2 or more dims");
  EXPECT_EQ(error_of("linear", {f32({4, 3}), f32({2, 5})}),
            "linear: feature counts differ: x is (4, 3), weight is (2, 5); x.shape[-1] must equal weight.shape[1]");
  EXPECT_EQ(
      error_of("linear", {f32({4, 5}), f32({2, 5})}, {std::string("swish")}),
      "linear: unknown activation: \"swish\"; it must be one of none, relu, gelu, gelu_tanh, tanh, sigmoid, silu");
}

TEST(NetworkOpErrorsTest, Convolution) {
  const Attrs attrs = {Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}};
  EXPECT_EQ(error_of("conv", {f32({1, 3, 8, 8}), f32({4, 2, 3, 3})}, attrs),
            "conv: channels differ: input is (1, 3, 8, 8), weight is (4, 2, 3, 3), groups 1; input.shape[1] must equal "
            "weight.shape[1] * groups");
  EXPECT_EQ(error_of("conv", {f32({1, 3, 8}), f32({4, 3, 3, 3})}, attrs),
            "conv: ranks differ: input is (1, 3, 8), weight is (4, 3, 3, 3); input must be (batch, channels, 2 spatial "
            "dims)");
  EXPECT_EQ(error_of("conv", {f32({1, 3, 2, 2}), f32({4, 3, 3, 3})}, attrs),
            "conv: kernel is larger than the padded input: input is (1, 3, 2, 2), weight is (4, 3, 3, 3), padding 0, "
            "dilation 1; "
            "dilation * (kernel - 1) + 1 must be at most input + 2 * padding");
  EXPECT_EQ(error_of("conv", {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})}, {Ints{0, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}}),
            "conv: stride is too small: 0; it must be at least 1");
  EXPECT_EQ(error_of("conv_input_grad", {f32({1, 4, 5, 6}), f32({4, 3, 3, 3})},
                     {Ints{1, 3, 8, 8}, Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, int64_t{1}}),
            "conv_input_grad: gradient has the wrong shape: (1, 4, 5, 6); the convolution's output is (1, 4, 6, 6)");
}

TEST(NetworkOpErrorsTest, PoolingNormsAndLosses) {
  const Attrs pool = {Ints{2, 2}, Ints{1, 1}, Ints{2, 2}, Ints{1, 1}, false};
  EXPECT_EQ(error_of("max_pool", {f32({1, 3, 8, 8})}, pool),
            "max_pool: padding is too large: 2 for a kernel of 2; it must be at most half the kernel size");
  EXPECT_EQ(error_of("layer_norm", {f32({3, 4})}, {Ints{3}}),
            "layer_norm: normalized_shape does not fit: (3,) for input (3, 4); it must equal the input's last dims");
  EXPECT_EQ(error_of("batch_norm_train", {f32({1, 4}), f32({4}), f32({4})}),
            "batch_norm_train: one value per channel: input is (1, 4); training needs more than one");
  EXPECT_EQ(error_of("batch_norm_train", {f32({8, 4}), f32({3}), f32({4})}),
            "batch_norm_train: weight does not fit: float32(3,); input float32(8, 4) asks for float32(4,)");
  EXPECT_EQ(
      error_of("group_norm", {f32({2, 6, 3})}, {int64_t{4}}),
      "group_norm: num_groups does not divide the channels: 4 for input (2, 6, 3); input.shape[1] must be a multiple");
  EXPECT_EQ(
      error_of("cross_entropy", {f32({5, 7}), {DType::kInt64, {4}}}),
      "cross_entropy: target does not fit: logits are (5, 7), target is (4,); it must have one class index per sample");
  EXPECT_EQ(error_of("cross_entropy", {f32({5, 7}), {DType::kInt64, {5}}}, {int64_t{-100}, 0.0, std::string("avg")}),
            "cross_entropy: 'avg' is not a valid value for reduction; it must be 'mean', 'sum' or 'none'");
  EXPECT_EQ(error_of("adam_update", {f32({3}), f32({4}), f32({3}), f32({3}), {DType::kInt64, {}}, f32({})}),
            "adam_update: operands differ: param is float32(3,), operand 1 is float32(4,); param, grad, exp_avg and "
            "exp_avg_sq must be "
            "equal in dtype and shape");
}

TEST(NetworkOpErrorsTest, UpdatesTogether) {
  const AttrGraph sgd{3, {{"sgd_update", {{"weight_decay", 0.0}, {"maximize", false}}, {0, 1, 2}}}, {3}};
  const TensorType f64{DType::kFloat64, {3}};
  const Attrs two = {sgd, int64_t{2}};
  EXPECT_EQ(error_of("multi_update", {f32({3}), f32({4}), f32({3}), f32({}), f32({4}), f32({})}, two), "no error");
  EXPECT_EQ(error_of("multi_update", {f32({3}), f64, f32({3}), f32({}), f64, f32({})}, two),
            "xs: operand 0 of call 1 is float64(3,); must be float32, as in the first");
  EXPECT_EQ(error_of("multi_update", {f32({3}), f32({3}), f32({})}, two),
            "xs: 3 operands for 2 calls; must be 3 of each");
}

}  // namespace
}  // namespace sluice
