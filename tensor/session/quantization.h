#pragma once
// Captured graphs computing with 8-bit integers: which calls can, what is observed of them to choose scales, and the
// graph with quantize and dequantize around them. The pass fuse_quantized makes kernels of these.
#include <map>
#include <string>
#include <vector>

#include "tensor/trace.h"

namespace sluice {

class EagerExecutor;

// A float32 convolution or product by a weight that is a variable which no step changes.
struct QuantizableCall {
  int node = 0;
  std::string op, module;
  std::string weight;  // the variable
  int64_t axis = 0;    // of its output channels
  // The value that is quantized with fixed scales: the operand, or the one that it is a view or the maximums of.
  graph::ValueId source = graph::kNoValue;
};
std::vector<QuantizableCall> quantizable_calls(const graph::Graph& graph);

// The graph with these values as its only results, "observed.0" and so on; no step changes a variable.
CapturedGraph observing(const CapturedGraph& captured, const std::vector<graph::ValueId>& values);

struct Quantization {
  struct Weight {
    Tensor integers, scale;  // int8, float32
  };
  struct Scale {
    Tensor scale, zero_point;  // float32, int32, (1,) each, of uint8
  };
  std::vector<int> nodes;                   // of quantizable_calls()
  std::map<std::string, Weight> weights;    // of all of them, by variable
  std::map<graph::ValueId, Scale> sources;  // of those whose scales are fixed; the others' follow from each call
};
// A value that is quantized with fixed scales is read as such by everybody, except as a result. Variables are
// constants.
CapturedGraph quantized(const CapturedGraph& captured, const Quantization& how);
// The same graph with kernels of integers, as this machine has them, in place of pairs of quantize and dequantize.
CapturedGraph with_int8_kernels(EagerExecutor& eager, const CapturedGraph& captured);

}  // namespace sluice
