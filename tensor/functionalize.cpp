// Writes through views as ordinary ops.
#include <cstring>

#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/movement.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

Value scatter_slice(const Value& base, const Attrs& attrs, const Value& value) {
  const Ints &starts = attr<Ints>(attrs, 0), &steps = attr<Ints>(attrs, 2);
  if (numel(value.shape()) == 0) return base;
  if (value.shape() == base.shape()) return value;
  Ints low, high, interior;
  for (int i = 0; i < base.rank(); ++i) {
    const int64_t covered = (value.shape()[i] - 1) * steps[i] + 1;
    low.push_back(starts[i]);
    high.push_back(base.shape()[i] - starts[i] - covered);
    interior.push_back(steps[i] - 1);
  }
  // Constant, so it is computed while tracing.
  const Value mask = ops::pad(ops::full(value.shape(), 1, DType::kBool), low, high, 0, interior);
  return ops::where(mask, ops::pad(value, low, high, 0, interior), base);
}

Value unpermute(const Value& value, const Ints& dims) {
  Ints inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    inverse[normalize_axis(dims[i], value.rank(), "permute")] = static_cast<int64_t>(i);
  return ops::permute(value, inverse);
}

}  // namespace

Value scatter_step(const Value& base, const ViewStep& step, const Value& value) {
  const char* name = step.op->name;
  if (std::strcmp(name, "slice") == 0) return scatter_slice(base, step.attrs, value);
  if (std::strcmp(name, "permute") == 0) return unpermute(value, attr<Ints>(step.attrs, 0));
  // expand: only axes of size 1 are new, since memory seen twice cannot be written.
  if (numel(value.shape()) == numel(base.shape())) return ops::reshape(value, base.shape().vec());
  fail(ErrorKind::kUnsupported,
       "assign: a view made by {} cannot be written inside a graph: {} of {}; write with ordinary ops", name,
       value.type().str(), base.type().str());
}

}  // namespace sluice
