#pragma once
// Forms as Python callables.
#include <string>
#include <vector>

#include "form_args.h"

namespace sluice::python {

// Says what a call of a form does with its result.
enum class FormUse : uint8_t {
  kPlain,            // returns it
  kInPlace,          // writes it into the first argument
  kOperator,         // returns it; NotImplemented for an operand of an unknown type
  kReflected,        // the same with its two arguments exchanged
  kInPlaceOperator,  // x += y
};

// Which dtype floats are brought to before the form runs in mixed precision (autocast.h).
enum class CastPolicy : uint8_t { kNone, kLower, kFloat32, kWidest };

// A form under one name. Lives as long as the interpreter.
struct BoundForm {
  const char* doc;
  std::string name, qualified, module;
  std::vector<BoundOverload> overloads;
  FormUse use = FormUse::kPlain;
  bool method = false;
  bool takes_out = false;
  bool reads_once = false;
  Sharing sharing = Sharing::kNothing;
  CastPolicy autocast = CastPolicy::kNone;
  // Called with arguments that no signature fits, by Python's choice; NotImplemented: they are wrong for it, too.
  mutable nb::handle otherwise{};
  mutable nb::handle object{};  // what it is in Python
};

// The name of the type of named results, as torch has them: svd and linalg.svd have types of their own.
std::string result_name(const Signature& signature);
nb::object form_object(const BoundForm* form);

PyObject* call_form(const BoundForm& form, const PythonCall& call);

// Objects of this Python type stand where tensors do, as fx's proxies and sparse tensors: a form that they do not fit
// returns what `function(form, args, keywords)` gives for them.
void register_stand_in(nb::type_object type, nb::object function);
// That result for the first argument, or entry of an argument, that stands in for a tensor; invalid: there is none, or
// it is NotImplemented.
nb::object call_stand_in(const BoundForm& form, const PythonCall& call);

}  // namespace sluice::python
