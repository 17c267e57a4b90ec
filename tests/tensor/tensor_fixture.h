#pragma once
// An engine and an eager executor for tests of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "graph/executor.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"
#include "tensor/tensor.h"

namespace sluice::test {

class TensorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine = std::make_unique<Engine>(EngineOptions{.cores = 2, .watchdog = std::chrono::milliseconds(5000)});
    executor = std::make_unique<EagerExecutor>(*engine);
  }
  static void TearDownTestSuite() {
    executor.reset();
    engine.reset();
  }
  static inline std::unique_ptr<Engine> engine;
  static inline std::unique_ptr<EagerExecutor> executor;
  EagerExecutor& eager = *executor;
  ExecutorScope scope{eager};
};

inline Tensor tensor(const Shape& shape, const std::vector<float>& values, bool requires_grad = false) {
  Tensor t = Tensor::from_host({DType::kFloat32, shape}, values.data());
  if (requires_grad) t.set_requires_grad(true);
  return t;
}
inline Tensor vec(const std::vector<float>& values, bool requires_grad = false) {
  return tensor({static_cast<int64_t>(values.size())}, values, requires_grad);
}
inline std::vector<float> values(const Value& value) {
  std::vector<float> out(static_cast<size_t>(numel(value.shape())));
  Tensor(value).detach().to(DType::kFloat32).copy_to_host(out.data());
  return out;
}
inline std::vector<float> grad_of(const Tensor& t) { return values(t.grad()); }
inline void backward_from(const Value& loss, BackwardOptions options = {}) { backward({&loss, 1}, {}, options); }

// The text of the Error that `f` throws; "" when it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace sluice::test
