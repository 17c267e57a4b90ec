// Which tensors a graph takes over as one constant.
#include "tensor/captured_constants.h"

#include "tensor/eager_memory.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

class CapturedConstantsTest : public TensorTest {
 protected:
  // Adds the tensor if its content is new; the number of the constant.
  graph::ValueId capture(const Tensor& tensor) {
    graph::ValueId& id = constants_.of(tensor);
    if (id != graph::kNoValue) return id;
    id = next_++;
    constants_.add(tensor, "const" + std::to_string(id), eager.copy(tensor));
    return id;
  }
  CapturedConstants constants_;
  graph::ValueId next_ = 0;
};

TEST_F(CapturedConstantsTest, SingleElementsAreOneByTheirContent) {
  EXPECT_EQ(capture(vec({2})), capture(vec({2})));
  EXPECT_NE(capture(vec({2})), capture(vec({3})));
  EXPECT_NE(capture(vec({2})), capture(tensor({1, 1}, {2}))) << "of another shape";
}

TEST_F(CapturedConstantsTest, OthersAreOneByMemoryAndVersion) {
  const Tensor one = vec({1, 2}), equal = vec({1, 2});
  const graph::ValueId id = capture(one);
  EXPECT_EQ(capture(one), id);
  EXPECT_NE(capture(equal), id);
  eager.assign(one, equal);
  EXPECT_NE(capture(one), id) << "it was written to";
}

TEST_F(CapturedConstantsTest, KnowTheMemoryThatTheyWereTakenFrom) {
  const Tensor one = vec({1, 2}), other = vec({1, 2});
  capture(one);
  EXPECT_TRUE(constants_.taken_from(*eager_impl(one).storage()));
  EXPECT_FALSE(constants_.taken_from(*eager_impl(other).storage()));
}

TEST_F(CapturedConstantsTest, ATensorLivesAsLongSoThatNoOtherHasItsIdentity) {
  std::weak_ptr<ValueImpl> kept;
  {
    const Tensor gone = vec({1, 2});
    kept = gone.ptr();
    capture(gone);
  }
  EXPECT_FALSE(kept.expired());
}

TEST_F(CapturedConstantsTest, AreHandedOverAsTheyWereTaken) {
  const Tensor one = vec({1, 2}), changed = vec({3, 4});
  capture(one);
  std::map<std::string, Tensor> variables;
  constants_.give_tensors(variables);
  ASSERT_EQ(variables.size(), 1u);
  EXPECT_EQ(values(variables.at("const0")), (std::vector<float>{1, 2}));
  const TakenContents taken = constants_.give_taken();
  EXPECT_FALSE(taken.changed());
  eager.assign(one, changed);
  EXPECT_TRUE(taken.changed());
  EXPECT_EQ(values(variables.at("const0")), (std::vector<float>{1, 2})) << "it is a copy";
}

}  // namespace
}  // namespace sluice::test
