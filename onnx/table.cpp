#include "onnx/table.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tensor/forms/forms.h"

namespace sluice::onnx {
namespace {

using Lists = Entries (*)();
constexpr Lists kLists[] = {
    elementwise_entries,   reduction_entries, shape_entries,     indexing_entries,     network_entries, pooling_entries,
    normalization_entries, attention_entries, recurrent_entries, quantization_entries, loss_entries,    image_entries,
    signal_entries,        control_entries,   sequence_entries,  creation_entries,     training_entries};

const std::map<std::string, Entry>& table() {
  static const std::map<std::string, Entry> entries = [] {
    std::map<std::string, Entry> all;
    for (const Lists list : kLists)
      for (Entry& entry : list()) {
        const std::string name = entry.op;
        SLUICE_CHECK_KIND(kRuntime, all.emplace(name, std::move(entry)).second, "onnx: entry '{}' is there twice",
                          name);
      }
    return all;
  }();
  return entries;
}

const Form* find_form(const std::string& name) {
  for (const std::vector<Form>* forms : {&builtin_forms(), &tensor_forms()})
    for (const Form& form : *forms)
      for (const Overload& overload : form.overloads)
        if (overload.signature.qualified() == name) return &form;
  return nullptr;
}

bool fits(const FormArg& arg, const SignatureParam& param) {
  if (std::holds_alternative<NoAttr>(arg)) return param.nullable || !param.required;
  switch (param.kind) {
    case ArgKind::kTensor: return std::holds_alternative<Value>(arg);
    case ArgKind::kTensors: return std::holds_alternative<std::vector<Value>>(arg);
    case ArgKind::kOperand:
    case ArgKind::kScalar: return std::holds_alternative<ops::Operand>(arg) || std::holds_alternative<Value>(arg);
    case ArgKind::kInt: return std::holds_alternative<int64_t>(arg);
    case ArgKind::kFloat: return std::holds_alternative<double>(arg);
    case ArgKind::kBool: return std::holds_alternative<bool>(arg);
    case ArgKind::kStr: return std::holds_alternative<std::string>(arg);
    case ArgKind::kDType: return std::holds_alternative<DType>(arg);
    case ArgKind::kInts: return std::holds_alternative<Ints>(arg);
    case ArgKind::kFloats: return std::holds_alternative<std::vector<double>>(arg);
  }
  return false;
}

bool fits(const std::vector<FormArg>& args, const Overload& overload) {
  const auto& params = overload.signature.params;
  if (args.size() > params.size()) return false;
  for (size_t i = 0; i < params.size(); ++i)
    if (i < args.size() ? !fits(args[i], params[i]) : params[i].required) return false;
  return true;
}

}  // namespace

const Entry* find_entry(const std::string& domain, const std::string& op) {
  const auto found = table().find(domain.empty() ? op : domain + ":" + op);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string> all_entries() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : table()) names.push_back(name);
  return names;
}

FormResult torch_function(const char* name, std::vector<FormArg> args) {
  const Form* form = find_form(name);
  SLUICE_CHECK_KIND(kRuntime, form, "onnx: function '{}' is missing; must be one of Sluice's", name);
  for (const Overload& overload : form->overloads) {
    if (!fits(args, overload)) continue;
    FormArgs given;
    for (size_t i = 0; i < overload.signature.params.size() - overload.signature.has_inplace(); ++i) {
      const bool as_operand = i < overload.as_operand.size() && overload.as_operand[i];
      const bool is_given = i < args.size() && !std::holds_alternative<NoAttr>(args[i]);
      const SignatureParam& param = overload.signature.params[i];
      if (!is_given && param.required)  // nullable, and said to be none
        given.push(NoAttr());
      else if (!is_given)
        given.push(default_argument(param, as_operand));
      else if (as_operand && std::holds_alternative<Value>(args[i]))
        given.push(ops::Operand(std::get<Value>(args[i])));
      else
        given.push(args[i]);
    }
    return overload.function(given);
  }
  fail(ErrorKind::kRuntime, "onnx: function '{}' takes no such arguments", name);
}

}  // namespace sluice::onnx
