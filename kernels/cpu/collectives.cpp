// Collectives of a plan: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast. Each has one input and one
// output, contiguous; parts of ranks lie along dimension 0, in the order of the group's ranks.
#include "kernels/cpu/collectives.h"

#include <cstring>

#include "base/shape.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/support.h"
#include "streams/backend.h"
#include "streams/collective/communicator.h"

namespace sluice::cpu {
namespace {

using collective::Communicator;
using collective::ReduceOp;

ReduceOp reduce_op_of(const plan::KernelQuery& q) {
  const std::string& name = get_attr<std::string>(q.attrs, "reduce");
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage}) {
    if (name != collective::reduce_op_name(op)) continue;
    static_cast<void>(collective::reduce_function(op, q.inputs[0].dtype));  // throws when there is none
    return op;
  }
  fail(ErrorKind::kValue, "{}: reduce is '{}'; must be sum, product, min, max or average", q.op, name);
}

uint64_t bytes_of(const TensorSpec& spec) { return checked_bytes(spec.shape, dtype_size(spec.dtype)); }

void copy_in(const KernelArgs& args, uint64_t bytes) {
  if (args.inputs[0] != args.outputs[0] && bytes > 0) std::memcpy(args.outputs[0], args.inputs[0], bytes);
}

std::unique_ptr<PreparedKernel> all_reduce(const plan::KernelQuery& q, Communicator& group) {
  check_collective(q, group.size());
  return make_kernel(0, [&group, op = reduce_op_of(q), dtype = q.inputs[0].dtype, n = numel(q.inputs[0].shape),
                         bytes = bytes_of(q.inputs[0])](const KernelArgs& args) {
    copy_in(args, bytes);
    group.all_reduce(args.outputs[0], n, dtype, op);
  });
}

std::unique_ptr<PreparedKernel> all_gather(const plan::KernelQuery& q, Communicator& group) {
  check_collective(q, group.size());
  return make_kernel(0, [&group, bytes = bytes_of(q.inputs[0])](const KernelArgs& args) {
    group.all_gather(args.inputs[0], args.outputs[0], bytes);
  });
}

std::unique_ptr<PreparedKernel> reduce_scatter(const plan::KernelQuery& q, Communicator& group) {
  check_collective(q, group.size());
  return make_kernel(bytes_of(q.inputs[0]), [&group, op = reduce_op_of(q), dtype = q.inputs[0].dtype,
                                             n = numel(q.outputs[0].shape)](const KernelArgs& args) {
    group.reduce_scatter(args.inputs[0], args.outputs[0], args.workspace, n, dtype, op);
  });
}

std::unique_ptr<PreparedKernel> all_to_all(const plan::KernelQuery& q, Communicator& group) {
  check_collective(q, group.size());
  return make_kernel(0, [&group, part = bytes_of(q.inputs[0]) / static_cast<uint64_t>(group.size())](
                            const KernelArgs& args) { group.all_to_all(args.inputs[0], args.outputs[0], part); });
}

std::unique_ptr<PreparedKernel> broadcast(const plan::KernelQuery& q, Communicator& group) {
  check_collective(q, group.size());
  const int64_t root = get_attr<int64_t>(q.attrs, "root");
  SLUICE_CHECK(root >= 0 && root < group.size(), "broadcast: root is {}; must be below the {} ranks of the group", root,
               group.size());
  return make_kernel(0, [&group, root = static_cast<int>(root), bytes = bytes_of(q.inputs[0])](const KernelArgs& args) {
    if (group.rank() == root) copy_in(args, bytes);
    group.broadcast(args.outputs[0], bytes, root);
  });
}

// Of a register between two ranks: all of a slot, or nothing when it has no bytes.
std::unique_ptr<PreparedKernel> transfer(const plan::KernelQuery& q, Communicator& group, bool sends) {
  const std::vector<TensorSpec>&here = sends ? q.inputs : q.outputs, &none = sends ? q.outputs : q.inputs;
  SLUICE_CHECK(here.size() <= 1 && none.empty(), "{}: got {} inputs and {} outputs; has one {}", q.op, q.inputs.size(),
               q.outputs.size(), sends ? "input" : "output");
  const int64_t from = get_attr<int64_t>(q.attrs, "from");
  SLUICE_CHECK(group.size() == 2 && from == (sends ? group.rank() : 1 - group.rank()),
               "{}: from rank {} of a group of {} as its rank {}; must go from one rank of two to the other", q.op,
               from, group.size(), group.rank());
  return make_kernel(0, [&group, sends, from = static_cast<int>(from),
                         bytes = here.empty() ? 0 : bytes_of(here[0])](const KernelArgs& args) {
    void* const data = bytes == 0 ? nullptr : sends ? const_cast<void*>(args.inputs[0]) : args.outputs[0];
    group.transfer(data, bytes, from);
  });
}

}  // namespace
}  // namespace sluice::cpu

namespace sluice {
void check_collective(const plan::KernelQuery& q, int64_t ranks) {
  SLUICE_CHECK(q.inputs.size() == 1 && q.outputs.size() == 1, "{}: got {} inputs and {} outputs; takes one, gives one",
               q.op, q.inputs.size(), q.outputs.size());
  const TensorSpec &x = q.inputs[0], &y = q.outputs[0];
  Shape shape = x.shape;
  if (q.op == "all_gather" || q.op == "reduce_scatter" || q.op == "all_to_all") {
    SLUICE_CHECK(shape.rank() > 0, "{}: the input has no dimensions; the ranks' parts lie along dimension 0", q.op);
    SLUICE_CHECK(q.op == "all_gather" || shape[0] % ranks == 0,
                 "{}: dimension 0 of the input is {}; must be divisible by the {} ranks", q.op, shape[0], ranks);
    if (q.op == "all_gather") shape[0] *= ranks;
    if (q.op == "reduce_scatter") shape[0] /= ranks;
  }
  SLUICE_CHECK(y.shape == shape && y.dtype == x.dtype, "{}: of {} on {} ranks the output is {}; must be {}", q.op,
               TensorType{x.dtype, x.shape}.str(), ranks, TensorType{y.dtype, y.shape}.str(),
               TensorType{x.dtype, shape}.str());
  for (const TensorSpec* spec : {&x, &y})
    SLUICE_CHECK_KIND(kUnsupported, is_contiguous(spec->shape, spec->strides), "{}: strides {}; must be contiguous",
                      q.op, spec->strides.str());
}

bool has_collective(const std::string& op, DeviceKind kind) {
  if (op != "all_gather" && op != "all_to_all") return false;
  const Backend* backend = backend_of(kind);
  return backend != nullptr && backend->prepare_collective != nullptr;
}

std::unique_ptr<PreparedKernel> prepare_collective(const plan::KernelQuery& query, collective::Communicator& group) {
  if (query.device.kind != DeviceKind::kCpu) {
    SLUICE_CHECK_KIND(kUnsupported, has_collective(query.op, query.device.kind),
                      "{}: no such collective on {}; run it in host memory", query.op, query.device.str());
    return backend_of(query.device.kind)->prepare_collective(query, group);
  }
  if (query.op == "all_reduce") return cpu::all_reduce(query, group);
  if (query.op == "all_gather") return cpu::all_gather(query, group);
  if (query.op == "reduce_scatter") return cpu::reduce_scatter(query, group);
  if (query.op == "all_to_all") return cpu::all_to_all(query, group);
  if (query.op == "broadcast") return cpu::broadcast(query, group);
  if (query.op == "send" || query.op == "receive") return cpu::transfer(query, group, query.op == "send");
  fail(ErrorKind::kUnsupported,
       "{}: no such collective; there are all_reduce, all_gather, reduce_scatter, all_to_all and broadcast", query.op);
}

}  // namespace sluice
