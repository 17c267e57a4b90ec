#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/pooling.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// The starts of the windows of one dim for each sample and channel: (N, C, out), int64; they end with the input.
Value fractional_starts(const Value& sample, int64_t in, int64_t out, int64_t kernel) {
  const int64_t n = sample.shape()[0], channels = sample.shape()[1];
  if (out == 1) return full({n, channels, 1}, static_cast<double>(in - kernel), DType::kInt64);
  const Value offset = reshape(sample, {n, channels, 1});
  const Value scale = div(scalar(static_cast<double>(in - kernel), sample.dtype()), static_cast<double>(out - 1));
  const Value steps = reshape(iota(0, 1, out - 1, sample.dtype()), {1, 1, out - 1});
  const Value starts =
      sub(cast(trunc(mul(add(steps, offset), scale)), DType::kInt64), cast(trunc(mul(offset, scale)), DType::kInt64));
  const Value parts[] = {starts, full({n, channels, 1}, static_cast<double>(in - kernel), DType::kInt64)};
  return concat(parts, 2);
}

}  // namespace

std::pair<Value, Value> fractional_max_pool(const Value& x, const Ints& kernel, const Ints& out, const Value& samples) {
  const int dims = static_cast<int>(kernel.size());
  const int64_t n = x.shape()[0], channels = x.shape()[1];
  int64_t area = 1, cells = 1, window = 1;
  Value index;  // into the flattened spatial dims: (N, C, out..., kernel...), row by row
  for (int d = 0; d < dims; ++d) {
    const int64_t in = x.shape()[2 + d];
    SLUICE_CHECK_KIND(kRuntime, out[d] >= 1 && kernel[d] >= 1 && out[d] + kernel[d] - 1 <= in,
                      "fractional_max_pool{}d: pool size {} too large relative to input size {} for output size {}",
                      dims, kernel[d], in, out[d]);
    const Value starts = fractional_starts(select(samples, 2, dims == 2 ? 1 - d : d), in, out[d], kernel[d]);
    Ints cell(2 + 2 * dims, 1), within(2 + 2 * dims, 1);
    cell[0] = n, cell[1] = channels, cell[2 + d] = out[d];
    within[2 + dims + d] = kernel[d];
    const Value here = add(reshape(starts, cell), reshape(iota(0, 1, kernel[d]), within));
    index = index.defined() ? add(mul(index, in), here) : here;
    area *= in, cells *= out[d], window *= kernel[d];
  }
  const Value rows = gather(reshape(x, {n, channels, area}), reshape(index, {n, channels, cells * window}), 2);
  const Value candidates = reshape(rows, {n, channels, cells, window});
  const Value best = argmax(current_executor().detach(candidates), 3, true);
  Ints shape = {n, channels};
  shape.insert(shape.end(), out.begin(), out.end());
  return {reshape(gather(candidates, best, 3), shape),
          reshape(gather(reshape(index, {n, channels, cells, window}), best, 3), shape)};
}

}  // namespace sluice::ops
