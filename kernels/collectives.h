#pragma once
// Kernels that ranks run together. They are kernels of plans alone: a graph has no such ops, the compiler puts them in.
//
//   op              attributes                 output, on n ranks
//   all_reduce      reduce: "sum", "product",  as the input
//                   "min", "max", "average"
//   all_gather                                 dimension 0 times n
//   reduce_scatter  reduce                     dimension 0 divided by n; workspace: the input's bytes
//   all_to_all                                 as the input: part r along dimension 0 goes to rank r
//   broadcast       root: rank in the group    as the input
//   send, receive   from: rank in the group    of a group of two: one input there, one output here (plan/transfers.h)
#include <memory>

#include "kernels/kernel.h"

namespace sluice {

namespace collective {
class Communicator;
}

// Whether devices of this kind have `op` as a collective of their own memory, from their backend.
bool has_collective(const std::string& op, DeviceKind kind);

// Throws when the operands of one of the first five are not as above, or not contiguous.
void check_collective(const plan::KernelQuery& query, int64_t ranks);
// A device's own are its backend's. Throws Error(kUnsupported) for other ops. REQUIRES: `group` outlives the kernel.
std::unique_ptr<PreparedKernel> prepare_collective(const plan::KernelQuery& query, collective::Communicator& group);

}  // namespace sluice
