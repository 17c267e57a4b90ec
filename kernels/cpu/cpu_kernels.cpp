#include "kernels/cpu/cpu_kernels.h"

#include "kernels/accumulate.h"
#include "kernels/cpu/families.h"
#include "kernels/kernel.h"
#include "kernels/libraries.h"
#include "kernels/sum_parts.h"

namespace sluice {

#ifndef SLUICE_KEPT_KERNELS  // a file that tools/kept_kernels wrote: some FAMILY(FUNCTION), and KEPT(OP)
#define SLUICE_KEPT_KERNELS "kernels/cpu/families.inc"
#endif

void add_cpu_kernels(KernelTable& table) {
  limit_instruction_sets();
  std::set<std::string> kept;
#define FAMILY(FUNCTION) cpu::FUNCTION(table);
#define KEPT(OP) kept.insert(OP);
#include SLUICE_KEPT_KERNELS
#undef FAMILY
#undef KEPT
  const auto has = [&](const char* op) { return table.find(op, DeviceKind::kCpu) != nullptr; };
  if (has("copy") && has("add")) add_accumulate_kernel(table, DeviceKind::kCpu);
  if (has("add")) add_sum_parts_kernel(table, DeviceKind::kCpu);
  if (!kept.empty()) table.keep_only(DeviceKind::kCpu, kept, "SLUICE_MODELS");
}

}  // namespace sluice
