#pragma once
// Computes graphs of operations, and proposes engines for them.
#include "cuda/fake_cudnn/descriptors.h"

namespace fake_cudnn {

std::vector<Engine> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode);

// The tensors of a graph that lie in memory or are given by value, and which of them it writes.
struct Operand {
  const Descriptor* tensor = nullptr;
  bool written = false;
  bool by_value() const { return tensor->value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE); }
  int64_t uid() const { return tensor->value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }
  uint64_t bytes() const;  // from the first to the last element
};
std::vector<Operand> operands_of(const Descriptor& graph);

// Computes on memory of the host: where operands lie, by uid.
void compute(const Descriptor& graph, const Engine& engine, const std::map<int64_t, void*>& data);

}  // namespace fake_cudnn
