#include "kernels/cuda/generated.h"

#include <array>

namespace sluice::cuda {

void* address_of(const Operand& operand, const KernelArgs& args) {
  void* data = nullptr;
  switch (operand.from) {
    case Operand::From::kInput: data = const_cast<void*>(args.inputs[operand.index]); break;
    case Operand::From::kOutput: data = args.outputs[operand.index]; break;
    case Operand::From::kWorkspace: data = args.workspace; break;
  }
  return operand.offset == 0 ? data : static_cast<std::byte*>(data) + operand.offset;
}

GeneratedKernel::GeneratedKernel(const plan::KernelQuery& query, Generated generated)
    : op_(query.op), inputs_(query.inputs.size()) {
  workspace_bytes_ = generated.workspace_bytes;
  repeatable_ = true;
  for (Source& source : generated.stages) {
    if (source.blocks == 0) continue;
    SLUICE_CHECK(source.operands.size() <= kMostProgramOperands, "{}: {} operands; a program takes {} at most", op_,
                 source.operands.size(), kMostProgramOperands);
    Stage& stage = stages_.emplace_back();
    stage.program = program_cache().get(source.entry, source.text, architecture(query.device), source.contract);
    held_bytes_ += stage.program->image.size();
    stage.blocks = source.blocks;
    stage.operands = std::move(source.operands);
    stage.describe = source.describe;
  }
}

CUfunction GeneratedKernel::function(const Stage& stage, CudaStream& stream) const {
  CUfunction function = stage.function.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = stream.context().function(stage.program, stage.program->image.data(), stage.program->entry.c_str());
    stage.function.store(function, std::memory_order_release);
  }
  return function;
}

void GeneratedKernel::launch(const Stage& stage, CudaStream& stream, const KernelArgs& args) const {
  FailurePort port =
      stage.describe != nullptr ? stream.failure_port(stage.describe, args.context) : stream.failure_port();
  // As many of these are used as there are operands.
  std::array<void*, kMostProgramOperands> values;
  std::array<void*, kMostProgramOperands + 2> params;
  params[0] = &port.word;
  params[1] = &port.ticket;
  for (size_t i = 0; i < stage.operands.size(); ++i) {
    const Operand& operand = stage.operands[i];
    const bool absent = operand.from == Operand::From::kInput && operand.index >= inputs_;
    values[i] = absent ? nullptr : address_of(operand, args);
    params[2 + i] = &values[i];
  }
  Launch launch;
  launch.function = function(stage, stream);
  launch.blocks = static_cast<unsigned>(stage.blocks);
  launch.threads = static_cast<unsigned>(kThreads);
  launch.params = params.data();
  launch.context = args.context;
  stream.launch(launch);
}

void GeneratedKernel::run(const KernelArgs& args) const {
  CudaStream& stream = compute_stream_of(args, op_);
  for (const Stage& stage : stages_) launch(stage, stream, args);
}

void set_generated(KernelDef& def, Generate generate, const LibraryKernels& library) {
  def.prepare = [generate, library](const plan::KernelQuery& query, const PrepareContext&) {
    std::unique_ptr<PreparedKernel> kernel = library.prepare != nullptr ? library.prepare(query) : nullptr;
    return kernel != nullptr ? std::move(kernel) : std::make_unique<GeneratedKernel>(query, generate(query));
  };
  def.source = [generate, library](const plan::KernelQuery& query) {
    std::string text;
    if (library.prepare != nullptr && library.prepare(query) != nullptr) return text;
    for (const Source& stage : generate(query).stages) text += stage.text;
    return text;
  };
}

void add_generated(KernelTable& table, const char* op, Generate generate, const LibraryKernels& library) {
  KernelDef def = table.get(op, DeviceKind::kCpu);
  def.library = library.name;
  def.implementations = nullptr;
  if (library.implementations != nullptr) {
    def.implementations = [names = library.implementations](const plan::KernelQuery& query, const PrepareContext&) {
      return names(query);
    };
  }
  def.can_fuse = nullptr;  // as steps of this device's kernels they are another matter
  def.padded_sizes = nullptr;
  set_generated(def, generate, library);
  table.add(DeviceKind::kCuda, std::move(def));
}

}  // namespace sluice::cuda
