// Collectives of a plan: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast. Each has one input and one
// output, contiguous; parts of ranks lie along dimension 0, in the order of the group's ranks.
#include "kernels/collectives.h"

#include <cstring>

#include "base/shape.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/support/support.h"
#include "kernels/meeting.h"
#include "plan/collectives.h"
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

// Carries a register between two ranks: all of a slot, or nothing when it has no bytes.
class Transfer final : public PreparedKernel, public Meeting {
 public:
  Transfer(Communicator& group, bool sends, int from, uint64_t bytes)
      : group_(group), sends_(sends), from_(from), bytes_(bytes) {}
  void run(const KernelArgs& args) const override {
    void* const data = bytes_ == 0 ? nullptr : sends_ ? const_cast<void*>(args.inputs[0]) : args.outputs[0];
    group_.transfer(data, bytes_, from_);
  }
  bool waits() const override { return group_.transfer_waits(bytes_, from_); }
  bool receives() const override { return !sends_; }
  bool grant(void* output) const noexcept override { return !sends_ && group_.grant(output, bytes_, from_); }
  int granted() const override { return group_.granted(); }
  void take_back() const noexcept override { group_.take_back(); }

 private:
  Communicator& group_;
  const bool sends_;
  const int from_;
  const uint64_t bytes_;
};

std::unique_ptr<PreparedKernel> transfer(const plan::KernelQuery& q, Communicator& group, bool sends) {
  const std::vector<TensorSpec>&here = sends ? q.inputs : q.outputs, &none = sends ? q.outputs : q.inputs;
  SLUICE_CHECK(here.size() <= 1 && none.empty(), "{}: got {} inputs and {} outputs; has one {}", q.op, q.inputs.size(),
               q.outputs.size(), sends ? "input" : "output");
  const int64_t from = get_attr<int64_t>(q.attrs, "from");
  SLUICE_CHECK(group.size() == 2 && from == (sends ? group.rank() : 1 - group.rank()),
               "{}: from rank {} of a group of {} as its rank {}; must go from one rank of two to the other", q.op,
               from, group.size(), group.rank());
  return std::make_unique<Transfer>(group, sends, static_cast<int>(from), here.empty() ? 0 : bytes_of(here[0]));
}

}  // namespace
}  // namespace sluice::cpu

namespace sluice {
void check_collective(const plan::KernelQuery& q, int64_t ranks) {
  SLUICE_CHECK(q.inputs.size() == 1 && q.outputs.size() == 1, "{}: got {} inputs and {} outputs; takes one, gives one",
               q.op, q.inputs.size(), q.outputs.size());
  const TensorSpec &x = q.inputs[0], &y = q.outputs[0];
  Shape shape = x.shape;
  using Size = plan::Collective::Size;
  const plan::Collective* collective = plan::find_collective(q.op);
  if (collective != nullptr && collective->along_dim0) {
    SLUICE_CHECK(shape.rank() > 0, "{}: the input has no dimensions; the ranks' parts lie along dimension 0", q.op);
    SLUICE_CHECK(collective->size == Size::kTimesRanks || shape[0] % ranks == 0,
                 "{}: dimension 0 of the input is {}; must be divisible by the {} ranks", q.op, shape[0], ranks);
    if (collective->size == Size::kTimesRanks) shape[0] *= ranks;
    if (collective->size == Size::kOverRanks) shape[0] /= ranks;
  }
  SLUICE_CHECK(y.shape == shape && y.dtype == x.dtype, "{}: of {} on {} ranks the output is {}; must be {}", q.op,
               TensorType{x.dtype, x.shape}.str(), ranks, TensorType{y.dtype, y.shape}.str(),
               TensorType{x.dtype, shape}.str());
  for (const TensorSpec* spec : {&x, &y})
    SLUICE_CHECK_KIND(kUnsupported, is_contiguous(spec->shape, spec->strides), "{}: strides {}; must be contiguous",
                      q.op, spec->strides.str());
}

bool has_collective(const std::string& op, DeviceKind kind) {
  const plan::Collective* collective = plan::find_collective(op);
  if (collective == nullptr || !collective->on_devices) return false;
  const Backend* backend = backend_of(kind);
  return backend != nullptr && backend->prepare_collective != nullptr;
}

std::unique_ptr<PreparedKernel> prepare_collective(const plan::KernelQuery& query, collective::Communicator& group) {
  using Kind = plan::CollectiveKind;
  if (query.device.kind != DeviceKind::kCpu) {
    SLUICE_CHECK_KIND(kUnsupported, has_collective(query.op, query.device.kind),
                      "{}: no such collective on {}; run it in host memory", query.op, query.device.str());
    return backend_of(query.device.kind)->prepare_collective(query, group);
  }
  const plan::Collective* collective = plan::find_collective(query.op);
  SLUICE_CHECK_KIND(kUnsupported, collective != nullptr, "{}: no such collective; there are {}", query.op,
                    plan::collective_names());
  switch (collective->kind) {
    case Kind::kAllReduce: return cpu::all_reduce(query, group);
    case Kind::kAllGather: return cpu::all_gather(query, group);
    case Kind::kReduceScatter: return cpu::reduce_scatter(query, group);
    case Kind::kAllToAll: return cpu::all_to_all(query, group);
    case Kind::kBroadcast: return cpu::broadcast(query, group);
    case Kind::kSend: return cpu::transfer(query, group, true);
    case Kind::kReceive: return cpu::transfer(query, group, false);
  }
  return nullptr;  // not reached: the kinds above are all
}

}  // namespace sluice
