#include "kernels/cuda/cudnn_graph.h"

namespace sluice::cuda {

std::optional<cudnnDataType_t> cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return CUDNN_DATA_FLOAT;
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    default: return std::nullopt;
  }
}

CudnnDescriptor cudnn_tensor(const CudnnMaker& maker, const CudnnTensor& tensor) {
  std::vector<int64_t> strides = tensor.strides;
  if (strides.empty()) {
    strides.assign(tensor.sizes.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * tensor.sizes[d];
  }
  std::vector<CudnnAttribute> attributes = {{CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.uid},
                                            {CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type},
                                            {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, tensor.alignment},
                                            {CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.sizes},
                                            {CUDNN_ATTR_TENSOR_STRIDES, strides}};
  static constexpr bool kYes = true;
  if (tensor.in == CudnnTensor::In::kNothing) attributes.emplace_back(CUDNN_ATTR_TENSOR_IS_VIRTUAL, kYes);
  if (tensor.in == CudnnTensor::In::kCall) attributes.emplace_back(CUDNN_ATTR_TENSOR_IS_BY_VALUE, kYes);
  return maker.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes);
}

CudnnDescriptor cudnn_pointwise(const CudnnMaker& maker, const CudnnPointwise& p) {
  std::vector<CudnnAttribute> what = {{CUDNN_ATTR_POINTWISE_MODE, p.mode}, {CUDNN_ATTR_POINTWISE_MATH_PREC, p.compute}};
  if (p.axis) what.emplace_back(CUDNN_ATTR_POINTWISE_AXIS, *p.axis);
  const CudnnDescriptor how = maker.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
  std::vector<CudnnAttribute> operation = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how},
                                           {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x},
                                           {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y}};
  if (p.b != nullptr) operation.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *p.b);
  if (p.t != nullptr) operation.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *p.t);
  return maker.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, operation);
}

}  // namespace sluice::cuda
