#include "tensor/host_call.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/extents.h"
#include "graph/ops/host.h"
#include "graph/ops/movement.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

Value scalar(int64_t value) { return Tensor::from_host({DType::kInt64, {}}, &value); }

// The dims of one call: those that its inputs have in the graph, then those of its outputs alone.
class CallDims {
 public:
  CallDims(std::span<const Value> inputs, const std::string& function) : function_(function) {
    TraceExecutor* const trace = current_trace();
    for (size_t i = 0; trace != nullptr && i < inputs.size(); ++i) {
      if (!trace->touches_graph(inputs[i])) continue;
      for (const graph::VaryingAxis& axis : trace->varying_axes(inputs[i])) {
        const auto [known, fresh] = by_extent_.try_emplace(axis.extent, static_cast<int>(dims_.names.size()));
        if (fresh) {
          dims_.names.push_back(axis.dim);
          extents_.push_back(trace->handle_of(axis.extent));
          sizes_.push_back(inputs[i].shape()[axis.axis]);
        }
        dims_.inputs.push_back({static_cast<int>(i), axis.axis, known->second});
      }
    }
    dims_.taken = static_cast<int>(dims_.names.size());
  }

  void add(int output, int axis, int64_t size, const std::string& name) {
    const auto first = std::find(dims_.names.begin(), dims_.names.end(), name);
    const auto dim = first - dims_.names.begin();
    SLUICE_CHECK(
        first == dims_.names.end() || std::find(first + 1, dims_.names.end(), name) == dims_.names.end(),
        "host_function: '{}': its inputs have two dims '{}', each as long as its source made it; an output can "
        "have only one of them: give them different names",
        function_, name);
    if (first == dims_.names.end()) {
      dims_.names.push_back(name);
      sizes_.push_back(size);
    }
    SLUICE_CHECK(sizes_[dim] == size,
                 "host_function: '{}': output {} has a dim '{}' of at most {}; elsewhere it is of at most {}",
                 function_, output, name, size, sizes_[dim]);
    dims_.outputs.push_back({output, axis, static_cast<int>(dim)});
  }

  const HostDims& dims() const { return dims_; }
  const std::vector<Value>& extents() const { return extents_; }  // of those taken

 private:
  const std::string& function_;
  HostDims dims_;
  std::vector<Value> extents_;
  std::vector<int64_t> sizes_;
  std::map<graph::ValueId, int> by_extent_;
};

}  // namespace

std::vector<Value> call_host_function(std::span<const Value> inputs, const std::string& name,
                                      std::span<const HostOutput> outputs) {
  CallDims dims(inputs, name);
  std::vector<TensorType> types;
  for (size_t o = 0; o < outputs.size(); ++o) {
    types.push_back(outputs[o].type);
    for (size_t a = 0; a < outputs[o].dims.size(); ++a) {
      if (!outputs[o].dims[a].empty())
        dims.add(static_cast<int>(o), static_cast<int>(a), types[o].shape[static_cast<int>(a)], outputs[o].dims[a]);
    }
  }
  std::vector<Value> all(inputs.begin(), inputs.end());
  all.insert(all.end(), dims.extents().begin(), dims.extents().end());
  std::vector<Value> results = ops::host_function(all, name, types, dims.dims());
  const std::vector<Value> given(results.begin() + static_cast<std::ptrdiff_t>(outputs.size()), results.end());
  results.resize(outputs.size());
  if (current_trace() != nullptr) return results;
  for (const HostDims::Axis& axis : dims.dims().outputs) {
    int64_t extent = 0;
    Tensor(given[static_cast<size_t>(axis.dim - dims.dims().taken)]).copy_to_host(&extent);
    Value& result = results[static_cast<size_t>(axis.tensor)];
    if (extent < result.shape()[axis.axis]) result = ops::copy(ops::slice_axis(result, axis.axis, 0, extent));
  }
  return results;
}

Value extent_of(const Value& x, int64_t axis) {
  const int a = normalize_axis(axis, x.rank(), "extent: dim");
  TraceExecutor* const trace = current_trace();
  if (trace != nullptr && trace->touches_graph(x)) {
    for (const graph::VaryingAxis& varying : trace->varying_axes(x))
      if (varying.axis == a) return trace->handle_of(varying.extent);
  }
  return scalar(x.shape()[a]);
}

}  // namespace sluice
