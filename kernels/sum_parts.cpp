#include "kernels/sum_parts.h"

#include <utility>

namespace sluice {
namespace {

class SumParts final : public PreparedKernel {
 public:
  SumParts(std::unique_ptr<PreparedKernel> add, int64_t parts, uint64_t part_bytes)
      : add_(std::move(add)), parts_(parts), part_bytes_(part_bytes) {
    workspace_bytes_ = add_->workspace_bytes();
    held_bytes_ = add_->held_bytes();
    repeatable_ = add_->repeatable();
  }
  void run(const KernelArgs& args) const override {
    const auto part = [&](int64_t i) {
      return static_cast<const char*>(args.inputs[0]) + static_cast<uint64_t>(i) * part_bytes_;
    };
    const void* operands[] = {part(0), part(1)};
    KernelArgs sum = args;
    sum.inputs = operands;
    add_->run(sum);
    operands[0] = args.outputs[0];
    for (int64_t i = 2; i < parts_; ++i) {
      operands[1] = part(i);
      add_->run(sum);
    }
  }

 private:
  const std::unique_ptr<PreparedKernel> add_;
  const int64_t parts_;
  const uint64_t part_bytes_;
};

}  // namespace

void add_sum_parts_kernel(KernelTable& table, DeviceKind kind) {
  const KernelDef add = table.get("add", kind);
  const auto prepare = [add](const plan::KernelQuery& query, const PrepareContext& context) {
    const TensorSpec &in = query.inputs.at(0), &out = query.outputs.at(0);
    const int64_t parts = get_attr<int64_t>(query.attrs, "parts");
    SLUICE_CHECK(parts >= 2 && in.shape.rank() == 1 && out.shape.rank() == 1 && in.shape[0] == parts * out.shape[0],
                 "sum_parts: {} to {} in {} parts; must be two parts at least, each as large as the sum",
                 in.shape.str(), out.shape.str(), parts);
    return std::make_unique<SumParts>(add.prepare({add.op, {}, {out, out}, {out}, query.device, query.cores}, context),
                                      parts, static_cast<uint64_t>(out.shape[0]) * dtype_size(out.dtype));
  };
  table.add(kind, {.op = "sum_parts", .prepare = prepare, .made_of = {"add"}});
}

}  // namespace sluice
