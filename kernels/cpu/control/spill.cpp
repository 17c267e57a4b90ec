// spill, fetch: call what the session has under the attribute `function`, which knows the file.
#include "kernels/cpu/control/spill.h"

#include <utility>

#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr const char* kFileFunction = "function";  // the attribute

class FileCall final : public PreparedKernel {
 public:
  FileCall(const plan::KernelQuery& q, HostFunction function)
      : function_(std::move(function)), inputs_(q.inputs), outputs_(q.outputs) {
    needs_cores_ = false;
  }
  void run(const KernelArgs& args) const override { function_(args, inputs_, outputs_); }

 private:
  const HostFunction function_;
  const std::vector<TensorSpec> inputs_, outputs_;
};

std::unique_ptr<PreparedKernel> prepare_file_call(const plan::KernelQuery& q, const PrepareContext& context) {
  const std::string& name = get_attr<std::string>(q.attrs, kFileFunction);
  const HostFunction* function = nullptr;
  if (context.functions != nullptr)
    if (const auto found = context.functions->find(name); found != context.functions->end()) function = &found->second;
  SLUICE_CHECK_KIND(kUnsupported, function != nullptr,
                    "{}: '{}' is not known here; only a session, which has a file for it, runs it", q.op, name);
  return std::make_unique<FileCall>(q, *function);
}

// The bytes are kept as they lie.
plan::LayoutPreference file_call_layouts(const plan::KernelQuery& q) {
  return {std::vector(q.inputs.size(), plan::Layout::kAny), std::vector(q.outputs.size(), plan::Layout::kAny)};
}

}  // namespace

void add_spill_kernels(KernelTable& table) {
  for (const char* op : {"spill", "fetch"})
    table.add(DeviceKind::kCpu,
              {.op = op, .prepare = prepare_file_call, .layouts = file_call_layouts, .function = kFileFunction});
}

}  // namespace sluice::cpu
