// The costs of a row of an op, and its shards.
#include <memory>
#include <set>

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

TensorType local_type(const TensorType& type, const MeshShape& mesh, const NdSbp& sbp, int i) {
  if (sbp.size() == 1) return local_type(type, sbp[0], mesh[0], i);
  const Spans spans = spans_of(type.shape, mesh, sbp, i);
  TensorType local = type;
  for (int d = 0; d < type.shape.rank(); ++d)
    local.shape[d] = spans[static_cast<size_t>(d)].second - spans[static_cast<size_t>(d)].first;
  return local;
}

NdSbp SplitCall::input(size_t i) const {
  std::vector<Sbp> axes;
  for (const SbpRow& row : rows) axes.push_back(row.inputs[i]);
  return NdSbp(std::move(axes));
}
NdSbp SplitCall::output(size_t o) const {
  std::vector<Sbp> axes;
  for (const SbpRow& row : rows) axes.push_back(row.outputs[o]);
  return NdSbp(std::move(axes));
}

LocalCall local_call(const WholeCall& call, const SbpRow& row, int n, int i) {
  LocalCall local{local_attrs(call, row, n, i), {call.inputs.begin(), call.inputs.end()}, {}};
  for (size_t k = 0; k < local.inputs.size(); ++k)
    if (call.present[k]) local.inputs[k] = local_type(local.inputs[k], row.inputs[k], n, i);
  for (size_t k = 0; k < call.outputs.size(); ++k)
    local.outputs.push_back(local_type(call.outputs[k], row.outputs[k], n, i));
  return local;
}

Attrs local_attrs(const WholeCall& call, const MeshShape& mesh, const std::vector<SbpRow>& rows, int i) {
  const MeshShape at = coordinates(mesh, i);
  if (rows.size() == 1) return local_attrs(call, rows[0], mesh[0], i);
  LocalCall local{call.attrs, {call.inputs.begin(), call.inputs.end()}, {call.outputs.begin(), call.outputs.end()}};
  for (size_t k = 0; k < rows.size(); ++k)
    local = local_call({call.op, local.attrs, local.inputs, call.present, local.outputs}, rows[k], mesh[k], at[k]);
  return local.attrs;
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

std::vector<int> different_parts(const WholeCall& call, const SbpRow& row, int n) {
  std::set<int> first = {0};  // of each run of parts with equal sizes
  const auto add = [&](const TensorType& type, const Sbp& sbp) {
    if (sbp.kind != Sbp::Kind::kSplit || sbp.axis >= type.shape.rank()) return;
    const int larger = static_cast<int>(type.shape[sbp.axis] % n);
    if (larger > 0) first.insert(larger);
  };
  for (size_t k = 0; k < call.inputs.size(); ++k)
    if (call.present[k]) add(call.inputs[k], row.inputs[k]);
  for (size_t k = 0; k < call.outputs.size(); ++k) add(call.outputs[k], row.outputs[k]);
  return {first.begin(), first.end()};
}

bool can_split(const WholeCall& call, const SbpRow& row, int n) {
  if (row.inputs.size() < call.inputs.size() || row.outputs.size() != call.outputs.size()) return false;
  try {
    for (const int i : different_parts(call, row, n)) (void)local_attrs(call, row, n, i);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace sluice::compiler
