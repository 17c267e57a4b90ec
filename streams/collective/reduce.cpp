#include "streams/collective/reduce.h"

#include <type_traits>

#include "base/error.h"

namespace sluice::collective {
namespace {

// 16-bit floats are reduced in float32 and rounded after each step.
template <class T>
auto widened(T v) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return to_float(v);
  else
    return v;
}
template <class T, class Wide>
T narrowed(Wide v) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(v);
  else if constexpr (std::is_same_v<T, Float16>)
    return to_float16(v);
  else
    return static_cast<T>(v);
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)  // wraps around, as integers do
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

template <class Op, class T>
void reduce(void* out, const void* a, const void* b, size_t elements) {
  auto* to = static_cast<T*>(out);
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (size_t i = 0; i < elements; ++i) to[i] = narrowed<T>(Op()(widened(x[i]), widened(y[i])));
}

template <class Op>
ReduceFunction function_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return nullptr;
    case DType::kUInt8: return &reduce<Op, uint8_t>;
    case DType::kInt8: return &reduce<Op, int8_t>;
    case DType::kInt16: return &reduce<Op, int16_t>;
    case DType::kInt32: return &reduce<Op, int32_t>;
    case DType::kInt64: return &reduce<Op, int64_t>;
    case DType::kFloat16: return &reduce<Op, Float16>;
    case DType::kBFloat16: return &reduce<Op, BFloat16>;
    case DType::kFloat32: return &reduce<Op, float>;
    case DType::kFloat64: return &reduce<Op, double>;
    case DType::kComplex64:
    case DType::kComplex128: return nullptr;
  }
  return nullptr;
}

template <class T>
void divide_all(void* data, int64_t elements, int n) {
  auto* values = static_cast<T*>(data);
  for (int64_t i = 0; i < elements; ++i) values[i] = narrowed<T>(widened(values[i]) / static_cast<float>(n));
}

}  // namespace

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProduct: return "product";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kAverage: return "average";
  }
  return "?";
}

ReduceFunction reduce_function(ReduceOp op, DType dtype) {
  ReduceFunction function = nullptr;
  switch (op) {
    case ReduceOp::kSum: function = function_of<Sum>(dtype); break;
    case ReduceOp::kProduct: function = function_of<Product>(dtype); break;
    case ReduceOp::kMin: function = function_of<Min>(dtype); break;
    case ReduceOp::kMax: function = function_of<Max>(dtype); break;
    case ReduceOp::kAverage: function = is_floating(dtype) ? function_of<Sum>(dtype) : nullptr; break;
  }
  if (function == nullptr)
    fail(ErrorKind::kType,
         "{} of {} is not defined; bool and complex numbers have no reduction (reduce view_as_real), and an average "
         "needs a floating dtype",
         reduce_op_name(op), dtype_name(dtype));
  return function;
}

void divide(void* data, DType dtype, int64_t elements, int n) {
  switch (dtype) {
    case DType::kFloat16: return divide_all<Float16>(data, elements, n);
    case DType::kBFloat16: return divide_all<BFloat16>(data, elements, n);
    case DType::kFloat32: return divide_all<float>(data, elements, n);
    case DType::kFloat64: return divide_all<double>(data, elements, n);
    default: fail(ErrorKind::kType, "average of {} is not defined; it needs a floating dtype", dtype_name(dtype));
  }
}

}  // namespace sluice::collective
