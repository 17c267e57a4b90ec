// The stride of a dim of size 1 means nothing, and views, NumPy and DLPack leave any number there. Whatever stands
// there in operands and in gradients, every op and its gradient give the bits that they give of canonical strides, in
// every order of the axes in memory, eagerly and planned; and about what they give of contiguous operands.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/layout.h"
#include "graph/ops/movement.h"
#include "graph/ops/strided_view.h"
#include "graph/tape.h"
#include "ops/op_cases.h"
#include "runtime/session/engine.h"
#include "support/soak.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

// Counts of what was compared by all tests of the program.
struct Counts {
  int64_t forward = 0, gradients = 0, planned = 0;
  std::set<std::string> ops;
};
class Counting final : public testing::Environment {
 public:
  void TearDown() override {
    if (counts.ops.empty()) return;
    report_count("strides of dims of 1", static_cast<int64_t>(counts.ops.size()), "ops");
    report_count("strides of dims of 1, forward", counts.forward, "calls");
    report_count("strides of dims of 1, gradients", counts.gradients, "calls");
    report_count("strides of dims of 1, planned", counts.planned, "calls");
  }
  Counts counts;
};
Counts& counts() {
  static auto* const counting = static_cast<Counting*>(testing::AddGlobalTestEnvironment(new Counting));
  return counting->counts;
}
[[maybe_unused]] const Counts& known_to_the_program = counts();

// --- Shapes ---

// The sample with dims cut to one element; its operands stay the sample's where the op takes only those together.
std::optional<Drawn> cut(const Drawn& drawn, const std::function<bool(size_t input, int axis)>& is_cut) {
  Drawn made = drawn;
  made.label += ", cut to";
  bool any = false;
  for (size_t i = 0; i < drawn.inputs.size(); ++i) {
    Value value = drawn.inputs[i];
    if (!value.defined()) continue;
    for (int axis = 0; axis < value.rank(); ++axis) {
      if (value.shape()[axis] < 2 || !is_cut(i, axis)) continue;
      value = ops::slice_axis(value, axis, 0, 1);
      any = true;
    }
    made.inputs[i] = Tensor(value).clone();
    made.label += " " + value.shape().str();
  }
  if (!any) return std::nullopt;
  try {
    inferred(made);
  } catch (const Error&) {
    return std::nullopt;
  }
  return made;
}

bool has_dim_of_one(const Drawn& drawn) {
  return std::any_of(drawn.inputs.begin(), drawn.inputs.end(), [](const Value& v) {
    return v.defined() && numel(v.shape()) > 0 && std::count(v.shape().begin(), v.shape().end(), 1) > 0;
  });
}

// The sample, if it has a dim of size 1; with each dim in turn cut to one element, in its input alone, in all inputs of
// the shape, and wherever the size occurs; and with all dims cut.
std::vector<Drawn> with_dims_of_one(const OpDef& op, size_t sample) {
  const GradMode off(false);
  const Drawn whole = draw(op, sample);
  std::vector<Drawn> made;
  std::set<std::string> known;
  const auto add = [&](const std::optional<Drawn>& drawn) {
    if (drawn && known.insert(drawn->label).second) made.push_back(*drawn);
  };
  if (has_dim_of_one(whole)) add(whole);
  const auto shape = [&](size_t i) { return whole.inputs[i].shape(); };
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    if (!whole.inputs[i].defined()) continue;
    for (int axis = 0; axis < whole.inputs[i].rank(); ++axis) {
      add(cut(whole, [&](size_t j, int a) { return i == j && a == axis; }));
      add(cut(whole, [&](size_t j, int a) { return shape(j) == shape(i) && a == axis; }));
      add(cut(whole, [&](size_t j, int a) { return shape(j)[a] == shape(i)[axis]; }));
    }
  }
  add(cut(whole, [](size_t, int) { return true; }));
  return made;
}

// --- Layouts ---

// How dense memory runs through the axes.
enum class Order { kRows, kChannelsLast, kColumns };
constexpr Order kOrders[] = {Order::kRows, Order::kChannelsLast, Order::kColumns};

// The axes, slowest first.
Ints axes_in_memory(Order order, int rank) {
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (order == Order::kColumns) std::reverse(axes.begin(), axes.end());
  if (order == Order::kChannelsLast && rank >= 3) std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  return axes;
}

Shape permuted(const Shape& shape, const Ints& axes) {
  Shape made;
  for (const int64_t axis : axes) made.push_back(shape[static_cast<int>(axis)]);
  return made;
}

Ints inverse(const Ints& axes) {
  Ints made(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) made[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
  return made;
}

// The value that stands where a stride means nothing. kTurned: what the axes in reverse would have there.
enum class Said { kCanonical, kZero, kOne, kOdd, kHuge, kTurned };
constexpr Said kSaid[] = {Said::kZero, Said::kOne, Said::kOdd, Said::kHuge, Said::kTurned};

Strides strides_said(const Shape& shape, const Strides& strides, Said said) {
  if (said == Said::kCanonical) return canonical_strides(shape, strides);
  const Ints reversed = axes_in_memory(Order::kColumns, shape.rank());
  const Strides columns = contiguous_strides(permuted(shape, reversed));
  Strides made = strides;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1) continue;
    switch (said) {
      case Said::kZero: made[i] = 0; break;
      case Said::kOne: made[i] = 1; break;
      case Said::kOdd: made[i] = 7; break;
      case Said::kHuge: made[i] = int64_t{1} << 40; break;
      default: made[i] = columns[shape.rank() - 1 - i];
    }
  }
  return made;
}

// The same values in memory of their own.
Value laid(const Value& value, Order order, Said said) {
  if (!value.defined() || value.rank() == 0) return value;
  const GradMode off(false);
  const Ints axes = axes_in_memory(order, value.rank());
  const Value dense = Tensor(ops::permute(value, axes)).clone();
  const auto& memory = static_cast<const EagerImpl&>(*dense.impl());
  Strides strides;
  for (const int64_t at : inverse(axes)) strides.push_back(memory.spec().strides[static_cast<int>(at)]);
  const TensorSpec spec{value.dtype(), value.shape(), strides_said(value.shape(), strides, said)};
  return Value(std::make_shared<EagerImpl>(memory.storage(), spec, DeviceId{}));
}
std::vector<Value> laid(const std::vector<Value>& values, Order order, Said said) {
  std::vector<Value> made;
  for (const Value& value : values) made.push_back(laid(value, order, said));
  return made;
}

// The same of a graph: what has a view of `port`, whose axes are in the order of memory.
Value laid_in_graph(const Value& port, Order order, Said said) {
  if (port.rank() == 0) return port;
  const Value x = ops::permute(port, inverse(axes_in_memory(order, port.rank())));
  const int rank = x.rank(), last = static_cast<int>(axes_in_memory(order, rank).back());
  const Strides any = strides_said(x.shape(), contiguous_strides(x.shape()), said);
  Ints steps(static_cast<size_t>(rank) * rank, 0);
  for (int i = 0; i < rank; ++i) {
    if (x.shape()[i] == 1)
      steps[static_cast<size_t>(i) * rank + last] = any[i];
    else
      steps[static_cast<size_t>(i) * rank + i] = 1;
  }
  return ops::strided_view(x, x.shape().vec(), Ints(static_cast<size_t>(rank), 0), steps);
}

// --- Calls ---

struct Results {
  std::vector<Value> outputs, gradients;  // gradients: of each floating input, undefined where there is none
};

bool has_gradient(const OpDef& op) { return (op.grad || op.decompose) && !op.effectful; }

// `seed(output, type)` gives the cotangents.
template <class Seed>
Results results(const Drawn& drawn, std::vector<Value> inputs, bool gradients, const Seed& seed) {
  Results made;
  std::vector<Value> leaves, recorded, seeds;
  for (Value& input : inputs) {
    if (!gradients || !input.defined() || !is_differentiable(input.dtype())) continue;
    const Tensor leaf = Tensor(input).detach();
    leaf.set_requires_grad(true);
    leaves.push_back(leaf);
    input = leaf;
  }
  made.outputs = drawn.run(inputs);
  for (size_t o = 0; o < made.outputs.size(); ++o) {
    if (!made.outputs[o].requires_grad()) continue;
    recorded.push_back(made.outputs[o]);
    seeds.push_back(seed(o, made.outputs[o].type()));
  }
  if (recorded.empty() || leaves.empty()) return made;
  made.gradients = grad(recorded, leaves, seeds, {false, {}, true});
  return made;
}

Value seed_of(size_t output, const TensorType& type) {
  const GradMode off(false);
  return from_doubles(type, noise(doubles_of(type), 77 + output));
}

Results run_eagerly(const Drawn& drawn, bool gradients, Order order, Said said) {
  return results(drawn, laid(drawn.inputs, order, said), gradients,
                 [&](size_t o, const TensorType& type) { return laid(seed_of(o, type), order, said); });
}

Results run_planned(EagerExecutor& eager, const Drawn& drawn, bool gradients, Order order, Said said) {
  TraceScope trace(eager, "call");
  std::vector<Tensor> given;
  const auto add = [&](const Value& value) {
    const Value port = ops::permute(value, axes_in_memory(order, value.rank()));
    given.push_back(Tensor(port).clone());
    return laid_in_graph(trace.add_input(fmt::format("in{}", given.size()), given.back().type()), order, said);
  };
  std::vector<Value> inputs;
  for (const Value& value : drawn.inputs) inputs.push_back(value.defined() ? add(value) : Value());
  const Results traced =
      results(drawn, inputs, gradients, [&](size_t o, const TensorType& type) { return add(seed_of(o, type)); });
  std::vector<std::pair<std::string, Value>> named;
  const auto name = [&](const std::vector<Value>& values) {
    for (const Value& v : values)
      if (v.defined()) named.emplace_back(fmt::format("out{}", named.size()), v);
  };
  name(traced.outputs);
  name(traced.gradients);
  std::vector<Tensor> got = GraphSession(eager, trace.finish(named)).call(given);
  Results made;
  size_t at = 0;
  for (size_t o = 0; o < traced.outputs.size(); ++o) made.outputs.push_back(got[at++]);
  for (const Value& v : traced.gradients) made.gradients.push_back(v.defined() ? Value(got[at++]) : Value());
  return made;
}

std::vector<Value> defined(const std::vector<Value>& values) {
  std::vector<Value> made;
  std::copy_if(values.begin(), values.end(), std::back_inserter(made), [](const Value& v) { return v.defined(); });
  return made;
}

std::string told(const Drawn& drawn, Order order, Said said) {
  return fmt::format("{}, order {}, said {}", drawn.label, static_cast<int>(order), static_cast<int>(said));
}

class StridesTest : public OpTest {
 protected:
  // The results of contiguous operands; none where a cut sample means nothing, as an index beyond what is left. Without
  // gradients where the op has none of these operands.
  std::optional<Results> expected(const Drawn& drawn, bool& gradients) {
    for (gradients = has_gradient(op()); true; gradients = false) {
      try {
        return run_eagerly(drawn, gradients, Order::kRows, Said::kCanonical);
      } catch (const Error&) {
        if (!gradients) return std::nullopt;
      }
    }
  }

  // In every order and with every number where none means anything: the bits of canonical strides.
  void expect_same_eagerly(const Drawn& drawn, bool gradients, const Results& contiguous) {
    for (const Order order : kOrders) {
      const Results same = run_eagerly(drawn, gradients, order, Said::kCanonical);
      expect_close(same, contiguous, told(drawn, order, Said::kCanonical));
      for (const Said said : kSaid) {
        const Results got = run_eagerly(drawn, gradients, order, said);
        expect_same(got.outputs, same.outputs, told(drawn, order, said));
        expect_same(defined(got.gradients), defined(same.gradients), told(drawn, order, said) + ", gradients");
        ++counts().forward;
        counts().gradients += !got.gradients.empty();
      }
    }
  }

  void expect_same_planned(const Drawn& drawn, bool gradients, Results contiguous) {
    if (!gradients) contiguous.gradients.clear();
    for (const Order order : {Order::kRows, Order::kChannelsLast}) {
      const Said said = kSaid[planned_++ % std::size(kSaid)];
      expect_close(run_planned(eager, drawn, gradients, order, said), contiguous,
                   told(drawn, order, said) + ", planned");
      ++counts().planned;
    }
  }

 private:
  // Another order of the operands is another order of sums.
  static void expect_close(const Results& got, const Results& expected, const std::string& what) {
    test::expect_close(got.outputs, expected.outputs, DType::kFloat32, 64, what);
    test::expect_close(defined(got.gradients), defined(expected.gradients), DType::kFloat32, 64, what + ", gradients");
  }

  size_t planned_ = 0;
};

// A plan for each call takes its time: of one case of each sample in the quick suite.
TEST_P(StridesTest, OfDimsOfOneMeanNothing) {
  const KernelDef* const def = eager.engine().kernels().find(op().name, DeviceKind::kCpu);
  const bool branches = def != nullptr && def->branches;  // what one branch gives is void where another is taken
  for (size_t s = 0; s < op().samples.size(); ++s) {
    bool plans = !op().effectful;
    for (const Drawn& drawn : with_dims_of_one(op(), s)) {
      bool gradients = false;
      const std::optional<Results> contiguous = expected(drawn, gradients);
      if (!contiguous) continue;
      counts().ops.insert(op().name);
      expect_same_eagerly(drawn, gradients, *contiguous);
      if (plans) expect_same_planned(drawn, gradients && !branches, *contiguous);
      if (HasFailure()) return;
      plans = plans && long_run();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, StridesTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
