#pragma once
// Contents of tensors as plain numbers of the host.
#include <vector>

#include "graph/tape.h"
#include "tensor/tensor.h"

namespace sluice {

// The contents in row-major order as `dtype`, whose C++ type T is. Waits for the steps that make them.
template <class T>
std::vector<T> host_values(const Value& x, DType dtype) {
  const GradMode no_grad(false);
  const Tensor t = Tensor(x).detach().to(dtype);
  std::vector<T> values(static_cast<size_t>(t.size()));
  t.copy_to_host(values.data());
  return values;
}

}  // namespace sluice
