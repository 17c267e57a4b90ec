#pragma once
// torch.einsum: sums of products by an equation of labels.
#include <string>
#include <vector>

#include "graph/value.h"

namespace sluice::ops {

// "ij,jk->ik", "bii->b", "...ij->...ji": one label per dim; those not in the result are summed over. Without "->" the
// result has "..." and then the labels that occur once, in alphabetical order.
Value einsum(const std::string& equation, const std::vector<Value>& operands);

}  // namespace sluice::ops
