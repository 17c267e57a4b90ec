#pragma once
// Reads what a query of fused_conv asks for behind its convolution, and where its operands are: one reading for all
// devices.
#include <string>

#include "plan/query.h"
#include "plan/target.h"

namespace sluice {

// Batch norm by given statistics, plus a residual, a relu. conv has a bias at most.
struct ConvTail {
  enum Input { kBias = 2, kMean, kVar, kScale, kShift, kResidual, kInputs };

  explicit ConvTail(const plan::KernelQuery& query) {
    const auto given = [&](size_t i) { return i < query.inputs.size() && query.inputs[i].shape.rank() > 0; };
    if (query.op != "conv" && query.op != "fused_conv") return;
    bias = given(kBias);
    if (query.op == "conv") return;
    norm = given(kMean);
    residual = given(kResidual);
    relu = get_attr<std::string>(query.attrs, "activation") == "relu";
    eps = get_attr<double>(query.attrs, "eps");
  }
  bool any() const { return norm || residual || relu; }  // behind the bias

  bool bias = false, norm = false, residual = false, relu = false;
  double eps = 0;
};

}  // namespace sluice
