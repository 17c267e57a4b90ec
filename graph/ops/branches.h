#pragma once
// case and esac: a value goes in one of several directions, and where these meet again there is one value.
//
// In a plan, what is not chosen is void, and kernels that read it do not run (ADR 24). Elsewhere (eager calls, devices
// whose kernels cannot say what is void) it is zeros, everything runs, and esac chooses.
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace sluice::ops {

// n values, of which number `index` (a scalar: bool, int32 or int64) is x.
std::vector<Value> case_of(const Value& index, const Value& x, int64_t n);
// The value with number `index`. All have one type.
Value esac(const Value& index, std::span<const Value> xs);

const OpDef& case_op();
const OpDef& esac_op();
std::span<const OpDef* const> branches_ops();

}  // namespace sluice::ops
