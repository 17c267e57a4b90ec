#include "runtime/session/strided_copy.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice {
namespace {

struct Bytes16 {
  uint64_t low, high;
};

template <class T>
void copy_elements(T* to, const Strides& to_strides, const T* from, const Strides& from_strides, const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) {
    *to = *from;
    return;
  }
  const int last = rank - 1;
  const int64_t rows = shape[last] == 0 ? 0 : numel(shape) / shape[last];
  Shape index = Shape::filled(rank, 0);
  int64_t t = 0, f = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < shape[last]; ++i) to[t + i * to_strides[last]] = from[f + i * from_strides[last]];
    for (int d = last - 1; d >= 0; --d) {
      t += to_strides[d];
      f += from_strides[d];
      if (++index[d] < shape[d]) break;
      t -= index[d] * to_strides[d];
      f -= index[d] * from_strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

void strided_copy(void* to, const TensorSpec& to_spec, const void* from, const TensorSpec& from_spec) {
  const size_t size = dtype_size(to_spec.dtype);
  const Shape& shape = to_spec.shape;
  const int64_t n = numel(shape);
  if (n == 0) return;
  if (to_spec.strides == from_spec.strides && is_dense(shape, to_spec.strides)) {
    std::memcpy(to, from, static_cast<size_t>(n) * size);
    return;
  }
  const auto copy = [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    copy_elements(static_cast<T*>(to), to_spec.strides, static_cast<const T*>(from), from_spec.strides, shape);
  };
  switch (size) {
    case 1: copy(static_cast<uint8_t*>(nullptr)); break;
    case 2: copy(static_cast<uint16_t*>(nullptr)); break;
    case 4: copy(static_cast<uint32_t*>(nullptr)); break;
    case 8: copy(static_cast<uint64_t*>(nullptr)); break;
    default: copy(static_cast<Bytes16*>(nullptr)); break;
  }
}

}  // namespace sluice
