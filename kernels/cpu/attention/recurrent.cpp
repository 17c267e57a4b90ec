#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/scalar_math.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

constexpr int64_t kRecurrentGrain = 2048;  // elements of a state worth a thread

template <class C>
SLUICE_INLINE C sigmoid(C x) {
  return 1 / (1 + scalar::exp(-x));
}

// One row of lstm_cell; gates are `size` apart.
template <class T>
struct CellRow {
  const T *input, *hidden, *c;
  T *h, *next, *gates;

  SLUICE_INLINE void run(int64_t n) const {
    using C = Compute<T>;
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      const C i = sigmoid<C>(load(input[k]) + load(hidden[k]));
      const C f = sigmoid<C>(load(input[n + k]) + load(hidden[n + k]));
      const C g = scalar::tanh(load(input[2 * n + k]) + load(hidden[2 * n + k]));
      const C o = sigmoid<C>(load(input[3 * n + k]) + load(hidden[3 * n + k]));
      const C s = f * load(c[k]) + i * g;
      store(gates + k, i), store(gates + n + k, f), store(gates + 2 * n + k, g), store(gates + 3 * n + k, o);
      store(next + k, s);
      store(h + k, o * scalar::tanh(s));
    }
  }
};

// One row of lstm_cell_backward. dh and dc point to zeros where they are absent.
template <class T>
struct CellBackwardRow {
  const T *gates, *c, *next, *dh, *dc;
  T *d_gates, *d_c;

  SLUICE_INLINE void run(int64_t n) const {
    using C = Compute<T>;
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      const C i = load(gates[k]), f = load(gates[n + k]), g = load(gates[2 * n + k]), o = load(gates[3 * n + k]);
      const C t = scalar::tanh(load(next[k])), y = load(dh[k]);
      const C s = load(dc[k]) + y * o * (1 - t * t);
      store(d_gates + k, s * g * i * (1 - i));
      store(d_gates + n + k, s * load(c[k]) * f * (1 - f));
      store(d_gates + 2 * n + k, s * i * (1 - g * g));
      store(d_gates + 3 * n + k, y * t * o * (1 - o));
      store(d_c + k, s * f);
    }
  }
};

// Rows of float are compiled for several instruction sets, which templates cannot be.
template <class Row>
void run_row(const Row& row, int64_t n) {
  row.run(n);
}
SLUICE_CLONES void run_row(const CellRow<float>& row, int64_t n) { row.run(n); }
SLUICE_CLONES void run_row(const CellBackwardRow<float>& row, int64_t n) { row.run(n); }

std::unique_ptr<PreparedKernel> prepare_cell(const KernelQuery& q, const PrepareContext& context) {
  const int64_t rows = q.outputs[0].shape[0], n = q.outputs[0].shape[1];
  const int threads = context.threads;
  return dispatch_floating(q.outputs[0].dtype, "lstm_cell", [&](auto t) {
    using T = decltype(t);
    return make_kernel(0, [=](const KernelArgs& args) {
      const auto in = [&](int i, int64_t at) { return static_cast<const T*>(args.inputs[i]) + at; };
      const auto out = [&](int i, int64_t at) { return static_cast<T*>(args.outputs[i]) + at; };
      parallel_ranges(threads, rows, std::max<int64_t>(kRecurrentGrain / std::max<int64_t>(n, 1), 1),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r)
                          run_row(CellRow<T>{in(0, 4 * n * r), in(1, 4 * n * r), in(2, n * r), out(0, n * r),
                                             out(1, n * r), out(2, 4 * n * r)},
                                  n);
                      });
    });
  });
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelQuery& q, const PrepareContext& context) {
  const int64_t rows = q.outputs[1].shape[0], n = q.outputs[1].shape[1];
  const int threads = context.threads;
  return dispatch_floating(q.outputs[1].dtype, "lstm_cell_backward", [&](auto t) {
    using T = decltype(t);
    const uint64_t zeros = static_cast<uint64_t>(n) * sizeof(T);
    return make_kernel(zeros, [=, specs = q.inputs](const KernelArgs& args) {
      std::fill_n(static_cast<std::byte*>(args.workspace), zeros, std::byte{0});
      const auto in = [&](size_t i, int64_t at) {
        const void* given = operand(args, specs, i);
        return given != nullptr ? static_cast<const T*>(given) + at : static_cast<const T*>(args.workspace);
      };
      const auto out = [&](int i, int64_t at) { return static_cast<T*>(args.outputs[i]) + at; };
      parallel_ranges(threads, rows, std::max<int64_t>(kRecurrentGrain / std::max<int64_t>(n, 1), 1),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r)
                          run_row(CellBackwardRow<T>{in(0, 4 * n * r), in(1, n * r), in(2, n * r), in(3, n * r),
                                                     in(4, n * r), out(0, 4 * n * r), out(1, n * r)},
                                  n);
                      });
    });
  });
}

}  // namespace

void add_recurrent_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "lstm_cell", .prepare = prepare_cell, .in_place = {{0, 2}, {1, 2}}});
  table.add(DeviceKind::kCpu, {.op = "lstm_cell_backward", .prepare = prepare_backward});
}

}  // namespace sluice::cpu
