// Products and convolutions.
#include <algorithm>

#include "base/error.h"
#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/convolution.h"
#include "graph/ops/creation.h"
#include "graph/ops/einsum.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/resampling.h"
#include "graph/ops/shaping.h"
#include "onnx/ops/convolution.h"
#include "onnx/ops/windows.h"
#include "onnx/table.h"

namespace sluice::onnx {

Value convolved(const Call& c, Value x, const Value& weight, const Value& bias) {
  const Shape& w = weight.shape();
  SLUICE_CHECK(w.rank() == x.rank() && w.rank() >= 3,
               "an input of shape {} and a weight of {}; must have equally many dims", x.shape().str(), w.str());
  const Windows windows = windows_of(c, x.shape(), Ints(w.begin() + 2, w.end()));
  SLUICE_CHECK(std::equal(windows.kernel.begin(), windows.kernel.end(), w.begin() + 2),
               "kernel_shape differs from the weight's shape {}; must be its last dims", w.str());
  ops::ConvOptions options{windows.stride, windows.low, windows.dilation, c.i("group", 1)};
  if (!symmetric(windows)) {
    Ints low{0, 0}, high{0, 0};
    low.insert(low.end(), windows.low.begin(), windows.low.end());
    high.insert(high.end(), windows.high.begin(), windows.high.end());
    x = ops::pad(x, low, high);
    options.padding.assign(windows.low.size(), 0);
  }
  return ops::conv(x, weight, bias, options);
}

namespace {

Value transposed_convolution(const Call& c) {
  const Value &x = c.in(0), &weight = c.in(1);
  const Shape& w = weight.shape();
  SLUICE_CHECK(w.rank() == x.rank() && w.rank() >= 3,
               "an input of shape {} and a weight of {}; must have equally many dims", x.shape().str(), w.str());
  const auto dims = static_cast<size_t>(x.rank() - 2);
  const Ints stride = c.is("strides", Ints(dims, 1)), dilation = c.is("dilations", Ints(dims, 1));
  const Ints extra = c.is("output_padding", Ints(dims, 0)), wanted = c.is("output_shape");
  Ints pads = c.is("pads", Ints(2 * dims, 0));
  const std::string rule = c.s("auto_pad", "NOTSET");
  SLUICE_CHECK(stride.size() == dims && dilation.size() == dims && extra.size() == dims && pads.size() == 2 * dims &&
                   (wanted.empty() || wanted.size() == dims),
               "attributes do not have a number for each of {} spatial dims; they must", dims);
  Ints low{0, 0}, high{0, 0};  // what is padded to, or where negative cut from, the whole result
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = x.shape()[static_cast<int>(d) + 2];
    const int64_t whole = (size - 1) * stride[d] + (w[static_cast<int>(d) + 2] - 1) * dilation[d] + 1 + extra[d];
    if (rule == "VALID") pads[d] = pads[d + dims] = 0;
    if (!wanted.empty() || rule.starts_with("SAME")) {
      const int64_t all = whole - (wanted.empty() ? size * stride[d] : wanted[d]);
      const int64_t half = all < 0 ? 0 : rule == "SAME_UPPER" ? all / 2 : all - all / 2;
      pads[d] = half;
      pads[d + dims] = all - half;
    }
    low.push_back(-pads[d]);
    high.push_back(extra[d] - pads[d + dims]);
  }
  // Beyond the result lies what no element reaches: the bias alone, which is then added last.
  const bool grows = std::any_of(low.begin(), low.end(), [](int64_t n) { return n > 0; }) ||
                     std::any_of(high.begin(), high.end(), [](int64_t n) { return n > 0; });
  const Value bias = c.opt(2);
  const ops::ConvTransposeOptions options{stride, Ints(dims, 0), Ints(dims, 0), dilation, c.i("group", 1)};
  Value y = ops::conv_transpose(x, weight, grows ? Value() : bias, options);
  Ints more(low.size(), 0), more_high = more;
  for (size_t d = 2; d < low.size(); ++d) {
    const int64_t first = std::max<int64_t>(-low[d], 0), last = std::max<int64_t>(-high[d], 0);
    const int64_t size = y.shape()[static_cast<int>(d)];
    SLUICE_CHECK(first + last <= size, "pads of {} and {} of {} elements; must be fewer", first, last, size);
    y = ops::narrow(y, static_cast<int64_t>(d), first, size - first - last);
    more[d] = std::max<int64_t>(low[d], 0);
    more_high[d] = std::max<int64_t>(high[d], 0);
  }
  if (!grows) return y;
  y = ops::pad(y, more, more_high);
  if (!bias.defined()) return y;
  Ints channels(low.size(), 1);
  channels[1] = -1;
  return ops::add(y, ops::reshape(bias, channels));
}

Value gemm(const Call& c) {
  const bool ta = c.i("transA") != 0, tb = c.i("transB") != 0;
  const double alpha = c.f("alpha", 1), beta = c.f("beta", 1);
  const Value &a = c.in(0), &b = c.in(1);
  // A layer, as exporters write it.
  if (!ta && tb && alpha == 1 && beta == 1 && a.rank() == 2 && c.has(2) && c.in(2).rank() == 1 &&
      is_floating(a.dtype()) && c.in(2).shape()[0] == b.shape()[0])
    return ops::linear(a, b, c.in(2));
  Value y = ops::matmul(a, b, ta, tb);
  if (alpha != 1) y = ops::scaled_by(y, alpha);
  if (!c.has(2)) return y;
  return ops::add(y, beta == 1 ? c.in(2) : ops::scaled_by(c.in(2), beta));
}

// A depthwise convolution that sees what came before, and keeps the end for the next call.
Items causal_convolution(const Call& c) {
  const Value &x = c.in(0), &weight = c.in(1);
  SLUICE_CHECK(x.rank() == 3 && weight.rank() == 3, "an input of shape {} and a weight of {}; must have 3 dims",
               x.shape().str(), weight.shape().str());
  const int64_t before = weight.shape()[2] - 1;
  const Value past = c.has(3) ? c.in(3) : ops::zeros(Shape({x.shape()[0], x.shape()[1], before}), x.dtype());
  const Value all = ops::concat(std::vector<Value>{past, x}, 2);
  Value y = ops::conv(all, weight, c.opt(2), {.groups = x.shape()[1]});
  const std::string activation = c.s("activation", "none");
  SLUICE_CHECK(activation == "none" || activation == "silu" || activation == "swish",
               "activation '{}'; must be none, silu or swish", activation);
  if (activation != "none") y = ops::cast(ops::silu(ops::cast(y, DType::kFloat32)), x.dtype());
  return {y, ops::narrow(all, 2, all.shape()[2] - before, before)};
}

// Windows whose elements are moved by offsets, which are learned.
Value deformable(const Call& c) {
  const Value &x = c.in(0), &weight = c.in(1), &offset = c.in(2);
  if (x.rank() != 4) c.refuse("an input of shape {}; only (N, C, H, W) is supported", x.shape().str());
  const Windows w = windows_of(c, x.shape(), Ints(weight.shape().begin() + 2, weight.shape().end()));
  const int64_t n = x.shape()[0], channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  const int64_t groups = c.i("group", 1), sets = c.i("offset_group", 1), kh = w.kernel[0], kw = w.kernel[1];
  const int64_t oh = w.sizes[0], ow = w.sizes[1], taps = kh * kw;
  SLUICE_CHECK(sets > 0 && channels % sets == 0 && offset.shape() == Shape({n, sets * taps * 2, oh, ow}),
               "offsets of shape {}; must be {}", offset.shape().str(), Shape({n, sets * taps * 2, oh, ow}).str());
  const Value moved = ops::reshape(offset, {n * sets, taps, 2, oh, ow});
  const auto places = [&](size_t d, int64_t size) {  // of each tap at each place, without offsets: (1, taps, oh, ow)
    const Value start = ops::sub(ops::mul(ops::iota(0, 1, w.sizes[d]), w.stride[d]), w.low[d]);
    const Value tap = ops::mul(ops::iota(0, 1, w.kernel[d]), w.dilation[d]);
    const Value at = ops::add(ops::reshape(tap, d == 0 ? Ints{kh, 1, 1, 1} : Ints{1, kw, 1, 1}),
                              ops::reshape(start, d == 0 ? Ints{1, 1, oh, 1} : Ints{1, 1, 1, ow}));
    const Value all = ops::reshape(ops::expand(at, Shape({kh, kw, oh, ow})), {1, taps, oh, ow});
    const Value there = ops::add(ops::cast(all, x.dtype()), ops::select(moved, 2, static_cast<int64_t>(d)));
    return ops::sub(ops::div(ops::add(ops::mul(there, 2), 1), static_cast<double>(size)), 1);  // from -1 to 1
  };
  const Value grid = ops::stack(std::vector<Value>{places(1, width), places(0, height)}, -1);
  const Value planes = ops::reshape(x, {n * sets, channels / sets, height, width});
  Value sampled = ops::grid_sample(planes, ops::reshape(grid, {n * sets, taps * oh, ow, 2}), {});
  sampled = ops::reshape(sampled, {n, sets, channels / sets, taps, oh, ow});
  if (c.has(4)) sampled = ops::mul(sampled, ops::reshape(c.in(4), {n, sets, 1, taps, oh, ow}));
  const int64_t outputs = weight.shape()[0];
  const Value columns = ops::reshape(sampled, {n, groups, channels / groups * taps, oh * ow});
  const Value rows = ops::reshape(weight, {1, groups, outputs / groups, channels / groups * taps});
  const Value y = ops::reshape(ops::matmul(rows, columns), {n, outputs, oh, ow});
  return c.has(3) ? ops::add(y, ops::reshape(c.in(3), {1, outputs, 1, 1})) : y;
}

}  // namespace

Entries network_entries() {
  return {
      {"CausalConvWithState", causal_convolution},
      {"Conv", [](const Call& c) { return convolved(c, c.in(0), c.in(1), c.opt(2)); }},
      {"ConvTranspose", transposed_convolution},
      {"DeformConv", deformable},
      {"Einsum", [](const Call& c) { return ops::einsum(c.s("equation"), c.tensors()); }},
      {"Gemm", gemm},
      {"MatMul", [](const Call& c) { return ops::matmul(c.in(0), c.in(1)); }},
      {"Det", [](const Call& c) { return torch1("linalg.det", c.in(0)); }},
  };
}

}  // namespace sluice::onnx
