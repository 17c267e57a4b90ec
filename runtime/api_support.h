#pragma once
// What the bodies of the public API share: errors and types change at that border, nothing else does.
#include <new>
#include <utility>

#include "base/error.h"
#include "base/tensor_spec.h"
#include "include/sluice/error.h"
#include "include/sluice/tensor.h"

namespace sluice::api {

// Made before memory can run out. Copying it allocates nothing.
const Error& out_of_memory();

// Calls f; an Error of Sluice's own becomes the API's, as does the lack of memory.
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const sluice::Error& error) {
    try {
      throw Error(static_cast<ErrorKind>(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
  } catch (const std::bad_alloc&) {
    throw out_of_memory();
  }
}

inline TensorType type_of(const Tensor& tensor) {
  return {static_cast<sluice::DType>(tensor.dtype()), Shape(tensor.shape())};
}

}  // namespace sluice::api
