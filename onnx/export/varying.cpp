#include "onnx/export/varying.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "tensor/forms/host_values.h"

namespace sluice::onnx::exporting {
namespace {

std::string contents_of(const Tensor& tensor) {
  std::string bytes(checked_bytes(tensor.shape(), dtype_size(tensor.dtype())), '\0');
  tensor.copy_to_host(bytes.data());
  return bytes;
}

bool same_contents(const Tensor& a, const Tensor& b) {
  return a.impl() == b.impl() || (a.type() == b.type() && contents_of(a) == contents_of(b));
}

// The numbers of a constant that a program makes of sizes: one of all elements; start + i * step along the last axis;
// or a matrix of one number on and below a diagonal, and another above.
struct Pattern {
  enum Kind { kEqual, kSteps, kTriangle } kind;
  double a = 0, b = 0;  // the number; start and step; below and above
  int64_t diagonal = 0;
  bool operator==(const Pattern&) const = default;
};

std::optional<Pattern> pattern_of(const Tensor& tensor) {
  const std::vector<double> values = host_values<double>(tensor, DType::kFloat64);
  if (values.empty()) return std::nullopt;
  const double first = values[0];
  if (std::all_of(values.begin(), values.end(), [&](double v) { return v == first; }))
    return Pattern{Pattern::kEqual, first};
  const Shape& shape = tensor.shape();
  const int64_t columns = shape.back(), n = static_cast<int64_t>(values.size());
  if (columns == n) {
    const Pattern steps{Pattern::kSteps, first, values[1] - first};
    for (int64_t i = 0; i < n; ++i)
      if (values[static_cast<size_t>(i)] != first + static_cast<double>(i) * steps.b) return std::nullopt;
    return steps;
  }
  if (shape.rank() < 2 || n != columns * shape[shape.rank() - 2]) return std::nullopt;
  int64_t reach = 0;  // elements of the first row that are like the first
  while (reach < columns && values[static_cast<size_t>(reach)] == first) ++reach;
  if (reach == columns) return std::nullopt;
  const Pattern triangle{Pattern::kTriangle, first, values[static_cast<size_t>(reach)], reach - 1};
  for (int64_t i = 0; i < n; ++i)
    if (values[static_cast<size_t>(i)] != (i % columns - i / columns <= triangle.diagonal ? triangle.a : triangle.b))
      return std::nullopt;
  return triangle;
}

std::string written(Exporter& to, const Pattern& pattern, DType dtype, const Numbers& shape) {
  const auto one = [&](int64_t value) { return Number(to.traces(), value); };
  const auto range = [&](const Number& n) {
    const std::string end = to.add1("Reshape", {to.ints({n}), to.ints({})});
    return to.add1("Range", {to.scalar(0, DType::kInt64), end, to.scalar(1, DType::kInt64)});
  };
  if (pattern.kind == Pattern::kEqual) return to.add1("Expand", {to.scalar(pattern.a, dtype), to.ints(shape)});
  if (pattern.kind == Pattern::kSteps) {
    const DType wide = is_floating(dtype) ? dtype : DType::kInt64;
    std::string y = range(shape.back());
    if (wide != DType::kInt64) y = to.cast(y, wide);
    y = to.add1("Add", {to.add1("Mul", {y, to.scalar(pattern.b, wide)}), to.scalar(pattern.a, wide)});
    return to.add1("Reshape", {wide == dtype ? y : to.cast(y, dtype), to.ints(shape)});
  }
  const std::string rows = to.add1("Reshape", {range(shape[shape.size() - 2]), to.ints({one(-1), one(1)})});
  const std::string behind = to.add1("Sub", {range(shape.back()), rows});
  const std::string low =
      to.add1("LessOrEqual", {behind, to.scalar(static_cast<double>(pattern.diagonal), DType::kInt64)});
  if (dtype == DType::kBool && pattern.a == 1) return to.add1("Reshape", {low, to.ints(shape)});
  if (dtype == DType::kBool) return to.add1("Reshape", {to.add1("Not", {low}), to.ints(shape)});
  const std::string y = to.add1("Where", {low, to.scalar(pattern.a, dtype), to.scalar(pattern.b, dtype)});
  return to.add1("Reshape", {y, to.ints(shape)});
}

}  // namespace

std::string varying_constant(Exporter& to, const std::vector<const graph::Graph*>& graphs,
                             const std::vector<const CapturedGraph*>& traces, const graph::Variable& variable) {
  const auto index = static_cast<size_t>(&variable - graphs.front()->variables().data());
  std::vector<Tensor> tensors;
  for (size_t t = 0; t < graphs.size(); ++t)
    tensors.push_back(traces[t]->variables.at(graphs[t]->variables()[index].name));
  if (std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return same_contents(tensors.front(), t); }))
    return "";
  const std::optional<Pattern> first = pattern_of(tensors.front());
  Numbers shape(static_cast<size_t>(tensors.front().rank()));
  bool same = first.has_value();
  for (const Tensor& t : tensors) {
    same = same && t.dtype() == tensors.front().dtype() && t.rank() == tensors.front().rank() && pattern_of(t) == first;
    for (size_t d = 0; same && d < shape.size(); ++d) shape[d].push_back(t.shape()[static_cast<int>(d)]);
  }
  SLUICE_CHECK_KIND(kUnsupported, same,
                    "onnx.export: constant '{}' ({}) is another one at another size of a dim; compute it from "
                    "an input, or export with that dim fixed",
                    variable.name, tensors.front().type().str());
  return written(to, *first, tensors.front().dtype(), shape);
}

}  // namespace sluice::onnx::exporting
