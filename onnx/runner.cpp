#include "onnx/runner.h"

#include <optional>

#include "base/error.h"
#include "onnx/table.h"
#include "tensor/forms/host_values.h"
#include "tensor/trace_executor.h"

namespace sluice::onnx {
namespace {

// While it lives, nodes that are traced are of this node of the model.
std::optional<ModuleScope> module_scope(const format::NodeProto& node) {
  if (!current_trace() || node.name().empty()) return std::nullopt;
  const std::string& outer = trace_context().module.now();
  return std::optional<ModuleScope>(std::in_place, outer.empty() ? node.name() : outer + "." + node.name());
}

class Restored {
 public:
  Restored(const Scope*& current, const Scope* scope) : current_(current), previous_(current) { current = scope; }
  ~Restored() { current_ = previous_; }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const Scope*& current_;
  const Scope* previous_;
};

}  // namespace

const Item* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->outer)
    if (const auto found = scope->values.find(name); found != scope->values.end()) return &found->second;
  return nullptr;
}

std::vector<Item> Runner::run(const Body& body, Scope& scope) {
  for (const auto& [name, tensor] : body.constants) scope.values.try_emplace(name, Item(tensor));
  for (const Step& step : body.steps) run_step(step, scope);
  std::vector<Item> outputs;
  for (const std::string& name : body.outputs) outputs.push_back(*scope.find(name));
  return outputs;
}

void Runner::run_step(const Step& step, Scope& scope) {
  const Restored restored(current_, &scope);
  const auto module = module_scope(*step.node);
  Items made;
  try {
    made = call(step, scope);
  } catch (const Error& e) {
    const std::string message = e.what();
    if (message.starts_with("onnx: ")) throw;
    throw Error(e.kind(), "onnx: " + (message.starts_with("node ") ? "" : where_of(*step.node) + ": ") + message);
  }
  SLUICE_CHECK(made.size() >= static_cast<size_t>(step.node->output_size()), "onnx: {}: {} outputs; it has {}",
               where_of(*step.node), step.node->output_size(), made.size());
  for (int i = 0; i < step.node->output_size(); ++i)
    if (!step.node->output(i).empty()) scope.values[step.node->output(i)] = made[static_cast<size_t>(i)];
  for (const std::string& name : step.done) scope.values.erase(name);
}

Items Runner::call(const Step& step, Scope& scope) {
  std::vector<Item> inputs;
  for (const std::string& name : step.node->input()) inputs.push_back(name.empty() ? Item() : *scope.find(name));
  if (step.entry) return step.entry->handler(Call(*this, *step.node, step.version, std::move(inputs)));
  Scope inner{{}, nullptr};
  for (size_t i = 0; i < step.function->inputs.size(); ++i)
    inner.values[step.function->inputs[i]] = i < inputs.size() ? inputs[i] : Item();
  const std::vector<Item> outputs = run(*step.function, inner);
  return Items(outputs.begin(), outputs.end());
}

std::vector<Item> Runner::run_inner(const format::GraphProto& graph, std::vector<Item> inputs,
                                    const std::string& where) {
  const Body& body = bodies_.of(graph);
  SLUICE_CHECK(inputs.size() == body.inputs.size(), "{}: its graph has {} inputs; must have {}", where,
               body.inputs.size(), inputs.size());
  Scope scope{{}, current_};
  for (size_t i = 0; i < inputs.size(); ++i) scope.values[body.inputs[i]] = std::move(inputs[i]);
  return run(body, scope);
}

std::string Call::where() const { return where_of(node_); }

const Value& Call::in(size_t i) const {
  SLUICE_CHECK(has(i), "{}: input {} is missing", where(), i);
  SLUICE_CHECK_KIND(kType, inputs_[i].tensor.defined(), "{}: input {} is a sequence; must be a tensor", where(), i);
  return inputs_[i].tensor;
}

Value Call::opt(size_t i) const { return has(i) ? in(i) : Value(); }

const Item& Call::item(size_t i) const {
  static const Item nothing;
  return i < inputs_.size() ? inputs_[i] : nothing;
}

const std::vector<Item>& Call::sequence(size_t i) const {
  SLUICE_CHECK_KIND(kType, has(i) && inputs_[i].sequence, "{}: input {} must be a sequence", where(), i);
  return *inputs_[i].sequence;
}

std::vector<Value> Call::tensors(size_t first) const {
  std::vector<Value> values;
  for (size_t i = first; i < inputs_.size(); ++i) values.push_back(in(i));
  return values;
}

void check_known(const Value& value, const std::string& where, const char* what) {
  TraceExecutor* trace = current_trace();
  SLUICE_CHECK_KIND(kUnsupported, !trace || !trace->touches_graph(value),
                    "{}: {} depends on what a step computes; in a graph it must be a constant or follow from shapes",
                    where, what);
}

Ints Call::ints(size_t i) const {
  check_known(in(i), where(), fmt::format("input {}", i).c_str());
  return host_values<int64_t>(in(i), DType::kInt64);
}

std::vector<double> Call::doubles(size_t i) const {
  check_known(in(i), where(), fmt::format("input {}", i).c_str());
  return host_values<double>(in(i), DType::kFloat64);
}

int64_t Call::integer(size_t i) const {
  const Ints values = ints(i);
  SLUICE_CHECK(values.size() == 1, "{}: input {} has {} elements; must have one", where(), i, values.size());
  return values[0];
}

double Call::number(size_t i) const {
  const std::vector<double> values = doubles(i);
  SLUICE_CHECK(values.size() == 1, "{}: input {} has {} elements; must have one", where(), i, values.size());
  return values[0];
}

const format::AttributeProto* Call::find(std::string_view name) const {
  for (const auto& attribute : node_.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

int64_t Call::i(std::string_view name, int64_t otherwise) const {
  const auto* attribute = find(name);
  return attribute ? attribute->i() : otherwise;
}

double Call::f(std::string_view name, double otherwise) const {
  const auto* attribute = find(name);
  return attribute ? static_cast<double>(attribute->f()) : otherwise;
}

std::string Call::s(std::string_view name, const std::string& otherwise) const {
  const auto* attribute = find(name);
  return attribute ? attribute->s() : otherwise;
}

Ints Call::is(std::string_view name, const Ints& otherwise) const {
  const auto* attribute = find(name);
  return attribute ? Ints(attribute->ints().begin(), attribute->ints().end()) : otherwise;
}

std::vector<double> Call::fs(std::string_view name) const {
  const auto* attribute = find(name);
  return attribute ? std::vector<double>(attribute->floats().begin(), attribute->floats().end())
                   : std::vector<double>();
}

std::vector<std::string> Call::ss(std::string_view name) const {
  const auto* attribute = find(name);
  return attribute ? std::vector<std::string>(attribute->strings().begin(), attribute->strings().end())
                   : std::vector<std::string>();
}

DType Call::dtype(std::string_view name, DType otherwise) const {
  const auto* attribute = find(name);
  if (!attribute || attribute->i() == 0) return otherwise;
  const std::optional<DType> dtype = dtype_of(static_cast<int32_t>(attribute->i()));
  SLUICE_CHECK_KIND(kUnsupported, dtype, "{}: type {}; Sluice has no tensors of it", where(),
                    data_type_name(static_cast<int32_t>(attribute->i())));
  return *dtype;
}

Ints Call::list(std::string_view name, size_t input, const Ints& otherwise) const {
  return has(input) ? ints(input) : is(name, otherwise);
}

std::vector<Value> Call::run(std::string_view graph, std::vector<Item> inputs) const {
  std::vector<Value> values;
  for (const Item& item : run_items(graph, std::move(inputs))) {
    SLUICE_CHECK_KIND(kUnsupported, item.tensor.defined(), "{}: its graph gives a sequence; must give tensors",
                      where());
    values.push_back(item.tensor);
  }
  return values;
}

std::vector<Item> Call::run_items(std::string_view graph, std::vector<Item> inputs) const {
  const auto* attribute = find(graph);
  SLUICE_CHECK(attribute && attribute->has_g(), "{}: attribute '{}' is missing; must be a graph", where(), graph);
  return runner_.run_inner(attribute->g(), std::move(inputs), where());
}

size_t Call::inputs_of(std::string_view graph) const {
  const auto* attribute = find(graph);
  SLUICE_CHECK(attribute && attribute->has_g(), "{}: attribute '{}' is missing; must be a graph", where(), graph);
  return static_cast<size_t>(attribute->g().input_size());
}

Generator& Call::generator() const { return runner_.generator(); }
Tensor Call::read(const format::TensorProto& tensor) const { return read_tensor(tensor, runner_.folder(), where()); }

}  // namespace sluice::onnx
