#include "plan/extents.h"

#include <algorithm>
#include <charconv>

namespace sluice::plan {

std::string extent_name(const std::string& output, int axis, const std::string& dim) {
  return fmt::format("{}[{}={}]", output, axis, dim);
}

std::vector<NamedType> named_outputs(const Plan& plan) {
  std::vector<NamedType> outputs;
  for (const Output& output : plan.outputs)
    outputs.push_back({output.name, {output.view.spec.dtype, output.view.spec.shape}});
  return outputs;
}

std::vector<ResultExtent> result_extents(std::span<const NamedType> outputs) {
  std::vector<ResultExtent> found;
  for (size_t e = 0; e < outputs.size(); ++e) {
    const std::string& name = outputs[e].name;
    if (outputs[e].type != TensorType{DType::kInt64, {}} || !name.ends_with(']')) continue;
    // Of a result whose name the whole begins with; names may have brackets of their own.
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (o == e || !name.starts_with(outputs[o].name + "[")) continue;
      const char* const end = name.data() + name.size() - 1;
      int axis = -1;
      const auto [at, error] = std::from_chars(name.data() + outputs[o].name.size() + 1, end, axis);
      if (error != std::errc() || at == end || *at != '=' || axis < 0 || axis >= outputs[o].type.shape.rank()) continue;
      found.push_back({static_cast<int>(o), axis, std::string(at + 1, end), static_cast<int>(e)});
      break;
    }
  }
  return found;
}

std::vector<NamedType> visible(std::span<const NamedType> outputs) {
  const std::vector<ResultExtent> extents = result_extents(outputs);
  std::vector<NamedType> seen;
  for (int o = 0; o < static_cast<int>(outputs.size()); ++o)
    if (std::none_of(extents.begin(), extents.end(), [&](const ResultExtent& e) { return e.extent == o; }))
      seen.push_back(outputs[static_cast<size_t>(o)]);
  return seen;
}

std::vector<ResultExtent> visible_extents(std::span<const NamedType> outputs) {
  std::vector<ResultExtent> extents = result_extents(outputs);
  const std::vector<ResultExtent> all = extents;
  for (ResultExtent& extent : extents)
    extent.output -= static_cast<int>(
        std::count_if(all.begin(), all.end(), [&](const ResultExtent& e) { return e.extent < extent.output; }));
  return extents;
}

}  // namespace sluice::plan
