#pragma once
// Weighted sums along an axis: weighted_taps and its adjoint.

namespace sluice {
class KernelTable;
namespace cpu {

void add_taps_kernels(KernelTable& table);

}  // namespace cpu
}  // namespace sluice
