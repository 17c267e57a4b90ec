// Every elementwise op: loops.h over tiles.h over strided.h. `where` and `cast` differ only in their tiles.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kLightGrain = 32768, kHeavyGrain = 4096;  // elements worth a thread

struct OperandPlan {
  LoadFn load = nullptr;    // into a tile; inputs only
  size_t size = 0;          // bytes of an element in memory
  bool as_tile = false;     // memory of stride 1 needs no tile
};

class Elementwise final : public PreparedKernel {
 public:
  Elementwise(const plan::KernelQuery& q, std::vector<OperandPlan> inputs, Loop loop, StoreFn store, bool store_as_tile,
              int64_t grain, int threads)
      : op_(q.op), inputs_(std::move(inputs)), loop_(loop), store_(store), nest_(make_nest(q)), grain_(grain),
        threads_(threads) {
    const int out = static_cast<int>(inputs_.size());
    out_size_ = dtype_size(q.outputs[0].dtype);
    out_direct_ = store_as_tile && (nest_.inner_stride(out) == 1 || nest_.inner() == 1);
    for (int k = 0; k < out; ++k)
      direct_[k] = inputs_[k].as_tile && (nest_.inner_stride(k) == 1 || nest_.inner() == 1);
    // Segments that touch no tile are done in one call.
    all_direct_ = out_direct_;
    for (int k = 0; k < out; ++k) all_direct_ &= direct_[k];
  }

  void run(const KernelArgs& args) const override {
    if (nest_.size() == 0) return;
    std::atomic<int> error{0};
    parallel_ranges(threads_, nest_.size(), grain_, [&](int64_t begin, int64_t end) {
      if (const int e = run_range(args, begin, end)) error.store(e, std::memory_order_relaxed);
    });
    const int e = error.load(std::memory_order_relaxed);
    SLUICE_CHECK(e != kDivisionByZero, "{}: integer division by zero; every divisor must be non-zero", op_);
    SLUICE_CHECK(e != kNegativeExponent, "{}: integer to a negative power; exponents of integers must be >= 0", op_);
  }

 private:
  static LoopNest make_nest(const plan::KernelQuery& q) {
    std::vector<Strides> strides;
    for (const TensorSpec& in : q.inputs) strides.push_back(broadcast_strides(in, q.outputs[0].shape));
    strides.push_back(q.outputs[0].strides);
    return LoopNest(q.outputs[0].shape, strides);
  }

  int run_range(const KernelArgs& args, int64_t begin, int64_t end) const {
    const int count = static_cast<int>(inputs_.size());
    int error = 0;
    nest_.for_segments(begin, end, [&](const std::array<int64_t, kMaxOperands>& offsets, int64_t n) {
      std::array<const char*, kMaxOperands> in{};
      for (int k = 0; k < count; ++k)
        in[k] = static_cast<const char*>(args.inputs[k]) + offsets[k] * static_cast<int64_t>(inputs_[k].size);
      char* out = static_cast<char*>(args.outputs[0]) + offsets[count] * static_cast<int64_t>(out_size_);
      if (all_direct_) {
        const void* operands[kMaxOperands] = {in[0], in[1], in[2]};
        if (loop_) error |= loop_(operands, out, n);
        else std::memmove(out, in[0], static_cast<size_t>(n) * out_size_);
      } else {
        error |= run_tiles(in, out, n);
      }
    });
    return error;
  }

  int run_tiles(const std::array<const char*, kMaxOperands>& in, char* out, int64_t n) const {
    alignas(64) char tiles[kMaxOperands][kTileBytes];
    const int count = static_cast<int>(inputs_.size());
    const int64_t out_stride = nest_.inner_stride(count);
    int error = 0;
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t m = std::min(kTile, n - at);
      const void* operands[kMaxOperands] = {};
      for (int k = 0; k < count; ++k) {
        const int64_t stride = nest_.inner_stride(k);
        const char* from = in[k] + at * stride * static_cast<int64_t>(inputs_[k].size);
        operands[k] = direct_[k] ? from : tiles[k];
        // A repeated element fills its tile once.
        if (!direct_[k] && (stride != 0 || at == 0)) inputs_[k].load(from, stride, tiles[k], m);
      }
      char* to = out + at * out_stride * static_cast<int64_t>(out_size_);
      const void* result = out_direct_ ? to : tiles[kMaxOperands - 1];
      if (loop_) error |= loop_(operands, const_cast<void*>(result), m);
      else result = operands[0];
      if (!out_direct_ || !loop_) store_(result, to, out_stride, m);
    }
    return error;
  }

  const std::string op_;
  const std::vector<OperandPlan> inputs_;
  const Loop loop_;  // null: the result is the first operand's tile
  const StoreFn store_;
  const LoopNest nest_;
  const int64_t grain_;
  const int threads_;
  size_t out_size_ = 0;
  std::array<bool, kMaxOperands> direct_{};
  bool out_direct_ = false, all_direct_ = false;
};

void check_operands(const plan::KernelQuery& q, size_t inputs) {
  SLUICE_CHECK(q.inputs.size() == inputs && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs {} and 1", q.op,
               q.inputs.size(), q.outputs.size(), inputs);
}

PrepareFn prepare_loops(const LoopSet* plain, const LoopSet* tanh_variant) {
  return [plain, tanh_variant](const plan::KernelQuery& q, const PrepareContext& context) {
    const LoopSet* set = plain;
    if (tanh_variant && get_attr<std::string>(q.attrs, "approximate") == "tanh") set = tanh_variant;
    check_operands(q, static_cast<size_t>(set->inputs));
    const DType dtype = q.inputs[0].dtype;
    const TileType tile = tile_type(dtype);
    const Loop loop = tile == TileType::kFloat ? set->f32 : tile == TileType::kDouble ? set->f64 : set->i64;
    SLUICE_CHECK_KIND(kUnsupported, loop != nullptr, "{}: no cpu kernel for {}; cast it first", q.op,
                      dtype_name(dtype));
    std::vector<OperandPlan> inputs;
    for (const TensorSpec& in : q.inputs)
      inputs.push_back({tile_load(in.dtype, tile), dtype_size(in.dtype), is_tile(in.dtype, tile)});
    const TileType out_tile = set->gives_bool ? TileType::kBool : tile;
    const DType out = q.outputs[0].dtype;
    return std::make_unique<Elementwise>(q, std::move(inputs), loop, tile_store(out_tile, out), is_tile(out, out_tile),
                                         set->heavy ? kHeavyGrain : kLightGrain, context.threads);
  };
}

std::unique_ptr<PreparedKernel> prepare_cast(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 1);
  const DType from = q.inputs[0].dtype, to = q.outputs[0].dtype;
  const size_t size = dtype_size(from);
  if (from == to)
    return std::make_unique<Elementwise>(q, std::vector<OperandPlan>{{raw_load(size), size, true}}, nullptr,
                                         raw_store(size), true, kLightGrain, context.threads);
  const TileType tile = tile_type(from);
  return std::make_unique<Elementwise>(q, std::vector<OperandPlan>{{tile_load(from, tile), size, is_tile(from, tile)}},
                                       nullptr, tile_store(tile, to), false, kLightGrain, context.threads);
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
  return kLoopOk;
}

std::unique_ptr<PreparedKernel> prepare_where(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 3);
  const size_t size = dtype_size(q.outputs[0].dtype);
  const Loop loop = size == 1   ? where_loop<int8_t>
                    : size == 2 ? where_loop<int16_t>
                    : size == 4 ? where_loop<int32_t>
                                : where_loop<int64_t>;
  std::vector<OperandPlan> inputs = {{raw_load(1), 1, true}, {raw_load(size), size, true}, {raw_load(size), size, true}};
  return std::make_unique<Elementwise>(q, std::move(inputs), loop, raw_store(size), true, kLightGrain, context.threads);
}

plan::LayoutPreference any_layouts(const plan::KernelQuery& q) {
  return {std::vector(q.inputs.size(), plan::Layout::kAny), std::vector(q.outputs.size(), plan::Layout::kAny)};
}

void add(KernelTable& table, const char* op, PrepareFn prepare, std::vector<plan::InPlacePair> in_place) {
  table.add(DeviceKind::kCpu,
            {.op = op, .prepare = std::move(prepare), .layouts = any_layouts, .in_place = std::move(in_place)});
}

void add_loops(KernelTable& table, LoopSpan sets) {
  for (const LoopSet* set = sets.begin; set != sets.end; ++set) {
    if (std::strchr(set->op, ':')) continue;
    const std::string tanh_name = std::string(set->op) + ":tanh";
    const LoopSet* variant = nullptr;
    for (const LoopSet* other = sets.begin; other != sets.end; ++other)
      if (tanh_name == other->op) variant = other;
    std::vector<plan::InPlacePair> in_place = {{0, 0}};
    if (set->inputs == 2) in_place.push_back({0, 1});
    add(table, set->op, prepare_loops(set, variant), in_place);
  }
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  add_loops(table, unary_loops());
  add_loops(table, binary_loops());
  add_loops(table, comparison_loops());
  add_loops(table, activation_loops());
  add(table, "cast", prepare_cast, {});
  add(table, "where", prepare_where, {{0, 1}, {0, 2}});
}

}  // namespace sluice::cpu
