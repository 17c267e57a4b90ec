// The list of all forms: one line per family.
#include "graph/ops/comparison.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"

namespace sluice {

const std::vector<Form>& builtin_forms() {
  static const std::vector<Form> forms = [] {
    std::vector<Form> all;
    for (auto family : {&ops::arithmetic_forms, &ops::reduction_forms, &ops::shaping_forms, &ops::indexing_forms,
                        &ops::matmul_forms, &ops::window_forms, &ops::network_forms}) {
      std::vector<Form> of_family = family();
      all.insert(all.end(), std::make_move_iterator(of_family.begin()), std::make_move_iterator(of_family.end()));
    }
    for (auto ops : {ops::unary_ops(), ops::binary_ops(), ops::comparison_ops()}) add_elementwise_forms(ops, &all);
    return all;
  }();
  return forms;
}

}  // namespace sluice
