// Every elementwise op: loops.h over tiles.h over strided.h. `where` and `cast` differ only in their tiles.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kLightGrain = 32768, kHeavyGrain = 4096;  // elements worth a thread

// How an operand comes into, or goes out of, the tiles that the loop computes on.
struct OperandPlan {
  LoadFn load = nullptr;    // inputs
  StoreFn store = nullptr;  // the output
  int64_t size = 0;         // bytes of an element in memory
  int64_t tile_size = 0;    // and in a tile
  bool as_tile = false;     // memory of stride 1 is a tile already
};

class Elementwise final : public PreparedKernel {
 public:
  // The output's plan is the last one. Without a loop the output is the first input's tile.
  Elementwise(const plan::KernelQuery& q, std::vector<OperandPlan> operands, Loop loop, int64_t grain, int threads)
      : op_(q.op),
        operands_(std::move(operands)),
        out_(static_cast<int>(operands_.size()) - 1),
        loop_(loop),
        nest_(make_nest(q)),
        rest_(nest_),
        grain_(grain),
        threads_(threads) {
    all_direct_ = true;
    for (int k = 0; k <= out_; ++k) {
      const bool dense = nest_.inner_stride(k) == 1 || nest_.inner() == 1;
      all_direct_ &= operands_[k].as_tile && dense;
    }
    use_rows(q);
  }

  void run(const KernelArgs& args) const override {
    if (nest_.size() == 0) return;
    std::atomic<int> error{0};
    const auto range = [&](int64_t begin, int64_t end) {
      const int e = by_rows_ ? run_rows(args, begin, end) : run_segments(args, begin, end);
      if (e) error.store(e, std::memory_order_relaxed);
    };
    if (by_rows_)
      parallel_ranges(threads_, nest_.size() / nest_.inner(), std::max<int64_t>(grain_ / nest_.inner(), 1), range);
    else
      parallel_ranges(threads_, nest_.size(), grain_, range);
    const int e = error.load(std::memory_order_relaxed);
    SLUICE_CHECK_KIND(kRuntime, e == 0, "{}", scalar_error_text(op_, static_cast<ScalarError>(e)));
  }

 private:
  // Where an operand's elements are, as rows: element (r, i) lies at r * row_step + i * step.
  struct Rows {
    int64_t row_step = 0, step = 0;
    bool one_line = false;  // rows follow each other: a block is one line of step `step`
  };

  static LoopNest make_nest(const plan::KernelQuery& q) {
    std::vector<Strides> strides;
    for (const TensorSpec& in : q.inputs) strides.push_back(broadcast_strides(in, q.outputs[0].shape));
    strides.push_back(q.outputs[0].strides);
    return LoopNest(q.outputs[0].shape, strides);
  }

  // A short innermost axis (a bias of 10, maps of 8 x 8) is taken together with the one around it.
  void use_rows(const plan::KernelQuery& q) {
    const int last = nest_.outer_rank() - 1;
    by_rows_ = last >= 0 && nest_.inner() <= kTile / 4 && q.inputs.size() < kMaxOperands;
    if (!by_rows_) return;
    row_count_ = nest_.outer_dim(last);
    Shape shape;
    std::vector<Strides> strides(operands_.size());
    for (int axis = 0; axis < last; ++axis) shape.push_back(nest_.outer_dim(axis));
    for (int k = 0; k <= out_; ++k) {
      for (int axis = 0; axis < last; ++axis) strides[k].push_back(nest_.outer_stride(k, axis));
      rows_[k] = {nest_.outer_stride(k, last), nest_.inner_stride(k), false};
      rows_[k].one_line = rows_[k].row_step == rows_[k].step * nest_.inner();
    }
    rest_ = LoopNest::in_order(shape, strides);
  }

  int run_segments(const KernelArgs& args, int64_t begin, int64_t end) const {
    int error = 0;
    nest_.for_segments(begin, end, [&](const std::array<int64_t, kMaxOperands>& offsets, int64_t n) {
      std::array<char*, kMaxOperands> at = addresses(args, offsets);
      if (all_direct_ && loop_) {
        const void* in[kMaxOperands] = {at[0], at[1], at[2]};
        error |= loop_(in, at[out_], n);
        return;
      }
      alignas(64) char tiles[kMaxOperands][kTileBytes];
      for (int64_t done = 0; done < n; done += kTile) {
        const int64_t m = std::min(kTile, n - done);
        const void* in[kMaxOperands] = {};
        for (int k = 0; k < out_; ++k) {
          const OperandPlan& o = operands_[k];
          const int64_t step = nest_.inner_stride(k);
          in[k] = fetch(o, at[k] + done * step * o.size, step, tiles[k], m, step != 0 || done == 0);
        }
        const int64_t step = nest_.inner_stride(out_);
        error |= finish(in, at[out_] + done * step * operands_[out_].size, step, tiles[out_], m);
      }
    });
    return error;
  }

  int run_rows(const KernelArgs& args, int64_t begin, int64_t end) const {
    const int64_t inner = nest_.inner(), block = kTile / inner;
    int error = 0;
    alignas(64) char tiles[kMaxOperands][kTileBytes];
    for (int64_t row = begin; row < end;) {
      const int64_t element = row / row_count_;
      const int64_t last = std::min(end, (element + 1) * row_count_);
      rest_.for_segments(element, element + 1, [&](const std::array<int64_t, kMaxOperands>& offsets, int64_t) {
        const std::array<char*, kMaxOperands> base = addresses(args, offsets);
        bool first = true;
        for (; row < last; row += block, first = false) {
          const int64_t r = row % row_count_, m = std::min(block, last - row);
          const void* in[kMaxOperands] = {};
          for (int k = 0; k < out_; ++k)
            in[k] = fetch_rows(k, base[k] + r * rows_[k].row_step * operands_[k].size, tiles[k], m, first);
          error |= finish_rows(in, base[out_] + r * rows_[out_].row_step * operands_[out_].size, tiles[out_], m);
        }
        row = last;
      });
    }
    return error;
  }

  std::array<char*, kMaxOperands> addresses(const KernelArgs& args,
                                            const std::array<int64_t, kMaxOperands>& offsets) const {
    std::array<char*, kMaxOperands> at{};
    for (int k = 0; k < out_; ++k)
      at[k] = const_cast<char*>(static_cast<const char*>(args.inputs[k])) + offsets[k] * operands_[k].size;
    at[out_] = static_cast<char*>(args.outputs[0]) + offsets[out_] * operands_[out_].size;
    return at;
  }

  // n elements as a tile: where they lie, or loaded. A repeated element fills its tile once.
  static const void* fetch(const OperandPlan& o, const char* from, int64_t step, char* tile, int64_t n, bool fresh) {
    if (o.as_tile && (step == 1 || n == 1)) return from;
    if (fresh) o.load(from, step, tile, n);
    return tile;
  }

  const void* fetch_rows(int k, const char* from, char* tile, int64_t rows, bool first) const {
    const OperandPlan& o = operands_[k];
    const int64_t inner = nest_.inner();
    if (rows_[k].one_line) return fetch(o, from, rows_[k].step, tile, rows * inner, rows_[k].step != 0 || first);
    if (rows_[k].row_step != 0 || first)
      for (int64_t r = 0; r < rows; ++r)
        o.load(from + r * rows_[k].row_step * o.size, rows_[k].step, tile + r * inner * o.tile_size, inner);
    return tile;
  }

  int finish(const void* const* in, char* to, int64_t step, char* tile, int64_t n) const {
    const OperandPlan& o = operands_[out_];
    if (loop_ == nullptr) {
      o.store(in[0], to, step, n);
      return 0;
    }
    const bool direct = o.as_tile && (step == 1 || n == 1);
    const int error = loop_(in, direct ? to : tile, n);
    if (!direct) o.store(tile, to, step, n);
    return error;
  }

  int finish_rows(const void* const* in, char* to, char* tile, int64_t rows) const {
    const OperandPlan& o = operands_[out_];
    const int64_t inner = nest_.inner();
    if (rows_[out_].one_line) return finish(in, to, rows_[out_].step, tile, rows * inner);
    const int error = loop_ ? loop_(in, tile, rows * inner) : 0;
    const char* result = loop_ ? tile : static_cast<const char*>(in[0]);
    for (int64_t r = 0; r < rows; ++r)
      o.store(result + r * inner * o.tile_size, to + r * rows_[out_].row_step * o.size, rows_[out_].step, inner);
    return error;
  }

  const std::string op_;
  const std::vector<OperandPlan> operands_;
  const int out_;
  const Loop loop_;
  const LoopNest nest_;
  LoopNest rest_;  // the axes around rows
  const int64_t grain_;
  const int threads_;
  std::array<Rows, kMaxOperands> rows_{};
  int64_t row_count_ = 0;
  bool all_direct_ = false, by_rows_ = false;
};

int64_t bytes(DType dtype) { return static_cast<int64_t>(dtype_size(dtype)); }

OperandPlan input(DType dtype, TileType tile) {
  return {tile_load(dtype, tile), nullptr, bytes(dtype), tile_element_size(tile), is_tile(dtype, tile)};
}
OperandPlan output(DType dtype, TileType tile) {
  return {nullptr, tile_store(tile, dtype), bytes(dtype), tile_element_size(tile), is_tile(dtype, tile)};
}
OperandPlan raw(int64_t size) {
  return {raw_load(static_cast<size_t>(size)), raw_store(static_cast<size_t>(size)), size, size, true};
}

void check_operands(const plan::KernelQuery& q, size_t inputs) {
  SLUICE_CHECK(q.inputs.size() == inputs && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs {} and 1", q.op,
               q.inputs.size(), q.outputs.size(), inputs);
}

Loop loop_of(const LoopSet& set, TileType tile) {
  switch (tile) {
    case TileType::kFloat: return set.f32;
    case TileType::kDouble: return set.f64;
    case TileType::kComplexFloat: return set.c64;
    case TileType::kComplexDouble: return set.c128;
    default: return set.i64;
  }
}

std::unique_ptr<PreparedKernel> prepare_elementwise(const plan::KernelQuery& q, const PrepareContext& context) {
  const DType dtype = q.inputs.at(0).dtype;
  const ScalarOp* form = is_complex(dtype) ? find_complex_op(q.op) : find_scalar_op(q.op, q.attrs);
  const TileType tile = tile_type(dtype);
  const Loop loop = form ? loop_of(*find_loops(*form), tile) : nullptr;
  SLUICE_CHECK_KIND(kUnsupported, loop != nullptr, "{}: no cpu kernel for {}; cast it first", q.op, dtype_name(dtype));
  const ScalarOp& op = *form;
  check_operands(q, static_cast<size_t>(op.inputs));
  std::vector<OperandPlan> operands;
  for (const TensorSpec& in : q.inputs) operands.push_back(input(in.dtype, tile));
  const TileType result = op.gives_bool ? TileType::kBool : op.gives_real ? tile_type(to_real(dtype)) : tile;
  operands.push_back(output(q.outputs[0].dtype, result));
  return std::make_unique<Elementwise>(q, std::move(operands), loop, op.heavy ? kHeavyGrain : kLightGrain,
                                       context.threads);
}

std::unique_ptr<PreparedKernel> prepare_cast(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 1);
  const DType from = q.inputs[0].dtype, to = q.outputs[0].dtype;
  std::vector<OperandPlan> operands;
  if (from == to) {
    operands = {raw(bytes(from)), raw(bytes(from))};
  } else {
    // Integers that float holds exactly need not go through int64.
    const bool exact = bytes(from) <= 2 && to == DType::kFloat32;
    const TileType tile = exact ? TileType::kFloat : tile_type(from);
    operands = {input(from, tile), output(to, tile)};
  }
  return std::make_unique<Elementwise>(q, std::move(operands), nullptr, kLightGrain, context.threads);
}

template <class T>
int where_loop(const void* const* in, void* out, int64_t n) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], z = b[i];
    y[i] = c[i] ? x : z;
  }
  return 0;
}

std::unique_ptr<PreparedKernel> prepare_where(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 3);
  const int64_t size = bytes(q.outputs[0].dtype);
  const Loop loop = with_element_of_size(static_cast<size_t>(size),
                                         [](auto element) -> Loop { return where_loop<decltype(element)>; });
  std::vector<OperandPlan> operands = {raw(1), raw(size), raw(size), raw(size)};
  return std::make_unique<Elementwise>(q, std::move(operands), loop, kLightGrain, context.threads);
}

void add(KernelTable& table, const char* op, PrepareFn prepare, std::vector<plan::InPlacePair> in_place) {
  table.add(DeviceKind::kCpu,
            {.op = op, .prepare = std::move(prepare), .layouts = any_layouts, .in_place = std::move(in_place)});
}

}  // namespace

const LoopSet* find_loops(const ScalarOp& op) {
  for (const auto& loops : {unary_loops(), binary_loops(), comparison_loops(), activation_loops(), special_loops()})
    for (const LoopSet& set : loops)
      if (std::string_view(op.name) == set.op && std::string_view(op.mode) == set.mode) return &set;
  return nullptr;
}

void add_elementwise_kernels(KernelTable& table) {
  for (const ScalarOp& op : scalar_ops()) {
    if (*op.mode != '\0') continue;  // a form of one that is there
    std::vector<plan::InPlacePair> in_place = {{0, 0}};
    if (op.inputs == 2) in_place.push_back({0, 1});
    add(table, op.name, prepare_elementwise, std::move(in_place));
  }
  add(table, "cast", prepare_cast, {});
  add(table, "where", prepare_where, {{0, 1}, {0, 2}});
}

}  // namespace sluice::cpu
