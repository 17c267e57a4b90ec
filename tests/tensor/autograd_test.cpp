#include <cmath>
#include <functional>

#include "graph/autodiff/anomaly.h"
#include "graph/autodiff/saved_hooks.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Autograd : public TensorTest {};

TEST_F(Autograd, AccumulatesIntoLeaves) {
  const Tensor x = vec({1, 2, 3}, true);
  backward_from(ops::sum(ops::mul(x, x)));
  EXPECT_THAT(grad_of(x), ElementsAre(2, 4, 6));
  backward_from(ops::sum(x));
  EXPECT_THAT(grad_of(x), ElementsAre(3, 5, 7));
}

TEST_F(Autograd, LeavesDoNotShareAGradient) {
  const Tensor a = vec({1, 2}, true), b = vec({3, 4}, true);
  backward_from(ops::sum(ops::add(a, b)));
  const GradMode off(false);
  current_executor().assign(a.grad(), Tensor::zeros({DType::kFloat32, {2}}));
  EXPECT_THAT(grad_of(a), ElementsAre(0, 0));
  EXPECT_THAT(grad_of(b), ElementsAre(1, 1));
}

TEST_F(Autograd, GradientIsWrittenIntoTheSameTensor) {
  const Tensor x = vec({1, 2}, true);
  backward_from(ops::sum(x));
  const Tensor kept = x.grad();
  backward_from(ops::sum(x));
  EXPECT_THAT(values(kept), ElementsAre(2, 2));
}

TEST_F(Autograd, ScalarSeedIsImplied) {
  const Tensor x = vec({1, 2}, true);
  EXPECT_THAT(error_of([&] { backward_from(ops::mul(x, 2)); }),
              HasSubstr("grad can be implicitly created only for scalar outputs"));
}

TEST_F(Autograd, NeedsAGraph) {
  EXPECT_THAT(error_of([&] { backward_from(Tensor::scalar(1, DType::kFloat32)); }),
              HasSubstr("does not require grad and does not have a grad_fn"));
}

TEST_F(Autograd, SecondBackwardNeedsRetainGraph) {
  const Tensor x = vec({2}, true);
  const Value y = ops::sum(ops::mul(x, x));
  backward_from(y, {false, true, false});
  backward_from(y);
  EXPECT_THAT(grad_of(x), ElementsAre(8));
  EXPECT_THAT(error_of([&] { backward_from(y); }), HasSubstr("Trying to backward through the graph a second time"));
}

// A chain keeps one tensor for each link that reads one, not its operands and results.
TEST_F(Autograd, ChainsKeepOnlyWhatTheirGradientsRead) {
  constexpr uint64_t kBytes = 1 << 20;
  const Tensor x = Tensor::zeros({DType::kFloat32, {1 << 18}});
  x.set_requires_grad(true);
  const auto held = [&](const std::function<Value(const Value&)>& link) {
    const uint64_t before = engine->caching_allocator()->stats().current_bytes;
    Value y = x;
    for (int i = 0; i < 16; ++i) y = link(y);
    return (engine->caching_allocator()->stats().current_bytes - before) / kBytes;
  };
  EXPECT_EQ(held([&](const Value& v) { return ops::add(v, x); }), 1U);  // the last
  EXPECT_EQ(held([&](const Value& v) { return ops::neg(ops::sub(v, 3)); }), 1U);
  EXPECT_EQ(held([&](const Value& v) { return ops::exp(ops::add(v, 1)); }), 16U);  // exp reads its result
  EXPECT_EQ(held([&](const Value& v) { return ops::mul(v, 2); }), 1U);
}

TEST_F(Autograd, NoGradRecordsNothing) {
  const Tensor x = vec({2}, true);
  const GradMode off(false);
  EXPECT_FALSE(ops::mul(x, x).requires_grad());
}

TEST_F(Autograd, DetachedValuesStopGradients) {
  const Tensor x = vec({2, 3}, true);
  backward_from(ops::sum(ops::mul(x, Tensor(ops::mul(x, x)).detach())));
  EXPECT_THAT(grad_of(x), ElementsAre(4, 9));
}

TEST_F(Autograd, GradReturnsWithoutAccumulating) {
  const Tensor x = vec({3}, true), y = vec({5}, true);
  const Value z[] = {ops::sum(ops::mul(x, y))};
  const Value inputs[] = {x, y};
  const std::vector<Value> grads = grad(z, inputs, {});
  EXPECT_THAT(values(grads[0]), ElementsAre(5));
  EXPECT_THAT(values(grads[1]), ElementsAre(3));
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(Autograd, UnusedInputsAreErrorsUnlessAllowed) {
  const Tensor x = vec({3}, true), y = vec({5}, true);
  const Value z[] = {ops::sum(x)};
  const Value inputs[] = {y};
  EXPECT_THAT(error_of([&] {
                grad(z, inputs, {}, {false, true, false});
              }),
              HasSubstr("appears to not have been used in the graph"));
  EXPECT_FALSE(grad(z, inputs, {}, {false, {}, true})[0].defined());
}

TEST_F(Autograd, GradientsOfInnerValues) {
  const Tensor x = vec({2}, true);
  const Value y = ops::mul(x, x), z = ops::sum(ops::mul(y, y));
  EXPECT_THAT(values(grad({&z, 1}, {&y, 1}, {})[0]), ElementsAre(8));
}

TEST_F(Autograd, HigherOrders) {
  const Tensor x = vec({2}, true);
  Value y = ops::sum(ops::mul(ops::mul(x, x), ops::mul(x, x)));  // x^4
  const float expected[] = {32, 48, 48, 24};
  const Value input = x;
  for (float e : expected) {
    y = grad({&y, 1}, {&input, 1}, {}, {true, {}, false})[0];
    EXPECT_THAT(values(y), ElementsAre(e));
    y = ops::sum(y);
  }
}

TEST_F(Autograd, CreateGraphMakesDifferentiableGradients) {
  const Tensor x = vec({3}, true);
  backward_from(ops::sum(ops::mul(x, x)), {true, {}, false});
  ASSERT_TRUE(x.grad().requires_grad());
  const Tensor g = x.grad();
  x.set_grad({});
  backward_from(ops::sum(g));
  EXPECT_THAT(grad_of(x), ElementsAre(2));
}

TEST_F(Autograd, HooksSeeAndReplaceTheWholeGradient) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, 3);
  int calls = 0;
  const int id = y.add_hook([&](const Value& g) {
    ++calls;
    return ops::mul(g, 10);
  });
  x.add_hook([&](const Value& g) {
    EXPECT_THAT(values(g), ElementsAre(60, 60));
    return Value();
  });
  backward_from(ops::sum(ops::add(y, y)), {false, true, false});
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(grad_of(x), ElementsAre(60, 60));
  y.remove_hook(id);
}

TEST_F(Autograd, LeavesAccumulateAsSoonAsTheirGradientIsComplete) {
  const Tensor x = vec({1, 2}, true), w = vec({3, 4}, true), shared = vec({5, 6}, true);
  backward_from(ops::sum(ops::mul(x, w)));  // w is known to the tape before what comes
  std::string order;
  const auto log = [&order](const Tensor& leaf, const char* name) {
    leaf.set_grad({});
    leaf.add_post_accumulate_grad_hook([&order, name](const Value& l) {
      EXPECT_TRUE(Tensor(l).grad().defined());
      order += name;
    });
  };
  log(w, "w");
  log(shared, "s");
  const Tensor first = ops::mul(x, shared), second = ops::mul(first, 2);
  second.add_hook([&](const Value&) {
    order += "2";
    return Value();
  });
  const int id = first.add_hook([&](const Value&) {
    order += "1";
    return Value();
  });
  backward_from(ops::sum(ops::mul(ops::mul(second, shared), w)), {false, true, false});
  EXPECT_EQ(order, "w21s");
  EXPECT_THAT(grad_of(shared), ElementsAre(2 * 2 * 1 * 5 * 3, 2 * 2 * 2 * 6 * 4));
  first.remove_hook(id);
}

TEST_F(Autograd, CallbacksRunAtTheEndOfBackwardWhateverItsEnd) {
  const Tensor x = vec({1}, true);
  std::string order;
  const auto ends = [&order](bool succeeded) { order += succeeded ? "+" : "-"; };
  x.add_post_accumulate_grad_hook([&](const Value&) { queue_callback(ends); });
  backward_from(ops::mul(x, 2));
  EXPECT_EQ(order, "+");
  x.add_post_accumulate_grad_hook([&](const Value&) { fail(ErrorKind::kRuntime, "in a hook"); });
  EXPECT_THROW(backward_from(ops::mul(x, 2)), Error);
  EXPECT_EQ(order, "+-");
  try {
    queue_callback(ends);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("queue_callback: no backward() is under way on this thread; call it from a hook"));
  }
}

TEST_F(Autograd, RetainGradKeepsInnerGradients) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, 3);
  y.retain_grad();
  backward_from(ops::sum(ops::mul(y, y)));
  EXPECT_THAT(grad_of(y), ElementsAre(6, 12));
}

TEST_F(Autograd, UserFunctions) {
  const Tensor x = vec({1, 2}, true);
  Value y;
  {
    const GradMode off(false);
    y = ops::mul(x, 2);
  }
  const Value input = x;
  record_function("twice", {&input, 1}, {&y, 1},
                  [](std::span<const Value> g) { return std::vector<Value>{ops::mul(g[0], 7)}; });
  backward_from(ops::sum(y));
  EXPECT_THAT(grad_of(x), ElementsAre(7, 7));
}

TEST_F(Autograd, WrongGradientTypeIsNamed) {
  const Tensor x = vec({1, 2}, true);
  Value y = Tensor(x).clone().detach();
  const Value input = x;
  record_function("bad", {&input, 1}, {&y, 1},
                  [](std::span<const Value> g) { return std::vector<Value>{ops::sum(g[0])}; });
  EXPECT_THAT(error_of([&] { backward_from(ops::sum(y)); }),
              HasSubstr("bad: backward returned a gradient of another type"));
}

TEST_F(Autograd, ModifiedSavedValuesAreErrors) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, 1);
  const Value z = ops::sum(ops::mul(y, y));
  {
    const GradMode off(false);
    write_in_place(y, vec({5, 5}));
  }
  EXPECT_THAT(
      error_of([&] { backward_from(z); }),
      HasSubstr("one of the variables needed for gradient computation has been modified by an inplace operation"));
}

TEST_F(Autograd, ModifiedValuesNobodyNeedsAreFine) {
  const Tensor x = vec({1, 2}, true);
  const Tensor y = ops::mul(x, 1);
  const Value z = ops::sum(ops::add(y, 1));
  {
    const GradMode off(false);
    write_in_place(y, vec({5, 5}));
  }
  backward_from(z);
  EXPECT_THAT(grad_of(x), ElementsAre(1, 1));
}

TEST_F(Autograd, DeepChainsNeedNoStack) {
  const Tensor x = vec({1}, true);
  {
    Value y = x;
    for (int i = 0; i < 100000; ++i) y = ops::neg(y);
    backward_from(ops::sum(y));
    EXPECT_THAT(grad_of(x), ElementsAre(1));
  }
  Value kept = x;
  for (int i = 0; i < 100000; ++i) kept = ops::neg(kept);  // dies without a backward
}

TEST_F(Autograd, NothingIsLeaked) {
  const uint64_t before = eager.engine().caching_allocator()->stats().current_bytes;
  {
    const Tensor x = vec({1, 2}, true);
    const Tensor y = vec({1, 2});
    const Value z = ops::tanh(ops::mul(x, vec({5, 6})));
    update_in_place(y, [&](const Value& old) { return ops::add(old, z); });
    backward_from(ops::sum(ops::mul(y, y)), {false, true, false});
  }
  EXPECT_EQ(eager.engine().caching_allocator()->stats().current_bytes, before);
}

// d/dx of f'(x) v by v alone, where f' is differentiated by its decomposition: 1 - tanh(x)^2 still depends on x.
TEST_F(Autograd, GradientsByOneOperandKeepTheHistoryOfOthers) {
  const Value x = vec({0.5, -1}, true), v = vec({0, 0}, true), direction = vec({1, 1});
  const Value y = ops::tanh(x);
  const Value product = grad({&y, 1}, {&x, 1}, {&v, 1}, {.create_graph = true, .retain_graph = {}})[0];
  const Value pushed = grad({&product, 1}, {&v, 1}, {&direction, 1}, {.create_graph = true, .retain_graph = {}})[0];
  const Value total = ops::sum(pushed);
  const float t = std::tanh(0.5F), u = std::tanh(-1.0F);
  EXPECT_THAT(values(grad({&total, 1}, {&x, 1}, {})[0]),
              ElementsAre(testing::FloatEq(-2 * t * (1 - t * t)), testing::FloatEq(-2 * u * (1 - u * u))));
}

TEST_F(Autograd, SavedValuesAreKeptAsHooksMakeThem) {
  struct Doubled final : PackedValue {
    explicit Doubled(const Value& value) : value(value) {}
    Value unpack() override { return ops::mul(value, 2); }
    Value value;
  };
  const Tensor x = vec({3, 4}, true);
  Value y;
  {
    const SavedHooksScope hooks([](const Value& value) { return std::make_shared<Doubled>(value); });
    y = ops::mul(x, x);
    const SavedHooksScope none(nullptr);
    EXPECT_EQ(SavedHooksScope::innermost(), nullptr);
    y = ops::add(y, ops::mul(x, x));  // kept as it is
  }
  EXPECT_EQ(SavedHooksScope::innermost(), nullptr);
  backward_from(ops::sum(y));
  EXPECT_THAT(grad_of(x), ElementsAre(12 + 6, 16 + 8));
}

TEST_F(Autograd, AnomaliesNameTheLineOfTheForwardCall) {
  const auto nan = [](const Value& value) { return values(value)[0] != values(value)[0]; };
  const AnomalyScope scope([] { return SourceLocation{"train.py", 41}; }, nan);
  const Tensor x = vec({0}, true);
  EXPECT_THAT(error_of([&] { backward_from(ops::sum(ops::mul(ops::sqrt(x), 0))); }),
              HasSubstr("Function 'sqrt' returned nan values in its 0th output; its forward call is at train.py:41"));
  const Value z = ops::sum(ops::mul(x, x));
  backward_from(z);
  EXPECT_THAT(error_of([&] { backward_from(z); }),
              HasSubstr("detect_anomaly: in the gradient of sum: its forward call"));
}

TEST_F(Autograd, BroadcastGradientsAreSummed) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6}, true), b = vec({1, 10, 100}, true);
  backward_from(ops::sum(ops::mul(a, b)));
  EXPECT_THAT(grad_of(b), ElementsAre(5, 7, 9));
}

}  // namespace
}  // namespace sluice::test
