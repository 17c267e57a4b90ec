#pragma once
// Casts of small integers to float that need no memory: C converts an element where it is read.
#include <map>
#include <utility>

#include "plan/plan.h"

namespace sluice::c {

struct CastsRead {
  plan::Plan plan;  // without those casts; whoever read their results reads their operands
  // Inputs (kernel, number) that are computed in another dtype than they lie in.
  std::map<std::pair<int, size_t>, DType> computed;
};
// REQUIRES: every actor fires once a step, in the order of the certificate.
CastsRead read_casts(const plan::Plan& plan);

}  // namespace sluice::c
