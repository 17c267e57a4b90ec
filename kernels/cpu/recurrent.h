#pragma once
// Steps of recurrent nets: lstm_cell and its adjoint.

namespace sluice {
class KernelTable;
namespace cpu {

void add_recurrent_kernels(KernelTable& table);

}  // namespace cpu
}  // namespace sluice
