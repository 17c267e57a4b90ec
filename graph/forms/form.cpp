#include "graph/forms/form.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/comparison.h"

namespace sluice {
namespace {

// Whether an elementwise op is defined on integers is what its inference says.
bool takes_integers(const OpDef& op) {
  const std::vector<TensorType> types(op.inputs.size(), TensorType{DType::kInt64, {}});
  const std::unique_ptr<bool[]> present(new bool[types.size()]);
  std::fill_n(present.get(), types.size(), true);
  try {
    infer_types(op, types, {present.get(), types.size()}, validate_attrs(op, {}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

void promote_all(std::vector<Value>& inputs, bool floating) {
  DType dtype = inputs[0].dtype();
  if (inputs.size() == 2) dtype = ops::result_dtype(inputs[0], inputs[1]);
  if (floating && !is_floating(dtype)) dtype = DType::kFloat32;
  for (Value& input : inputs) input = ops::cast(input, dtype);
}

std::string name_of_input(const OpDef& op, size_t i) {
  std::string name = op.inputs[i];
  if (name.back() == '?' || name.back() == '*') name.pop_back();
  if (i == 0) return op.variadic() ? "tensors" : "input";
  return op.inputs.size() == 2 && name == "b" ? "other" : name;
}

// The kind of an op's param is the alternative of its default.
SignatureParam param_of(const Param& param) {
  static constexpr ArgKind kKinds[] = {ArgKind::kTensor, ArgKind::kBool, ArgKind::kInt,  ArgKind::kFloat,
                                       ArgKind::kStr,    ArgKind::kInts, ArgKind::kDType};
  const size_t index = param.default_value.index();
  SLUICE_CHECK_KIND(kRuntime, index != 0, "forms: param '{}' does not say its type: its default is none; write a form",
                    param.name);
  return {.name = param.name,
          .kind = kKinds[index],
          .nullable = param.nullable,
          .single = index == 5,
          .required = param.required,
          .default_value = param.required ? Attr() : param.default_value};
}

Attr attr_of(const FormArg& arg) {
  return std::visit(
      [](const auto& v) -> Attr {
        if constexpr (std::is_constructible_v<Attr, decltype(v)>)
          return v;
        else
          fail(ErrorKind::kRuntime, "forms: a tensor was given as a param of an op; only inputs are tensors");
      },
      arg);
}

std::string text_of(const Signature& signature) {
  std::string text = signature.name + "(";
  for (const SignatureParam& param : signature.params) {
    if (&param != &signature.params[0]) text += ", ";
    text += arg_kind_name(param.kind);
    if (param.single) text.insert(text.size() - 1, "1");
    text += (param.nullable ? "? " : " ") + param.name;
    if (!param.required) text += "=" + python_default(param);
  }
  const char* const results[] = {"Tensor", "Tensor[]"};
  return text + ") -> " + results[signature.result == ResultKind::kTensors];
}

}  // namespace

namespace form_detail {

void check_readers(const Signature& signature, std::span<bool (*const)(const SignatureParam&)> readers) {
  const size_t wanted = signature.params.size() - signature.has_inplace();
  SLUICE_CHECK_KIND(kRuntime, readers.size() == wanted && signature.params.size() <= FormArgs::kMax,
                    "forms: '{}' has {} parameters; its function takes {}, and {} is the limit", signature.text, wanted,
                    readers.size(), FormArgs::kMax);
  for (size_t i = 0; i < wanted; ++i)
    SLUICE_CHECK_KIND(kRuntime, readers[i](signature.params[i]),
                      "forms: parameter '{}' of '{}' is of another type; it must be what its function takes",
                      signature.params[i].name, signature.text);
}

}  // namespace form_detail

Overload op_overload(const OpDef& op, Promotion promotion) {
  Signature signature{.name = op.name};
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool optional = std::string_view(op.inputs[i]).back() == '?';
    signature.params.push_back({.name = name_of_input(op, i),
                                .kind = op.variadic() ? ArgKind::kTensors : ArgKind::kTensor,
                                .nullable = optional,
                                .required = !optional});
  }
  for (const Param& param : op.params) signature.params.push_back(param_of(param));
  signature.result = op.num_outputs == 1 ? ResultKind::kTensor : ResultKind::kTensors;
  signature.text = text_of(signature);
  const bool floating = promotion == Promotion::kCommon && !takes_integers(op);
  const bool promote = promotion == Promotion::kCommon;
  Overload made{std::move(signature), [&op, promote, floating](FormArgs& args) -> FormResult {
                  std::vector<Value> inputs;
                  const size_t count = op.inputs.size();
                  if (op.variadic())
                    inputs = std::move(std::get<std::vector<Value>>(args[0]));
                  else
                    for (size_t i = 0; i < count; ++i) inputs.push_back(std::get<Value>(args[i]));
                  if (promote) promote_all(inputs, floating);
                  Attrs attrs;
                  for (size_t i = count; i < args.size(); ++i) attrs.push_back(attr_of(args[i]));
                  std::vector<Value> outputs = call(op, inputs, std::move(attrs));
                  if (op.num_outputs == 1) return std::move(outputs[0]);
                  return outputs;
                }};
  made.as_operand.resize(made.signature.params.size());
  return made;
}

void add_elementwise_forms(std::span<const OpDef* const> ops, std::vector<Form>* forms) {
  for (const OpDef* op : ops) {
    if (op->inputs.size() > 2 || !op->params.empty()) continue;
    const bool named = std::any_of(forms->begin(), forms->end(), [&](const Form& f) { return f.name() == op->name; });
    if (named) continue;
    forms->push_back(
        {.doc = op->doc, .overloads = {op_overload(*op, Promotion::kCommon)}, .in_place = true, .out = true});
  }
}

FormArg default_argument(const SignatureParam& param, bool as_operand) {
  const Attr& value = param.default_value;
  if (param.kind == ArgKind::kTensor && !as_operand) return Value();
  if (std::holds_alternative<NoAttr>(value)) return NoAttr();
  if (param.kind == ArgKind::kScalar || param.kind == ArgKind::kOperand) {
    if (const int64_t* i = std::get_if<int64_t>(&value)) return ops::Operand(*i);
    if (const bool* b = std::get_if<bool>(&value)) return ops::Operand(*b);
    return ops::Operand(std::get<double>(value));
  }
  return std::visit([](const auto& v) -> FormArg { return v; }, value);
}

}  // namespace sluice
