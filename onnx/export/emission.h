#pragma once
// An op call that is to be written, and the model that it is written to.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "onnx/export/export.h"
#include "onnx/file.h"

namespace sluice::onnx::exporting {

// A number as it is in each trace.
using Number = std::vector<int64_t>;
using Numbers = std::vector<Number>;

inline bool is_fixed(const Number& n) {
  return std::all_of(n.begin(), n.end(), [&](int64_t v) { return v == n.front(); });
}

struct NeedsOpset {  // thrown where an op needs a newer one
  int64_t opset;
};

// A value that goes into a graph or comes out of it.
struct Port {
  std::string name;
  std::vector<TensorType> types = {};  // by trace
};

class Exporter {
 public:
  Exporter(const ExportOptions& options, int64_t opset, format::GraphProto& graph)
      : options_(options), opset_(opset), outermost_(graph), graph_(&graph) {}

  int64_t opset() const { return opset_; }
  void need(int64_t opset) const {
    if (opset > opset_) throw NeedsOpset{opset};
  }
  size_t traces() const { return std::max<size_t>(options_.sizes.size(), 1); }

  using Attributes = std::vector<std::pair<const char*, Attr>>;
  // Adds a node; names of its results. An absent input is "".
  std::vector<std::string> add(const char* op, const std::vector<std::string>& inputs,
                               const Attributes& attributes = {}, int outputs = 1);
  std::string add1(const char* op, const std::vector<std::string>& inputs, const Attributes& attributes = {}) {
    return add(op, inputs, attributes)[0];
  }
  // A graph for a node to hold. What is added while `write` runs is part of it; constants and sizes are of the
  // outermost graph, whose names all others can read.
  format::GraphProto nested(const std::vector<Port>& inputs, const std::function<std::vector<Port>()>& write);
  using HeldGraphs = std::vector<std::pair<const char*, format::GraphProto>>;
  std::vector<std::string> add_with_graphs(const char* op, const std::vector<std::string>& inputs,
                                           const Attributes& attributes, HeldGraphs graphs, int outputs);
  // Whole numbers as an int64 vector: a constant, or computed from the sizes of inputs.
  std::string ints(const Numbers& numbers);
  std::string scalar(double value, DType dtype);
  std::string constant(const Tensor& tensor);
  std::string cast(const std::string& name, DType dtype) { return add1("Cast", {name}, {{"to", data_type_of(dtype)}}); }
  void initializer(const std::string& name, const Tensor& tensor);
  std::string fresh(const std::string& stem) { return stem + "_" + std::to_string(++count_); }

  // Of an input's axis that has the dim; for sizes that are computed.
  void dim_at(const std::string& dim, const std::string& input, int axis) { dim_at_.try_emplace(dim, input, axis); }
  std::string module;  // of the nodes made next

 private:
  std::optional<std::vector<double>> fit(const Number& number) const;
  std::string dim_size(size_t dim);
  std::string computed(const Number& number);
  format::NodeProto& add_node(const char* op, const std::vector<std::string>& inputs, const Attributes& attributes,
                              int outputs);

  // Nodes are added to another graph meanwhile.
  struct Within {
    Within(Exporter& to, format::GraphProto& graph) : to(to), before(std::exchange(to.graph_, &graph)) {}
    ~Within() { to.graph_ = before; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    Exporter& to;
    format::GraphProto* const before;
  };

  const ExportOptions& options_;
  const int64_t opset_;
  format::GraphProto& outermost_;
  format::GraphProto* graph_;  // to which nodes are added
  std::map<std::string, std::pair<std::string, int>> dim_at_;
  std::map<size_t, std::string> dim_names_;
  std::map<std::vector<int64_t>, std::string> computed_, constants_;
  std::map<std::pair<double, DType>, std::string> scalars_;
  int64_t count_ = 0;
};

struct Emission {
  Exporter& to;
  const OpDef& op;
  std::vector<const Attrs*> attrs;               // by trace
  std::vector<std::vector<TensorType>> in, out;  // by trace
  std::vector<std::string> inputs;               // names; "" for an absent one
  std::vector<bool> used;                        // which outputs anything reads
  std::string where;                             // for errors

  const TensorType& type(size_t i = 0) const { return in.front()[i]; }
  const TensorType& result(size_t i = 0) const { return out.front()[i]; }
  int rank(size_t i = 0) const { return type(i).shape.rank(); }
  bool has(size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
  Numbers shape_in(size_t i) const { return shape(in, i); }
  Numbers shape_out(size_t i = 0) const { return shape(out, i); }
  // Attributes by name; those that are no sizes must be the same in all traces.
  const Attr& attr(const char* name) const;
  int64_t i(const char* name) const { return std::get<int64_t>(attr(name)); }
  double f(const char* name) const { return std::get<double>(attr(name)); }
  bool b(const char* name) const { return std::get<bool>(attr(name)); }
  const std::string& s(const char* name) const { return std::get<std::string>(attr(name)); }
  Ints is(const char* name) const { return std::get<Ints>(attr(name)); }
  Numbers numbers(const char* name) const;

  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> format, A&&... args) const {
    fail(ErrorKind::kUnsupported, "onnx.export: {}: {}", where, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  Numbers shape(const std::vector<std::vector<TensorType>>& types, size_t i) const;
};

// A file says this of a value. `axes`: names of dims.
void set_type(format::ValueInfoProto& info, const std::string& name, const std::vector<TensorType>& types,
              const std::map<int, std::string>* axes);

using Emit = std::function<std::vector<std::string>(const Emission& e)>;
using Emits = std::map<std::string, Emit>;
// The entries by op; lists of families.
const Emits& all_emits();
void add_elementwise_emits(Emits& emits);
void add_function_emits(Emits& emits);
void add_movement_emits(Emits& emits);
void add_network_emits(Emits& emits);

}  // namespace sluice::onnx::exporting
