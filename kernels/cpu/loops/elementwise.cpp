// Every elementwise op: loops.h over tile_walk.h. `where` differs in its tiles alone, `cast` has conversions for loops.
#include <array>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/strides/tile_walk.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kFirstCache = 24 * 1024;  // bytes of the first-level cache that tiles may take

// Twice a tile costs half as many calls, and takes rows of twice the length together. Elements that have to be
// converted come and go faster in tiles; others are better taken row by row than moved.
WalkOptions walk_options(const std::vector<OperandPlan>& operands) {
  int64_t bytes = 0;
  for (const OperandPlan& operand : operands) {
    if (!operand.as_tile) return {};
    bytes += operand.tile_size;
  }
  return {.tile = 2 * kTile * bytes <= kFirstCache ? 2 * kTile : kTile, .short_row = 64};
}

class Elementwise final : public PreparedKernel {
 public:
  // with_one[k]: the loop, if there is one, of which operand k is one element.
  Elementwise(const plan::KernelQuery& q, const std::vector<OperandPlan>& operands, Loop loop,
              const std::array<Loop, 2>& with_one, int64_t grain, int threads)
      : op_(q.op), walk_(q, operands, walk_options(operands)), loop_(loop), grain_(grain), threads_(threads) {
    for (int k = 0; k < 2 && loop_ == loop; ++k)
      if (with_one[k] != nullptr && walk_.give_one(k)) loop_ = with_one[k];
  }

  void run(const KernelArgs& args) const override {
    const auto tile = [this](const void* const* in, void** out, int64_t, int64_t n) { return loop_(in, out[0], n); };
    const int error = walk_.run(args, threads_, grain_, [&] { return tile; });
    SLUICE_CHECK_KIND(kRuntime, error == 0, "{}", scalar_error_text(op_, static_cast<ScalarError>(error)));
  }

 private:
  const std::string op_;
  TileWalk<kMaxOperands> walk_;
  Loop loop_;
  const int64_t grain_;
  const int threads_;
};

int64_t bytes(DType dtype) { return static_cast<int64_t>(dtype_size(dtype)); }

OperandPlan input(DType dtype, TileType tile) {
  return {tile_load(dtype, tile), nullptr, bytes(dtype), tile_element_size(tile), is_tile(dtype, tile)};
}
OperandPlan output(DType dtype, TileType tile) {
  return {nullptr, tile_store(tile, dtype), bytes(dtype), tile_element_size(tile), is_tile(dtype, tile)};
}

void check_operands(const plan::KernelQuery& q, size_t inputs) {
  SLUICE_CHECK(q.inputs.size() == inputs && q.outputs.size() == 1, "{}: {} inputs and {} outputs; needs {} and 1", q.op,
               q.inputs.size(), q.outputs.size(), inputs);
}

std::unique_ptr<PreparedKernel> prepare_elementwise(const plan::KernelQuery& q, const PrepareContext& context) {
  const DType dtype = q.inputs.at(0).dtype;
  const ScalarOp* form = is_complex(dtype) ? find_complex_op(q.op) : find_scalar_op(q.op, q.attrs);
  const TileType tile = tile_type(dtype);
  const LoopSet* loops = form ? find_loops(*form) : nullptr;
  const Loop loop = loops ? loop_of(*loops, tile) : nullptr;
  SLUICE_CHECK_KIND(kUnsupported, loop != nullptr, "{}: no cpu kernel for {}; cast it first", q.op, dtype_name(dtype));
  const ScalarOp& op = *form;
  check_operands(q, static_cast<size_t>(op.inputs));
  std::vector<OperandPlan> operands;
  if (dtype == DType::kBool && loops->b8 != nullptr && q.outputs[0].dtype == DType::kBool) {
    operands.assign(q.inputs.size() + 1, raw_operand(1));
    return std::make_unique<Elementwise>(q, operands, loops->b8, std::array<Loop, 2>{}, kLightGrain, context.threads);
  }
  for (const TensorSpec& in : q.inputs) operands.push_back(input(in.dtype, tile));
  const TileType result = op.gives_bool ? TileType::kBool : op.gives_real ? tile_type(to_real(dtype)) : tile;
  operands.push_back(output(q.outputs[0].dtype, result));
  const std::array<Loop, 2> with_one = {loop_with_one(*loops, tile, 0), loop_with_one(*loops, tile, 1)};
  return std::make_unique<Elementwise>(q, operands, loop, with_one, op.heavy ? kHeavyGrain : kLightGrain,
                                       context.threads);
}

// How elements become those of another dtype: at once where one of the two is what tiles are of, else by way of a tile,
// which is then the output's; and so are elements that stay as they are.
struct Conversion {
  std::vector<OperandPlan> operands;
  LoadFn load = nullptr;
  StoreFn store = nullptr;
};
Conversion conversion(DType from, DType to) {
  if (from == to) return {{raw_operand(bytes(from)), raw_operand(bytes(from))}};
  const TileType tile = tile_of_cast(from, to);
  if (is_tile(to, tile)) return {{raw_operand(bytes(from)), raw_operand(bytes(to))}, tile_load(from, tile)};
  if (is_tile(from, tile)) return {{raw_operand(bytes(from)), raw_operand(bytes(to))}, nullptr, tile_store(tile, to)};
  return {{input(from, tile), output(to, tile)}};
}

class Cast final : public PreparedKernel {
 public:
  Cast(const plan::KernelQuery& q, const Conversion& how, int threads)
      : walk_(q, how.operands, walk_options(how.operands)), load_(how.load), store_(how.store), threads_(threads) {}

  void run(const KernelArgs& args) const override {
    const auto tile = [this](const void* const* in, void** out, int64_t, int64_t n) {
      if (load_)
        load_(in[0], 1, out[0], n);
      else if (store_)
        store_(in[0], out[0], 1, n);
      else
        out[0] = const_cast<void*>(in[0]);
      return 0;
    };
    walk_.run(args, threads_, kLightGrain, [&] { return tile; });
  }

 private:
  const TileWalk<kMaxOperands> walk_;
  const LoadFn load_;
  const StoreFn store_;
  const int threads_;
};

std::unique_ptr<PreparedKernel> prepare_cast(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 1);
  return std::make_unique<Cast>(q, conversion(q.inputs[0].dtype, q.outputs[0].dtype), context.threads);
}

std::unique_ptr<PreparedKernel> prepare_where(const plan::KernelQuery& q, const PrepareContext& context) {
  check_operands(q, 3);
  const int64_t size = bytes(q.outputs[0].dtype);
  std::vector<OperandPlan> operands = {raw_operand(1), raw_operand(size), raw_operand(size), raw_operand(size)};
  return std::make_unique<Elementwise>(q, operands, where_loop(size), std::array<Loop, 2>{}, kLightGrain,
                                       context.threads);
}

// Nothing that may fail, since a failure names its op, nor complex numbers, whose tiles are large.
bool can_fuse(const plan::KernelQuery& q) {
  for (const TensorSpec& in : q.inputs)
    if (is_complex(in.dtype)) return false;
  if (q.op == "cast") return !is_complex(q.outputs[0].dtype);
  if (q.op == "where") return true;
  const ScalarOp* op = find_scalar_op(q.op, q.attrs);
  const DType dtype = q.inputs[0].dtype;
  for (const TensorSpec& in : q.inputs)
    if (in.dtype != dtype) return false;
  return op != nullptr && loop_of(*find_loops(*op), tile_type(dtype)) != nullptr &&
         (is_floating(dtype) || op->bad == nullptr);
}

void add(KernelTable& table, const char* op, PrepareFn prepare, std::vector<plan::InPlacePair> in_place) {
  table.add(DeviceKind::kCpu, {.op = op,
                               .prepare = std::move(prepare),
                               .layouts = any_layouts,
                               .in_place = std::move(in_place),
                               .can_fuse = can_fuse});
}

}  // namespace

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
