#include "kernels/sim/sim_kernels.h"

#include "streams/sim/sim_stream.h"

namespace sluice {
namespace {

// The modelled device: a fixed cost per launch, and a bandwidth.
constexpr int64_t kLaunchNs = 1000;
constexpr uint64_t kBytesPerNs = 10;

int64_t modelled_ns(const plan::KernelQuery& query) {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : query.inputs) bytes = checked_add(bytes, spec.extent_bytes());
  for (const TensorSpec& spec : query.outputs) bytes = checked_add(bytes, spec.extent_bytes());
  return kLaunchNs + static_cast<int64_t>(bytes / kBytesPerNs);
}

class SimKernel final : public PreparedKernel {
 public:
  SimKernel(std::unique_ptr<PreparedKernel> kernel, const plan::KernelQuery& query, int threads)
      : kernel_(std::move(kernel)), op_(query.op) {
    workspace_bytes_ = kernel_->workspace_bytes();
    held_bytes_ = kernel_->held_bytes();
    launch_.op = &op_;
    launch_.run = [](const void* kernel, const SimOperands& operands) {
      static_cast<const PreparedKernel*>(kernel)->run({.inputs = operands.inputs,
                                                       .outputs = operands.outputs,
                                                       .workspace = operands.workspace,
                                                       .first = operands.first});
    };
    launch_.kernel = kernel_.get();
    launch_.num_inputs = static_cast<int>(query.inputs.size());
    launch_.num_outputs = static_cast<int>(query.outputs.size());
    needs_cores_ = kernel_->needs_cores();
    launch_.cores = needs_cores_ ? threads : 0;
    launch_.duration_ns = modelled_ns(query);
  }

  void run(const KernelArgs& args) const override {
    if (args.stream == nullptr) {  // an eager call waits for its result anyway
      kernel_->run(args);
      return;
    }
    auto* stream = dynamic_cast<SimStream*>(args.stream);
    if (stream == nullptr) {
      fail(ErrorKind::kUnsupported, "{}: a kernel of sim on a stream of {}; give it a stream of its device", op_,
           args.stream->device().str());
    }
    SimLaunch launch = launch_;
    launch.operands = {args.inputs, args.outputs, args.workspace, args.first};
    launch.context = args.context;
    stream->launch(launch);
  }

 private:
  const std::unique_ptr<PreparedKernel> kernel_;
  const std::string op_;
  SimLaunch launch_;
};

KernelDef on_sim(const KernelDef& cpu) {
  KernelDef def = cpu;
  def.packs.clear();     // nobody packs in the memory of a device
  def.branches = false;  // it would answer too late
  def.prepare = [prepare = cpu.prepare](plan::KernelQuery query, const PrepareContext& context) {
    query.packed.clear();
    return std::make_unique<SimKernel>(prepare(query, context), query, context.threads);
  };
  return def;
}

}  // namespace

void add_sim_kernel(KernelTable& table, const std::string& op) {
  table.add(DeviceKind::kSim, on_sim(table.get(op, DeviceKind::kCpu)));
}

void replace_sim_kernel(KernelTable& table, const std::string& op) {
  table.replace(DeviceKind::kSim, on_sim(table.get(op, DeviceKind::kCpu)));
}

void add_sim_kernels(KernelTable& table) {
  for (const std::string& op : table.ops(DeviceKind::kCpu)) add_sim_kernel(table, op);
}

}  // namespace sluice
