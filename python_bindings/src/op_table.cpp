// _C.ops: every OpDef as a callable whose signature, defaults and docs come from the definition itself.
#include <map>
#include <string>

#include "attributes.h"
#include "bindings.h"
#include "graph/calls/made_of.h"
#include "graph/executor.h"
#include "tensor/eager.h"
#include "tensor/extension.h"

namespace sluice::python {
namespace {

struct OpCallable {
  const OpDef* op;
};

std::string signature(const OpDef& op) {
  std::string text = "(";
  const auto add = [&](const std::string& part) { text += (text.size() > 1 ? ", " : "") + part; };
  for (std::string_view input : op.inputs) {
    if (input.back() == '?')
      add(std::string(input.substr(0, input.size() - 1)) + ": Tensor | None = None");
    else if (input.back() == '*')
      add(std::string(input.substr(0, input.size() - 1)) + ": Sequence[Tensor]");
    else
      add(std::string(input) + ": Tensor");
  }
  for (const Param& param : op.params) {
    std::string part = std::string(param.name) + ": " + attr_type(param);
    if (!param.required) part += " = " + attr_str(param.default_value);
    add(part);
  }
  return text + ")";
}

Value value_from(nb::handle object, const char* input, const OpDef& op) {
  nb::detail::make_caster<Value> caster;
  if (!caster.from_python(object, 0, nullptr))
    fail(ErrorKind::kType, "{}: argument '{}' is {}; must be a Tensor", op.name, input, Py_TYPE(object.ptr())->tp_name);
  return std::move(caster.value);
}

void add_input(std::vector<Value>& inputs, nb::handle object, std::string_view name, const OpDef& op) {
  if (name.back() == '*') {
    for (nb::handle item : nb::borrow<nb::iterable>(object)) inputs.push_back(value_from(item, name.data(), op));
  } else if (object.is_none() && name.back() == '?') {
    inputs.emplace_back();
  } else {
    inputs.push_back(value_from(object, name.data(), op));
  }
}

nb::object call_op(const OpDef& op, const nb::args& args, const nb::kwargs& kwargs) {
  const size_t num_inputs = op.inputs.size(), num_params = op.params.size();
  if (args.size() > num_inputs + num_params)
    fail(ErrorKind::kType, "{}: got {} arguments; takes {}", op.name, args.size(), signature(op));
  std::vector<Value> inputs;
  Attrs attrs;
  size_t used = 0;
  const auto find = [&](size_t i, std::string_view name) -> nb::object {
    if (i < args.size()) return args[i];
    nb::str key(name.data(), name.size());
    if (!kwargs.contains(key)) return {};
    ++used;
    return kwargs[key];
  };
  for (size_t i = 0; i < num_inputs; ++i) {
    const std::string_view full = op.inputs[i];
    const bool marked = full.back() == '?' || full.back() == '*';
    nb::object given = find(i, full.substr(0, full.size() - marked));
    if (!given.is_valid() && full.back() != '?')
      fail(ErrorKind::kType, "{}: missing argument '{}'; takes {}", op.name, full, signature(op));
    if (given.is_valid())
      add_input(inputs, given, full, op);
    else
      inputs.emplace_back();
  }
  for (size_t i = 0; i < num_params; ++i) {
    nb::object given = find(num_inputs + i, op.params[i].name);
    if (!given.is_valid() && op.params[i].required)
      fail(ErrorKind::kType, "{}: missing argument '{}'; takes {}", op.name, op.params[i].name, signature(op));
    attrs.push_back(given.is_valid() ? attr_from(given, op.params[i], op) : op.params[i].default_value);
  }
  if (used != kwargs.size()) {
    for (auto [key, unused] : kwargs) {
      const std::string name = nb::cast<std::string>(key);
      bool known = op.find_param(name) >= 0;
      for (std::string_view input : op.inputs)
        known |= input.substr(0, name.size()) == name && input.size() <= name.size() + 1;
      if (!known) fail(ErrorKind::kType, "{}: unexpected argument '{}'; takes {}", op.name, name, signature(op));
    }
  }
  std::vector<Value> outputs;
  {
    GilRelease release;
    outputs = call(op, inputs, std::move(attrs));
    inputs.clear();
  }
  if (outputs.size() == 1) return nb::cast(outputs[0]);
  nb::list list;
  for (const Value& output : outputs) list.append(nb::cast(output));
  return nb::tuple(list);
}

}  // namespace

void bind_op_table(nb::module_& m) {
  nb::module_ ops = m.def_submodule("ops", "Primitive ops, one callable per op definition.");
  nb::class_<OpCallable>(ops, "Op")
      .def("__call__", [](const OpCallable& self, const nb::args& args,
                          const nb::kwargs& kwargs) { return call_op(*self.op, args, kwargs); })
      .def("__getattr__",
           [](const OpCallable& self, const std::string& name) {
             if (name == "__name__") return self.op->name;  // a class cannot define this one as a property
             throw nb::attribute_error(name.c_str());
           })
      .def_prop_ro("__doc__",
                   [](const OpCallable& self) {
                     return std::string(self.op->name) + signature(*self.op) + "\n\n" +
                            (self.op->doc ? self.op->doc : "");
                   })
      .def_prop_ro("signature", [](const OpCallable& self) { return signature(*self.op); })
      .def_prop_ro("differentiable", [](const OpCallable& self) { return self.op->grad || self.op->decompose; })
      .def("__repr__",
           [](const OpCallable& self) { return "<op " + std::string(self.op->name) + signature(*self.op) + ">"; });
  nb::list names;
  const auto add = [](nb::handle module, nb::handle all, const OpDef* op) {
    if (nb::hasattr(module, op->name)) return;
    module.attr(op->name) = nb::cast(OpCallable{op});
    all.attr("append")(op->name);
  };
  for (const OpDef* op : builtin_ops().all()) add(ops, names, op);
  ops.attr("__all__") = names;
  m.def(
      "composition",
      [] {
        std::map<std::string, std::vector<std::string>> composition;
        for (const OpDef* op : builtin_ops().all()) composition.emplace(op->name, graph::made_of(*op));
        return composition;
      },
      "By the name of each op that comes with Sluice: what its decomposition calls; nothing of a primitive op.");
  ops.def(
      "load_library",
      [ops, names, add](nb::handle path) {
        const std::string file = nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
        std::vector<const OpDef*> loaded;
        {
          GilRelease release;
          loaded = load_extension(default_eager(), file);
        }
        nb::list added;
        for (const OpDef* op : loaded) {
          add(ops, names, op);
          added.append(op->name);
        }
        return added;
      },
      nb::arg("path"),
      "Loads a shared library of ops and kernels (docs/embedding.md) into the default engine; its ops become functions "
      "of this module. Returns their names. Loading it again changes nothing.");
}

}  // namespace sluice::python
