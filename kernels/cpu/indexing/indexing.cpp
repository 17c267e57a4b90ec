// scatter, scatter_add, scatter_reduce, index_select, index_add. Writes to one element happen in the order of
// the index, on one thread, so results are the same on every run.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/indexing/indices.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/cpu/support/support.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kCachedRows = 128 * 1024;  // bytes of rows that are read again and again

enum class Combine : uint8_t { kSum, kProduct, kMaximum, kMinimum };

Combine combine_of(const std::string& reduce) {
  return reduce == "prod" ? Combine::kProduct : reduce == "amax" ? Combine::kMaximum : Combine::kMinimum;
}

// Calls `f` with a value of a type whose += sums elements of `dtype`; integers wrap. False: there is none.
template <class F>
bool with_summand(DType dtype, F f) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8: return f(uint8_t{}), true;
    case DType::kInt16: return f(uint16_t{}), true;
    case DType::kInt32: return f(uint32_t{}), true;
    case DType::kInt64: return f(uint64_t{}), true;
    case DType::kFloat32: return f(float{}), true;
    case DType::kFloat64: return f(double{}), true;
    case DType::kComplex64: return f(std::complex<float>{}), true;
    case DType::kComplex128: return f(std::complex<double>{}), true;
    default: return false;  // sums of 16-bit floats are rounded at each step, of bools are or
  }
}

// How elements of one dtype are added to others, or otherwise combined: through tiles of the type computed in.
struct Adder {
  explicit Adder(DType dtype, Combine how = Combine::kSum)
      : tile(tile_type(dtype)), load(tile_load(dtype, tile)), store(tile_store(tile, dtype)), combine(how) {
    if (how == Combine::kSum && is_tile(dtype, tile) && !is_complex(dtype))
      sum_lines = loop_of(*find_loops(*find_scalar_op("add")), tile);
  }

  // to[i * to_step] += from[i * from_step].
  void add(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t n, size_t size) const {
    if (sum_lines != nullptr && from_step == 1 && to_step == 1) {
      const void* operands[] = {to, from};
      sum_lines(operands, to, n);
      return;
    }
    alignas(64) char a[kTileBytes], b[kTileBytes];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      char* into = static_cast<char*>(to) + at * to_step * static_cast<int64_t>(size);
      load(into, to_step, a, m);
      load(static_cast<const char*>(from) + at * from_step * static_cast<int64_t>(size), from_step, b, m);
      if (tile == TileType::kFloat)
        combined<float>(a, b, m);
      else if (tile == TileType::kDouble)
        combined<double>(a, b, m);
      else if (tile == TileType::kComplexFloat)
        complex_combined<float>(a, b, m);
      else if (tile == TileType::kComplexDouble)
        complex_combined<double>(a, b, m);
      else if (combine == Combine::kSum || combine == Combine::kProduct)
        combined<uint64_t>(a, b, m);
      else
        combined<int64_t>(a, b, m);
      store(a, into, to_step, m);
    }
  }

  template <class T>
  void combined(void* into, const void* x, int64_t n) const {
    if (combine == Combine::kSum) return sum<T>(into, x, n);
    T* y = static_cast<T*>(into);
    for (int64_t i = 0; i < n; ++i) {
      const T v = static_cast<const T*>(x)[i];
      const bool nan = y[i] != y[i];
      if (combine == Combine::kProduct)
        y[i] *= v;
      else if (!nan && (v != v || (combine == Combine::kMaximum ? v > y[i] : v < y[i])))
        y[i] = v;
    }
  }

  // Sums and products; complex numbers have no order.
  template <class T>
  void complex_combined(void* into, const void* x, int64_t n) const {
    if (combine == Combine::kSum) return sum<T>(into, x, 2 * n);
    auto* y = static_cast<std::complex<T>*>(into);
    for (int64_t i = 0; i < n; ++i) y[i] = product(y[i], static_cast<const std::complex<T>*>(x)[i]);
  }

  template <class T>
  static void sum(void* into, const void* x, int64_t n) {
    T* y = static_cast<T*>(into);
    for (int64_t i = 0; i < n; ++i) y[i] += static_cast<const T*>(x)[i];
  }

  TileType tile;
  LoadFn load;
  StoreFn store;
  Combine combine;
  Loop sum_lines = nullptr;  // of elements side by side, where tiles are of them
};

// Every element has its own index: operands are walked together, without their stride along `dim` on the indexed side.
class Elements final : public PreparedKernel {
 public:
  enum class Mode { kScatter, kCombine };

  Elements(const plan::KernelQuery& q, Mode mode, Combine combine, int threads)
      : mode_(mode),
        dim_(indexed_axis(q)),
        indices_(q, dim_),
        dtype_(q.outputs[0].dtype),
        size_(dtype_size(dtype_)),
        adder_(dtype_, combine),
        step_(q.outputs[0].strides[dim_]),
        threads_(threads),
        base_(q.inputs[0].shape, q.inputs[0].strides, q.outputs[0].strides, size_),
        nest_(make_nest(q)) {}

  void run(const KernelArgs& args) const override {
    indices_.check(args.inputs[1]);
    if (args.outputs[0] != args.inputs[0]) base_.run(args.inputs[0], args.outputs[0], threads_);
    scatter(args);
  }

 private:
  // Operands: index, the output, the source. In logical order, which says what "last" means in scatter.
  LoopNest make_nest(const plan::KernelQuery& q) const {
    const std::array<Strides, 3> strides = {q.inputs[1].strides, without_axis(q.outputs[0].strides, dim_),
                                            q.inputs[2].strides};
    return LoopNest::in_order(q.inputs[1].shape, strides);
  }

  template <class F>
  void walk(const KernelArgs& args, F f) const {
    int64_t space[kTile];
    const int64_t step = nest_.inner_stride(0), one = nest_.inner_stride(1), other = nest_.inner_stride(2);
    const bool plain = one == 0 && other == 1 && step_ == 1;  // along the axis that is innermost in memory
    nest_.for_segments(0, nest_.size(), [&](const auto& offsets, int64_t n) {
      for (int64_t at = 0; at < n; at += kTile) {
        const int64_t m = std::min(kTile, n - at);
        const int64_t* tile = indices_.tile_of(args.inputs[1], offsets[0] + at * step, step, space, m);
        const int64_t from = offsets[1] + at * one, to = offsets[2] + at * other;
        if (plain)
          for (int64_t i = 0; i < m; ++i) f(from + tile[i], to + i);
        else
          for (int64_t i = 0; i < m; ++i) f(from + i * one + tile[i] * step_, to + i * other);
      }
    });
  }

  void scatter(const KernelArgs& args) const {
    if (mode_ == Mode::kScatter)
      return with_element_of_size(size_, [&]<class E>(E) {
        const E* from = static_cast<const E*>(args.inputs[2]);
        E* y = static_cast<E*>(args.outputs[0]);
        walk(args, [&](int64_t at, int64_t k) { y[at] = from[k]; });
      });
    if (adder_.combine == Combine::kSum && with_summand(dtype_, [&](auto e) { add_elements<decltype(e)>(args); }))
      return;
    const char* src = static_cast<const char*>(args.inputs[2]);
    char* y = static_cast<char*>(args.outputs[0]);
    const auto size = static_cast<int64_t>(size_);
    walk(args, [&](int64_t at, int64_t from) { adder_.add(src + from * size, 1, y + at * size, 1, 1, size_); });
  }

  template <class T>
  void add_elements(const KernelArgs& args) const {
    const T* from = static_cast<const T*>(args.inputs[2]);
    T* y = static_cast<T*>(args.outputs[0]);
    walk(args, [&](int64_t at, int64_t k) { y[at] += from[k]; });
  }

  const Mode mode_;
  const int dim_;
  const Indices indices_;
  const DType dtype_;
  const size_t size_;
  const Adder adder_;
  const int64_t step_;
  const int threads_;
  const StridedCopy base_;
  const LoopNest nest_;
};

// One index per slice along `dim`; slices are copied or added whole.
class Slices final : public PreparedKernel {
 public:
  Slices(const plan::KernelQuery& q, bool adds, int threads)
      : adds_(adds),
        dim_(indexed_axis(q)),
        indices_(q, dim_),
        dtype_(q.outputs[0].dtype),
        size_(dtype_size(dtype_)),
        adder_(dtype_),
        count_(q.inputs[1].shape[0]),
        index_step_(q.inputs[1].strides[0]),
        from_step_((adds ? q.inputs[2] : q.inputs[0]).strides[dim_]),
        to_step_(q.outputs[0].strides[dim_]),
        threads_(threads),
        base_(q.inputs[0].shape, q.inputs[0].strides, q.outputs[0].strides, size_),
        nest_(make_nest(q)),
        limit_(q.inputs[0].shape[dim_]),
        rows_(count_rows(q)) {}

  void run(const KernelArgs& args) const override {
    if (!adds_ && rows_ > 0) return select_rows(args);
    indices_.check(args.inputs[1]);
    const auto size = static_cast<int64_t>(size_);
    char* y = static_cast<char*>(args.outputs[0]);
    if (!adds_) {
      const bool whole = nest_.outer_rank() == 0 && nest_.inner_stride(0) == 1;
      const int64_t fetched = whole ? nest_.size() * size : 0;
      const int64_t grain = std::max<int64_t>(kIndexingGrain / std::max<int64_t>(nest_.size(), 1), 1);
      parallel_ranges(threads_, count_, grain, [&](int64_t begin, int64_t end) {
        int64_t space[kTile];
        for (int64_t at = begin; at < end; at += kTile) {
          const int64_t n = std::min(kTile, end - at);
          const int64_t* tile = indices_.tile_of(args.inputs[1], at * index_step_, index_step_, space, n);
          const auto* x = static_cast<const char*>(args.inputs[0]);
          const auto slice = [&](int64_t i) { return x + tile[i] * from_step_ * size; };
          for_fetched(n, fetched, slice,
                      [&](int64_t i, const char* from) { copy_slice(from, y + (at + i) * to_step_ * size); });
        }
      });
      return;
    }
    if (args.outputs[0] != args.inputs[0]) base_.run(args.inputs[0], args.outputs[0], threads_);
    if (rows_ > 0 && with_summand(dtype_, [&](auto e) { add_rows<decltype(e)>(args); })) return;
    const char* src = static_cast<const char*>(args.inputs[2]);
    for (int64_t i = 0; i < count_; ++i) {
      const char* from = src + i * from_step_ * size;
      char* to = y + index(args, i) * to_step_ * size;
      nest_.for_segments(0, nest_.size(), [&](const auto& offsets, int64_t n) {
        adder_.add(from + offsets[0] * size, nest_.inner_stride(0), to + offsets[1] * size, nest_.inner_stride(1), n,
                   size_);
      });
    }
  }

 private:
  int64_t index(const KernelArgs& args, int64_t i) const { return indices_.one(args.inputs[1], i * index_step_); }

  LoopNest make_nest(const plan::KernelQuery& q) const {
    Shape shape = q.outputs[0].shape;
    shape[dim_] = 1;
    const std::array<Strides, 2> strides = {(adds_ ? q.inputs[2] : q.inputs[0]).strides, q.outputs[0].strides};
    return LoopNest(shape, strides);
  }

  void copy_slice(const char* from, char* to) const {
    const auto size = static_cast<int64_t>(size_);
    const int64_t a = nest_.inner_stride(0), b = nest_.inner_stride(1);
    if (nest_.outer_rank() == 0 && a == 1 && b == 1)
      return static_cast<void>(std::memcpy(to, from, static_cast<size_t>(nest_.size() * size)));
    nest_.for_segments(0, nest_.size(), [&](const auto& offsets, int64_t n) {
      const char* x = from + offsets[0] * size;
      char* y = to + offsets[1] * size;
      if (n == 1 || (a == 1 && b == 1)) {
        std::memcpy(y, x, static_cast<size_t>(n * size));
        return;
      }
      with_element_of_size(size_, [&]<class E>(E) {
        for (int64_t i = 0; i < n; ++i) reinterpret_cast<E*>(y)[i * b] = reinterpret_cast<const E*>(x)[i * a];
      });
    });
  }

  // Rows of operands that are contiguous and indexed along their last axis: row by row they are read in order. 0:
  // others.
  int64_t count_rows(const plan::KernelQuery& q) const {
    const TensorSpec& other = adds_ ? q.inputs[2] : q.outputs[0];
    const bool last = dim_ + 1 == q.inputs[0].shape.rank();
    if (!last || count_ == 0) return 0;
    for (const TensorSpec* spec : {&q.inputs[0], &other, &q.outputs[0]})
      if (!is_contiguous(spec->shape, spec->strides)) return 0;
    return numel(other.shape) / count_;
  }

  // Calls `f` with ranges of the positions along the axis and their indices.
  template <class F>
  void for_index_tiles(const KernelArgs& args, int64_t begin, int64_t end, F f) const {
    int64_t space[kTile];
    for (int64_t at = begin; at < end; at += kTile) {
      const int64_t n = std::min(kTile, end - at);
      f(at, n, indices_.tile_of(args.inputs[1], at * index_step_, index_step_, space, n));
    }
  }

  // Threads share the rows; a few long ones they share by positions. Indices are checked as they are used.
  void select_rows(const KernelArgs& args) const {
    std::atomic<bool> bad{false};
    const int64_t cached = std::max<int64_t>(kCachedRows / (limit_ * static_cast<int64_t>(size_) + 1), 1);
    const auto part = [&](int64_t row, int64_t last_row, int64_t begin, int64_t end) {
      for (; row < last_row; row += cached) {
        const int64_t last = std::min(row + cached, last_row);
        const bool valid =
            with_element_of_size(size_, [&](auto e) { return select_part<decltype(e)>(args, row, last, begin, end); });
        if (!valid) bad.store(true, std::memory_order_relaxed);
      }
    };
    const bool many = rows_ >= threads_;
    const int64_t grain = std::max<int64_t>(kIndexingGrain / (many ? count_ : rows_), 1);
    parallel_ranges(threads_, many ? rows_ : count_, grain, [&](int64_t begin, int64_t end) {
      many ? part(begin, end, 0, count_) : part(0, rows_, begin, end);
    });
    if (bad.load(std::memory_order_relaxed)) indices_.check(args.inputs[1]);
  }

  template <class T>
  bool select_part(const KernelArgs& args, int64_t first, int64_t last, int64_t begin, int64_t end) const {
    bool valid = true;
    for_index_tiles(args, begin, end, [&](int64_t at, int64_t n, const int64_t* tile) {
      if (!indices_.valid(tile, n)) return static_cast<void>(valid = false);
      for (int64_t row = first; row < last; ++row) {
        const T* from = static_cast<const T*>(args.inputs[0]) + row * limit_;
        T* to = static_cast<T*>(args.outputs[0]) + row * count_ + at;
#pragma GCC unroll 8
        for (int64_t i = 0; i < n; ++i) to[i] = from[tile[i]];
      }
    });
    return valid;
  }

  // Each element's addends come in the order of the index, as they do slice by slice.
  template <class T>
  void add_rows(const KernelArgs& args) const {
    for_index_tiles(args, 0, count_, [&](int64_t at, int64_t n, const int64_t* tile) {
      for (int64_t row = 0; row < rows_; ++row) {
        const T* from = static_cast<const T*>(args.inputs[2]) + row * count_ + at;
        T* to = static_cast<T*>(args.outputs[0]) + row * limit_;
        for (int64_t i = 0; i < n; ++i) to[tile[i]] += from[i];
      }
    });
  }

  const bool adds_;
  const int dim_;
  const Indices indices_;
  const DType dtype_;
  const size_t size_;
  const Adder adder_;
  const int64_t count_, index_step_, from_step_, to_step_;
  const int threads_;
  const StridedCopy base_;
  const LoopNest nest_;  // one slice: source, output
  const int64_t limit_, rows_;
};

}  // namespace

void add_indexing_kernels(KernelTable& table) {
  const auto add = [&](const char* op, size_t inputs, PrepareFn prepare) {
    KernelDef def{.op = op, .prepare = std::move(prepare), .layouts = any_layouts};
    if (inputs == 3) def.in_place = {{0, 0}};
    table.add(DeviceKind::kCpu, std::move(def));
  };
  const auto elements = [](Elements::Mode mode) -> PrepareFn {
    return [mode](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
      const Combine how =
          q.op == "scatter_reduce" ? combine_of(get_attr<std::string>(q.attrs, "reduce")) : Combine::kSum;
      return std::make_unique<Elements>(q, mode, how, context.threads);
    };
  };
  const auto slices = [](bool adds) -> PrepareFn {
    return [adds](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
      return std::make_unique<Slices>(q, adds, context.threads);
    };
  };
  add("scatter", 3, elements(Elements::Mode::kScatter));
  add("scatter_add", 3, elements(Elements::Mode::kCombine));
  add("scatter_reduce", 3, elements(Elements::Mode::kCombine));
  add("index_select", 2, slices(false));
  add("index_add", 3, slices(true));
}

}  // namespace sluice::cpu
