#include "plan/extents.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::plan {

std::vector<NamedType> named_outputs(const Plan& plan) {
  std::vector<NamedType> outputs;
  for (const Output& output : plan.outputs)
    outputs.push_back({output.name, {output.view.spec.dtype, output.view.spec.shape}, output.extent_of});
  return outputs;
}

std::vector<ResultExtent> result_extents(std::span<const NamedType> outputs) {
  std::vector<ResultExtent> found;
  for (size_t e = 0; e < outputs.size(); ++e) {
    if (!outputs[e].extent_of) continue;
    const ExtentOf& of = *outputs[e].extent_of;
    for (size_t o = 0; o < outputs.size(); ++o) {  // on several devices there are copies of both
      if (outputs[o].name != of.output) continue;
      SLUICE_CHECK(of.axis >= 0 && of.axis < outputs[o].type.shape.rank(),
                   "output '{}': it tells how long axis {} of '{}' is, which has rank {}", outputs[e].name, of.axis,
                   of.output, outputs[o].type.shape.rank());
      found.push_back({static_cast<int>(o), of.axis, of.dim, static_cast<int>(e)});
      break;
    }
  }
  return found;
}

std::vector<NamedType> visible(std::span<const NamedType> outputs) {
  std::vector<NamedType> seen;
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(seen),
               [](const NamedType& output) { return !output.extent_of; });
  return seen;
}

std::vector<ResultExtent> visible_extents(std::span<const NamedType> outputs) {
  std::vector<ResultExtent> extents = result_extents(outputs);
  for (ResultExtent& extent : extents)
    extent.output -= static_cast<int>(std::count_if(outputs.begin(), outputs.begin() + extent.output,
                                                    [](const NamedType& output) { return output.extent_of; }));
  return extents;
}

}  // namespace sluice::plan
