// Steps of optimizers on a parameter and its state: an op each.
#include "bindings.h"
#include "graph/ops/optimizer_updates.h"

namespace sluice::python {

void bind_updates(nb::module_& fn) {
  fn.def(
      "sgd_update",
      [](const Value& param, const Value& grad, const Value& lr, const OptionalValue& buffer, const OptionalValue& step,
         double momentum, double dampening, double weight_decay, bool nesterov, bool maximize) {
        return ops::sgd_update({param, grad, lr, buffer, step},
                               {momentum, dampening, weight_decay, nesterov, maximize});
      },
      Release(), nb::arg("param"), nb::arg("grad"), nb::arg("lr"), nb::arg("momentum_buffer").none(),
      nb::arg("step").none(), nb::arg("momentum"), nb::arg("dampening"), nb::arg("weight_decay"), nb::arg("nesterov"),
      nb::arg("maximize"));
  fn.def(
      "adam_update",
      [](const Value& param, const Value& grad, const Value& exp_avg, const Value& exp_avg_sq, const Value& step,
         const Value& lr, const OptionalValue& max_exp_avg_sq, std::pair<double, double> betas, double eps,
         double weight_decay, bool decoupled, bool maximize) {
        return ops::adam_update({param, grad, exp_avg, exp_avg_sq, step, lr, max_exp_avg_sq},
                                {betas.first, betas.second, eps, weight_decay, decoupled, maximize});
      },
      Release(), nb::arg("param"), nb::arg("grad"), nb::arg("exp_avg"), nb::arg("exp_avg_sq"), nb::arg("step"),
      nb::arg("lr"), nb::arg("max_exp_avg_sq").none(), nb::arg("betas"), nb::arg("eps"), nb::arg("weight_decay"),
      nb::arg("decoupled"), nb::arg("maximize"));
}

}  // namespace sluice::python
