// host_function: calls what the engine has registered under the attribute `name`.
#include "kernels/cpu/families.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr const char* kFunction = "name";  // the attribute

class HostCall final : public PreparedKernel {
 public:
  HostCall(const plan::KernelQuery& q, HostFunction function)
      : function_(std::move(function)), inputs_(q.inputs), outputs_(q.outputs) {
    needs_cores_ = false;
  }
  void run(const KernelArgs& args) const override { function_(args, inputs_, outputs_); }

 private:
  const HostFunction function_;
  const std::vector<TensorSpec> inputs_, outputs_;
};

}  // namespace

void add_host_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu,
            {.op = "host_function",
             .prepare =
                 [](const plan::KernelQuery& q, const PrepareContext& context) {
                   const std::string& name = get_attr<std::string>(q.attrs, kFunction);
                   const HostFunction* found = nullptr;
                   if (context.functions) {
                     const auto it = context.functions->find(name);
                     if (it != context.functions->end()) found = &it->second;
                   }
                   SLUICE_CHECK_KIND(
                       kUnsupported, found != nullptr,
                       "host_function: '{}' is not registered with this engine; register it before loading "
                       "the plan (a runtime without Python cannot run Python actor '{}')",
                       name, name);
                   return std::make_unique<HostCall>(q, *found);
                 },
             .function = kFunction});
}

}  // namespace sluice::cpu
