#include "tensor/chosen.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/positions.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

thread_local int fixed_lengths = 0;

}  // namespace

FixedLengthsScope::FixedLengthsScope() { ++fixed_lengths; }
FixedLengthsScope::~FixedLengthsScope() { --fixed_lengths; }

Value filled_up(const Value& x, int first, int count) {
  TraceExecutor* const trace = current_trace();
  if (trace == nullptr || !trace->touches_graph(x)) return x;
  Value filled = x;
  for (const graph::VaryingAxis& axis : trace->varying_axes(x))
    if (axis.axis >= first && axis.axis < first + count)
      filled = ops::keep_rows(filled, trace->handle_of(axis.extent), axis.axis);
  return filled;
}

void refuse_length(const char* function, const char* instead) {
  fail(ErrorKind::kRuntime, "{}: the tensor is traced; its result has no shape while a graph is built: {}", function,
       instead);
}

Chosen::Chosen(const Value& mask, const char* function, const char* instead)
    : function_(function), shape_(mask.shape()) {
  const bool traced = mask.impl()->traced();
  if (traced && fixed_lengths > 0) refuse_length(function, instead);
  mask_ = ops::reshape(filled_up(ops::cast(mask, DType::kBool), 0, mask.rank()), {numel(shape_)});
  const ops::Positions positions = ops::positions(mask_);
  at_ = positions.at;
  if (traced) {
    count_ = positions.count;
    return;
  }
  const GradMode no_grad(false);
  const auto count = std::get<int64_t>(Tensor(positions.count).item());
  if (count < numel(shape_)) at_ = ops::copy(ops::narrow(at_, 0, 0, count));
}

std::vector<Value> Chosen::columns() const {
  std::vector<Value> columns(static_cast<size_t>(shape_.rank()));
  Value rest = at_;
  for (int d = shape_.rank(); d-- > 0;) {
    const int64_t size = std::max<int64_t>(shape_[d], 1);
    columns[static_cast<size_t>(d)] = d == 0 ? rest : ops::remainder(rest, size);
    if (d > 0) rest = ops::floor_divide(rest, size);
  }
  return columns;
}

Value Chosen::rows(const Value& made_by_them, int axis) const {
  return count_.defined() ? ops::shorten(made_by_them, count_, axis, function_) : made_by_them;
}

bool Chosen::as_long(const Value& x, int axis) const {
  TraceExecutor* const trace = current_trace();
  if (!trace->touches_graph(x)) return false;
  const graph::ValueId extent = trace->varying_axes(rows(at_)).at(0).extent;
  const std::vector<graph::VaryingAxis> axes = trace->varying_axes(x);
  return std::any_of(axes.begin(), axes.end(),
                     [&](const graph::VaryingAxis& a) { return a.axis == axis && a.extent == extent; });
}

Value Chosen::spread(const Value& x, int axis) const {
  const Value number = ops::sub(ops::cumsum(ops::cast(mask_, DType::kInt64), 0), 1);
  return ops::index_select(ops::keep_rows(x, count_, axis), ops::clamp(number, 0, std::nullopt), axis);
}

}  // namespace sluice
