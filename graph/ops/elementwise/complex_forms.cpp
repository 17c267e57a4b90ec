// Torch's spelling of functions of complex numbers.
#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"

namespace sluice::ops {
namespace {

Value polar(const Value& size, const Value& angle) {
  check_parts(size, angle);
  return complex(mul(size, cos(angle)), mul(size, sin(angle)));
}

Value imag(const Value& z) {
  SLUICE_CHECK_KIND(kRuntime, is_complex(z.dtype()),
                    "imag: imag is not implemented for tensors with non-complex dtypes: {}", dtype_name(z.dtype()));
  return imaginary_part(z);
}

Value isreal(const Value& x) {
  return is_complex(x.dtype()) ? eq(imaginary_part(x), 0) : full(x.shape(), 1, DType::kBool);
}

Value itself(const Value& x) { return x; }

Form of_one(const char* name, const char* doc, Value (*f)(const Value&), Sharing sharing) {
  const std::string signature = std::string(name) + "(Tensor input) -> Tensor";
  return {.doc = doc, .overloads = {overload(signature, f)}, .sharing = sharing};
}

Form function(Form form) {
  form.method = false;
  return form;
}

}  // namespace

std::vector<Form> complex_forms() {
  std::vector<Form> forms = {
      {.doc = "Complex numbers of their real and imaginary parts. torch.complex.",
       .overloads = {overload("complex(Tensor real, Tensor imag) -> Tensor", &complex)},
       .method = false,
       .out = true},
      {.doc = "Complex numbers of absolute values and angles. torch.polar.",
       .overloads = {overload("polar(Tensor abs, Tensor angle) -> Tensor", &polar)},
       .method = false,
       .out = true},
      function(of_one("real", "The real part, a view; of real numbers the input itself. torch.real.", &real_part,
                      Sharing::kItself)),
      function(of_one("imag", "The imaginary part, a view. torch.imag.", &imag, Sharing::kView)),
      function(of_one("view_as_real", "The parts as a last dim of size 2, a view. torch.view_as_real.", &view_as_real,
                      Sharing::kView)),
      function(of_one("view_as_complex", "A last dim of two parts as complex numbers, a view. torch.view_as_complex.",
                      &view_as_complex, Sharing::kView)),
      of_one("conj", "The conjugate, in memory of its own; of real numbers the input itself. torch.conj.", &conjugate,
             Sharing::kItself),
      of_one("conj_physical", "The conjugate; of real numbers the input itself. torch.conj_physical.", &conjugate,
             Sharing::kItself),
      of_one("resolve_conj", "The input itself: conjugates are always computed. torch.resolve_conj.", &itself,
             Sharing::kItself),
      of_one("resolve_neg", "The input itself: negatives are always computed. torch.resolve_neg.", &itself,
             Sharing::kItself),
      {.doc = "Whether the imaginary part is 0, bool. torch.isreal.",
       .overloads = {overload("isreal(Tensor input) -> Tensor", &isreal)}},
  };
  for (Form& form : forms)
    if (form.name() == "conj_physical") form.in_place = form.out = true;
  return forms;
}

}  // namespace sluice::ops
