// sum, mean, prod, amax, amin, any, all. Sums are taken in blocks: float within a block, double across blocks, so the
// error hardly grows with the size. Blocks depend only on the shape, never on the number of threads.
#include "kernels/cpu/reduction/reduction.h"

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/reduction/joins.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kReductionGrain = 32768;  // input elements worth a thread
constexpr int64_t kFlush = 64;              // tiles summed before the total takes them
constexpr int64_t kTurn = 8;                // elements of an outer axis that are reduced apart
constexpr int64_t kColumns = 4096;          // neighbouring outputs reduced together
constexpr int64_t kWideLine = 1024;         // lines from here on are read several at a time

using Kind = ReductionKind;

template <class T>
class Reduce final : public PreparedKernel {
 public:
  static constexpr int kOut = ReductionAxes::kOut, kIn = ReductionAxes::kIn;
  using Total = typename Joins<T>::Total;

  Reduce(const plan::KernelQuery& q, const ReductionAxes& axes, Kind kind, Loop combine, int threads)
      : kind_(kind),
        joins_{kind},
        combine_(combine),
        folds_(folds_of<T>(kind)),
        threads_(threads),
        outputs_(axes.kept),
        lines_(input_side(axes.kept)),
        reduced_(axes.reduced),
        in_size_(dtype_size(q.inputs[0].dtype)),
        out_size_(dtype_size(q.outputs[0].dtype)) {
    const DType in = q.inputs[0].dtype;
    const TileType tile = tile_type(in);
    load_ = tile_load(in, tile);
    direct_ = is_tile(in, tile) && kind != Kind::kAny && kind != Kind::kAll;
    store_ = tile_store(tile, q.outputs[0].dtype);
    // Memory order decides what is vectorised: along the reduced axis, or across neighbouring outputs.
    by_column_ = outputs_.inner_stride(kIn) == 1 && outputs_.inner() > 1 && std::abs(reduced_.inner_stride(0)) != 1;
    group_ = by_column_ ? std::clamp<int64_t>(outputs_.size(), 1, kColumns) : 1;
    const int64_t groups = (outputs_.size() + group_ - 1) / group_;
    chunks_ = parts_of_lines(groups, reduced_.size() * group_);
    // If a reduced axis lies around the kept ones, its elements are walked outermost, as memory has them.
    turns_ = !by_column_ && reduced_.outer_rank() > 0 && outputs_.size() > 1 && reduced_.size() >= kRun &&
             reduced_.outer_dim(0) >= 2 * kTurn &&
             reduced_.outer_stride(0, 0) >= outputs_.inner_stride(kIn) * outputs_.inner();
    if (turns_) {
      chunks_ = std::clamp<int64_t>(reduced_.outer_dim(0) / kTurn, 1, kMostChunks);
      rest_ = without_outermost(reduced_);
    }
    if (chunks_ > 1) workspace_bytes_ = static_cast<uint64_t>(chunks_ * outputs_.size()) * sizeof(Total);
  }

  void run(const KernelArgs& args) const override {
    const int64_t n = outputs_.size(), size = reduced_.size();
    if (n == 0) return;
    const char* x = static_cast<const char*>(args.inputs[0]);
    const auto give = [&](int64_t offset, int64_t stride, const Total* totals, int64_t count) {
      write(args, offset, stride, totals, count);
    };
    if (chunks_ == 1) {
      parallel_ranges(threads_, n, std::max<int64_t>(kReductionGrain / std::max<int64_t>(size, 1), 1),
                      [&](int64_t begin, int64_t end) { reduce(x, begin, end, reduced_, 0, size, give); });
      return;
    }
    Total* partials = static_cast<Total*>(args.workspace);
    const int64_t groups = turns_ ? 1 : (n + group_ - 1) / group_;
    parallel_ranges(threads_, groups * chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % groups * group_, chunk = task / groups;
        if (turns_)
          turn(x, chunk, partials + chunk * n);
        else
          reduce(x, first, std::min(n, first + group_), reduced_, size * chunk / chunks_, size * (chunk + 1) / chunks_,
                 [to = partials + chunk * n + first](int64_t, int64_t, const Total* totals, int64_t count) mutable {
                   to = std::copy(totals, totals + count, to);
                 });
      }
    });
    Total totals[kTile];
    int64_t o = 0;
    outputs_.for_segments(0, n, [&](const auto& offsets, int64_t count) {
      for (int64_t at = 0; at < count; at += kTile) {
        const int64_t m = std::min(kTile, count - at);
        for (int64_t i = 0; i < m; ++i, ++o) {
          totals[i] = partials[o];
          for (int64_t chunk = 1; chunk < chunks_; ++chunk) totals[i] = joins_.join(totals[i], partials[chunk * n + o]);
        }
        give(offsets[kOut] + at * outputs_.inner_stride(kOut), outputs_.inner_stride(kOut), totals, m);
      }
    });
  }

 private:
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

  // The axes of one operand from `axis` on, merged where its own strides allow.
  static LoopNest alone(const LoopNest& nest, int operand, int axis) {
    Shape shape;
    Strides strides;
    for (; axis < nest.outer_rank(); ++axis) {
      shape.push_back(nest.outer_dim(axis));
      strides.push_back(nest.outer_stride(operand, axis));
    }
    shape.push_back(nest.inner());
    strides.push_back(nest.inner_stride(operand));
    const std::array<Strides, 1> one = {strides};
    return LoopNest::in_order(shape, one);
  }
  static LoopNest without_outermost(const LoopNest& nest) { return alone(nest, 0, 1); }
  static LoopNest input_side(const LoopNest& kept) { return alone(kept, kIn, 0); }

  // All outputs over a range of the outermost reduced axis, one element of it after the other.
  void turn(const char* x, int64_t chunk, Total* partials) const {
    const int64_t dim = reduced_.outer_dim(0);
    std::fill(partials, partials + outputs_.size(), joins_.identity());
    for (int64_t i = dim * chunk / chunks_; i < dim * (chunk + 1) / chunks_; ++i)
      reduce(x + i * reduced_.outer_stride(0, 0) * in_size_, 0, outputs_.size(), rest_, 0, rest_.size(),
             [&, to = partials](int64_t, int64_t, const Total* totals, int64_t n) mutable {
               for (int64_t k = 0; k < n; ++k) to[k] = joins_.join(to[k], totals[k]);
               to += n;
             });
  }

  // Outputs [begin, end) over elements [first, last) of `nest`: give(offset and stride in the output, totals, how
  // many).
  template <class Give>
  void reduce(const char* x, int64_t begin, int64_t end, const LoopNest& nest, int64_t first, int64_t last,
              Give give) const {
    Total totals[kColumns];
    const int64_t in_step = outputs_.inner_stride(kIn), out_step = outputs_.inner_stride(kOut);
    const auto fill = [&](int64_t offset, int64_t m) {
      if (by_column_)
        columns(x + offset * in_size_, m, nest, first, last, totals);
      else
        rows(x + offset * in_size_, in_step, m, nest, first, last, totals);
    };
    if (!by_column_ || lines_.inner() == outputs_.inner()) {
      outputs_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
        for (int64_t at = 0; at < n; at += kColumns) {
          const int64_t m = std::min(kColumns, n - at);
          fill(offsets[kIn] + at * in_step, m);
          give(offsets[kOut] + at * out_step, out_step, totals, m);
        }
      });
      return;
    }
    // Neighbours in the input lie apart in the output.
    int64_t output = begin;
    lines_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
      for (int64_t at = 0; at < n; at += kColumns) {
        const int64_t m = std::min(kColumns, n - at);
        fill(offsets[0] + at * in_step, m);
        const Total* from = totals;
        outputs_.for_segments(output, output + m, [&](const auto& places, int64_t count) {
          give(places[kOut], out_step, from, count);
          from += count;
        });
        output += m;
      }
    });
  }

  // m outputs, whose elements begin `step` apart.
  void rows(const char* x, int64_t step, int64_t m, const LoopNest& nest, int64_t first, int64_t last,
            Total* totals) const {
    const int64_t n = last - first;
    if (!direct_ || nest.outer_rank() > 0 || nest.inner_stride(0) != 1 || n > kRun || n == 0) {
      for (int64_t i = 0; i < m; ++i) totals[i] = row(x + i * step * in_size_, nest, first, last);
      return;
    }
    T space[kTile];
    const T* from = reinterpret_cast<const T*>(x) + first;
    for (int64_t at = 0; at < m; at += kTile) {
      const int64_t part = std::min(kTile, m - at);
      folds_.rows(from + at * step, step, n, space, part);
      std::fill(totals + at, totals + at + part, joins_.identity());
      joins_.join_all(totals + at, space, part);
    }
  }

  Total row(const char* x, const LoopNest& nest, int64_t first, int64_t last) const {
    alignas(64) T space[kTile];
    Total total = joins_.identity();
    const int64_t stride = nest.inner_stride(0), most = direct_ && stride == 1 ? kRun : kTile;
    const auto take = [&](int64_t offset, int64_t n) {
      for (int64_t at = 0; at < n; at += most) {
        const int64_t m = std::min(most, n - at);
        const T* t = tile(x + (offset + at * stride) * in_size_, stride, space, m);
        if (m < kShort && kind_ != Kind::kSquares)
          for (int64_t i = 0; i < m; ++i) total = joins_.join(total, static_cast<Total>(t[i]));
        else
          total = joins_.join(total, static_cast<Total>(folds_.run(t, m)));
      }
    };
    if (nest.outer_rank() == 0)
      take(first * stride, last - first);
    else
      nest.for_segments(first, last, [&](const auto& offsets, int64_t n) { take(offsets[0], n); });
    return total;
  }

  // m outputs, whose elements lie side by side in lines. Short lines that follow each other are taken together, as a
  // wider one.
  void columns(const char* x, int64_t m, const LoopNest& nest, int64_t first, int64_t last, Total* totals) const {
    alignas(64) T lanes[kColumns];
    const int64_t step = nest.inner_stride(0), packed = direct_ && step == m ? std::max<int64_t>(kFoldLanes / m, 1) : 1;
    // One after the other they round more often than several at a time.
    const int64_t most = step == m && m * packed < kWideLine ? kFlush / 2 : kFlush;
    int64_t taken = 0;
    std::fill(totals, totals + m, joins_.identity());
    const auto empty = [&] { std::fill(lanes, lanes + m * packed, static_cast<T>(joins_.identity())); };
    const auto flush = [&] {
      for (int64_t left = packed; left > 1; left -= left / 2)
        combine(lanes, lanes + (left - left / 2) * m, left / 2 * m);
      joins_.join_all(totals, lanes, m);
      taken = 0;
    };
    empty();
    nest.for_segments(first, last, [&](const auto& offsets, int64_t n) {
      for (int64_t at = 0; at < n;) {
        const int64_t wide = n - at >= packed ? packed : 1;
        const int64_t lines = std::min((n - at) / wide, most - taken);
        take_lines(lanes, x + (offsets[0] + at * step) * in_size_, step * wide, m * wide, lines);
        at += lines * wide;
        if ((taken += lines) < most) continue;
        flush();
        empty();
      }
    });
    if (taken > 0) flush();
  }

  // lanes[i], i < width, joined with element i of each line.
  void take_lines(T* lanes, const char* x, int64_t step, int64_t width, int64_t lines) const {
    if (direct_ && step == width && width < kWideLine)  // one stream is best
      return folds_.stack(lanes, reinterpret_cast<const T*>(x), width, lines);
    alignas(64) T space[kTile];
    int64_t line = 0;
    for (; direct_ && line + kTogether <= lines; line += kTogether)
      folds_.lines(lanes, reinterpret_cast<const T*>(x) + line * step, step, width);
    for (; line < lines; ++line) {
      for (int64_t at = 0; at < width; at += kTile) {
        const int64_t part = std::min(kTile, width - at);
        folds_.stack(lanes + at, tile(x + (line * step + at) * in_size_, 1, space, part), part, 1);
      }
    }
  }

  void write(const KernelArgs& args, int64_t offset, int64_t stride, const Total* totals, int64_t n) const {
    T values[kTile];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      for (int64_t i = 0; i < m; ++i) values[i] = joins_.result(totals[at + i], reduced_.size());
      store_(values, static_cast<char*>(args.outputs[0]) + (offset + at * stride) * out_size_, stride, m);
    }
  }

  const Kind kind_;
  const Joins<T> joins_;
  const Loop combine_;
  const Folds<T> folds_;
  const int threads_;
  const LoopNest outputs_, lines_, reduced_;
  LoopNest rest_ = reduced_;  // without its outermost axis, where that is walked apart
  const int64_t in_size_, out_size_;
  LoadFn load_;
  StoreFn store_;
  bool direct_, by_column_, turns_ = false;
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

Ints reduced_dims(const NamedAttrs& attrs) {
  for (const auto& [name, value] : attrs) {
    if (name != "dim") continue;
    if (const Ints* list = std::get_if<Ints>(&value)) return *list;
    if (const int64_t* one = std::get_if<int64_t>(&value)) return {*one};
  }
  return {};
}

ReductionAxes reduction_axes(const plan::KernelQuery& q) {
  SLUICE_CHECK(q.inputs.size() == 1 && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs one of each", q.op,
               q.inputs.size(), q.outputs.size());
  const TensorSpec &in = q.inputs[0], &out = q.outputs[0];
  std::array<bool, kMaxRank> is_reduced{};
  const Ints dims = reduced_dims(q.attrs);
  bool keepdim = false;
  for (const auto& [name, value] : q.attrs)
    if (name == "keepdim") keepdim = std::get<bool>(value);
  if (dims.empty()) is_reduced.fill(true);
  for (int64_t d : dims)
    if (in.shape.rank() > 0) is_reduced[normalize_axis(d, in.shape.rank(), q.op.c_str())] = true;
  Shape kept, reduced;
  std::array<Strides, 2> kept_strides;  // the input's memory order decides
  Strides reduced_strides;
  for (int i = 0, o = 0; i < in.shape.rank(); ++i) {
    if (is_reduced[i]) {
      reduced.push_back(in.shape[i]);
      reduced_strides.push_back(in.strides[i]);
      o += keepdim;
    } else {
      kept.push_back(in.shape[i]);
      kept_strides[ReductionAxes::kIn].push_back(in.strides[i]);
      kept_strides[ReductionAxes::kOut].push_back(out.strides[o++]);
    }
  }
  const std::array<Strides, 1> alone = {reduced_strides};
  return {LoopNest(kept, kept_strides), LoopNest(reduced, alone), LoopNest::in_order(reduced, alone)};
}

namespace {

struct Named {
  const char* op;
  Kind kind;
  const char* combine;  // the op that joins two elements
};
constexpr Named kReductions[] = {
    {"sum", Kind::kSum, "add"},      {"mean", Kind::kMean, "add"},
    {"prod", Kind::kProd, "mul"},    {"amax", Kind::kMax, "maximum"},
    {"amin", Kind::kMin, "minimum"}, {"any", Kind::kAny, "maximum"},
    {"all", Kind::kAll, "minimum"},  {"sum_of_squares", Kind::kSquares, "add"},
};

// Rows of floats lie in row-major order. Those of images may not: they are left to kernels that read them as they lie.
bool can_fuse(const plan::KernelQuery& q) {
  const int rank = q.inputs[0].shape.rank(), reduced = static_cast<int>(reduced_dims(q.attrs).size());
  return is_floating(q.inputs[0].dtype) && (rank < 4 || reduced != rank - 2) && folds_rows(q.op);
}

}  // namespace

std::optional<ReductionKind> folds_rows(std::string_view op) {
  for (const Named& named : kReductions)
    if (op == named.op && named.kind != Kind::kAny && named.kind != Kind::kAll && named.kind != Kind::kSquares)
      return named.kind;
  return std::nullopt;
}

std::vector<std::string_view> ops_that_fold_rows() {
  std::vector<std::string_view> ops;
  for (const Named& named : kReductions)
    if (folds_rows(named.op)) ops.push_back(named.op);
  return ops;
}

void add_reduction_kernels(KernelTable& table) {
  const auto add = [&](const char* op, PrepareFn prepare) {
    table.add(DeviceKind::kCpu, {.op = op,
                                 .prepare = std::move(prepare),
                                 .layouts =
                                     [](const plan::KernelQuery&) {
                                       return plan::LayoutPreference{{plan::Layout::kAny}, {plan::Layout::kAny}};
                                     },
                                 .can_fuse = can_fuse});
  };
  for (const Named& named : kReductions) add(named.op, prepare(named.kind, named.combine));
  add("argmax", prepare_arg_extremum(true));
  add("argmin", prepare_arg_extremum(false));
  add("cumsum", prepare_cumsum());
}

}  // namespace sluice::cpu
