#include "graph/ops/spatial/spatial.h"

#include "graph/ops/elementwise.h"
#include "graph/ops/extent.h"
#include "graph/ops/movement.h"

namespace sluice::ops {

Ints per_dim(const Ints& values, int dims, int64_t fallback, const char* where, const char* name) {
  if (values.empty()) return Ints(dims, fallback);
  if (values.size() == 1) return Ints(dims, values[0]);
  SLUICE_CHECK_KIND(kRuntime, static_cast<int>(values.size()) == dims,
                    "{}: {} has the wrong length: {} entries; one or {} are expected", where, name, values.size(),
                    dims);
  return values;
}

void check_per_dim(const Ints& values, int dims, int64_t least, const char* where, const char* name) {
  SLUICE_CHECK_KIND(kRuntime, static_cast<int>(values.size()) == dims,
                    "{}: {} has the wrong length: {} entries; {} are expected", where, name, values.size(), dims);
  for (int64_t v : values) {
    SLUICE_CHECK_KIND(kRuntime, v >= least, "{}: {} is too small: {}; it must be at least {}", where, name, v, least);
  }
}

int64_t window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const Wide window = Wide{dilation} * (Wide{kernel} - 1) + 1;
  const Wide span = Wide{size} + 2 * Wide{padding} - window + (ceil_mode ? stride - 1 : 0);
  if (span < 0) return 0;
  Wide count = span / stride + 1;
  if (ceil_mode && (count - 1) * stride >= Wide{size} + padding) --count;
  return checked_dim(count, "window");
}

namespace {

int64_t count_elements(const Ints& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Calls `visit` with the kernel offset per dim, in row-major order.
template <class F>
void for_each_offset(const Ints& kernel, F visit) {
  const int64_t n = count_elements(kernel);
  Ints at(kernel.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    visit(at);
    for (size_t d = kernel.size(); d-- > 0;) {
      if (++at[d] < kernel[d]) break;
      at[d] = 0;
    }
  }
}

}  // namespace

Value unfold(const Value& x, const Windows& w) {
  const int dims = x.rank() - 2;
  const int64_t n = x.shape()[0], c = x.shape()[1];
  Ints low(2, 0), positions;
  for (int d = 0; d < dims; ++d) {
    low.push_back(w.padding[d]);
    positions.push_back(window_count(x.shape()[2 + d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d]));
  }
  const Value padded = pad(x, low, low);
  std::vector<Value> columns;
  for_each_offset(w.kernel, [&](const Ints& at) {
    Ints starts(2, 0), stops = {n, c}, steps(2, 1);
    for (int d = 0; d < dims; ++d) {
      starts.push_back(at[d] * w.dilation[d]);
      stops.push_back(starts.back() + (positions[d] - 1) * w.stride[d] + 1);
      steps.push_back(w.stride[d]);
    }
    columns.push_back(reshape(slice(padded, starts, stops, steps), {n, c, 1, count_elements(positions)}));
  });
  return concat(columns, 2);
}

Value fold(const Value& columns, const Shape& shape, const Windows& w) {
  const int dims = shape.rank() - 2;
  const int64_t n = shape[0], c = shape[1];
  Ints positions;
  for (int d = 0; d < dims; ++d) {
    positions.push_back(window_count(shape[2 + d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d]));
  }
  Value total;
  int64_t k = 0;
  for_each_offset(w.kernel, [&](const Ints& at) {
    Ints to = {n, c}, zeros(2, 0), low(2, 0), high(2, 0), crop_low(2, 0), crop_high = {n, c}, ones(dims + 2, 1);
    to.insert(to.end(), positions.begin(), positions.end());
    Value part = reshape(slice_axis(columns, 2, k, k + 1), to);
    for (int d = 0; d < dims; ++d) {  // `stride - 1` zeros after each element: widen a dim of one element, then merge
      const int axis = 2 + d;
      Ints split = part.shape().vec(), merged = split, none(split.size() + 1, 0), after = none;
      split.insert(split.begin() + axis + 1, 1);
      after[axis + 1] = w.stride[d] - 1;
      merged[axis] *= w.stride[d];
      part = reshape(pad(reshape(part, split), none, after), merged);
      const int64_t start = at[d] * w.dilation[d], padded = shape[axis] + 2 * w.padding[d];
      part = slice_axis(part, axis, 0, (positions[d] - 1) * w.stride[d] + 1);
      low.push_back(start);
      high.push_back(padded - start - part.shape()[axis]);
      crop_low.push_back(w.padding[d]);
      crop_high.push_back(w.padding[d] + shape[axis]);
    }
    part = slice(pad(part, low, high), crop_low, crop_high, ones);
    total = total.defined() ? add(total, part) : part;
    ++k;
  });
  return total;
}

}  // namespace sluice::ops
