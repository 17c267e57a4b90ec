// Puts every form where it exists: modules of functions, methods and operators of Tensor.
#include "tensor/forms/forms.h"

#include <map>

#include "autocast.h"

namespace sluice::python {
namespace {

PyObject* interned(const std::string& name) { return PyUnicode_InternFromString(name.c_str()); }

// The names that torch accepts for NumPy's sake.
std::vector<PyObject*> numpy_names(const std::string& name) {
  static const std::map<std::string, std::vector<const char*>> kNames = {
      {"dim", {"axis"}}, {"keepdim", {"keepdims"}}, {"input", {"x", "a", "x1"}}, {"other", {"x2"}}};
  std::vector<PyObject*> names;
  if (const auto found = kNames.find(name); found != kNames.end())
    for (const char* other : found->second) names.push_back(interned(other));
  return names;
}

class FormBinder {
 public:
  FormBinder(nb::module_& m, nb::module_& fn, nb::class_<Tensor>& tensor)
      : module_(m), fn_(fn), tensor_(tensor), types_(m.def_submodule("return_types", "Types of named results.")) {}

  void bind(const Form& form) {
    std::vector<std::string> names = {form.module().empty() ? form.name() : form.module() + "." + form.name()};
    names.insert(names.end(), form.aliases.begin(), form.aliases.end());
    for (const std::string& name : names) bind_name(form, name);
    if (form.python_operator == nullptr) return;
    const std::string name = form.python_operator;
    add_method(form, "__" + name + "__", FormUse::kOperator);
    if (form.reflected) add_method(form, "__r" + name + "__", FormUse::kReflected);
    if (form.reflected && form.in_place) add_method(form, "__i" + name + "__", FormUse::kInPlaceOperator);
  }

 private:
  void bind_name(const Form& form, const std::string& name) {
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos) {
      add_function(form, module_of(name.substr(0, dot)), name.substr(dot + 1), "sluice." + name.substr(0, dot));
      return;
    }
    if (form.function) add_function(form, fn_, name, "sluice");
    if (form.method) add_method(form, name, FormUse::kPlain);
    if (form.in_place) add_method(form, name + "_", FormUse::kInPlace);
  }

  // The functions of "nn.functional" are in _C.functional, from which sluice.nn.functional takes them.
  nb::module_ module_of(const std::string& name) {
    const std::string last = name.substr(name.rfind('.') + 1);
    if (!nb::hasattr(module_, last.c_str()))
      module_.def_submodule(last.c_str(), ("Functions of sluice." + name).c_str());
    return nb::borrow<nb::module_>(module_.attr(last.c_str()));
  }

  void add_function(const Form& form, nb::handle module, const std::string& name, const std::string& public_module) {
    BoundForm* bound = make(form, name, FormUse::kPlain);
    bound->module = public_module;
    bound->qualified = name;
    bound->takes_out = form.out;
    module.attr(name.c_str()) = form_object(bound);
    if (!nb::hasattr(module, "__all__")) module.attr("__all__") = nb::list();
    module.attr("__all__").attr("append")(name);
  }

  void add_method(const Form& form, const std::string& name, FormUse use) {
    BoundForm* bound = make(form, name, use);
    bound->module = "sluice";
    bound->qualified = "Tensor." + name;
    bound->method = true;
    std::erase_if(bound->overloads, [](const BoundOverload& o) {  // pow(2, x) is no method of x
      const ArgKind kind = o.params[0].param->kind;
      return kind != ArgKind::kTensor && kind != ArgKind::kOperand;
    });
    for (BoundOverload& overload : bound->overloads)
      if (overload.num_positional == 2 && overload.params[1].kind == ArgKind::kInts) overload.varargs = 1;
    tensor_.attr(name.c_str()) = form_object(bound);
  }

  BoundForm* make(const Form& form, const std::string& name, FormUse use) {
    auto* bound = new BoundForm{form.doc, name, "", "", {}, use};  // as long as the interpreter
    bound->sharing = form.sharing;
    bound->reads_once = form.reads_once;
    register_autocast(form.name(), bound);
    for (const Overload& overload : form.overloads) {
      BoundOverload& made =
          bound->overloads.emplace_back(BoundOverload{&overload,
                                                      {},
                                                      static_cast<size_t>(overload.signature.num_positional()),
                                                      -1,
                                                      result_type(overload.signature)});
      for (size_t i = 0; i < overload.signature.params.size(); ++i) {
        const SignatureParam& param = overload.signature.params[i];
        const bool operand = overload.as_operand[i];
        const bool number_too = i == 0 && operand && use == FormUse::kReflected;
        made.params.push_back({&param, number_too ? ArgKind::kOperand : param.kind, interned(param.name),
                               numpy_names(param.name), operand,
                               param.required ? FormArg() : default_argument(param, operand)});
        if (param.variadic) made.varargs = static_cast<int>(i);
      }
    }
    return bound;
  }

  // torch.return_types.max: a tuple whose entries have names.
  nb::handle result_type(const Signature& signature) {
    if (signature.fields.empty() || signature.fields[0].empty()) return {};
    const std::string own = result_name(signature);
    if (nb::hasattr(types_, own.c_str())) return types_.attr(own.c_str());
    auto* fields = new std::vector<PyStructSequence_Field>();  // kept: the type points to the names
    for (const std::string& field : signature.fields) fields->push_back({field.c_str(), nullptr});
    fields->push_back({nullptr, nullptr});
    auto* name = new std::string("sluice.return_types." + own);
    PyStructSequence_Desc description{name->c_str(), nullptr, fields->data(),
                                      static_cast<int>(signature.fields.size())};
    nb::object type = nb::steal(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&description)));
    types_.attr(own.c_str()) = type;
    return type;  // the module keeps it
  }

  nb::module_& module_;
  nb::module_& fn_;
  nb::class_<Tensor>& tensor_;
  nb::module_ types_;
};

}  // namespace

void bind_forms(nb::module_& m, nb::module_& fn, nb::class_<Tensor>& tensor) {
  set_tensor_type(tensor);
  FormBinder binder(m, fn, tensor);
  for (const Form& form : builtin_forms()) binder.bind(form);
  for (const Form& form : tensor_forms()) binder.bind(form);
  m.def("register_stand_in", register_stand_in, nb::arg("type"), nb::arg("function"),
        "Objects of `type` stand where tensors do: a form that is called with one among its arguments, or in a list of "
        "them, and that they do not fit returns function(form, args, keywords), unless that is NotImplemented.");
}

}  // namespace sluice::python
