// The costs of a row of an op, and its shards.
#include <memory>

#include "compiler/sbp_infer.h"

namespace sluice::compiler {

double boxing_bytes(double bytes, const Sbp& from, int n, const Sbp& to, int m, bool moves) {
  using enum Sbp::Kind;
  const auto kind = [](const Sbp& sbp, int devices) { return devices == 1 ? kBroadcast : sbp.kind; };
  const Sbp::Kind source = kind(from, n), target = kind(to, m);
  if (moves) {
    const double reduced = source == kPartialSum ? n : 1;  // copies that reach the first device of each element
    return bytes * (reduced + (target == kBroadcast ? m - 1 : 0));
  }
  if (n == 1 || from == to || source == kBroadcast) return 0;
  const double others = n - 1;
  if (source == kPartialSum) return bytes * others * (target == kBroadcast ? 2 : 1);
  return target == kBroadcast ? bytes * others : bytes * others / n;
}

TensorType local_type(const TensorType& type, const Sbp& sbp, int n, int i) {
  if (sbp.kind != Sbp::Kind::kSplit || n == 1) return type;
  SLUICE_CHECK(sbp.axis < type.shape.rank() && type.shape[sbp.axis] >= n,
               "sbp: {} of {} over {} devices; each device must get at least one element of an axis", sbp.str(),
               type.str(), n);
  TensorType local = type;
  const auto [start, stop] = part_of(type.shape[sbp.axis], n, i);
  local.shape[sbp.axis] = stop - start;
  return local;
}

Attrs local_attrs(const WholeCall& call, const SbpRow& row, int n, int i) {
  std::vector<TensorType> inputs(call.inputs.begin(), call.inputs.end()), outputs;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (call.present[k]) inputs[k] = local_type(inputs[k], row.inputs[k], n, i);
  for (size_t k = 0; k < call.outputs.size(); ++k) outputs.push_back(local_type(call.outputs[k], row.outputs[k], n, i));
  Attrs attrs = call.op.localize ? call.op.localize(call.attrs, outputs) : call.attrs;
  const std::vector<TensorType> made = infer_types(call.op, inputs, call.present, attrs);
  for (size_t k = 0; k < outputs.size(); ++k)
    SLUICE_CHECK(made[k] == outputs[k], "{}: part {} of {}: output {} is {}; its part is {}", call.op.name, i, n, k,
                 made[k].str(), outputs[k].str());
  return attrs;
}

bool can_split(const WholeCall& call, const SbpRow& row, int n) {
  if (row.inputs.size() < call.inputs.size() || row.outputs.size() != call.outputs.size()) return false;
  try {
    for (int i = 0; i < n; ++i) (void)local_attrs(call, row, n, i);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace sluice::compiler
