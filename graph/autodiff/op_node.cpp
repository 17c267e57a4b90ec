// Nodes of the tape: recorded op calls and user functions, and what they keep.
#include <memory>
#include <string>
#include <utility>

#include "graph/autodiff/anomaly.h"
#include "graph/autodiff/grad_factors.h"
#include "graph/autodiff/grad_sum.h"
#include "graph/autodiff/graveyard.h"
#include "graph/autodiff/reads.h"
#include "graph/autodiff/saved_hooks.h"
#include "graph/executor.h"
#include "graph/tape.h"

namespace sluice {
namespace {

// In place of an operand whose content is not to be had. Only its type and device may be looked at.
class StandIn : public ValueImpl {
 public:
  StandIn(const Value& value, const char* keeper)
      : ValueImpl(value.type(), value.device(), value.impl()->traced()), keeper_(keeper) {}
  uint64_t version() const override { return 0; }

 protected:
  const std::string keeper_;
};

// It was written since it was saved.
class StaleValue final : public StandIn {
 public:
  StaleValue(const Value& value, uint64_t expected, const char* keeper)
      : StandIn(value, keeper), found_(value.impl()->version()), expected_(expected) {}
  void refresh_history() override {
    fail(ErrorKind::kRuntime,
         "backward: one of the variables needed for gradient computation has been modified by an inplace operation: "
         "a {} saved by {} is at version {}; expected version {} instead",
         type_.str(), keeper_, found_, expected_);
  }

 private:
  uint64_t found_, expected_;
};

// It is none that the rule reads.
class UnreadValue final : public StandIn {
 public:
  using StandIn::StandIn;
  void refresh_history() override {
    fail(ErrorKind::kRuntime,
         "backward: the gradient of {} reads a {} that it did not read when it was asked for all it may be asked for; "
         "what a rule reads must not depend on values",
         keeper_, type_.str());
  }
};

class RecordedNode : public GradNode {
 public:
  using GradNode::GradNode;

 protected:
  void check_alive() const {
    SLUICE_CHECK_KIND(kRuntime, !released_,
                      "backward: Trying to backward through the graph a second time: {} has already freed its saved "
                      "tensors; specify retain_graph=True the first time",
                      name());
  }
  // A rule's result, checked against what it was asked for.
  std::vector<Value> checked(std::vector<Value> grads, std::span<const TensorType> types,
                             std::span<const bool> needs) const {
    SLUICE_CHECK_KIND(kRuntime, grads.size() == next.size(), "{}: backward returned {} gradients; it has {} inputs",
                      name(), grads.size(), next.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined() || !needs[i]) continue;
      SLUICE_CHECK_KIND(kRuntime, grads[i].type() == types[i],
                        "{}: backward returned a gradient of another type for input {}: {}; must be {}", name(), i,
                        grads[i].type().str(), types[i].str());
    }
    return grads;
  }
  bool released_ = false;
};

// An identity on the tape: separates the graph of a decomposition from the history of its inputs.
class AliasNode final : public GradNode {
 public:
  explicit AliasNode(Next edge) : GradNode({std::move(edge)}) {}
  const char* name() const override { return "Alias"; }
  std::vector<Value> apply(std::span<const Value> grads, std::span<const bool>) override { return {grads[0]}; }
  void release() override {}
};

class OpNode final : public RecordedNode {
 public:
  OpNode(const OpDef& op, const Attrs& attrs, std::vector<Next> edges)
      : RecordedNode(std::move(edges)), op_(op), attrs_(attrs) {}
  ~OpNode() override { drop(); }
  const char* name() const override { return op_.name; }

  // Keeps what the rule reads.
  void save(std::span<const Value> inputs, std::span<const Value> outputs) {
    const std::unique_ptr<bool[]> needs(new bool[next.size() + 1]);
    for (size_t i = 0; i < next.size(); ++i) needs[i] = next[i].node != nullptr;
    const OperandReads& reads = reads_of_rule(op_, inputs, attrs_, outputs, {needs.get(), next.size()});
    saved_.reserve(inputs.size() + outputs.size());
    const auto add = [&](const Value& value, bool read) {
      if (read || !value.defined())
        saved_.emplace_back(value);
      else
        saved_.push_back(SavedValue::outline(value, name()));
    };
    for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], reads.inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i], reads.outputs[i]);
  }

  std::vector<Value> apply(std::span<const Value> grad_outputs, std::span<const bool> needs) override {
    const std::vector<Value> values = restored();
    const std::span<const Value> inputs = std::span(values).first(next.size()),
                                 outputs = std::span(values).subspan(next.size());
    std::vector<TensorType> types;
    for (const Value& input : inputs) types.push_back(input.defined() ? input.type() : TensorType{});
    if (op_.grad) {
      std::vector<Value> grads = op_.grad({inputs, outputs, grad_outputs, attrs_, needs});
      if (!grads.empty()) return checked(std::move(grads), types, needs);
    }
    SLUICE_CHECK_KIND(kUnsupported, op_.decompose != nullptr, "{}: is not differentiable; detach its input", op_.name);
    return checked(differentiate_decomposition(inputs, grad_outputs, needs), types, needs);
  }

  std::optional<GradFactors> factors(std::span<const Value> grad_outputs, size_t i) {
    const std::vector<Value> values = restored();
    const std::unique_ptr<bool[]> needs(new bool[next.size()]());
    needs[i] = true;
    return ops::grad_factors(op_,
                             {std::span(values).first(next.size()), std::span(values).subspan(next.size()),
                              grad_outputs, attrs_, std::span<const bool>(needs.get(), next.size())},
                             i);
  }

  std::optional<GradPart> part(const Value& grad_output) const {
    if (next.size() != 1) return std::nullopt;
    check_alive();
    return ops::grad_part(op_, saved_[0].type(), attrs_, grad_output);
  }

  void release() override {
    released_ = true;
    drop();
  }

 private:
  // The saved values, with their history: inputs, then outputs.
  std::vector<Value> restored() {
    check_alive();
    std::vector<Value> values;
    values.reserve(saved_.size());
    for (size_t i = 0; i < saved_.size(); ++i) {
      const bool output = i >= next.size();
      values.push_back(
          saved_[i].get(name(), output ? Next{shared_from_this(), static_cast<int>(i - next.size())} : next[i]));
    }
    return values;
  }

  void drop() {
    std::vector<std::shared_ptr<void>> items;
    for (SavedValue& saved : saved_)
      if (saved.defined()) items.push_back(saved.take().ptr());
    saved_.clear();
    if (!items.empty()) bury(std::move(items));
  }

  std::vector<Value> differentiate_decomposition(std::span<const Value> inputs, std::span<const Value> grad_outputs,
                                                 std::span<const bool> needs) const {
    const bool create_graph = grad_enabled();
    const GradMode recording(true);
    std::vector<Value> stand_ins(inputs.begin(), inputs.end()), wanted;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) continue;
      inputs[i].impl()->refresh_history();
      stand_ins[i] = current_executor().detach(inputs[i]);
      const bool followed = create_graph && next[i].node;  // gradients depend on what none is wanted of, too
      if (!needs[i] && !followed) continue;
      set_history(stand_ins[i], std::make_shared<AliasNode>(create_graph ? next[i] : Next{}), 0);
      if (needs[i]) wanted.push_back(stand_ins[i]);
    }
    std::vector<Value> results = op_.decompose(stand_ins, attrs_), outputs, seeds;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!grad_outputs[i].defined() || !results[i].requires_grad()) continue;
      outputs.push_back(results[i]);
      seeds.push_back(grad_outputs[i]);
    }
    std::vector<Value> grads(inputs.size());
    if (outputs.empty()) return grads;
    std::vector<Value> found = grad(outputs, wanted, seeds, {create_graph, {}, true});
    for (size_t i = 0, k = 0; i < inputs.size(); ++i)
      if (inputs[i].defined() && needs[i]) grads[i] = found[k++];
    return grads;
  }

  const OpDef& op_;
  Attrs attrs_;
  std::vector<SavedValue> saved_;  // inputs, then outputs
};

class FunctionNode final : public RecordedNode {
 public:
  FunctionNode(const char* name, BackwardFn backward, std::span<const Value> inputs, std::vector<Next> edges)
      : RecordedNode(std::move(edges)), name_(name), backward_(std::move(backward)) {
    for (const Value& input : inputs) types_.push_back(input.defined() ? input.type() : TensorType{});
  }
  const char* name() const override { return name_.c_str(); }
  std::vector<Value> apply(std::span<const Value> grad_outputs, std::span<const bool> needs) override {
    check_alive();
    return checked(backward_(grad_outputs), types_, needs);
  }
  void release() override {
    released_ = true;
    backward_ = nullptr;
  }

 private:
  std::string name_;
  BackwardFn backward_;
  std::vector<TensorType> types_;
};

bool any_requires_grad(std::span<const Value> inputs) {
  for (const Value& input : inputs)
    if (input.requires_grad()) return true;
  return false;
}

void attach(const std::shared_ptr<GradNode>& node, std::span<const Value> outputs) {
  node->num_outputs = static_cast<int>(outputs.size());
  node->origin = current_executor().origin();
  if (const AnomalyScope* anomaly = AnomalyScope::innermost(); anomaly && !node->origin)
    node->origin = std::make_shared<Provenance>(Provenance{.source = anomaly->line(), .module = {}});
  for (size_t i = 0; i < outputs.size(); ++i)
    if (is_differentiable(outputs[i].dtype())) set_history(outputs[i], node, static_cast<int>(i));
}

}  // namespace

std::optional<GradFactors> factors_of(GradNode& node, std::span<const Value> grad_outputs, size_t i) {
  auto* call = dynamic_cast<OpNode*>(&node);
  return call != nullptr ? call->factors(grad_outputs, i) : std::nullopt;
}

std::optional<GradPart> part_of(const GradNode& node, std::span<const Value> grad_outputs) {
  const auto* call = dynamic_cast<const OpNode*>(&node);
  return call != nullptr ? call->part(grad_outputs[0]) : std::nullopt;
}

SavedValue::SavedValue(const Value& value) {
  if (!value.defined()) return;
  const AutogradMeta* meta = value.impl()->autograd.get();
  const bool leaf = meta && meta->requires_grad && !meta->grad_fn;  // has no history and never gets one
  value_ = leaf ? value : current_executor().detach(value);
  version_ = value.impl()->version();
  const SavedHooksScope::Pack* pack = SavedHooksScope::innermost();
  if (!pack) return;
  const GradMode off(false);
  packed_ = (*pack)(leaf ? current_executor().detach(value) : value_);
  value_ = outline(value, "a hook").value_;
}

SavedValue SavedValue::outline(const Value& value, const char* keeper) {
  SavedValue saved;
  saved.value_ = Value(std::make_shared<UnreadValue>(value, keeper));
  saved.outline_ = true;
  return saved;
}

Value SavedValue::get(const char* keeper, const GradNode::Next& history) const {
  if (!value_.defined() || outline_) return value_;
  Value value = value_;
  if (packed_) {
    value = packed_->unpack();
    SLUICE_CHECK_KIND(kRuntime, value.type() == value_.type(),
                      "saved_tensors_hooks: unpack gave {} for what {} has saved; must be {}, as what was packed",
                      value.type().str(), keeper, value_.type().str());
  } else if (value_.impl()->version() != version_) {
    return Value(std::make_shared<StaleValue>(value_, version_, keeper));
  }
  if (!history.node || (!packed_ && value.requires_grad()) || !is_differentiable(value.dtype())) return value;
  value = current_executor().detach(value);
  set_history(value, history.node, history.index);
  return value;
}

void record_call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, std::vector<Value>& outputs) {
  bool floating = false;
  for (const Value& output : outputs) floating |= is_differentiable(output.dtype());
  if (!floating) return;
  // The edges come first: a leaf's accumulator must be older than the node.
  auto node = std::make_shared<OpNode>(op, attrs, gradient_edges(inputs));
  node->save(inputs, outputs);
  attach(node, outputs);
}

void record_function(const char* name, std::span<const Value> inputs, std::span<Value> outputs, BackwardFn backward) {
  if (!grad_enabled() || !any_requires_grad(inputs)) return;
  attach(std::make_shared<FunctionNode>(name, std::move(backward), inputs, gradient_edges(inputs)), outputs);
}

}  // namespace sluice
