// Captured graphs computing with 8-bit integers, as sluice.quantization makes them.
#include "tensor/session/quantization.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "graph_object.h"
#include "tensor/eager.h"

namespace sluice::python {

void bind_quantization(nb::module_& m) {
  using Pair = std::pair<Value, Value>;
  m.def(
      "quantizable_calls",
      [](const PyCaptured& captured) {
        nb::list list;
        for (const QuantizableCall& call : quantizable_calls(captured.graph.graph)) {
          nb::dict d;
          d["node"] = call.node;
          d["op"] = call.op;
          d["module"] = call.module;
          d["weight"] = call.weight;
          d["axis"] = call.axis;
          d["source"] = call.source;
          list.append(d);
        }
        return list;
      },
      nb::arg("captured"));
  m.def(
      "observing",
      [](const PyCaptured& captured, const std::vector<int>& values) {
        return PyCaptured{observing(captured.graph, values), {}};
      },
      nb::arg("captured"), nb::arg("values"));
  m.def(
      "quantized",
      [](const PyCaptured& captured, std::vector<int> nodes, const std::map<std::string, Pair>& weights,
         const std::map<int, Pair>& sources) {
        Quantization how{std::move(nodes), {}, {}};
        for (const auto& [name, weight] : weights) how.weights[name] = {weight.first, weight.second};
        for (const auto& [value, scale] : sources) how.sources[value] = {scale.first, scale.second};
        return PyCaptured{quantized(captured.graph, how), {}};
      },
      nb::arg("captured"), nb::arg("nodes"), nb::arg("weights"), nb::arg("sources"));
  m.def(
      "with_int8_kernels",
      [](const PyCaptured& captured) {
        return PyCaptured{with_int8_kernels(default_eager(), captured.graph), captured.stacks};
      },
      nb::arg("captured"));
  m.def(
      "variable_of",
      [](const PyCaptured& captured, const std::string& name) -> Value { return captured.graph.variables.at(name); },
      nb::arg("captured"), nb::arg("name"));
}

}  // namespace sluice::python
