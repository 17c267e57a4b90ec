// A kind of device that computes in the host's memory, with kernels that ask for more than the cpu's: contiguous
// operands, nothing in place.
#include "kernels/kernel.h"
#include "streams/backend.h"
#include "streams/cpu/cpu_device.h"

namespace sluice {
namespace {

void add_kernels(KernelTable& table) {
  for (const std::string& op : table.ops(DeviceKind::kCpu))
    table.add(DeviceKind::named("hosted"), {.op = op, .prepare = table.get(op, DeviceKind::kCpu).prepare});
}

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) const sluice::Backend* sluice_backend() {
  static const sluice::Backend backend{
      SLUICE_BACKEND_ABI, "hosted",
      [](const sluice::DeviceId& id, const sluice::DeviceOptions& options) -> std::unique_ptr<sluice::Device> {
        return std::make_unique<sluice::CpuDevice>(id, options);
      },
      sluice::add_kernels};
  return &backend;
}
