#include "kernels/cpu/conv/conv_loops.h"

#include <array>

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/strided.h"

namespace sluice::cpu {
namespace {

// A convolution over three spatial dims; missing ones have size 1.
struct Loops {
  int64_t batch, groups, in, out;  // channels per group
  std::array<int64_t, 3> x, k, y;  // spatial sizes
  std::array<int64_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  std::array<int64_t, 5> xs{}, ws{}, ys{};  // strides: two leading dims, three spatial
  bool bias = false, wide_bias = false;     // of the type that sums are made in
  int threads = 1;
};

Loops make_loops(const TensorSpec& x, const TensorSpec& w, const TensorSpec& y, const TensorSpec* bias,
                 const ConvGeometry& g, int threads) {
  Loops l{.batch = x.shape[0],
          .groups = g.groups,
          .in = w.shape[1],
          .out = w.shape[0] / g.groups,
          .x = {1, 1, 1},
          .k = {1, 1, 1},
          .y = {1, 1, 1}};
  const int dims = x.shape.rank() - 2;
  for (int i = 0; i < 2; ++i) {
    l.xs[i] = x.strides[i];
    l.ws[i] = w.strides[i];
    l.ys[i] = y.strides[i];
  }
  for (int d = 0; d < dims; ++d) {
    const int to = 3 - dims + d;
    l.x[to] = x.shape[2 + d];
    l.k[to] = w.shape[2 + d];
    l.y[to] = y.shape[2 + d];
    l.stride[to] = g.stride[d];
    l.padding[to] = g.padding[d];
    l.dilation[to] = g.dilation[d];
    l.xs[2 + to] = x.strides[2 + d];
    l.ws[2 + to] = w.strides[2 + d];
    l.ys[2 + to] = y.strides[2 + d];
  }
  l.bias = bias != nullptr;
  l.wide_bias = bias != nullptr && bias->dtype != x.dtype;
  l.threads = threads;
  return l;
}

int64_t offset(const std::array<int64_t, 5>& strides, int64_t a, int64_t b, const std::array<int64_t, 3>& at) {
  return a * strides[0] + b * strides[1] + at[0] * strides[2] + at[1] * strides[3] + at[2] * strides[4];
}

// Calls visit(input position, kernel position) for the taps of output position `at` that fall inside the input.
template <class F>
void for_each_tap(const Loops& l, const std::array<int64_t, 3>& at, F visit) {
  std::array<int64_t, 3> k, i;
  auto inside = [&](int d) {
    return static_cast<uint64_t>(i[d] = at[d] * l.stride[d] - l.padding[d] + k[d] * l.dilation[d]) <
           static_cast<uint64_t>(l.x[d]);
  };
  for (k[0] = 0; k[0] < l.k[0]; ++k[0]) {
    if (!inside(0)) continue;
    for (k[1] = 0; k[1] < l.k[1]; ++k[1]) {
      if (!inside(1)) continue;
      for (k[2] = 0; k[2] < l.k[2]; ++k[2]) {
        if (inside(2)) visit(i, k);
      }
    }
  }
}
template <class F>
void for_each_position(const std::array<int64_t, 3>& sizes, F visit) {
  std::array<int64_t, 3> at;
  for (at[0] = 0; at[0] < sizes[0]; ++at[0])
    for (at[1] = 0; at[1] < sizes[1]; ++at[1])
      for (at[2] = 0; at[2] < sizes[2]; ++at[2]) visit(at);
}

template <class T>
void output(const Loops& l, const T* x, const T* w, const void* bias, T* y) {
  const auto bias_of = [&](int64_t o) {
    if (!l.bias) return Compute<T>(0);
    return l.wide_bias ? static_cast<const Compute<T>*>(bias)[o] : Compute<T>(load(static_cast<const T*>(bias)[o]));
  };
  parallel_each(l.threads, l.batch * l.groups * l.out, [&](int64_t job) {
    const int64_t o = job % (l.groups * l.out), n = job / (l.groups * l.out), first = o / l.out * l.in;
    for_each_position(l.y, [&](const auto& at) {
      Compute<T> sum = bias_of(o);
      for_each_tap(l, at, [&](const auto& i, const auto& k) {
        for (int64_t c = 0; c < l.in; ++c)
          sum += load(x[offset(l.xs, n, first + c, i)]) * load(w[offset(l.ws, o, c, k)]);
      });
      store(y + offset(l.ys, n, o, at), sum);
    });
  });
}

// Scatters along the same taps: a plane of x belongs to one job, so sums have one order.
template <class T>
void input(const Loops& l, const T* y, const T* w, T* x) {
  const int64_t plane = l.x[0] * l.x[1] * l.x[2];
  parallel_ranges(l.threads, l.batch * l.groups * l.in, 1, [&](int64_t begin, int64_t end) {
    std::vector<Compute<T>> sums(static_cast<size_t>(plane));
    for (int64_t job = begin; job < end; ++job) {
      const int64_t channel = job % (l.groups * l.in), n = job / (l.groups * l.in), group = channel / l.in,
                    c = channel % l.in;
      std::fill(sums.begin(), sums.end(), Compute<T>(0));
      for (int64_t o = group * l.out; o < (group + 1) * l.out; ++o) {
        for_each_position(l.y, [&](const auto& at) {
          const auto g = load(y[offset(l.ys, n, o, at)]);
          for_each_tap(l, at, [&](const auto& i, const auto& k) {
            sums[static_cast<size_t>((i[0] * l.x[1] + i[1]) * l.x[2] + i[2])] += g * load(w[offset(l.ws, o, c, k)]);
          });
        });
      }
      size_t p = 0;
      for_each_position(l.x, [&](const auto& i) { store(x + offset(l.xs, n, channel, i), sums[p++]); });
    }
  });
}

template <class T>
void weight(const Loops& l, const T* y, const T* x, T* w) {
  parallel_each(l.threads, l.groups * l.out * l.in, [&](int64_t job) {
    const int64_t o = job / l.in, c = job % l.in, channel = o / l.out * l.in + c;
    for_each_position(l.k, [&](const auto& k) {
      Compute<T> sum = 0;
      for (int64_t n = 0; n < l.batch; ++n) {
        for_each_position(l.y, [&](const auto& at) {
          std::array<int64_t, 3> i;
          for (int d = 0; d < 3; ++d) {
            i[d] = at[d] * l.stride[d] - l.padding[d] + k[d] * l.dilation[d];
            if (i[d] < 0 || i[d] >= l.x[d]) return;
          }
          sum += load(y[offset(l.ys, n, o, at)]) * load(x[offset(l.xs, n, channel, i)]);
        });
      }
      store(w + offset(l.ws, o, c, k), sum);
    });
  });
}

}  // namespace

std::function<void(const KernelArgs&)> conv_loops(ConvRole result, const TensorSpec& x, const TensorSpec& w,
                                                  const TensorSpec& y, const TensorSpec* bias,
                                                  const ConvGeometry& geometry, int threads) {
  const Loops l = make_loops(x, w, y, bias, geometry, threads);
  return dispatch_floating(x.dtype, "conv", [&](auto type) -> std::function<void(const KernelArgs&)> {
    using T = decltype(type);
    return [l, result](const KernelArgs& args) {
      const T *a = static_cast<const T*>(args.inputs[0]), *b = static_cast<const T*>(args.inputs[1]);
      T* out = static_cast<T*>(args.outputs[0]);
      switch (result) {
        case ConvRole::kOutput: return output<T>(l, a, b, l.bias ? args.inputs[2] : nullptr, out);
        case ConvRole::kInput: return input<T>(l, a, b, out);
        case ConvRole::kWeight: return weight<T>(l, a, b, out);
      }
    };
  });
}

}  // namespace sluice::cpu
