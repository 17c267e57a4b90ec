// Models of ONNX; sluice.onnx makes modules of them.
#include <nanobind/stl/map.h>

#include "bindings.h"
#include "graph_object.h"
#include "onnx/export/export.h"
#include "onnx/model.h"
#include "onnx/table.h"
#include "plan/foreign/foreign.h"
#include "sluice/version.h"
#include "tensor/random.h"

namespace sluice::python {
namespace {

nb::object object_of(const onnx::Item& item) {
  if (item.tensor.defined()) return nb::cast(item.tensor);
  if (!item.sequence) return nb::none();
  nb::list list;
  for (const onnx::Item& each : *item.sequence) list.append(object_of(each));
  return list;
}

onnx::Item item_of(nb::handle object) {
  if (object.is_none()) return {};
  Value value;
  if (nb::try_cast(object, value)) return value;
  std::vector<onnx::Item> items;
  for (nb::handle each : nb::cast<nb::sequence>(object)) items.push_back(item_of(each));
  return onnx::Item(std::move(items));
}

nb::list ports_of(const std::vector<onnx::Port>& ports) {
  nb::list list;
  for (const onnx::Port& port : ports) {
    const nb::object dtype = port.dtype ? nb::object(dtype_object(*port.dtype)) : nb::none();
    const nb::object dims = port.dims ? nb::cast(*port.dims) : nb::none();
    list.append(nb::make_tuple(port.name, port.kind, dtype, dims));
  }
  return list;
}

}  // namespace

void bind_onnx(nb::module_& m) {
  plan::set_onnx_writer(onnx::cluster_model);
  nb::class_<onnx::Model>(m, "OnnxModel", "A model of ONNX as a function of tensors.")
      .def_static(
          "load",
          [](const std::string& path) {
            const GilRelease release;
            return onnx::Model::load(path);
          },
          nb::arg("path"))
      .def_static(
          "parse",
          [](const nb::bytes& bytes, const std::string& folder) {
            return onnx::Model::parse(std::string_view(bytes.c_str(), bytes.size()), folder);
          },
          nb::arg("bytes"), nb::arg("folder"))
      .def_prop_ro("inputs", [](const onnx::Model& model) { return ports_of(model.inputs()); })
      .def_prop_ro("outputs", [](const onnx::Model& model) { return ports_of(model.outputs()); })
      .def_prop_ro("parameters",
                   [](const onnx::Model& model) {
                     nb::list list;
                     for (const auto& [name, tensor] : model.parameters())
                       list.append(nb::make_tuple(name, Value(tensor)));
                     return list;
                   })
      .def_prop_ro("name", &onnx::Model::name)
      .def_prop_ro("opsets", &onnx::Model::opsets)
      .def_prop_ro("metadata", &onnx::Model::metadata)
      .def("run", [](const onnx::Model& model, const nb::typed<nb::sequence, nb::any>& inputs,
                     const std::vector<Value>& parameters, Generator& generator) {
        std::vector<onnx::Item> items, outputs;
        for (nb::handle input : inputs) items.push_back(item_of(input));
        {
          const GilRelease release;
          outputs = model.run(items, parameters, generator);
        }
        nb::list list;
        for (const onnx::Item& output : outputs) list.append(object_of(output));
        return list;
      });
  m.def("onnx_ops", &onnx::all_entries, "Names of the ops of ONNX that Sluice reads.");
  m.def("onnx_sizes_to_trace", &onnx::sizes_to_trace, nb::arg("dims"));
  m.def(
      "onnx_export",
      [](const std::vector<const PyCaptured*>& traces, const std::string& path, int64_t opset,
         const std::vector<std::string>& dims, const std::vector<std::vector<int64_t>>& sizes,
         const std::map<std::string, std::map<int, std::string>>& axes, bool external, const std::string& prefix) {
        std::vector<const CapturedGraph*> captured;
        for (const PyCaptured* trace : traces) captured.push_back(&trace->graph);
        const GilRelease release;
        return onnx::export_model(captured, {opset, SLUICE_VERSION, prefix, dims, sizes, axes}, path, external);
      },
      nb::arg("traces"), nb::arg("path"), nb::arg("opset"), nb::arg("dims"), nb::arg("sizes"), nb::arg("axes"),
      nb::arg("external"), nb::arg("prefix"));
  m.attr("onnx_opsets") = nb::make_tuple(onnx::kOldestOpset, onnx::kNewestOpset);
}

}  // namespace sluice::python
