#include "cuda/fake_cudnn/descriptors.h"

#include <algorithm>

namespace fake_cudnn {
namespace {

struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  bool required = true;
  int64_t most = 1;
};

constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr auto kPointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
constexpr auto kAttention = CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR;
constexpr auto kAttentionGrad = CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR;
constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;

// Scales are float or double: the type of the rule is the one of float32.
constexpr Rule kRules[] = {
    {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
    {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, false},
    {kTensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, false},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, true, CUDNN_DIM_MAX},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kDescriptor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kDescriptor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kDescriptor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kDescriptor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kDescriptor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kDescriptor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kDescriptor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kDescriptor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kDescriptor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kDescriptor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kDescriptor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kDescriptor},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, false},
    {kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kDescriptor},
    {kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kDescriptor},
    {kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kDescriptor, false},
    {kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kDescriptor, false},
    {kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kDescriptor},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, kDescriptor},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, kDescriptor},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, kDescriptor},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, kDescriptor},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, kDescriptor, false},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, kDescriptor, false},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, kDescriptor, false},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, CUDNN_TYPE_INT64, false},
    {kAttention, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, CUDNN_TYPE_INT64, false},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, kDescriptor, false},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, kDescriptor},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, kDescriptor, false},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, CUDNN_TYPE_INT64, false},
    {kAttentionGrad, CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID, CUDNN_TYPE_INT64, false},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, false},  // graphs within operations have none
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, true, 8},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, true, 64},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, true, 64},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR},
};

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR: return sizeof(void*);
    default: return 4;  // enumerations, float
  }
}

bool is_scale(cudnnBackendAttributeName_t name) {
  switch (name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA: return true;
    default: return false;
  }
}

bool at_least(const std::vector<int64_t>& values, int64_t least) {
  return std::all_of(values.begin(), values.end(), [least](int64_t v) { return v >= least; });
}

bool is_tensor(const Descriptor& d) {
  const auto sizes = sizes_of(d), strides = d.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const size_t element = fake_cudnn::size_of(d.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
  const auto alignment = d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  return sizes.size() == strides.size() && at_least(sizes, 1) && at_least(strides, 1) && element != 0 &&
         alignment > 0 && alignment % static_cast<int64_t>(element) == 0;
}

bool describes_convolution(const Descriptor& d) {
  const auto dims = static_cast<size_t>(d.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  const auto lists = [&](cudnnBackendAttributeName_t name, int64_t least) {
    const auto values = d.values<int64_t>(name);
    return values.size() == dims && at_least(values, least);
  };
  return dims >= 2 && lists(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) && lists(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1) &&
         lists(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0) && lists(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
}

bool is_convolution(const Descriptor& d) {
  const Convolution c(d);
  for (const Descriptor* tensor : {c.x, c.w, c.y}) {
    if (tensor->type != kTensor) return false;
  }
  if (c.how->type != kConvolution) return false;
  const auto x = sizes_of(*c.x), w = sizes_of(*c.w), y = sizes_of(*c.y);
  const auto step = c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             dilation = c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
             before = c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             after = c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  if (x.size() != step.size() + 2 || w.size() != x.size() || y.size() != x.size()) return false;
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0) return false;
  for (size_t i = 0; i < step.size(); ++i) {
    const int64_t room = x[i + 2] + before[i] + after[i] - (w[i + 2] - 1) * dilation[i] - 1;
    if (room < 0 || y[i + 2] != room / step[i] + 1) return false;
  }
  return true;
}

int operands_of(cudnnPointwiseMode_t mode) {  // 0: not known here
  switch (mode) {
    case CUDNN_POINTWISE_RELU_FWD:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return 0;
  }
}

bool is_pointwise(const Descriptor& d) {
  const auto y = sizes_of(d.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  const Descriptor& how = d.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (how.type != CUDNN_BACKEND_POINTWISE_DESCRIPTOR) return false;
  const auto mode = how.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const int operands = operands_of(mode);
  if (operands == 0 || (operands > 1) != d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) ||
      (operands > 2) != d.has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC) ||
      (mode == CUDNN_POINTWISE_GEN_INDEX) != how.has(CUDNN_ATTR_POINTWISE_AXIS))
    return false;
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                          CUDNN_ATTR_OPERATION_POINTWISE_TDESC}) {
    if (!d.has(name)) continue;
    const auto from = sizes_of(d.at(name));
    if (from.size() != y.size()) return false;
    for (size_t i = 0; i < y.size(); ++i) {
      if (from[i] != y[i] && from[i] != 1) return false;
    }
  }
  return true;
}

// The real library divides by zero where operands may begin elsewhere than at multiples of 16 bytes.
bool is_attention(const Descriptor& d) {
  const Attention a(d);
  const auto q = sizes_of(*a.q), k = sizes_of(*a.k), v = sizes_of(*a.v);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return false;
  if (k[0] != q[0] || k[3] != q[3] || q[1] % k[1] != 0 || v != std::vector{k[0], k[1], k[2], v[3]}) return false;
  const std::vector<int64_t> o{q[0], q[1], q[2], v[3]}, stats{q[0], q[1], q[2], 1};
  if (sizes_of(*a.o) != o || (a.stats != nullptr && sizes_of(*a.stats) != stats)) return false;
  if (a.backward && (sizes_of(*a.d_o) != o || sizes_of(*a.d_q) != q || sizes_of(*a.d_k) != k || sizes_of(*a.d_v) != v))
    return false;
  for (const Descriptor* tensor : {a.q, a.k, a.v, a.o, a.d_o, a.d_q, a.d_k, a.d_v}) {
    if (tensor == nullptr) continue;
    const auto type = tensor->value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16) return false;
    if (tensor->value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) % 16 != 0) return false;
    const auto strides = tensor->values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    if (strides[3] != 1 || sizes_of(*tensor)[3] % 8 != 0) return false;
    for (size_t i = 0; i < 3; ++i) {
      if (strides[i] % 8 != 0) return false;
    }
  }
  return a.on_scores == nullptr || (a.on_scores->type == kGraph && a.scores_in != 0 && a.scores_out != 0);
}

bool is_right(const Descriptor& d) {
  switch (d.type) {
    case kTensor: return is_tensor(d);
    case kConvolution: return describes_convolution(d);
    case kForward:
    case kData:
    case kFilter: return is_convolution(d);
    case kPointwise: return is_pointwise(d);
    case kAttention:
    case kAttentionGrad: return is_attention(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return d.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).value<void*>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) != nullptr;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return d.value<void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != nullptr &&
             d.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return d.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count ==
             d.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count;
    default: return true;
  }
}

}  // namespace

size_t size_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BOOLEAN: return 1;
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 0;
  }
}

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                                 [&](const Rule& r) { return r.of == descriptor.type && r.name == name; });
  if (descriptor.finalised || rule == std::end(kRules)) return CUDNN_STATUS_BAD_PARAM;
  const bool double_scale = is_scale(name) && type == CUDNN_TYPE_DOUBLE;
  if (type != rule->type && !double_scale) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
  if (count < 1 || count > rule->most) return CUDNN_STATUS_BAD_PARAM;
  if (values == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  Attribute attribute;
  attribute.count = count;
  if (type == kDescriptor) {
    const auto* given = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      if (given[i] == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
      const DescriptorPtr& part = handle_of(given[i]).descriptor;
      if (!part->finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      attribute.descriptors.push_back(part);
    }
  } else {
    const auto* bytes = static_cast<const std::byte*>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * size_of(type));
  }
  descriptor.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalise(Descriptor& descriptor) {
  if (descriptor.finalised) return CUDNN_STATUS_BAD_PARAM;
  bool known = false;
  for (const Rule& rule : kRules) {
    if (rule.of != descriptor.type) continue;
    known = true;
    if (rule.required && !descriptor.has(rule.name)) return CUDNN_STATUS_BAD_PARAM;
  }
  if (!known || !is_right(descriptor)) return CUDNN_STATUS_BAD_PARAM;
  descriptor.finalised = true;
  return CUDNN_STATUS_SUCCESS;
}

Convolution::Convolution(const Descriptor& o) {
  switch (o.type) {
    case kForward:
      how = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
      x = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
      w = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
      result = y = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
      break;
    case kData:
      how = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
      result = x = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
      w = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
      y = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
      break;
    case kFilter:
      how = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
      x = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
      result = w = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
      y = &o.at(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
      break;
    default: return;
  }
  is = true;
}

Attention::Attention(const Descriptor& d) {
  is = d.type == kAttention || d.type == kAttentionGrad;
  backward = d.type == kAttentionGrad;
  const auto get = [&](cudnnBackendAttributeName_t forward_name, cudnnBackendAttributeName_t backward_name) {
    const auto name = backward ? backward_name : forward_name;
    return d.has(name) ? &d.at(name) : nullptr;
  };
  if (!is) return;
  q = get(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC);
  k = get(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC);
  v = get(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC);
  o = get(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC);
  stats = get(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC);
  scale = get(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC);
  on_scores = get(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH);
  scores_in = d.value<int64_t>(backward ? CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID
                                        : CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID);
  scores_out = d.value<int64_t>(backward ? CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID
                                         : CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID);
  if (!backward) return;
  d_o = &d.at(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC);
  d_q = &d.at(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC);
  d_k = &d.at(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC);
  d_v = &d.at(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC);
}

}  // namespace fake_cudnn
