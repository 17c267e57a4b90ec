#include "compiler/collectives.h"
#include "compiler/lowering/lowering.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

constexpr LoweringPass kLoweringPasses[] = {
    {"placement", "Gives every node a device and a stream.", placement, verify_placement},
    {"schedule", "Moves nodes that free memory up.", schedule, nullptr},
    {"transfers", "Copies values to where they are read.", transfers, verify_transfers},
    {"layout", "Lays values out as kernels want them.", layout, verify_layout},
    {"snapshots", "Copies what would be overwritten.", snapshots, verify_snapshots},
    {"spill", "Keeps values on the disk between uses that lie far apart.", spill, nullptr},
};

}  // namespace

std::span<const LoweringPass> lowering_passes() { return kLoweringPasses; }

const OpRegistry& lowering_ops() {
  static const OpRegistry registry = [] {
    OpRegistry all = builtin_ops();
    for (const OpDef* op : {&ops::reorder_op(), &all_gather_op(), &all_to_all_op(), &sum_parts_op()}) all.add(op);
    return all;
  }();
  return registry;
}

}  // namespace sluice::compiler
