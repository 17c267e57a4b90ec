#include "kernels/accumulate.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

class Accumulate final : public PreparedKernel {
 public:
  Accumulate(std::unique_ptr<PreparedKernel> copy, std::unique_ptr<PreparedKernel> add)
      : copy_(std::move(copy)), add_(std::move(add)) {
    workspace_bytes_ = std::max(copy_->workspace_bytes(), add_->workspace_bytes());
    held_bytes_ = copy_->held_bytes() + add_->held_bytes();
    repeatable_ = copy_->repeatable() && add_->repeatable();
  }
  void run(const KernelArgs& args) const override {
    if (args.first) return copy_->run(args);
    const void* const operands[] = {args.outputs[0], args.inputs[0]};
    KernelArgs sum = args;
    sum.inputs = operands;
    add_->run(sum);
  }

 private:
  const std::unique_ptr<PreparedKernel> copy_, add_;
};

}  // namespace

void add_accumulate_kernel(KernelTable& table, DeviceKind kind) {
  const KernelDef copy = table.get("copy", kind), add = table.get("add", kind);
  const auto prepare = [copy, add](const plan::KernelQuery& query, const PrepareContext& context) {
    const TensorSpec &in = query.inputs.at(0), &out = query.outputs.at(0);
    const auto made = [&](const KernelDef& def, std::vector<TensorSpec> inputs) {
      return def.prepare({def.op, {}, std::move(inputs), {out}, query.device, query.cores}, context);
    };
    return std::make_unique<Accumulate>(made(copy, {in}), made(add, {out, in}));
  };
  table.add(kind, {.op = "accumulate", .prepare = prepare, .layouts = add.layouts, .made_of = {"copy", "add"}});
}

}  // namespace sluice
