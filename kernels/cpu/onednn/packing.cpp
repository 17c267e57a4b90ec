#include "kernels/cpu/onednn/packing.h"

#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

std::optional<Packing> packing(int number, const onednn::Desc& given, const onednn::Desc& wanted, int threads) {
  const std::string format = given != wanted ? onednn::format(wanted) : "";
  if (format.empty()) return std::nullopt;
  std::shared_ptr<onednn::Primitive> reorder = onednn::Primitive::make_reorder(given, wanted, threads);
  const uint64_t scratch = reorder->scratchpad_bytes();
  const auto pack = [reorder = std::move(reorder)](const KernelArgs& args) {
    reorder->run({args.inputs[0], args.outputs[0], args.workspace});
  };
  return Packing{{number, format, onednn::bytes(wanted)}, make_kernel(scratch, pack)};
}

}  // namespace sluice::cpu
