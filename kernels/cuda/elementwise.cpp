// Elementwise ops: generated from base/scalar.
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

template <Source (*kSource)(const plan::KernelQuery&)>
Generated one(const plan::KernelQuery& query) {
  return {{kSource(query)}};
}

// Nothing that may fail: a failure names its op.
bool can_fuse(const plan::KernelQuery& query) {
  const ScalarOp* op = find_scalar_op(query.op);
  return op == nullptr || is_floating(query.inputs[0].dtype) || op->bad == nullptr;
}

void add(KernelTable& table, const char* op, Generated (*generate)(const plan::KernelQuery& query)) {
  add_generated(table, op, generate);
  KernelDef def = table.get(op, DeviceKind::kCuda);
  def.can_fuse = can_fuse;
  table.replace(DeviceKind::kCuda, std::move(def));
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  for (const ScalarOp& op : scalar_ops()) {
    if (*op.mode == '\0') add(table, op.name, one<elementwise_source>);  // else a form of one that is there
  }
  add(table, "cast", one<cast_source>);
  add(table, "where", one<where_source>);
}

}  // namespace sluice::cuda
