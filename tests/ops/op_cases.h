#pragma once
// Helpers that the generated op tests share: an engine, inputs drawn from samples, comparisons.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/executor.h"
#include "graph/op_def.h"
#include "tensor/eager.h"
#include "tensor/tensor.h"

namespace sluice::test {

// One op; a test goes through all its samples.
using OpParam = const OpDef*;
std::vector<OpParam> all_ops();
std::vector<OpParam> differentiable_ops();
std::string op_name(const testing::TestParamInfo<OpParam>& info);

// Runs eagerly on an engine shared by the program's tests.
class OpTest : public testing::TestWithParam<OpParam> {
 protected:
  OpTest();
  const OpDef& op() const { return *GetParam(); }
  EagerExecutor& eager;
  ExecutorScope scope;
};
EagerExecutor& test_eager();

struct Drawn {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs;  // undefined where absent
  std::string label;          // "sample 2: float32(3, 4), ..."

  std::vector<Value> run() const;
  std::vector<Value> run(const std::vector<Value>& other_inputs) const;
};
// Which float32 inputs of a sample to draw in another dtype, and what their values are rounded to first.
struct Floats {
  std::optional<DType> as, rounded_to;
  bool like_first_only = false;  // only those shaped as the first one: the others are statistics, rates...
};
// The inputs of sample `index`, the same in every call.
Drawn draw(const OpDef& op, size_t index, const Floats& floats = {});
// Types of the outputs. Throws the op's error.
std::vector<TensorType> inferred(const Drawn& drawn);

// A complex number is two doubles, its parts.
int64_t doubles_of(const TensorType& type);
// Values in [low, high), a function of `seed` alone.
std::vector<double> noise(int64_t n, uint64_t seed, double low = -1, double high = 1);
Tensor from_doubles(const TensorType& type, const std::vector<double>& values);
std::vector<double> to_doubles(const Value& value);
std::vector<char> to_bytes(const Value& value);
double dot(const std::vector<double>& a, const std::vector<double>& b);
double epsilon(DType dtype);  // spacing at 1; 0 for integers

// Equal types and bits.
void expect_same(const std::vector<Value>& a, const std::vector<Value>& b, const std::string& what);
// Equal shapes; each element within `factor` roundings of `dtype`, relative to it and to the largest one.
void expect_close(const std::vector<Value>& a, const std::vector<Value>& b, DType dtype, double factor,
                  const std::string& what);

}  // namespace sluice::test
