#include "onnx/export/export.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/dead_code.h"
#include "graph/nested.h"
#include "graph/tape.h"
#include "onnx/export/emitter.h"
#include "onnx/export/varying.h"
#include "onnx/table.h"

namespace sluice::onnx {
namespace {

using exporting::Emitter;
using exporting::Exporter;
using exporting::NeedsOpset;
using exporting::set_type;
using exporting::shown;
using exporting::where_of;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

constexpr size_t kExternalAlignment = 64;

Graph needed(Graph graph, const std::string& prefix) {
  for (const Node& node : graph.nodes())
    if (node.op->random)
      fail(ErrorKind::kUnsupported, "onnx.export: {}: it draws random numbers; export a model in eval() mode",
           where_of(node, *node.op, prefix));
  for (const graph::Variable& v : graph.variables())
    if (v.update != kNoValue) {
      const Provenance p = graph.provenance(v.update);
      fail(ErrorKind::kUnsupported, "onnx.export: variable '{}' is changed by a step{}; export a model in eval() mode",
           shown(v.name, prefix), p.module.empty() ? "" : ", in module '" + shown(p.module, prefix) + "'");
    }
  graph::remove_dead_code(graph);
  return graph;
}

// Names of an output's dims: that of the dim that has its size in all traces.
std::map<int, std::string> output_axes(const std::vector<TensorType>& types, const ExportOptions& options) {
  std::map<int, std::string> axes;
  for (int d = 0; d < types.front().shape.rank(); ++d)
    for (size_t k = 0; k < options.dims.size(); ++k) {
      bool same = true;
      for (size_t t = 0; t < types.size(); ++t) same &= types[t].shape[d] == options.sizes[t][k];
      if (same) axes[d] = options.dims[k];
    }
  return axes;
}

void write_graph(const std::vector<const Graph*>& graphs, const std::vector<const CapturedGraph*>& traces,
                 const ExportOptions& options, int64_t opset, format::GraphProto& to) {
  const Graph& first = *graphs.front();
  const CapturedGraph& weights = *traces.front();
  for (const Graph* g : graphs)
    SLUICE_CHECK_KIND(
        kUnsupported,
        g->nodes().size() == first.nodes().size() && g->values().size() == first.values().size() &&
            g->variables().size() == first.variables().size(),
        "onnx.export: the program is another one at another size of a dim ({} and {} nodes); export it with that "
        "dim fixed",
        first.nodes().size(), g->nodes().size());
  Exporter exporter(options, opset, to);
  std::vector<std::string> names(first.values().size());
  const auto types_of = [&](ValueId v) {
    std::vector<TensorType> types;
    for (const Graph* g : graphs) types.push_back(g->type(v));
    return types;
  };
  for (const graph::Input& input : first.inputs()) {
    const auto axes = options.axes.find(input.name);
    set_type(*to.add_input(), input.name, types_of(input.value), axes == options.axes.end() ? nullptr : &axes->second);
    names[static_cast<size_t>(input.value)] = input.name;
    if (axes != options.axes.end())
      for (const auto& [axis, dim] : axes->second) exporter.dim_at(dim, input.name, axis);
  }
  for (const graph::Variable& v : first.variables()) {
    if (const std::string made = exporting::varying_constant(exporter, graphs, traces, v); !made.empty()) {
      names[static_cast<size_t>(v.value)] = made;
      continue;
    }
    names[static_cast<size_t>(v.value)] = shown(v.name, options.prefix);
    exporter.initializer(shown(v.name, options.prefix), weights.variables.at(v.name));
  }
  Emitter(exporter, options.prefix, options.branches).run(graphs, names, nullptr, 0);
  for (const graph::Output& output : first.outputs()) {
    exporter.module.clear();
    format::NodeProto& node = *to.add_node();  // an output has the name that the program gives it
    node.set_op_type("Identity");
    node.set_name("output/" + output.name);
    node.add_input(names[static_cast<size_t>(output.value)]);
    node.add_output(output.name);
    const std::vector<TensorType> types = types_of(output.value);
    const std::map<int, std::string> axes = output_axes(types, options);
    set_type(*to.add_output(), output.name, types, &axes);
  }
}

// Moves the data of large tensors into a file beside the model.
void move_data(format::GraphProto& graph, const std::string& path) {
  SLUICE_CHECK_KIND(kIo, !std::filesystem::is_symlink(path),
                    "onnx.export: {}: a link; must be a file of its own, or nothing",
                    path);  // as for whoever loads it
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  size_t at = 0;
  for (auto& tensor : *graph.mutable_initializer()) {
    const std::string raw = tensor.raw_data();
    if (raw.size() < 1024) continue;
    const size_t start = align_up(at, kExternalAlignment);
    out.write(std::string(start - at, '\0').data(), static_cast<std::streamsize>(start - at));
    out.write(raw.data(), static_cast<std::streamsize>(raw.size()));
    at = start + raw.size();
    tensor.clear_raw_data();
    tensor.set_data_location(format::TensorProto::EXTERNAL);
    const std::pair<const char*, std::string> entries[] = {
        {"location", std::filesystem::path(path).filename().string()},
        {"offset", std::to_string(start)},
        {"length", std::to_string(raw.size())}};
    for (const auto& [key, value] : entries) {
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  }
  out.close();
  SLUICE_CHECK_KIND(kIo, out, "onnx.export: {}: cannot be written", path);
}

}  // namespace

std::vector<std::vector<int64_t>> sizes_to_trace(size_t dims) {
  constexpr int64_t kFirst[] = {3, 5, 7, 11}, kSecond[] = {4, 6, 8, 12}, kTest[] = {6, 9, 10, 15};
  SLUICE_CHECK(dims <= 3, "onnx.export: {} dims vary; at most 3 may", dims);
  std::vector<std::vector<int64_t>> sizes;
  for (size_t set = 0; set < size_t{1} << dims; ++set) {
    std::vector<int64_t>& of = sizes.emplace_back();
    for (size_t d = 0; d < dims; ++d) of.push_back(set >> d & 1 ? kSecond[d] : kFirst[d]);
  }
  if (dims > 0) sizes.emplace_back(kTest, kTest + dims);
  return sizes;
}

namespace {

// The model, with all data in it.
format::ModelProto model_of(const std::vector<const CapturedGraph*>& traces, const ExportOptions& options) {
  std::vector<Graph> graphs;
  for (const CapturedGraph* trace : traces) graphs.push_back(needed(trace->graph, options.prefix));
  std::vector<const Graph*> pointers;
  for (const Graph& g : graphs) pointers.push_back(&g);
  SLUICE_CHECK(options.opset == 0 || (options.opset >= 17 && options.opset <= kNewestOpset),
               "onnx.export: opset {}; must be 17 to {}", options.opset, kNewestOpset);
  format::ModelProto model;
  for (int64_t opset = options.opset == 0 ? 17 : options.opset;;) {
    model.Clear();
    try {
      write_graph(pointers, traces, options, opset, *model.mutable_graph());
      model.add_opset_import()->set_version(opset);
      break;
    } catch (const NeedsOpset& needs) {
      SLUICE_CHECK_KIND(kUnsupported, options.opset == 0, "onnx.export: opset {}; the model's ops need {}", opset,
                        needs.opset);
      opset = needs.opset;
    }
  }
  const int64_t opset = model.opset_import(0).version();
  model.set_ir_version(opset >= 21 ? 10 : 8);
  model.set_producer_name("sluice");
  model.set_producer_version(options.producer_version);
  model.mutable_graph()->set_name(graphs.front().name);
  return model;
}

}  // namespace

int64_t export_model(const std::vector<const CapturedGraph*>& traces, const ExportOptions& options,
                     const std::string& path, bool external) {
  format::ModelProto model = model_of(traces, options);
  if (external) move_data(*model.mutable_graph(), path + ".data");
  SLUICE_CHECK(model.ByteSizeLong() < size_t{1} << 31,
               "onnx.export: a model of {} bytes; beyond 2 GB it needs external data", model.ByteSizeLong());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const bool written = model.SerializeToOstream(&out);
  out.close();
  SLUICE_CHECK_KIND(kIo, written && out, "onnx.export: {}: cannot be written", path);
  return model.opset_import(0).version();
}

std::string cluster_model(const AttrGraph& body, const std::vector<TensorType>& inputs,
                          const std::vector<bool>& constants) {
  CapturedGraph cluster;
  {
    graph::GraphBuilder builder(cluster.graph, DeviceId{});
    const ExecutorScope scope(builder);
    const GradMode off(false);
    std::vector<Value> values;
    for (const TensorType& type : inputs)
      values.push_back(builder.value(cluster.graph.add_input(fmt::format("i{}", values.size()), type)));
    size_t number = 0;
    for (const Value& output : call_nested(body, values))
      cluster.graph.add_output(fmt::format("o{}", number++), builder.id(output));
  }
  // A branch that begins or ends outside of the cluster is none here.
  format::ModelProto model = model_of({&cluster}, {.branches = false});
  auto& declared = *model.mutable_graph()->mutable_input();
  for (size_t i = constants.size(); i-- > 0;)
    if (constants[i]) declared.DeleteSubrange(static_cast<int>(i), 1);
  return model.SerializeAsString();
}

}  // namespace sluice::onnx
