#pragma once
// The largest elements of an output, as text.
#include <string>
#include <vector>

#include "serving/core/request.h"

namespace sluice::serving {

// Makes BYTES of the tensor: "<value>:<index>[:<label>]" of the `classes` largest elements of each row, or of all where
// there are no batches; in descending order, of equal ones the first before the others, NaN behind all numbers. Throws
// kInvalidArgument for text, and for more than a million elements.
void classify(Tensor& tensor, uint32_t classes, const std::vector<std::string>& labels, bool batched);

}  // namespace sluice::serving
