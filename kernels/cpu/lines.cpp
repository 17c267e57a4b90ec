// argsort, running_argmax, running_argmin, linear_recurrence: a line along an axis after the other, each on one thread.
#include "kernels/cpu/lines.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/support.h"
#include "kernels/cpu/tiles.h"

namespace sluice::cpu {
namespace {

const char* input(const KernelArgs& args, int i, int64_t offset) {
  return static_cast<const char*>(args.inputs[i]) + offset;
}

template <class T>
bool is_nan(T a) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return a != a;
}

template <class T>
bool before(T a, T b) {
  return a < b || (is_nan(b) && !is_nan(a));  // NaN is the largest
}

// The workspace has the values and the order of all lines.
template <class T>
class Argsort final : public PreparedKernel {
 public:
  Argsort(const plan::KernelQuery& q, int threads)
      : lines_(q),
        descending_(get_attr<bool>(q.attrs, "descending")),
        threads_(threads),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))) {
    WorkspaceLayout layout;
    const auto elements = static_cast<uint64_t>(lines_.count() * lines_.length());
    values_at_ = layout.add(elements * sizeof(T));
    order_at_ = layout.add(elements * sizeof(int64_t));
    workspace_bytes_ = layout.bytes();
  }

  void run(const KernelArgs& args) const override {
    const int64_t n = lines_.length(), in_step = lines_.step(0), out_step = lines_.step(1);
    T* const all_values = reinterpret_cast<T*>(at_offset(args.workspace, values_at_));
    int64_t* const all_orders = reinterpret_cast<int64_t*>(at_offset(args.workspace, order_at_));
    lines_.for_each(threads_, [&](int64_t line, const auto& at) {
      T* values = all_values + line * n;
      int64_t* order = all_orders + line * n;
      for (int64_t i = 0; i < n; i += kTile)
        load_(input(args, 0, at[0] + lines_.bytes(0, i * in_step)), in_step, values + i, std::min(kTile, n - i));
      for (int64_t i = 0; i < n; ++i) order[i] = i;
      // The index decides between equal ones, which makes it stable without memory of its own.
      std::sort(order, order + n, [&](int64_t a, int64_t b) {
        const T x = values[a], y = values[b];
        if (descending_ ? before(y, x) : before(x, y)) return true;
        return !(descending_ ? before(x, y) : before(y, x)) && a < b;
      });
      int64_t* out = reinterpret_cast<int64_t*>(static_cast<char*>(args.outputs[0]) + at[1]);
      for (int64_t i = 0; i < n; ++i) out[i * out_step] = order[i];
    });
  }

 private:
  const Lines lines_;
  const bool descending_;
  const int threads_;
  const LoadFn load_;
  uint64_t values_at_ = 0, order_at_ = 0;
};

template <class T>
class RunningExtremum final : public PreparedKernel {
 public:
  RunningExtremum(const plan::KernelQuery& q, bool maximum, int threads)
      : lines_(q),
        maximum_(maximum),
        threads_(threads),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))) {}

  void run(const KernelArgs& args) const override {
    lines_.for_each(threads_, [&](int64_t, const auto& at) {
      T tile[kTile];
      T best{};
      int64_t best_at = -1;
      int64_t* out = reinterpret_cast<int64_t*>(static_cast<char*>(args.outputs[0]) + at[1]);
      for (int64_t done = 0; done < lines_.length(); done += kTile) {
        const int64_t m = std::min(kTile, lines_.length() - done), step = lines_.step(0);
        load_(input(args, 0, at[0] + lines_.bytes(0, done * step)), step, tile, m);
        for (int64_t i = 0; i < m; ++i) {
          const T v = tile[i];
          const bool wins = best_at < 0 || is_nan(v) || (!is_nan(best) && (maximum_ ? v >= best : v <= best));
          if (wins) best = v, best_at = done + i;
          out[(done + i) * lines_.step(1)] = best_at;
        }
      }
    });
  }

 private:
  const Lines lines_;
  const bool maximum_;
  const int threads_;
  const LoadFn load_;
};

template <class T>
class LinearRecurrence final : public PreparedKernel {
 public:
  LinearRecurrence(const plan::KernelQuery& q, int threads)
      : lines_(q),
        threads_(threads),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))),
        store_(tile_store(tile_type(q.inputs[0].dtype), q.outputs[0].dtype)) {}

  void run(const KernelArgs& args) const override {
    using Total = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                     std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, double>>;
    lines_.for_each(threads_, [&](int64_t, const auto& at) {
      T a[kTile], b[kTile];
      Total y = 0;
      for (int64_t done = 0; done < lines_.length(); done += kTile) {
        const int64_t m = std::min(kTile, lines_.length() - done);
        load_(input(args, 0, at[0] + lines_.bytes(0, done * lines_.step(0))), lines_.step(0), a, m);
        load_(input(args, 1, at[1] + lines_.bytes(1, done * lines_.step(1))), lines_.step(1), b, m);
        for (int64_t i = 0; i < m; ++i) {
          const Total carried = done + i == 0 ? Total{0} : product(static_cast<Total>(a[i]), y);
          y = carried + static_cast<Total>(b[i]);
          b[i] = static_cast<T>(y);
        }
        store_(b, static_cast<char*>(args.outputs[0]) + at[2] + lines_.bytes(2, done * lines_.step(2)), lines_.step(2),
               m);
      }
    });
  }

 private:
  const Lines lines_;
  const int threads_;
  const LoadFn load_;
  const StoreFn store_;
};

template <class T>
std::unique_ptr<PreparedKernel> make_recurrence(const plan::KernelQuery& q, int threads) {
  return std::make_unique<LinearRecurrence<T>>(q, threads);
}

// The kernel computed in the type of the first operand's tiles.
template <template <class> class Kernel, class... Args>
std::unique_ptr<PreparedKernel> typed(const plan::KernelQuery& q, Args... args) {
  switch (tile_type(q.inputs.at(0).dtype)) {
    case TileType::kFloat: return std::make_unique<Kernel<float>>(q, args...);
    case TileType::kDouble: return std::make_unique<Kernel<double>>(q, args...);
    case TileType::kComplexFloat:
    case TileType::kComplexDouble:
      fail(ErrorKind::kUnsupported, "{}: no cpu kernel for {}; complex numbers have no order", q.op,
           dtype_name(q.inputs[0].dtype));
    default: return std::make_unique<Kernel<int64_t>>(q, args...);
  }
}

}  // namespace

void add_line_kernels(KernelTable& table) {
  const auto add = [&](const char* op, PrepareFn prepare) {
    table.add(DeviceKind::kCpu,
              {.op = op, .prepare = std::move(prepare), .layouts = [](const plan::KernelQuery& q) {
                 return plan::LayoutPreference{std::vector(q.inputs.size(), plan::Layout::kAny), {plan::Layout::kAny}};
               }});
  };
  add("argsort",
      [](const plan::KernelQuery& q, const PrepareContext& context) { return typed<Argsort>(q, context.threads); });
  for (const bool maximum : {true, false})
    add(maximum ? "running_argmax" : "running_argmin",
        [maximum](const plan::KernelQuery& q, const PrepareContext& context) {
          return typed<RunningExtremum>(q, maximum, context.threads);
        });
  add("linear_recurrence",
      [](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
        switch (q.inputs.at(0).dtype) {
          case DType::kComplex64: return make_recurrence<std::complex<float>>(q, context.threads);
          case DType::kComplex128: return make_recurrence<std::complex<double>>(q, context.threads);
          default: return typed<LinearRecurrence>(q, context.threads);
        }
      });
}

}  // namespace sluice::cpu
