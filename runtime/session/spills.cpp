#include "runtime/session/spills.h"

#include <cstring>

#include "plan/pack/spilled.h"

namespace sluice {

std::shared_ptr<SpillFile> add_spill_functions(const plan::Plan& plan, HostFunctions& functions) {
  const uint64_t all = plan::spilled(plan).file_bytes;
  if (all == 0) return nullptr;
  auto file = std::make_shared<SpillFile>(spill_folder(), all);
  using Specs = std::vector<TensorSpec>;
  for (const plan::Kernel& kernel : plan.kernels) {
    if (!plan::moves_to_disk(kernel) && !plan::moves_from_disk(kernel)) continue;
    const plan::DiskPlace place = plan::disk_place(kernel);
    const uint64_t offset = place.offset, bytes = place.bytes;
    HostFunction& function = functions[place.function];
    if (plan::moves_to_disk(kernel)) {
      function = [file, offset, bytes](const KernelArgs& args, const Specs&, const Specs&) {
        file->write(offset, args.inputs[0], bytes);
        const auto where = static_cast<int64_t>(offset);
        std::memcpy(args.outputs[0], &where, sizeof(where));
      };
    } else {
      function = [file, offset, bytes](const KernelArgs& args, const Specs&, const Specs&) {
        file->read(offset, args.outputs[0], bytes);
      };
    }
  }
  return file;
}

}  // namespace sluice
