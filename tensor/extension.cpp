#include "tensor/extension.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/creation.h"
#include "runtime/api/api_support.h"
#include "runtime/extension.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"

namespace sluice {
namespace {

// A definition with the texts it points to.
struct ExtensionOp {
  std::shared_ptr<const api::Op> op;
  std::deque<std::string> texts;
  OpDef def;

  const char* keep(std::string text) { return texts.emplace_back(std::move(text)).c_str(); }
};

api::OperandType type_of(const TensorType& type, bool present) {
  return {static_cast<api::DType>(type.dtype), type.shape.vec(), present};
}

api::Attributes attributes_of(const OpDef& def, const Attrs& attrs) {
  api::Attributes::Items items;
  for (size_t i = 0; i < attrs.size(); ++i) items.emplace_back(def.params[i].name, to_api(attrs[i]));
  return api::Attributes(std::move(items));
}

}  // namespace

NamedAttrs named_attrs(const api::Attributes::Items& items) {
  NamedAttrs named;
  for (const auto& [name, value] : items) named.emplace_back(name, from_api(value));
  return named;
}

namespace {

// Values behind the symbols that one call of gradient() or compose() sees.
class Calls final : public api::OpCalls {
 public:
  explicit Calls(const OpRegistry& ops) : ops_(ops) {}
  std::vector<api::Symbol> call(const std::string& op, const std::vector<api::Symbol>& inputs,
                                const api::Attributes::Items& attributes) override {
    const OpDef& def = ops_.get(op);
    return symbols(sluice::call(def, values(inputs), order_attrs(def, named_attrs(attributes))));
  }
  api::Symbol scalar(double value, api::DType dtype) override {
    return symbol(ops::full({}, value, api::checked_dtype(dtype)));
  }
  api::OperandType type(api::Symbol symbol) const override {
    const Value& v = value(symbol);
    return v.defined() ? type_of(v.type(), true) : api::OperandType{.shape = {}, .present = false};
  }

  api::Symbol symbol(const Value& v) {
    if (!v.defined()) return {};
    values_.push_back(v);
    return {static_cast<int>(values_.size()) - 1};
  }
  std::vector<api::Symbol> symbols(std::span<const Value> all) {
    std::vector<api::Symbol> result;
    for (const Value& v : all) result.push_back(symbol(v));
    return result;
  }
  Value value(api::Symbol symbol) const {
    if (!symbol.defined()) return {};
    SLUICE_CHECK(symbol.id < static_cast<int>(values_.size()),
                 "symbol {} is none of this call's; there are {}: keep no symbol from one call to the next", symbol.id,
                 values_.size());
    return values_[symbol.id];
  }
  std::vector<Value> values(const std::vector<api::Symbol>& all) const {
    std::vector<Value> result;
    for (const api::Symbol s : all) result.push_back(value(s));
    return result;
  }

 private:
  const OpRegistry& ops_;
  std::vector<Value> values_;
};

std::vector<Sample> samples_of(const OpDef& def, const api::Op& op) {
  std::vector<Sample> samples;
  for (const api::OpSample& given : op.samples()) {
    Sample sample;
    for (const api::SampleTensor& t : given.inputs)
      sample.inputs.push_back({Shape(t.shape), api::checked_dtype(t.dtype), t.low, t.high, false});
    while (sample.inputs.size() < def.inputs.size() && !def.variadic())
      sample.inputs.push_back({.shape = {}, .absent = true});
    sample.attrs = order_attrs(def, named_attrs(given.attributes));
    samples.push_back(std::move(sample));
  }
  return samples;
}

void define_behaviour(ExtensionOp& made, const OpRegistry& ops) {
  OpDef& def = made.def;
  const api::Op* const op = made.op.get();  // lives as long as the definition
  const OpDef* const self = &def;
  const std::string name = def.name;
  def.infer = [op, self, name](Types inputs, std::span<const bool> present, const Attrs& attrs) {
    std::vector<api::OperandType> types;
    for (size_t i = 0; i < inputs.size(); ++i) types.push_back(type_of(inputs[i], present[i]));
    std::vector<TensorType> results;
    for (const api::OperandType& t :
         call_extension(name, [&] { return op->infer(types, attributes_of(*self, attrs)); })) {
      SLUICE_CHECK(static_cast<int>(t.dtype) < kNumDTypes, "{}: infer gave dtype {}; there are {}", name,
                   static_cast<int>(t.dtype), kNumDTypes);
      results.push_back({static_cast<DType>(t.dtype), Shape(t.shape)});
      numel(results.back().shape);  // throws for a negative dimension
    }
    return results;
  };
  if (op->differentiable()) {
    def.grad = [op, name, &ops](const GradContext& context) {
      Calls calls(ops);
      const api::GradientRequest request{calls.symbols(context.inputs),
                                         calls.symbols(context.outputs),
                                         calls.symbols(context.grad_outputs),
                                         {context.needs.begin(), context.needs.end()},
                                         attributes_of(ops.get(name), context.attrs)};
      const std::vector<Value> grads = calls.values(call_extension(name, [&] { return op->gradient(calls, request); }));
      SLUICE_CHECK_KIND(kRuntime, grads.size() == context.inputs.size(),
                        "{}: gradient() gave {} gradients; must be one per input, {}", name, grads.size(),
                        context.inputs.size());
      for (size_t i = 0; i < grads.size(); ++i) {
        SLUICE_CHECK_KIND(kRuntime, !grads[i].defined() || grads[i].type() == context.inputs[i].type(),
                          "{}: gradient() gave {} for input {}; must be {}, as the input", name, grads[i].type().str(),
                          i, context.inputs[i].type().str());
      }
      return grads;
    };
  }
  if (op->composed()) {
    def.decompose = [op, self, name, &ops](std::span<const Value> inputs, const Attrs& attrs) {
      Calls calls(ops);
      const std::vector<api::Symbol> symbols = calls.symbols(inputs);
      std::vector<Value> results =
          calls.values(call_extension(name, [&] { return op->compose(calls, symbols, attributes_of(*self, attrs)); }));
      SLUICE_CHECK_KIND(kRuntime, results.size() == static_cast<size_t>(self->num_outputs),
                        "{}: compose() gave {} outputs; must be {}", name, results.size(), self->num_outputs);
      return results;
    };
  }
}

std::shared_ptr<const OpDef> definition(std::shared_ptr<const api::Op> op, const std::string& extension,
                                        const OpRegistry& ops) {
  auto made = std::make_shared<ExtensionOp>();
  OpDef& def = made->def;
  made->op = std::move(op);
  def.name = made->keep(made->op->name());
  def.doc = made->keep(made->op->doc());
  for (std::string& input : made->op->inputs()) def.inputs.push_back(made->keep(std::move(input)));
  for (const api::Parameter& p : made->op->parameters())
    def.params.push_back({made->keep(p.name), from_api(p.default_value), p.required});
  def.num_outputs = made->op->num_outputs();
  def.sbp = ops::broadcast_sbp;
  def.extension = extension;
  define_behaviour(*made, ops);
  def.samples = samples_of(def, *made->op);
  return {made, &def};
}

}  // namespace

void check_extension_ops(const OpRegistry& ops, const LoadedExtension& extension) {
  for (const auto& op : extension.ops) {
    const std::string name = op->name();
    const OpDef* taken = ops.find(name);
    SLUICE_CHECK(taken == nullptr, "extension '{}': op '{}': its name is that of {}; give it another", extension.name,
                 name, taken == nullptr || taken->extension.empty() ? "a built-in op" : "an op of " + taken->extension);
  }
}

void add_extension_ops(OpRegistry& ops, const LoadedExtension& extension) {
  check_extension_ops(ops, extension);
  std::vector<std::shared_ptr<const OpDef>> definitions;
  for (const auto& op : extension.ops) {
    definitions.push_back(call_extension(fmt::format("extension '{}'", extension.name),
                                         [&] { return definition(op, extension.str(), ops); }));
  }
  for (std::shared_ptr<const OpDef>& definition : definitions) ops.add(std::move(definition));
}

std::vector<const OpDef*> load_extension(EagerExecutor& eager, const std::string& path) {
  const std::shared_ptr<const LoadedExtension> fresh = open_extension(path);
  bool known = false;
  for (const auto& loaded : eager.engine().extensions()) known |= loaded->library == fresh->library;
  if (!known) check_extension_ops(eager.ops(), *fresh);
  eager.engine().load_extension(path);
  std::vector<const OpDef*> ops;
  for (const auto& op : fresh->ops) ops.push_back(&eager.ops().get(op->name()));
  return ops;
}

}  // namespace sluice
