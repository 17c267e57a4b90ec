// Tensors that outlive a trace have their autograd data back behind it.
#include "tensor/kept_autograd.h"

#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

class KeptAutogradTest : public TensorTest {};

TEST_F(KeptAutogradTest, ALeafHasNoGradientMeanwhileAndItsOwnBehind) {
  Tensor leaf = vec({1, 2}, true);
  backward_from(ops::sum(leaf, {}, false));
  ASSERT_EQ(grad_of(leaf), (std::vector<float>{1, 1}));
  KeptAutograd kept;
  kept.keep(leaf);
  EXPECT_FALSE(leaf.grad().defined());
  leaf.set_requires_grad(false);
  kept.restore();
  EXPECT_EQ(grad_of(leaf), (std::vector<float>{1, 1}));
  EXPECT_TRUE(leaf.requires_grad());
  kept.restore();
  EXPECT_EQ(grad_of(leaf), (std::vector<float>{1, 1})) << "it is given back once";
}

TEST_F(KeptAutogradTest, AGradientThatComesMeanwhileIsTheTraces) {
  Tensor leaf = vec({1, 2}, true);
  KeptAutograd kept;
  kept.keep(leaf);
  backward_from(ops::sum(leaf, {}, false));
  EXPECT_TRUE(leaf.grad().defined());
  kept.restore();
  EXPECT_FALSE(leaf.grad().defined());
}

TEST_F(KeptAutogradTest, WritesOfTheTraceDoNotCountInTheVersion) {
  const Tensor plain = vec({1, 2});
  const uint64_t before = plain.impl()->version();
  {
    KeptAutograd kept;
    kept.keep(plain);
    static_cast<TensorImpl&>(*plain.impl()).bump_version();
    EXPECT_NE(plain.impl()->version(), before);
    kept.restore();
    EXPECT_EQ(plain.impl()->version(), before);
    kept.keep(plain);
    static_cast<TensorImpl&>(*plain.impl()).bump_version();
  }
  EXPECT_EQ(plain.impl()->version(), before) << "also where a trace fails";
}

}  // namespace
}  // namespace sluice::test
