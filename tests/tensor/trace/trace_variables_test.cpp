// The variables of a trace: one for each block of memory, and views of them.
#include "tensor/trace_variables.h"

#include "tensor/eager_memory.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

class TraceVariablesTest : public TensorTest {
 protected:
  static const Storage* memory(const Tensor& tensor) { return eager_impl(tensor).storage().get(); }
  TraceVariables variables_;
};

TEST_F(TraceVariablesTest, AreFoundByTheirMemory) {
  EXPECT_TRUE(variables_.empty());
  const Tensor w = vec({1, 2}), other = vec({1, 2});
  TraceVariable& added = variables_.add("w", w, std::make_shared<TraceCell>());
  EXPECT_EQ(variables_.find(memory(w)), &added);
  EXPECT_EQ(variables_.find(memory(other)), nullptr);
  EXPECT_EQ(added.name, "w");
  EXPECT_EQ(added.index, -1) << "it is in the graph once it is used";
}

TEST_F(TraceVariablesTest, UsedOnesAreInTheOrderOfTheirUse) {
  const Tensor a = vec({1}), b = vec({2}), c = vec({3});
  TraceVariable& first = variables_.add("a", a, std::make_shared<TraceCell>());
  variables_.add("b", b, std::make_shared<TraceCell>());
  TraceVariable& last = variables_.add("c", c, std::make_shared<TraceCell>());
  variables_.use(last);
  variables_.use(first);
  EXPECT_EQ(variables_.used(), (std::vector<TraceVariable*>{&last, &first}));
}

TEST_F(TraceVariablesTest, AViewIsReachedByItsSteps) {
  const Tensor w = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const TraceVariable& variable = variables_.add("w", w, std::make_shared<TraceCell>());
  EXPECT_TRUE(variable.steps_to(eager_impl(w)).empty());
  EXPECT_TRUE(variable.steps_to(eager_impl(eager.detach(w))).empty()) << "the same memory is the same variable";
  const Value view = ops::permute(w, {1, 0});
  ASSERT_EQ(variable.steps_to(eager_impl(view)).size(), 1u);
  EXPECT_STREQ(variable.steps_to(eager_impl(view))[0].op->name, "permute");
}

TEST_F(TraceVariablesTest, MemoryThatIsSharedOtherwiseIsRefused) {
  const Tensor w = vec({1, 2, 3, 4});
  const Value view = eager.detach(ops::reshape(w, {2, 2}));
  const TraceVariable& variable = variables_.add("w", view, std::make_shared<TraceCell>());
  EXPECT_NE(error_of([&] { variable.steps_to(eager_impl(w)); }).find("shares the memory of variable 'w'"),
            std::string::npos);
}

TEST(GraphNames, EachIsGivenOutOnce) {
  GraphNames names;
  EXPECT_TRUE(names.claim("const1"));
  EXPECT_FALSE(names.claim("const1"));
  EXPECT_EQ(names.take("const"), "const0");
  EXPECT_EQ(names.take("const"), "const2");
  EXPECT_EQ(names.take("generator"), "generator0");
  EXPECT_FALSE(names.claim("generator0"));
}

}  // namespace
}  // namespace sluice::test
