#include "runtime/family/family_parts.h"

#include <algorithm>

#include "runtime/session/strided_copy.h"

namespace sluice {
namespace {

// The place of the rows [start, start + extents) of a port in memory of `spec`.
struct Rows {
  uint64_t offset = 0;  // bytes
  TensorSpec spec;
};

Rows rows_of(const plan::FamilyPort& port, TensorSpec spec, const plan::Extents& start, const plan::Extents& extents) {
  uint64_t elements = 0;
  for (size_t a = 0; a < port.axes.size(); ++a) {
    const int dim = port.axes[a].dim, axis = static_cast<int>(a);
    if (dim < 0) continue;
    elements += static_cast<uint64_t>(start[dim] * spec.strides[axis]);
    spec.shape[axis] = extents[dim];
  }
  return {elements * dtype_size(spec.dtype), spec};
}

// Axes that no dim of the family says anything about may vary in length by themselves (plan/extents.h).
Shape joined_shape(const plan::Family& family, const plan::FamilyPort& port, const plan::Extents& extents,
                   const std::vector<plan::Part>& parts, const std::vector<std::vector<OutputTensor>>& results,
                   size_t output) {
  Shape shape = results.front()[output].type.shape;
  for (int a = 0; a < shape.rank(); ++a) {
    const int dim = port.axes[static_cast<size_t>(a)].dim;
    for (size_t p = 0; p < parts.size() && dim < 0; ++p)
      SLUICE_CHECK(results[p][output].type.shape[a] == shape[a],
                   "graph '{}': output '{}': axis {} is {} long in one part of the call and {} in another; what varies "
                   "in length by itself cannot be joined: make the call in parts",
                   family.name, port.name, a, shape[a], results[p][output].type.shape[a]);
    if (dim >= 0) shape[a] = extents[static_cast<size_t>(dim)];
  }
  return shape;
}

}  // namespace

std::vector<PortInfo> at_most(const plan::Family& family, std::vector<PortInfo> known,
                              const std::vector<plan::FamilyPort>& ports) {
  for (size_t p = 0; p < std::min(ports.size(), known.size()); ++p)
    for (size_t a = 0; a < std::min<size_t>(ports[p].axes.size(), known[p].type.shape.rank()); ++a)
      if (const int dim = ports[p].axes[a].dim; dim >= 0)
        known[p].type.shape[static_cast<int>(a)] = family.dims[dim].max;
  return known;
}

PartInputs::PartInputs(const plan::Family& family, const plan::Part& part, std::span<const InputTensor> inputs,
                       bool alone) {
  const plan::Extents& capacity = family.members[part.member];
  const plan::Extents first(family.dims.size(), 0);
  filled_.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan::FamilyPort& port = family.inputs[i];
    const Rows rows = rows_of(port, inputs[i].spec, part.start, part.extents);
    const auto* data = static_cast<const std::byte*>(inputs[i].data) + rows.offset;
    const TensorSpec taken = TensorSpec::contiguous({rows.spec.dtype, port.shape(capacity)});
    const bool fits = taken.shape == rows.spec.shape;
    const bool device = inputs[i].storage != nullptr && inputs[i].storage->space().kind == plan::SpaceKind::kDevice;
    SLUICE_CHECK_KIND(kUnsupported, !device || (fits && alone),
                      "graph '{}': input '{}': {} in {}; inputs of calls that are filled up or split must lie in host "
                      "memory",
                      family.name, port.name, TensorType{inputs[i].spec.dtype, inputs[i].spec.shape}.str(),
                      inputs[i].storage->space().str());
    if (fits) {
      tensors_.push_back({data, rows.spec, alone ? inputs[i].storage : nullptr});
      continue;
    }
    std::vector<std::byte>& filled = filled_.emplace_back(taken.extent_bytes());
    const Rows window = rows_of(port, taken, first, part.extents);
    strided_copy(filled.data(), window.spec, data, rows.spec);
    tensors_.push_back({filled.data(), taken});
  }
}

std::vector<OutputTensor> join_parts(const plan::Family& family, const std::vector<plan::Part>& parts,
                                     const std::vector<std::vector<OutputTensor>>& results) {
  const plan::Part& last = parts.back();
  if (parts.size() == 1 && last.extents == family.members[last.member]) return results.front();
  plan::Extents extents = last.extents;
  for (size_t d = 0; d < extents.size(); ++d) extents[d] += last.start[d];
  const plan::Extents first(extents.size(), 0);
  std::vector<OutputTensor> joined;
  for (size_t o = 0; o < family.outputs.size(); ++o) {
    const plan::FamilyPort& port = family.outputs[o];
    const TensorSpec whole =
        TensorSpec::contiguous({port.dtype, joined_shape(family, port, extents, parts, results, o)});
    auto storage = std::make_shared<Storage>(make_host_allocator(), whole.extent_bytes());
    for (size_t p = 0; p < parts.size(); ++p) {
      const OutputTensor& from = results[p][o];
      SLUICE_CHECK_KIND(kUnsupported, from.storage->space().kind != plan::SpaceKind::kDevice,
                        "graph '{}': output '{}': lies in {}; results of calls that are filled up or split must lie in "
                        "host memory",
                        family.name, port.name, from.storage->space().str());
      const Rows source = rows_of(port, TensorSpec::contiguous(from.type), first, parts[p].extents);
      const Rows target = rows_of(port, whole, parts[p].start, parts[p].extents);
      strided_copy(static_cast<std::byte*>(storage->data()) + target.offset, target.spec, from.storage->data(),
                   source.spec);
    }
    joined.push_back({{whole.dtype, whole.shape}, std::move(storage)});
  }
  return joined;
}

}  // namespace sluice
