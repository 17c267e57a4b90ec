#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InPlace : public TensorTest {};

Tensor add_(const Tensor& t, const Value& by) {
  update_in_place(t, [&](const Value& old) { return ops::add(old, by); });
  return t;
}

TEST_F(InPlace, ViewsShareMemoryAndVersion) {
  const Tensor x = tensor({2, 3}, {0, 1, 2, 3, 4, 5});
  const Tensor t = ops::permute(x, {1, 0}), row = ops::select(t, 0, 1);
  const uint64_t version = x.impl()->version();
  add_(row, vec({10, 20}));
  EXPECT_THAT(values(x), ElementsAre(0, 11, 2, 3, 24, 5));
  EXPECT_GT(x.impl()->version(), version);
  EXPECT_EQ(x.impl()->version(), t.impl()->version());
}

TEST_F(InPlace, ReshapeOfStridedTensorIsACopy) {
  const Tensor x = tensor({2, 2}, {0, 1, 2, 3});
  const Tensor flat = ops::reshape(ops::permute(x, {1, 0}), {4});
  add_(flat, vec({1}));
  EXPECT_THAT(values(x), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values(flat), ElementsAre(1, 3, 2, 4));
}

TEST_F(InPlace, BroadcastsAndCasts) {
  const Tensor x = tensor({2, 2}, {0, 1, 2, 3});
  const int64_t source[] = {7, 8};
  write_in_place(x, Tensor::from_host({DType::kInt64, {2}}, source));
  EXPECT_THAT(values(x), ElementsAre(7, 8, 7, 8));
  EXPECT_THAT(error_of([&] { write_in_place(x, vec({1, 2, 3})); }), HasSubstr("shapes do not fit"));
}

TEST_F(InPlace, OverlappingSourceIsReadFirst) {
  const Tensor x = vec({1, 2, 3, 4});
  write_in_place(ops::slice_axis(x, 0, 1, 4), ops::slice_axis(x, 0, 0, 3));
  EXPECT_THAT(values(x), ElementsAre(1, 1, 2, 3));
}

TEST_F(InPlace, ExpandedMemoryIsRefused) {
  const Tensor x = ops::expand(vec({1}), {3});
  EXPECT_THAT(error_of([&] { add_(x, vec({1})); }), HasSubstr("more than one element of the written-to tensor"));
}

TEST_F(InPlace, CannotGrow) {
  EXPECT_THAT(error_of([&] { add_(vec({1}), vec({1, 2})); }), HasSubstr("doesn't match the broadcast shape"));
}

TEST_F(InPlace, LeavesThatNeedGradientsAreRefused) {
  const Tensor w = vec({1, 2}, true);
  EXPECT_THAT(error_of([&] { add_(w, vec({1})); }), HasSubstr("a leaf Variable that requires grad"));
  EXPECT_THAT(error_of([&] { add_(ops::slice_axis(w, 0, 0, 1), vec({1})); }),
              HasSubstr("a view of a leaf Variable that requires grad"));
  const GradMode off(false);
  add_(w, vec({1}));
  EXPECT_THAT(values(w), ElementsAre(2, 3));
}

TEST_F(InPlace, HistoryMovesToTheTarget) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, 3);
  update_in_place(y, [](const Value& old) { return ops::mul(old, old); });
  backward_from(ops::sum(y));
  EXPECT_THAT(grad_of(x), ElementsAre(18, 36));
}

TEST_F(InPlace, PlainTensorJoinsTheGraph) {
  const Tensor w = vec({2, 3}, true);
  const Tensor y = vec({10, 20});
  update_in_place(y, [&](const Value& old) { return ops::mul(old, w); });
  backward_from(ops::sum(y));
  EXPECT_THAT(grad_of(w), ElementsAre(10, 20));
}

TEST_F(InPlace, WritingAViewChangesTheHistoryOfBaseAndOtherViews) {
  const Tensor x = vec({1, 2, 3}, true), w = vec({5}, true);
  const Tensor base = ops::mul(x, 2);
  const Tensor other = ops::slice_axis(base, 0, 1, 3), part = ops::slice_axis(base, 0, 0, 2);
  write_in_place(part, ops::expand(w, {2}));
  EXPECT_THAT(values(base), ElementsAre(5, 5, 6));
  backward_from(ops::add(ops::sum(ops::mul(base, vec({1, 10, 100}))), ops::sum(ops::mul(other, 1000))));
  EXPECT_THAT(grad_of(x), ElementsAre(0, 0, 2200));
  EXPECT_THAT(grad_of(w), ElementsAre(1011));
}

TEST_F(InPlace, ZeroingAViewCutsItsGradient) {
  const Tensor x = tensor({2, 2}, {1, 2, 3, 4}, true);
  const Tensor y = ops::mul(x, 1);
  write_in_place(ops::select(ops::permute(y, {1, 0}), 0, 0), Tensor::scalar(0, DType::kFloat32));
  EXPECT_THAT(values(y), ElementsAre(0, 2, 0, 4));
  backward_from(ops::sum(ops::mul(y, y)));
  EXPECT_THAT(grad_of(x), ElementsAre(0, 4, 0, 8));
}

TEST_F(InPlace, WhatIsOverwrittenHasAGradientOfZeros) {
  const Tensor x = vec({1, 2}, true), w = vec({5, 6}, true);
  const Tensor y = ops::mul(x, 3);
  write_in_place(y, ops::mul(w, 2));
  backward_from(ops::sum(ops::mul(y, y)));
  EXPECT_THAT(values(y), ElementsAre(10, 12));
  EXPECT_THAT(grad_of(x), ElementsAre(0, 0));
  EXPECT_THAT(grad_of(w), ElementsAre(40, 48));
}

TEST_F(InPlace, DoubleGradientThroughAView) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, x);
  update_in_place(ops::slice_axis(y, 0, 0, 1), [&](const Value& old) { return ops::mul(old, 3); });
  const Value z = ops::sum(y), input = x;
  const Value g = grad({&z, 1}, {&input, 1}, {}, {true, {}, false})[0];
  EXPECT_THAT(values(g), ElementsAre(6, 4));
  backward_from(ops::sum(g));
  EXPECT_THAT(grad_of(x), ElementsAre(6, 2));
}

}  // namespace
}  // namespace sluice::test
