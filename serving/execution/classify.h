#pragma once
#include "serving/execution/ports.h"

namespace sluice::serving {

// Makes text of the `classes` largest of a response's tensor.
void classify(Tensor& tensor, uint32_t classes, const ShownPort& port, bool batched);

}  // namespace sluice::serving
