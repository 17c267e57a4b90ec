#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

constexpr int64_t kTapsGrain = 16384;  // products worth a thread

// x seen as (outer, size, inner), y as (outer, out, inner).
struct Taps {
  std::string op;
  int64_t outer = 1, size = 0, out = 0, inner = 1, taps = 0;
  int threads = 1;
};

// Index and weights by taps, (taps, out), for loops over outputs.
template <class C>
struct Table {
  int32_t* index;
  C* weight;
};

template <class T>
Table<Compute<T>> table_of(const Taps& t, const KernelArgs& args) {
  using C = Compute<T>;
  const auto* index = static_cast<const int64_t*>(args.inputs[1]);
  const T* weight = static_cast<const T*>(args.inputs[2]);
  Table<C> table{static_cast<int32_t*>(args.workspace), nullptr};
  table.weight = reinterpret_cast<C*>(static_cast<std::byte*>(args.workspace) + align_up(t.out * t.taps * 4, 64));
  for (int64_t o = 0; o < t.out; ++o) {
    for (int64_t k = 0; k < t.taps; ++k) {
      const int64_t at = index[o * t.taps + k];
      if (at < 0 || at >= t.size)
        fail(ErrorKind::kIndex, "{}: index out of range: {} of an axis of size {}; must be in [0, {}]", t.op, at,
             t.size, t.size - 1);
      table.index[k * t.out + o] = static_cast<int32_t>(at);
      table.weight[k * t.out + o] = load(weight[o * t.taps + k]);
    }
  }
  return table;
}

// One line of outputs, of elements that lie side by side in x.
template <int kTaps, class T>
SLUICE_INLINE void line(const T* x, T* y, const Table<Compute<T>>& table, int64_t out, int64_t taps) {
  using C = Compute<T>;
#pragma GCC ivdep
  for (int64_t o = 0; o < out; ++o) {
    C sum = 0;
    for (int64_t k = 0; k < (kTaps > 0 ? kTaps : taps); ++k)
      sum += table.weight[k * out + o] * static_cast<C>(load(x[table.index[k * out + o]]));
    store(y + o, sum);
  }
}

// `inner` outputs side by side, of as many neighbours at each tap.
template <int kTaps, class T>
SLUICE_INLINE void row(const T* x, T* y, const Table<Compute<T>>& table, int64_t o, const Taps& t) {
  using C = Compute<T>;
  const int64_t taps = kTaps > 0 ? kTaps : t.taps;
#pragma GCC ivdep
  for (int64_t i = 0; i < t.inner; ++i) {
    C sum = 0;
    for (int64_t k = 0; k < taps; ++k)
      sum += table.weight[k * t.out + o] * static_cast<C>(load(x[table.index[k * t.out + o] * t.inner + i]));
    store(y + i, sum);
  }
}

template <int kTaps, class T>
SLUICE_INLINE void forward_rows(const Taps& t, const T* x, T* y, const Table<Compute<T>>& table, int64_t begin,
                                int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* from = x + r * t.size * t.inner;
    T* to = y + r * t.out * t.inner;
    if (t.inner == 1)
      line<kTaps>(from, to, table, t.out, t.taps);
    else
      for (int64_t o = 0; o < t.out; ++o) row<kTaps>(from, to + o * t.inner, table, o, t);
  }
}

template <class T>
void forward_any(const Taps& t, const T* x, T* y, const Table<Compute<T>>& table, int64_t begin, int64_t end) {
  forward_rows<0>(t, x, y, table, begin, end);
}
// The frequent ones of float for several instruction sets, which templates cannot be compiled for.
SLUICE_CLONES void forward_2(const Taps& t, const float* x, float* y, const Table<float>& table, int64_t begin,
                             int64_t end) {
  forward_rows<2>(t, x, y, table, begin, end);
}
SLUICE_CLONES void forward_4(const Taps& t, const float* x, float* y, const Table<float>& table, int64_t begin,
                             int64_t end) {
  forward_rows<4>(t, x, y, table, begin, end);
}

// Adds up in the order of the outputs, in the tensor's own dtype.
template <class T>
SLUICE_INLINE void backward_rows(const Taps& t, const T* g, T* dx, const Table<Compute<T>>& table, int64_t begin,
                                 int64_t end) {
  using C = Compute<T>;
  for (int64_t r = begin; r < end; ++r) {
    T* to = dx + r * t.size * t.inner;
    for (int64_t i = 0; i < t.size * t.inner; ++i) store(to + i, C(0));
    for (int64_t o = 0; o < t.out; ++o) {
      const T* from = g + (r * t.out + o) * t.inner;
      for (int64_t k = 0; k < t.taps; ++k) {
        const C w = table.weight[k * t.out + o];
        T* cell = to + table.index[k * t.out + o] * t.inner;
#pragma GCC ivdep
        for (int64_t i = 0; i < t.inner; ++i) store(cell + i, load(cell[i]) + w * load(from[i]));
      }
    }
  }
}
template <class T>
void backward_any(const Taps& t, const T* g, T* dx, const Table<Compute<T>>& table, int64_t begin, int64_t end) {
  backward_rows(t, g, dx, table, begin, end);
}
SLUICE_CLONES void backward_f32(const Taps& t, const float* g, float* dx, const Table<float>& table, int64_t begin,
                                int64_t end) {
  backward_rows(t, g, dx, table, begin, end);
}

template <class T>
using Run = void (*)(const Taps&, const T*, T*, const Table<Compute<T>>&, int64_t, int64_t);

template <class T>
Run<T> run_of(const Taps& t, bool backward) {
  if constexpr (std::is_same_v<T, float>) {
    if (backward) return backward_f32;
    if (t.taps == 2) return forward_2;
    if (t.taps == 4) return forward_4;
  }
  return backward ? backward_any<T> : forward_any<T>;
}

std::unique_ptr<PreparedKernel> prepare(const KernelQuery& q, const PrepareContext& context, bool backward) {
  const Shape &x = backward ? q.outputs[0].shape : q.inputs[0].shape,
              &y = backward ? q.inputs[0].shape : q.outputs[0].shape;
  const int axis = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), x.rank(), q.op.c_str());
  Taps t{.op = q.op, .size = x[axis], .out = y[axis], .taps = q.inputs[1].shape[1], .threads = context.threads};
  for (int i = 0; i < axis; ++i) t.outer *= x[i];
  for (int i = axis + 1; i < x.rank(); ++i) t.inner *= x[i];
  return dispatch_floating(q.outputs[0].dtype, q.op.c_str(), [&](auto element) {
    using T = decltype(element);
    const Run<T> run = run_of<T>(t, backward);
    const uint64_t entries = static_cast<uint64_t>(t.out * t.taps);
    return make_kernel(align_up(entries * 4, 64) + entries * sizeof(Compute<T>), [t, run](const KernelArgs& args) {
      const auto table = table_of<T>(t, args);
      const T* from = static_cast<const T*>(args.inputs[0]);
      T* to = static_cast<T*>(args.outputs[0]);
      const int64_t work = std::max<int64_t>(t.out * t.inner * t.taps, 1);
      parallel_ranges(t.threads, t.outer, std::max<int64_t>(kTapsGrain / work, 1),
                      [&](int64_t begin, int64_t end) { run(t, from, to, table, begin, end); });
    });
  });
}

}  // namespace

void add_taps_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "weighted_taps", .prepare = [](const KernelQuery& q, const PrepareContext& c) {
                                 return prepare(q, c, false);
                               }});
  table.add(DeviceKind::kCpu,
            {.op = "weighted_taps_backward",
             .prepare = [](const KernelQuery& q, const PrepareContext& c) { return prepare(q, c, true); }});
}

}  // namespace sluice::cpu
