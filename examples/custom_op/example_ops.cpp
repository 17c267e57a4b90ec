// Two ops in a library of their own: one with a kernel and a gradient, one made of other ops.
#include <sluice/extension.h>

#include <cmath>

using namespace sluice::api;

namespace {

// y = slope * x / (1 + |x|), element by element.
template <class T>
class SoftsignKernel final : public Kernel {
 public:
  SoftsignKernel(int64_t size, double slope) : size_(size), slope_(static_cast<T>(slope)) {}
  void run(const KernelCall& call) const override {
    const T* x = static_cast<const T*>(call.inputs[0]);
    T* y = static_cast<T*>(call.outputs[0]);
    for (int64_t i = 0; i < size_; ++i) y[i] = slope_ * x[i] / (T(1) + std::abs(x[i]));
  }

 private:
  int64_t size_;
  T slope_;
};

class SoftsignKernels final : public KernelFactory {
 public:
  std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
    int64_t size = 1;
    for (const int64_t dim : request.inputs[0].shape) size *= dim;
    const double slope = request.attributes.get<double>("slope");
    if (request.inputs[0].dtype == DType::kFloat64) return std::make_unique<SoftsignKernel<double>>(size, slope);
    return std::make_unique<SoftsignKernel<float>>(size, slope);
  }
};

class ScaledSoftsign final : public Op {
 public:
  std::string name() const override { return "scaled_softsign"; }
  std::string doc() const override { return "slope * x / (1 + |x|) of a float32 or float64 tensor."; }
  std::vector<std::string> inputs() const override { return {"x"}; }
  std::vector<Parameter> parameters() const override { return {{"slope", 1.0}}; }
  std::vector<OperandType> infer(const std::vector<OperandType>& in, const Attributes&) const override {
    if (in[0].dtype != DType::kFloat32 && in[0].dtype != DType::kFloat64)
      throw Error(ErrorKind::kType, "x has another element type; it must be float32 or float64");
    return {in[0]};
  }
  std::shared_ptr<const KernelFactory> kernel() const override { return std::make_shared<SoftsignKernels>(); }

  // dy/dx = slope / (1 + |x|)^2, written with ordinary ops: so it has a gradient itself.
  bool differentiable() const override { return true; }
  std::vector<Symbol> gradient(OpCalls& ops, const GradientRequest& r) const override {
    const Symbol x = r.inputs[0];
    const DType dtype = ops.type(x).dtype;
    const Symbol below = ops.call1("add", {ops.scalar(1, dtype), ops.call1("abs", {x})});
    const Symbol scaled = ops.call1("mul", {r.grad_outputs[0], ops.scalar(r.attributes.get<double>("slope"), dtype)});
    return {ops.call1("div", {scaled, ops.call1("mul", {below, below})})};
  }
  std::vector<OpSample> samples() const override {
    return {{{{{3, 4}}}}, {{{{5}, DType::kFloat32, -3, 3}}, {{"slope", 0.5}}}, {{{{0, 2}}}}};
  }
};

// (a - b)^2: no kernel; it runs, and is differentiated, as the ops it is composed of.
class SquaredDistance final : public Op {
 public:
  std::string name() const override { return "squared_distance"; }
  std::string doc() const override { return "(a - b)^2 of two tensors of one type."; }
  std::vector<std::string> inputs() const override { return {"a", "b"}; }
  std::vector<OperandType> infer(const std::vector<OperandType>& in, const Attributes&) const override {
    if (in[0].dtype != in[1].dtype || in[0].shape != in[1].shape)
      throw Error(ErrorKind::kValue, "a and b differ; they must have one shape and element type");
    return {in[0]};
  }
  bool composed() const override { return true; }
  std::vector<Symbol> compose(OpCalls& ops, const std::vector<Symbol>& in, const Attributes&) const override {
    const Symbol d = ops.call1("sub", {in[0], in[1]});
    return {ops.call1("mul", {d, d})};
  }
  std::vector<OpSample> samples() const override { return {{{{{3, 4}}, {{3, 4}}}}}; }
};

}  // namespace

SLUICE_EXTENSION(extension) {
  extension.describe("example_ops", "1.0");
  extension.add_op(std::make_shared<ScaledSoftsign>());
  extension.add_op(std::make_shared<SquaredDistance>());
}
