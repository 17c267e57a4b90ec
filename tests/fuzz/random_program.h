#pragma once
// A random program over tensors: the same calls for a seed, whichever executor runs them.
#include <random>
#include <string>
#include <vector>

#include "tensor/tensor_fixture.h"
#include "tensor/trace.h"

namespace sluice::test {

// The operands that a program reads. Variables may be written.
struct Operands {
  std::vector<Tensor> inputs, variables;
};

class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed);

  static const std::vector<TensorType>& input_types();
  static const std::vector<TensorType>& variable_types();

  // Runs it on the current executor and returns its outputs. `placed`: some ops on host streams and the simulated
  // device, where a trace says where nodes go.
  std::vector<Value> run(const Operands& operands, bool placed);

  size_t length() const { return length_; }

 private:
  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  const Value& any() { return pool_[pool_.size() - 1 - draw(std::min<int>(12, static_cast<int>(pool_.size())))]; }
  Value any_float();  // of float32, finite where `any` gave something that is not
  Value any_bool();
  Value step();
  Value unary();
  Value binary();
  Value compare();
  Value reduce();
  Value rows();
  Value move();
  Value view();
  Value convert();
  Value product();
  void write(const std::vector<Tensor>& variables);

  const unsigned seed_;
  size_t length_;
  std::mt19937 random_;
  std::vector<Value> pool_;
};

}  // namespace sluice::test
