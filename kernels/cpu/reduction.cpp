// sum, mean, prod, amax, amin, any, all. Sums are taken in blocks: float within a block, double across blocks, so the
// error hardly grows with the size. Blocks depend only on the shape, never on the number of threads.
#include "kernels/cpu/reduction.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGrain = 32768;   // input elements worth a thread
constexpr int64_t kChunk = 65536;   // input elements of one output reduced apart, when outputs are few
constexpr int64_t kFlush = 64;      // tiles summed before the total takes them
constexpr int64_t kShort = 32;      // shorter runs are summed one by one
constexpr int64_t kLanes = 64;      // of a run, reduced side by side
constexpr int64_t kRun = 4096;      // elements of a run before the total takes them
constexpr int64_t kTurn = 8;        // elements of an outer axis between turns of outputs
constexpr int64_t kColumns = 2048;  // neighbouring outputs reduced together

enum class Kind : uint8_t { kSum, kMean, kProd, kMax, kMin, kAny, kAll };

template <Kind kind, class T>
SLUICE_INLINE T joined(T a, T b) {
  if constexpr (kIsComplex<T>) {  // which have no order
    return kind == Kind::kProd ? product(a, b) : a + b;
  } else {
    using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean: return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
      case Kind::kProd: return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      case Kind::kMax:
      case Kind::kAny: return a != a || a > b ? a : b;
      case Kind::kMin:
      case Kind::kAll: return a != a || a < b ? a : b;
    }
  }
}

// x[0], ..., x[n - 1] as one: lanes side by side, then in pairs. REQUIRES: 0 < n.
template <Kind kind, class T>
SLUICE_INLINE T folded(const T* x, int64_t n) {
  T lanes[kLanes];
  int64_t used = std::min(n, kLanes);
  for (int64_t i = 0; i < used; ++i) lanes[i] = x[i];
  int64_t at = kLanes;
  for (; at + kLanes <= n; at += kLanes)
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = joined<kind>(lanes[i], x[at + i]);
  for (int64_t i = 0; at + i < n; ++i) lanes[i] = joined<kind>(lanes[i], x[at + i]);
  while (used > 1) {
    const int64_t half = used / 2;
    for (int64_t i = 0; i < half; ++i) lanes[i] = joined<kind>(lanes[i], lanes[used - half + i]);
    used -= half;
  }
  return lanes[0];
}

template <class T>
using Fold = T (*)(const T* x, int64_t n);
// For several instruction sets, which templates cannot be compiled for.
#define FOLDS(NAME, KIND)                                                                            \
  SLUICE_CLONES float NAME##_f32(const float* x, int64_t n) { return folded<Kind::KIND>(x, n); }     \
  SLUICE_CLONES double NAME##_f64(const double* x, int64_t n) { return folded<Kind::KIND>(x, n); }   \
  SLUICE_CLONES int64_t NAME##_i64(const int64_t* x, int64_t n) { return folded<Kind::KIND>(x, n); } \
  constexpr struct {                                                                                 \
    operator Fold<float>() const { return NAME##_f32; }                                              \
    operator Fold<double>() const { return NAME##_f64; }                                             \
    operator Fold<int64_t>() const { return NAME##_i64; }                                            \
  } NAME;
FOLDS(fold_sum, kSum)
FOLDS(fold_prod, kProd)
FOLDS(fold_max, kMax)
FOLDS(fold_min, kMin)
#undef FOLDS

template <class T>
Fold<T> fold_of(Kind kind) {
  if constexpr (kIsComplex<T>)
    return kind == Kind::kProd ? folded<Kind::kProd, T> : folded<Kind::kSum, T>;
  else
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean: return fold_sum;
      case Kind::kProd: return fold_prod;
      case Kind::kMax:
      case Kind::kAny: return fold_max;
      case Kind::kMin:
      case Kind::kAll: return fold_min;
    }
  return nullptr;
}

template <class T>
class Reduce final : public PreparedKernel {
 public:
  using Total = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                   std::conditional_t<std::is_same_v<T, int64_t>, int64_t, double>>;

  Reduce(const plan::KernelQuery& q, const ReductionAxes& axes, Kind kind, Loop combine, int threads)
      : kind_(kind),
        combine_(combine),
        fold_(fold_of<T>(kind)),
        threads_(threads),
        outputs_(axes.kept),
        reduced_(axes.reduced),
        in_size_(dtype_size(q.inputs[0].dtype)),
        out_size_(dtype_size(q.outputs[0].dtype)) {
    const DType in = q.inputs[0].dtype;
    const TileType tile = tile_type(in);
    load_ = tile_load(in, tile);
    direct_ = is_tile(in, tile) && kind != Kind::kAny && kind != Kind::kAll;
    store_ = tile_store(tile, q.outputs[0].dtype);
    // Memory order decides what is vectorised: along the reduced axis, or across neighbouring outputs.
    by_column_ = outputs_.inner_stride(0) == 1 && outputs_.inner() > 1 && std::abs(reduced_.inner_stride(0)) != 1;
    group_ = by_column_ ? kColumns : 1;
    const int64_t groups = (outputs_.size() + group_ - 1) / group_;
    if (groups < 16 && reduced_.size() * group_ >= 2 * kChunk)
      chunks_ = std::clamp<int64_t>(reduced_.size() * group_ / kChunk, 1, 32);
    // Where a reduced axis lies around the kept ones, outputs take turns after a few of its elements, as memory has
    // them.
    if (!by_column_ && reduced_.outer_rank() > 0 && outputs_.size() > 1 && reduced_.size() >= kRun &&
        reduced_.outer_stride(0, 0) >= outputs_.inner_stride(0) * outputs_.inner())
      chunks_ = std::clamp<int64_t>(reduced_.outer_dim(0) / kTurn, chunks_, std::max<int64_t>(chunks_, 32));
    if (chunks_ > 1) workspace_bytes_ = static_cast<uint64_t>(chunks_ * outputs_.size()) * sizeof(Total);
  }

  void run(const KernelArgs& args) const override {
    const int64_t n = outputs_.size(), rows = reduced_.size();
    if (n == 0) return;
    if (chunks_ == 1) {
      parallel_ranges(threads_, n, std::max<int64_t>(kGrain / std::max<int64_t>(rows, 1), 1),
                      [&](int64_t begin, int64_t end) { reduce(args, begin, end, 0, rows, nullptr); });
      return;
    }
    Total* partials = static_cast<Total*>(args.workspace);
    const int64_t groups = (n + group_ - 1) / group_;
    parallel_ranges(threads_, groups * chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % groups * group_, chunk = task / groups;
        reduce(args, first, std::min(n, first + group_), rows * chunk / chunks_, rows * (chunk + 1) / chunks_,
               partials + chunk * n + first);
      }
    });
    int64_t o = 0;
    outputs_.for_segments(0, n, [&](const auto& offsets, int64_t count) {
      for (int64_t i = 0; i < count; ++i, ++o) {
        Total total = partials[o];
        for (int64_t chunk = 1; chunk < chunks_; ++chunk) total = join(total, partials[chunk * n + o]);
        write(args, offsets[1] + i * outputs_.inner_stride(1), outputs_.inner_stride(1), &total, 1);
      }
    });
  }

 private:
  Total identity() const {
    if constexpr (kIsComplex<T>)
      return kind_ == Kind::kProd ? 1.0 : 0.0;
    else
      return number_identity();
  }

  template <class N = Total>
  N number_identity() const {
    constexpr bool kFloating = std::is_same_v<N, double>;
    constexpr N kLow = kFloating ? -std::numeric_limits<N>::infinity() : std::numeric_limits<N>::lowest();
    constexpr N kHigh = kFloating ? std::numeric_limits<N>::infinity() : std::numeric_limits<N>::max();
    switch (kind_) {
      case Kind::kSum:
      case Kind::kMean:
      case Kind::kAny: return 0;
      case Kind::kProd:
      case Kind::kAll: return 1;
      case Kind::kMax: return kLow;
      case Kind::kMin: return kHigh;
    }
    return 0;
  }

  Total join(Total a, Total b) const {
    switch (kind_) {
      case Kind::kSum:
      case Kind::kMean: return joined<Kind::kSum>(a, b);
      case Kind::kProd: return joined<Kind::kProd>(a, b);
      case Kind::kMax:
      case Kind::kAny: return joined<Kind::kMax>(a, b);
      case Kind::kMin:
      case Kind::kAll: return joined<Kind::kMin>(a, b);
    }
    return a;
  }

  // n elements as a tile: in place, or, at most kTile, loaded into `space`.
  const T* tile(const char* from, int64_t stride, T* space, int64_t n) const {
    if (direct_ && stride == 1) return reinterpret_cast<const T*>(from);
    load_(from, stride, space, n);
    if (!kIsComplex<T> && (kind_ == Kind::kAny || kind_ == Kind::kAll))
      for (int64_t i = 0; i < n; ++i) space[i] = space[i] != T(0);
    return space;
  }

  void combine(T* into, const T* x, int64_t n) const {
    const void* operands[] = {into, x};
    combine_(operands, into, n);
  }

  // Outputs [begin, end) over reduced elements [first, last), to the output, or to `partials` when given.
  void reduce(const KernelArgs& args, int64_t begin, int64_t end, int64_t first, int64_t last, Total* partials) const {
    const char* x = static_cast<const char*>(args.inputs[0]);
    Total totals[kColumns];
    outputs_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
      for (int64_t at = 0; at < n;) {
        const int64_t m = by_column_ ? std::min(kColumns, n - at) : 1;
        const char* from = x + (offsets[0] + at * outputs_.inner_stride(0)) * in_size_;
        if (by_column_)
          columns(from, m, first, last, totals);
        else
          totals[0] = row(from, first, last);
        if (partials) {
          std::copy(totals, totals + m, partials);
          partials += m;
        } else {
          write(args, offsets[1] + at * outputs_.inner_stride(1), outputs_.inner_stride(1), totals, m);
        }
        at += m;
      }
    });
  }

  Total row(const char* x, int64_t first, int64_t last) const {
    alignas(64) T space[kTile];
    Total total = identity();
    const int64_t stride = reduced_.inner_stride(0), most = direct_ && stride == 1 ? kRun : kTile;
    const auto take = [&](int64_t offset, int64_t n) {
      for (int64_t at = 0; at < n; at += most) {
        const int64_t m = std::min(most, n - at);
        const T* t = tile(x + (offset + at * stride) * in_size_, stride, space, m);
        if (m < kShort)
          for (int64_t i = 0; i < m; ++i) total = join(total, static_cast<Total>(t[i]));
        else
          total = join(total, static_cast<Total>(fold_(t, m)));
      }
    };
    if (reduced_.outer_rank() == 0)
      take(first * stride, last - first);
    else
      reduced_.for_segments(first, last, [&](const auto& offsets, int64_t n) { take(offsets[0], n); });
    return total;
  }

  void columns(const char* x, int64_t m, int64_t first, int64_t last, Total* totals) const {
    alignas(64) T space[kTile], lanes[kColumns];
    std::fill(totals, totals + m, identity());
    int64_t rows = 0;
    const auto flush = [&] {
      for (int64_t i = 0; rows > 0 && i < m; ++i) totals[i] = join(totals[i], static_cast<Total>(lanes[i]));
      rows = 0;
    };
    reduced_.for_segments(first, last, [&](const auto& offsets, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const char* line = x + (offsets[0] + i * reduced_.inner_stride(0)) * in_size_;
        for (int64_t at = 0; at < m; at += kTile) {
          const int64_t part = std::min(kTile, m - at);
          const T* t = tile(line + at * in_size_, 1, space, part);
          if (rows == 0)
            std::copy(t, t + part, lanes + at);
          else
            combine(lanes + at, t, part);
        }
        if (++rows == kFlush) flush();
      }
    });
    flush();
  }

  void write(const KernelArgs& args, int64_t offset, int64_t stride, const Total* totals, int64_t n) const {
    T values[kTile];
    using Scale = std::conditional_t<kIsComplex<T>, double, Total>;
    const Scale scale = static_cast<Scale>(kind_ == Kind::kMean ? reduced_.size() : 1);
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      for (int64_t i = 0; i < m; ++i)
        values[i] = static_cast<T>(kind_ == Kind::kMean ? totals[at + i] / scale : totals[at + i]);
      store_(values, static_cast<char*>(args.outputs[0]) + (offset + at * stride) * out_size_, stride, m);
    }
  }

  const Kind kind_;
  const Loop combine_;
  const Fold<T> fold_;
  const int threads_;
  const LoopNest outputs_, reduced_;
  const int64_t in_size_, out_size_;
  LoadFn load_;
  StoreFn store_;
  bool direct_, by_column_;
  int64_t group_, chunks_ = 1;
};

template <class T>
std::unique_ptr<PreparedKernel> make_complex(const plan::KernelQuery& q, const ReductionAxes& axes, Kind kind,
                                             const LoopSet* set, Loop LoopSet::*loop, int threads) {
  SLUICE_CHECK_KIND(kUnsupported, set != nullptr, "{}: no cpu kernel for {}; complex numbers have no order", q.op,
                    dtype_name(q.inputs[0].dtype));
  return std::make_unique<Reduce<T>>(q, axes, kind, set->*loop, threads);
}

PrepareFn prepare(Kind kind, const char* combine_op) {
  const LoopSet* set = find_loops(*find_scalar_op(combine_op));
  const ScalarOp* complex_op = find_complex_op(combine_op);
  const LoopSet* complex_set = complex_op ? find_loops(*complex_op) : nullptr;
  return [kind, set, complex_set](const plan::KernelQuery& q,
                                  const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    const ReductionAxes axes = reduction_axes(q);
    switch (tile_type(q.inputs[0].dtype)) {
      case TileType::kFloat: return std::make_unique<Reduce<float>>(q, axes, kind, set->f32, context.threads);
      case TileType::kDouble: return std::make_unique<Reduce<double>>(q, axes, kind, set->f64, context.threads);
      case TileType::kComplexFloat:
        return make_complex<std::complex<float>>(q, axes, kind, complex_set, &LoopSet::c64, context.threads);
      case TileType::kComplexDouble:
        return make_complex<std::complex<double>>(q, axes, kind, complex_set, &LoopSet::c128, context.threads);
      default: return std::make_unique<Reduce<int64_t>>(q, axes, kind, set->i64, context.threads);
    }
  };
}

}  // namespace

ReductionAxes reduction_axes(const plan::KernelQuery& q) {
  SLUICE_CHECK(q.inputs.size() == 1 && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs one of each", q.op,
               q.inputs.size(), q.outputs.size());
  const TensorSpec &in = q.inputs[0], &out = q.outputs[0];
  std::array<bool, kMaxRank> is_reduced{};
  Ints dims;
  bool keepdim = false;
  for (const auto& [name, value] : q.attrs) {
    if (name == "keepdim") keepdim = std::get<bool>(value);
    if (name != "dim") continue;
    if (const Ints* list = std::get_if<Ints>(&value)) dims = *list;
    if (const int64_t* one = std::get_if<int64_t>(&value)) dims = {*one};
  }
  if (dims.empty()) is_reduced.fill(true);
  for (int64_t d : dims)
    if (in.shape.rank() > 0) is_reduced[normalize_axis(d, in.shape.rank(), q.op.c_str())] = true;
  Shape kept, reduced;
  std::array<Strides, 2> kept_strides;
  Strides reduced_strides;
  for (int i = 0, o = 0; i < in.shape.rank(); ++i) {
    if (is_reduced[i]) {
      reduced.push_back(in.shape[i]);
      reduced_strides.push_back(in.strides[i]);
      o += keepdim;
    } else {
      kept.push_back(in.shape[i]);
      kept_strides[0].push_back(in.strides[i]);
      kept_strides[1].push_back(out.strides[o++]);
    }
  }
  const std::array<Strides, 1> alone = {reduced_strides};
  return {LoopNest(kept, kept_strides), LoopNest(reduced, alone), LoopNest::in_order(reduced, alone)};
}

void add_reduction_kernels(KernelTable& table) {
  const auto add = [&](const char* op, PrepareFn prepare) {
    table.add(DeviceKind::kCpu, {.op = op, .prepare = std::move(prepare), .layouts = [](const plan::KernelQuery&) {
                                   return plan::LayoutPreference{{plan::Layout::kAny}, {plan::Layout::kAny}};
                                 }});
  };
  add("sum", prepare(Kind::kSum, "add"));
  add("mean", prepare(Kind::kMean, "add"));
  add("prod", prepare(Kind::kProd, "mul"));
  add("amax", prepare(Kind::kMax, "maximum"));
  add("amin", prepare(Kind::kMin, "minimum"));
  add("any", prepare(Kind::kAny, "maximum"));
  add("all", prepare(Kind::kAll, "minimum"));
  add("argmax", prepare_arg_extremum(true));
  add("argmin", prepare_arg_extremum(false));
  add("cumsum", prepare_cumsum());
}

}  // namespace sluice::cpu
