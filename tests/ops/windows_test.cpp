// Operands whose elements share memory, as sliding windows do: every op gives about what it gives of copies of them,
// eagerly and planned.
#include <set>

#include "graph/ops/movement.h"
#include "graph/ops/strided_view.h"
#include "graph/tape.h"
#include "ops/op_cases.h"
#include "support/soak.h"
#include "tensor/session/graph_session.h"

namespace sluice::test {
namespace {

// Windows of 2 axes, of all axes, and the first axis within the second.
enum class Shared { kLastTwo, kAll, kFirst };
constexpr Shared kShared[] = {Shared::kLastTwo, Shared::kAll, Shared::kFirst};

Ints shared_strides(const Shape& shape, Shared shared) {
  const int r = shape.rank();
  Ints strides(static_cast<size_t>(r), 1);
  if (shared == Shared::kAll) return strides;
  for (int i = r - 2; i >= 0; --i) strides[static_cast<size_t>(i)] = strides[static_cast<size_t>(i) + 1] * shape[i + 1];
  if (shared == Shared::kFirst) {
    strides[0] = std::max<int64_t>(strides[0] / 2, 1);
    return strides;
  }
  for (int64_t& stride : strides) stride = std::max<int64_t>(stride / shape[r - 1], 1);
  return strides;
}

// The first elements of a value, in a row, and the view of them that has its shape.
struct Window {
  Value memory;
  Ints size, strides;
  Value view() const { return ops::as_strided(memory, size, strides); }
  Value view_of(const Value& port) const { return ops::as_strided(port, size, strides); }
};

std::optional<Window> window(const Value& value, Shared shared) {
  if (!value.defined() || value.rank() < 2 || numel(value.shape()) == 0) return std::nullopt;
  const GradMode off(false);
  const Ints strides = shared_strides(value.shape(), shared);
  int64_t extent = 1;
  for (int i = 0; i < value.rank(); ++i) extent += (value.shape()[i] - 1) * strides[static_cast<size_t>(i)];
  const Value flat = ops::reshape(value, {numel(value.shape())});
  if (extent >= numel(value.shape())) return std::nullopt;  // nothing is shared
  return Window{Tensor(ops::slice_axis(flat, 0, 0, extent)).clone(), value.shape().vec(), strides};
}

using WindowsTest = OpTest;

TEST_P(WindowsTest, AreReadAsCopiesOfThemAre) {
  const GradMode off(false);
  int64_t calls = 0;
  for (size_t s = 0; s < op().samples.size() && !op().effectful; ++s)
    for (const Shared shared : kShared) {
      const Drawn drawn = draw(op(), s);
      std::vector<std::optional<Window>> windows;
      std::vector<Value> views = drawn.inputs, copies = drawn.inputs;
      bool any = false;
      for (size_t i = 0; i < views.size(); ++i) {
        windows.push_back(window(views[i], shared));
        if (!windows[i]) continue;
        any = true;
        views[i] = windows[i]->view();
        copies[i] = Tensor(views[i]).clone();
      }
      if (!any) continue;
      std::vector<Value> expected;
      try {
        expected = drawn.run(copies);
      } catch (const Error&) {
        continue;  // the values mean nothing now
      }
      const std::string what = fmt::format("{}, shared {}", drawn.label, static_cast<int>(shared));
      expect_close(drawn.run(views), expected, DType::kFloat32, 64, what);
      TraceScope trace(eager, "windows");
      std::vector<Tensor> given;
      std::vector<Value> inputs;
      for (size_t i = 0; i < views.size(); ++i) {
        inputs.emplace_back();
        if (!views[i].defined()) continue;
        given.emplace_back(windows[i] ? windows[i]->memory : views[i]);
        const Value port = trace.add_input(fmt::format("in{}", i), given.back().type());
        inputs[i] = windows[i] ? windows[i]->view_of(port) : port;
      }
      std::vector<std::pair<std::string, Value>> named;
      for (const Value& v : drawn.run(inputs)) named.emplace_back(fmt::format("out{}", named.size()), v);
      const std::vector<Tensor> planned = GraphSession(eager, trace.finish(named)).call(given);
      expect_close({planned.begin(), planned.end()}, expected, DType::kFloat32, 64, what + ", planned");
      if (HasFailure()) return;
      ++calls;
    }
  if (calls > 0) report_count("operands that share memory", calls, "calls");
}

INSTANTIATE_TEST_SUITE_P(Ops, WindowsTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
