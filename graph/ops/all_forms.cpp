// The list of all forms: one line per family.
#include <algorithm>
#include <map>

#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"

namespace sluice {
namespace {

// Inverse functions that have a longer name as well.
std::vector<const char*> aliases_of(const std::string& name) {
  static const std::map<std::string, const char*> kLonger = {{"acos", "arccos"}, {"acosh", "arccosh"},
                                                             {"asin", "arcsin"}, {"asinh", "arcsinh"},
                                                             {"atan", "arctan"}, {"atanh", "arctanh"}};
  const auto found = kLonger.find(name);
  return found == kLonger.end() ? std::vector<const char*>() : std::vector{found->second};
}

// Elementwise functions that no family spells are spelled as all of them are: of tensors, in place, into out=.
void add_elementwise(std::span<const ops::TensorFunction> functions, std::vector<Form>* forms) {
  for (const ops::TensorFunction& f : functions) {
    const std::string name = f.op->name;
    const auto spells = [&](const Form& form) { return form.module().empty() && form.name() == name; };
    if (std::any_of(forms->begin(), forms->end(), spells)) continue;
    Overload made = f.unary != nullptr ? overload(name + "(Tensor input) -> Tensor", f.unary)
                                       : overload(name + "(Tensor input, Tensor other) -> Tensor", f.binary);
    forms->push_back({.doc = f.op->doc,
                      .overloads = {std::move(made)},
                      .aliases = aliases_of(name),
                      .in_place = true,
                      .out = true,
                      .reads_once = true});
  }
}

}  // namespace

const std::vector<Form>& builtin_forms() {
  static const std::vector<Form> forms = [] {
    std::vector<Form> all;
    for (auto family : {&ops::arithmetic_forms, &ops::reduction_forms, &ops::shaping_forms, &ops::indexing_forms,
                        &ops::matmul_forms,     &ops::linalg_forms,    &ops::norm_forms,    &ops::special_forms,
                        &ops::window_forms,     &ops::pooling_forms,   &ops::network_forms, &ops::activation_forms,
                        &ops::loss_forms,       &ops::distance_forms,  &ops::spatial_forms, &ops::diagonal_forms,
                        &ops::stacking_forms,   &ops::product_forms,   &ops::order_forms,   &ops::statistics_forms,
                        &ops::numeric_forms,    &ops::complex_forms,   &ops::fft_forms}) {
      std::vector<Form> of_family = family();
      all.insert(all.end(), std::make_move_iterator(of_family.begin()), std::make_move_iterator(of_family.end()));
    }
    for (auto functions : {ops::unary_functions(), ops::binary_functions(), ops::comparison_functions()})
      add_elementwise(functions, &all);
    return all;
  }();
  return forms;
}

}  // namespace sluice
