#include "graph/graph.h"

#include <algorithm>
#include <array>
#include <memory>

namespace sluice::graph {
namespace {

std::string at(const Node& node) { return node.source.known() ? fmt::format("  ({})", node.source.str()) : ""; }

// Types of values, of absent ones a default type; a few lie on the stack.
class TypesOf {
 public:
  TypesOf(const Graph& graph, std::span<const ValueId> values) {
    const size_t n = values.size();
    if (n > few_.size()) {
      more_.resize(n);
      more_present_ = std::make_unique<bool[]>(n);
    }
    TensorType* types = n > few_.size() ? more_.data() : few_.data();
    bool* present = n > few_.size() ? more_present_.get() : few_present_.data();
    for (size_t i = 0; i < n; ++i) {
      present[i] = values[i] != kNoValue;
      if (present[i]) types[i] = graph.type(values[i]);
    }
    types_ = {types, n};
    present_ = {present, n};
  }
  TypesOf(const TypesOf&) = delete;
  TypesOf& operator=(const TypesOf&) = delete;
  Types types() const { return types_; }
  std::span<const bool> present() const { return present_; }

 private:
  std::array<TensorType, 4> few_;
  std::array<bool, 4> few_present_;
  std::vector<TensorType> more_;
  std::unique_ptr<bool[]> more_present_;
  Types types_;
  std::span<const bool> present_;
};

std::vector<TensorType> infer_node(const Graph& graph, const Node& node) {
  const TypesOf inputs(graph, node.inputs);
  return infer_types(*node.op, inputs.types(), inputs.present(), node.attrs);
}

}  // namespace

Cost Graph::cost(const Node& node) const {
  return cost_of(*node.op, TypesOf(*this, node.inputs).types(), TypesOf(*this, node.outputs).types(), node.attrs);
}

int Graph::micro_batches() const { return std::max(micro_batches_, micro_batches_of_values()); }

Provenance Graph::provenance(ValueId value) const {
  const ValueInfo& info = values_[value];
  return info.kind == ValueKind::kNode ? Provenance(nodes_[info.index]) : Provenance();
}

int Graph::micro_batches_of_values() const {
  int most = 1;
  for (const Node& node : nodes_) most = std::max(most, node.every);
  for (const ValueInfo& value : values_) most = std::max(most, value.every);
  return most;
}

int Graph::every_of_outputs(const Node& node) const {
  if (node.op->of_all) return static_cast<int>(attr<int64_t>(node.attrs, 0));
  if (node.for_all) return 0;
  // How a variable is seen or lies is no less there.
  const bool same = node.op->view != nullptr || node.op->relays;
  return same && every(node.inputs[0]) == 0 ? 0 : node.every;
}

ValueId Graph::add_input(std::string name, TensorType type) {
  SLUICE_CHECK(input_names_.insert(name).second, "graph '{}': input '{}' exists already; names must be unique",
               this->name, name);
  numel(type.shape);  // refuses negative and overflowing sizes
  const ValueId id = static_cast<ValueId>(values_.size());
  values_.push_back({type, ValueKind::kInput, static_cast<int>(inputs_.size()), 0});
  inputs_.push_back({std::move(name), id});
  return id;
}

ValueId Graph::add_variable(std::string name, TensorType type, bool constant) {
  SLUICE_CHECK(variable_names_.insert(name).second, "graph '{}': variable '{}' exists already; names must be unique",
               this->name, name);
  numel(type.shape);
  const ValueId id = static_cast<ValueId>(values_.size());
  values_.push_back({type, ValueKind::kVariable, static_cast<int>(variables_.size()), 0, 0});
  variables_.push_back({std::move(name), id, kNoValue, constant});
  return id;
}

int Graph::add_node(Node node) {
  check_input_count(*node.op, node.inputs.size());
  if (!node.op->variadic()) node.inputs.resize(node.op->inputs.size(), kNoValue);
  for (ValueId input : node.inputs) {
    SLUICE_CHECK(input >= kNoValue && input < static_cast<ValueId>(values_.size()),
                 "{}: input %{} is not defined; values must be defined before use{}", node.op->name, input, at(node));
  }
  node.attrs = validate_attrs(*node.op, std::move(node.attrs));
  std::vector<TensorType> types = infer_node(*this, node);
  for (const TensorType& type : types) numel(type.shape);  // refuses negative and overflowing sizes
  return append(std::move(node), types.size(), [&](size_t i) -> const TensorType& { return types[i]; });
}

int Graph::take_node(Graph& source, int index, ValueIds inputs) {
  Node& node = source.nodes_[index];
  bool same = inputs.size() == node.inputs.size();
  for (size_t i = 0; same && i < inputs.size(); ++i) {
    const ValueId old = node.inputs[i];
    same = (inputs[i] == kNoValue) == (old == kNoValue) && inputs[i] < static_cast<ValueId>(values_.size()) &&
           (old == kNoValue || type(inputs[i]) == source.type(old));
  }
  Node taken;
  static_cast<Provenance&>(taken) = std::move(static_cast<Provenance&>(node));
  taken.op = node.op;
  taken.attrs = std::move(node.attrs);
  taken.inputs = std::move(inputs);
  taken.placement = node.placement;
  taken.quota = node.quota;
  taken.every = node.every;
  taken.for_all = node.for_all;
  if (!same) return add_node(std::move(taken));
  const auto type_of = [&](size_t i) -> const TensorType& { return source.type(node.outputs[i]); };
  return append(std::move(taken), node.outputs.size(), type_of);
}

void Graph::reserve(size_t nodes, size_t values) {
  nodes_.reserve(nodes);
  values_.reserve(values);
}

template <class TypeOf>
int Graph::append(Node&& node, size_t outputs, TypeOf type_of) {
  const int every = every_of_outputs(node);
  const int index = static_cast<int>(nodes_.size());
  node.outputs.clear();
  node.outputs.reserve(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    ValueInfo& value = values_.emplace_back();
    value.type = type_of(i);
    value.index = index;
    value.output = static_cast<int>(i);
    value.every = every;
  }
  nodes_.push_back(std::move(node));
  return index;
}

void Graph::add_output(std::string name, ValueId value, std::optional<ExtentOf> extent_of, std::vector<int> axes) {
  SLUICE_CHECK(output_names_.insert(name).second, "graph '{}': output '{}' exists already; names must be unique",
               this->name, name);
  SLUICE_CHECK(value >= 0 && value < static_cast<ValueId>(values_.size()),
               "graph '{}': output '{}' is %{}, which is not defined; values must be defined before use", this->name,
               name, value);
  outputs_.push_back({std::move(name), value, {}, std::move(extent_of), std::move(axes)});
}

void Graph::set_output(int output, ValueId value, std::vector<int> axes) {
  outputs_[output].value = value;
  outputs_[output].axes = std::move(axes);
}

void Graph::keep_outputs(const std::vector<int>& kept) {
  std::vector<Output> outputs;
  std::unordered_set<std::string> names;
  for (const int i : kept) {
    SLUICE_CHECK_KIND(kValue, i >= 0 && i < static_cast<int>(outputs_.size()), "graph '{}': no output {}; there are {}",
                      name, i, outputs_.size());
    SLUICE_CHECK_KIND(kValue, names.insert(outputs_[i].name).second, "graph '{}': output '{}' is named twice", name,
                      outputs_[i].name);
    outputs.push_back(outputs_[i]);
  }
  for (const Output& output : outputs_)
    if (output.extent_of && names.contains(output.extent_of->output) && !names.contains(output.name))
      outputs.push_back(output);
  outputs_ = std::move(outputs);
  output_names_.clear();
  for (const Output& output : outputs_) output_names_.insert(output.name);
  for (Variable& variable : variables_) variable.update = kNoValue;
}

void Graph::freeze_variables() {
  for (Variable& variable : variables_) variable.constant = variable.update == kNoValue;
}

void Graph::set_update(int variable, ValueId value) {
  SLUICE_CHECK(variable >= 0 && variable < static_cast<int>(variables_.size()),
               "graph '{}': no variable {}; there are {}", name, variable, variables_.size());
  Variable& v = variables_[variable];
  SLUICE_CHECK(!v.constant, "graph '{}': variable '{}' is constant; it cannot be updated", name, v.name);
  SLUICE_CHECK(value >= 0 && value < static_cast<ValueId>(values_.size()),
               "graph '{}': the update of '{}' is %{}, which is not defined; values must be defined before use", name,
               v.name, value);
  SLUICE_CHECK(type(value) == type(v.value), "graph '{}': the update of '{}' is {}; must be {}, the variable's type",
               name, v.name, type(value).str(), type(v.value).str());
  v.update = value;
}

void Graph::set_strides(ValueId value, const Strides& strides) {
  SLUICE_CHECK(strides.rank() == type(value).shape.rank(),
               "graph '{}': %{} is {} with strides {}; must have a stride for each axis", name, value,
               type(value).str(), strides.str());
  values_[value].strides = strides;
}

TensorSpec Graph::spec(ValueId value) const {
  const ValueInfo& v = values_[value];
  return v.strides.empty() ? TensorSpec::contiguous(v.type) : TensorSpec{v.type.dtype, v.type.shape, v.strides};
}

void Graph::verify() const {
  const int num_values = static_cast<int>(values_.size());
  const auto check_value = [&](const char* what, const auto& of, ValueId id, ValueKind kind, int index, int output) {
    SLUICE_CHECK(id >= 0 && id < num_values, "graph '{}': {} {}: value %{} out of range; there are {}", name, what,
                 of(), id, num_values);
    const ValueInfo& v = values_[id];
    SLUICE_CHECK(v.kind == kind && v.index == index && v.output == output,
                 "graph '{}': {} {}: value %{} names another definition; definitions and values must agree", name, what,
                 of(), id);
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    check_value(
        "input", [&] { return inputs_[i].name; }, inputs_[i].value, ValueKind::kInput, static_cast<int>(i), 0);
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Variable& v = variables_[i];
    check_value(
        "variable", [&] { return v.name; }, v.value, ValueKind::kVariable, static_cast<int>(i), 0);
    if (v.update == kNoValue) continue;
    SLUICE_CHECK(!v.constant, "graph '{}': variable '{}' is constant; it cannot be updated", name, v.name);
    SLUICE_CHECK(v.update >= 0 && v.update < num_values && type(v.update) == type(v.value),
                 "graph '{}': the update of '{}' is %{}; must be a value of the variable's type {}", name, v.name,
                 v.update, type(v.value).str());
  }
  const int batches = micro_batches();
  size_t defined = inputs_.size() + variables_.size();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const auto of = [&] { return fmt::format("{} ({})", i, node.op->name); };
    check_input_count(*node.op, node.inputs.size());
    const std::vector<TensorType> types = infer_node(*this, node);
    SLUICE_CHECK(types.size() == node.outputs.size(), "graph '{}': node {}: has {} outputs; its op gives {}", name,
                 of(), node.outputs.size(), types.size());
    for (size_t o = 0; o < types.size(); ++o) {
      check_value("node", of, node.outputs[o], ValueKind::kNode, static_cast<int>(i), static_cast<int>(o));
      SLUICE_CHECK(type(node.outputs[o]) == types[o], "graph '{}': node {}: %{} is {}; inferred is {}", name, of(),
                   node.outputs[o], type(node.outputs[o]).str(), types[o].str());
    }
    SLUICE_CHECK(!node.for_all || (node.inputs.size() == 1 && every(node.inputs[0]) == 0),
                 "graph '{}': node {}: its value is for all micro-batches; only what it copies of a variable can be{}",
                 name, of(), at(node));
    const int makes = every_of_outputs(node);
    SLUICE_CHECK((node.every == 1 || node.every == batches) && (makes <= 1 || makes == batches),
                 "graph '{}': node {}: every {}; must be 1 or {}, the micro-batches of a step{}", name, of(),
                 std::max(node.every, makes), batches, at(node));
    for (ValueId input : node.inputs) {
      if (input == kNoValue) continue;
      SLUICE_CHECK(input >= 0 && input < num_values, "graph '{}': node {}: input %{} out of range; there are {}", name,
                   of(), input, num_values);
      const ValueInfo& v = values_[input];
      SLUICE_CHECK(v.kind != ValueKind::kNode || v.index < static_cast<int>(i),
                   "graph '{}': node {}: input %{} is defined by node {}; definitions must precede uses", name, of(),
                   input, v.index);
      const int there = every(input);
      SLUICE_CHECK(there == 0 || there == (node.op->of_all ? 1 : node.every),
                   "graph '{}': node {}: runs once per {} micro-batches, its input %{} is there once per {}; {}{}",
                   name, of(), node.every, input, there,
                   there == 1 ? "accumulate() or pack() it" : "what a micro-batch reads cannot come of all of them",
                   at(node));
    }
    defined += node.outputs.size();
  }
  SLUICE_CHECK(defined == values_.size(), "graph '{}': {} values; its definitions make {}", name, values_.size(),
               defined);
  for (const Output& output : outputs_) {
    SLUICE_CHECK(output.value >= 0 && output.value < num_values,
                 "graph '{}': output {}: value %{} out of range; there are {}", name, output.name, output.value,
                 num_values);
    SLUICE_CHECK(batches == 1 || every(output.value) != 1,
                 "graph '{}': output {}: is there in each of {} micro-batches; a step has one, so pack() it", name,
                 output.name, batches);
  }
}

}  // namespace sluice::graph
