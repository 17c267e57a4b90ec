// Chains of elementwise ops as one kernel: all steps on one piece of the operands, in the cache, before the next.
#include "kernels/cpu/families.h"
#include "kernels/cpu/rows/fused_program.h"
#include "kernels/cpu/strides/tile_walk.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int kMostFusedOperands = kMostFusedInputs + kMostFusedOutputs;
constexpr int64_t kFusedScratch = 32768;
constexpr int64_t kLeastFusedTile = 64;  // elements; smaller than what threads share out

using FusedWalk = TileWalk<kMostFusedOperands>;

// States of random numbers are read whole, by the program: to the walk they are one element.
plan::KernelQuery as_elements(plan::KernelQuery q, const FusedProgram& program) {
  for (size_t k = 0; k < q.inputs.size(); ++k)
    if (program.is_state()[k]) q.inputs[k] = TensorSpec::contiguous({q.inputs[k].dtype, {}});
  return q;
}

std::vector<OperandPlan> fused_operands(const plan::KernelQuery& q) {
  std::vector<OperandPlan> operands;
  for (const auto* specs : {&q.inputs, &q.outputs})
    for (const TensorSpec& spec : *specs) operands.push_back(raw_operand(static_cast<int64_t>(dtype_size(spec.dtype))));
  return operands;
}

// As long as all tiles stay in the first-level cache.
int64_t fused_tile(const plan::KernelQuery& q, const FusedProgram& program) {
  int64_t operands = 0;
  for (const OperandPlan& operand : fused_operands(q)) operands += operand.tile_size;
  const int64_t fits = std::min(FusedWalk::kBytes / std::max<int64_t>(operands, 1),
                                kFusedScratch / std::max<int64_t>(program.scratch_per_element(), 1));
  return std::min(kTile, fits / kLeastFusedTile * kLeastFusedTile);
}

class Fused final : public PreparedKernel {
 public:
  Fused(const plan::KernelQuery& q, FusedProgram program, int64_t tile, int threads)
      : program_(std::move(program)),
        walk_(as_elements(q, program_), fused_operands(q),
              {.tile = tile, .direct = tile, .in_order = program_.random()}),
        tile_(tile),
        grain_(program_.heavy() ? kHeavyGrain : kLightGrain / 4),
        threads_(threads) {}

  void run(const KernelArgs& args) const override {
    const int error = walk_.run(args, threads_, grain_, [&] { return Range(*this, args); });
    SLUICE_CHECK_KIND(kRuntime, error == 0, "{}", program_.error_text(error));
  }

 private:
  // Values of a tile stay until they have been stored.
  class Range {
   public:
    Range(const Fused& kernel, const KernelArgs& args) : kernel_(kernel), args_(args) {}
    int operator()(const void* const* in, void** out, int64_t element, int64_t n) {
      return kernel_.program_.run({in, out, args_.inputs, element, n, scratch_, kernel_.tile_});
    }

   private:
    const Fused& kernel_;
    const KernelArgs& args_;
    alignas(64) char scratch_[kFusedScratch];
  };

  const FusedProgram program_;
  const FusedWalk walk_;
  const int64_t tile_, grain_;
  const int threads_;
};

std::unique_ptr<PreparedKernel> prepare_fused(const plan::KernelQuery& q, const PrepareContext& context) {
  std::vector<DType> dtypes;
  for (const TensorSpec& in : q.inputs) dtypes.push_back(in.dtype);
  SLUICE_CHECK_KIND(kUnsupported, q.inputs.size() <= kMostFusedInputs && q.outputs.size() <= kMostFusedOutputs,
                    "fused: {} inputs and {} outputs; must be at most {} and {}", q.inputs.size(), q.outputs.size(),
                    kMostFusedInputs, kMostFusedOutputs);
  FusedProgram program(get_attr<AttrGraph>(q.attrs, "body"), dtypes);
  for (size_t k = 0; k < q.outputs.size(); ++k)
    SLUICE_CHECK(program.outputs().at(k) == q.outputs[k].dtype, "fused: body gives {}; its output is of {}",
                 dtype_name(program.outputs()[k]), dtype_name(q.outputs[k].dtype));
  const int64_t tile = fused_tile(q, program);
  SLUICE_CHECK_KIND(kUnsupported, tile > 0, "fused: {} bytes of values in use for each element; must be at most {}",
                    program.scratch_per_element(), kFusedScratch / kLeastFusedTile);
  return std::make_unique<Fused>(q, std::move(program), tile, context.threads);
}

plan::LayoutPreference fused_layouts(const plan::KernelQuery& q) {
  plan::LayoutPreference p = any_layouts(q);
  for (const AttrCall& step : get_attr<AttrGraph>(q.attrs, "body").calls)
    if (step.op == "dropout") p.inputs.at(static_cast<size_t>(step.operands.at(0))) = plan::Layout::kContiguous;
  return p;
}

}  // namespace

void add_fused_kernel(KernelTable& table) {
  KernelDef def{.op = "fused", .prepare = prepare_fused, .layouts = fused_layouts};
  for (int input = 0; input < kMostFusedInputs; ++input) def.in_place.push_back({0, input});
  table.add(DeviceKind::kCpu, std::move(def));
}

}  // namespace sluice::cpu
