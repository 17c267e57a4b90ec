// Optimizer steps, each one pass; lr and step are read where they lie, on the device.
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

// Param, gradient and state by element i; the outputs replace all but the gradient.
Writer begin(const plan::KernelQuery& query, size_t inputs) {
  Writer writer(query, inputs);
  writer.compute(query.inputs[0].dtype);
  writer.number("kDecay", get_attr<double>(query.attrs, "weight_decay"));
  writer.number("kSign", get_attr<bool>(query.attrs, "maximize") ? -1 : 1);
  // Without decay a parameter that is infinite adds nothing.
  writer.add("__device__ C decayed(C grad, C param) { return kDecay == 0 ? grad : grad + kDecay * param; }\n");
  return writer;
}

Generated sgd(const plan::KernelQuery& query) {
  return {{begin(query, 3).each("", numel(query.inputs[0].shape), R"(    const C lr = (C)load(*in2), p = load(in0[i]);
    store(out0 + i, p - lr * decayed(kSign * load(in1[i]), p));
)")}};
}

Generated sgd_momentum(const plan::KernelQuery& query) {
  Writer writer = begin(query, 5);
  writer.number("kMomentum", get_attr<double>(query.attrs, "momentum"));
  writer.number("kTaken", 1 - get_attr<double>(query.attrs, "dampening"));
  writer.add(fmt::format("constexpr bool kNesterov = {};\n", get_attr<bool>(query.attrs, "nesterov")));
  return {{writer.each("", numel(query.inputs[0].shape), R"(    const bool first = in4 != 0 && (double)load(*in4) == 1;
    const C lr = (C)load(*in3), p = load(in0[i]), g = decayed(kSign * load(in1[i]), p);
    const C b = (first ? (C)0 : kMomentum) * load(in2[i]) + (first ? (C)1 : kTaken) * g;
    store(out1 + i, b);
    store(out0 + i, p - lr * (kNesterov ? g + kMomentum * b : b));
)")}};
}

Generated adam(const plan::KernelQuery& query) {
  const bool amsgrad = query.op == "amsgrad_update";
  Writer writer = begin(query, amsgrad ? 7 : 6);
  const double beta1 = get_attr<double>(query.attrs, "beta1"), beta2 = get_attr<double>(query.attrs, "beta2");
  writer.number("kBeta2", beta2);
  writer.number("kTake1", 1 - beta1);
  writer.number("kTake2", 1 - beta2);
  writer.number("kEps", get_attr<double>(query.attrs, "eps"));
  writer.add(fmt::format("constexpr bool kDecoupled = {}, kAmsgrad = {};\n", get_attr<bool>(query.attrs, "decoupled"),
                         amsgrad));
  const std::string step = amsgrad ? "in5" : "in4", lr = amsgrad ? "in6" : "in5";
  // Powers take far longer than an element: once for each thread, not for each element.
  const std::string before = fmt::format(R"(  const double step = (double)load(*{}), lr = (double)load(*{});
  const C rate = (C)(lr / (1 - pow({}, step))), root2 = (C)(1 / sqrt(1 - pow({}, step)));
)",
                                         step, lr, number_text(beta1), number_text(beta2));
  return {{writer.each(
      "", numel(query.inputs[0].shape),
      std::string(R"(    C p = load(in0[i]);
    const C grad = kSign * load(in1[i]), g = kDecoupled ? grad : decayed(grad, p), m0 = load(in2[i]);
    const C m = m0 + kTake1 * (g - m0), v = kBeta2 * load(in3[i]) + kTake2 * g * g;
    C top = v;
)") +
          (amsgrad ? R"(    const C old = load(in4[i]);
    top = old > v ? old : v;
    store(out3 + i, top);
)"
                   : "") +
          R"(    p = (kDecoupled ? (C)(1 - lr * kDecay) : (C)1) * p - rate * (m / (sqrt(top) * root2 + kEps));
    store(out0 + i, p);
    store(out1 + i, m);
    store(out2 + i, v);
)",
      before)}};
}

}  // namespace

void add_optimizer_update_kernels(KernelTable& table) {
  add_generated(table, "sgd_update", sgd);
  add_generated(table, "sgd_momentum_update", sgd_momentum);
  add_generated(table, "adam_update", adam);
  add_generated(table, "amsgrad_update", adam);
}

}  // namespace sluice::cuda
