#pragma once
// The Graph: functional SSA with dense indices; no aliasing, no in-place. Prints as text and parses back.
#include <boost/container/small_vector.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/device.h"
#include "base/error.h"
#include "base/extent_of.h"
#include "base/provenance.h"
#include "graph/op_def.h"

namespace sluice::graph {

using ValueId = int;
inline constexpr ValueId kNoValue = -1;  // an absent optional input
// The values that a node reads or makes; a few lie in the node.
using ValueIds = boost::container::small_vector<ValueId, 4>;

// The device and stream of a node; unset fields are the compiler's choice (the graph's default device, its compute
// stream). For an input, variable or output it names the stream beside which it lies, once the compiler has placed the
// graph.
struct Placement {
  std::optional<DeviceId> device;
  std::string stream;  // "" = compute; "host", "host:1", ...
  auto operator<=>(const Placement&) const = default;
};

struct Node : Provenance {
  const OpDef* op = nullptr;
  Attrs attrs;  // in the order of op->params, complete
  ValueIds inputs;
  ValueIds outputs;
  Placement placement;
  int quota = 0;         // user's quota of the registers that leave it; 0 = the compiler's choice
  int every = 1;         // it runs once per so many micro-batches
  bool for_all = false;  // what a step copies of a variable: all its micro-batches read it
};

enum class ValueKind : uint8_t { kInput, kVariable, kNode };
struct ValueInfo {
  TensorType type;
  ValueKind kind = ValueKind::kNode;
  int index = 0;         // of the input, variable or node
  int output = 0;        // of the node
  int every = 1;         // of how many micro-batches there is one; 0: of all, as of variables and views of them
  Strides strides = {};  // of a node's output once it is laid out; none: contiguous
};

struct Input {
  std::string name;
  ValueId value = kNoValue;
  Placement placement = {};
};
// State: parameters, buffers, optimizer state, constants (captured or folded tensors). Its data is kept elsewhere,
// under its name.
struct Variable {
  std::string name;
  ValueId value = kNoValue;   // its content at the start of a step
  ValueId update = kNoValue;  // its content at the end, when the step changes it
  bool constant = false;
  Placement placement = {};
};
struct Output {
  std::string name;
  ValueId value = kNoValue;
  Placement placement = {};
  std::optional<ExtentOf> extent_of = {};
  std::vector<int> axes = {};  // of what the program gives, in the order in which this has them; empty: this is it
};

class Graph {
 public:
  std::string name = "graph";

  ValueId add_input(std::string name, TensorType type);
  ValueId add_variable(std::string name, TensorType type, bool constant = false);
  // Room for what is about to be added.
  void reserve(size_t nodes, size_t values);
  // Completes attributes, pads absent optional inputs with kNoValue and infers the output types. Throws the op's error.
  // Returns the node's index; its values are node(i).outputs.
  int add_node(Node node);
  // Moves a node of `source`, which is complete, here, with other inputs. Its outputs keep their types if the new
  // inputs have the types of the old ones; else the types are inferred. `source` keeps of it the op, its edges, where
  // and how often it runs; what it was given (attributes) and where it comes from (provenance) are gone from there.
  int take_node(Graph& source, int node, ValueIds inputs);
  void add_output(std::string name, ValueId value, std::optional<ExtentOf> extent_of = {}, std::vector<int> axes = {});
  // `value` is what the output gave, with the axes in this order.
  void set_output(int output, ValueId value, std::vector<int> axes);
  void set_update(int variable, ValueId value);
  // Only these outputs stay, with the extents that they have, and no step changes a variable. The compiler removes
  // nodes that nobody reads any more. Throws kValue for one that is not there, or named twice.
  void keep_outputs(const std::vector<int>& kept);
  // Variables that no step changes become constants.
  void freeze_variables();
  void place_input(int input, Placement placement) { inputs_[input].placement = std::move(placement); }
  void place_variable(int variable, Placement placement) { variables_[variable].placement = std::move(placement); }
  void place_output(int output, Placement placement) { outputs_[output].placement = std::move(placement); }
  // Lays a node's output out. Throws kValue unless there is a stride for each axis.
  void set_strides(ValueId value, const Strides& strides);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& mutable_nodes() { return nodes_; }  // attributes and placement may change, edges may not
  const std::vector<ValueInfo>& values() const { return values_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const TensorType& type(ValueId value) const { return values_[value].type; }
  int every(ValueId value) const { return values_[value].every; }
  // The value as its kernel writes it. REQUIRES: no view's output, whose strides follow from its input's.
  TensorSpec spec(ValueId value) const;
  // Micro-batches of a step: as many as was said, or the most that a value comes of.
  int micro_batches() const;
  // For graphs of which that cannot be seen: nothing comes of all of them.
  void set_micro_batches(int count) { micro_batches_ = count; }
  // The provenance of the node that makes `value`; empty for inputs and variables.
  Provenance provenance(ValueId value) const;
  // Predicted work of one of this graph's nodes.
  Cost cost(const Node& node) const;

  // Every invariant of the form: indices, order (definitions precede uses), types as inferred, values read as often as
  // they are there. Throws kValue.
  void verify() const;

 private:
  template <class TypeOf>
  int append(Node&& node, size_t outputs, TypeOf type_of);
  int every_of_outputs(const Node& node) const;
  int micro_batches_of_values() const;
  friend std::string to_text(const Graph& graph);

  int micro_batches_ = 1;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<Input> inputs_;
  std::vector<Variable> variables_;
  std::vector<Output> outputs_;
  std::unordered_set<std::string> input_names_, variable_names_, output_names_;
};

// Text form; to_text(parse(t)) == t for every t that to_text made. Provenance is kept.
std::string to_text(const Graph& graph);
// Throws kValue "<file>:<line>: <what>: <got>; <what must hold>".
Graph parse(std::string_view text, const std::string& file_name, const OpRegistry& ops);

}  // namespace sluice::graph
