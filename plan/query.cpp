#include "plan/query.h"

#include <algorithm>

namespace sluice::plan {

std::vector<int> streams_of_kernels(const Plan& plan) {
  std::vector<int> streams(plan.kernels.size(), -1);
  for (const Actor& actor : plan.actors) {
    for (const Instr& instr : actor.program) {
      if (instr.kind == InstrKind::kRun) streams[instr.index] = actor.stream;
    }
  }
  return streams;
}

KernelQuery query_of(const Plan& plan, const Kernel& kernel, const Stream& stream) {
  KernelQuery query;
  query.op = kernel.op;
  query.attrs = kernel.attrs;
  for (const View& view : kernel.inputs) {
    if (view.packed >= 0 && !plan.packed[view.packed].format.empty())
      query.packed.push_back(static_cast<int>(query.inputs.size()));
    query.inputs.push_back(view.spec);
  }
  for (const View& view : kernel.outputs) query.outputs.push_back(view.spec);
  query.device = stream.device;
  query.cores = stream.cores;
  return query;
}

Key key_of(const KernelQuery& query) {
  Key key;
  key.add(query.op).add(query.device).add(query.cores);
  key.add(query.attrs.size());
  for (const auto& [name, value] : query.attrs) key.add(name).add(value);
  for (const std::vector<TensorSpec>* specs : {&query.inputs, &query.outputs}) {
    key.add(specs->size());
    for (const TensorSpec& spec : *specs) key.add(spec);
  }
  for (const int input : query.packed) key.add(input);
  return key;
}

uint64_t workspace_limit(const NamedAttrs& attrs) {
  const auto limit = beside<int64_t>(attrs, kWorkspaceLimit, -1);
  return limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
}

}  // namespace sluice::plan
