#include "ops/op_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "graph/ops/comparison.h"
#include "runtime/session/engine.h"
#include "tensor/extension.h"

namespace sluice::test {

// Those of the extension SLUICE_TEST_EXTENSION names instead: its own samples drive the same tests.
std::vector<OpParam> all_ops() {
  const char* extension = std::getenv("SLUICE_TEST_EXTENSION");
  return extension == nullptr ? builtin_ops().all() : load_extension(test_eager(), extension);
}

std::vector<OpParam> differentiable_ops() {
  std::vector<OpParam> ops;
  for (OpParam op : all_ops())
    if ((op->grad || op->decompose) && !op->effectful) ops.push_back(op);
  return ops;
}

std::string op_name(const testing::TestParamInfo<OpParam>& info) { return info.param->name; }

namespace {

// Made on first use and ended before main() returns, while the threads' own data is still there.
struct Engines final : testing::Environment {
  void TearDown() override {
    eager.reset();
    engine.reset();
  }
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EagerExecutor> eager;
};
Engines* const engines = static_cast<Engines*>(testing::AddGlobalTestEnvironment(new Engines));

}  // namespace

EagerExecutor& test_eager() {
  if (!engines->engine) {
    engines->engine = std::make_unique<Engine>(EngineOptions{.cores = 2, .watchdog = std::chrono::milliseconds(5000)});
    engines->eager = std::make_unique<EagerExecutor>(*engines->engine);
  }
  return *engines->eager;
}

OpTest::OpTest() : eager(test_eager()), scope(eager) {}

std::vector<double> noise(int64_t n, uint64_t seed, double low, double high) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values) v = low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  return values;
}

int64_t doubles_of(const TensorType& type) { return numel(type.shape) * (is_complex(type.dtype) ? 2 : 1); }

Tensor from_doubles(const TensorType& type, const std::vector<double>& values) {
  if (is_complex(type.dtype))
    return Tensor(Tensor::from_host({DType::kComplex128, type.shape}, values.data())).to(type.dtype);
  const Tensor wide = Tensor::from_host({DType::kFloat64, type.shape}, values.data());
  return wide.to(type.dtype);
}

std::vector<double> to_doubles(const Value& value) {
  const Tensor wide = Tensor(value).detach().to(is_complex(value.dtype()) ? DType::kComplex128 : DType::kFloat64);
  std::vector<double> values(static_cast<size_t>(doubles_of(wide.type())));
  wide.copy_to_host(values.data());
  return values;
}

std::vector<char> to_bytes(const Value& value) {
  std::vector<char> bytes(checked_bytes(value.shape(), dtype_size(value.dtype())));
  Tensor(value).copy_to_host(bytes.data());
  return bytes;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 0x1p-7;
    case DType::kFloat16: return 0x1p-10;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat64: return 0x1p-52;
    default: return 0;
  }
}

Drawn draw(const OpDef& op, size_t index, const Floats& floats) {
  const Sample& sample = op.samples[index];
  Drawn drawn{&op, validate_attrs(op, sample.attrs), {}, "sample " + std::to_string(index) + ":"};
  const SampleInput* first = nullptr;
  uint64_t seed = 1000 * index;
  for (const SampleInput& input : sample.inputs) {
    ++seed;
    if (input.absent) {
      drawn.inputs.emplace_back();
      drawn.label += " none";
      continue;
    }
    std::vector<double> values = noise(doubles_of({input.dtype, input.shape}), seed, input.low, input.high);
    if (input.dtype == DType::kBool)
      for (double& v : values) v = v < (input.low + input.high) / 2 ? 0 : 1;
    else if (!is_differentiable(input.dtype))
      for (double& v : values) v = std::floor(v);
    bool replaced = input.dtype == DType::kFloat32;
    if (replaced && !first) first = &input;
    if (replaced && floats.like_first_only) replaced = input.shape == first->shape;
    const DType dtype = replaced ? floats.as.value_or(input.dtype) : input.dtype;
    const Tensor tensor = from_doubles({replaced ? floats.rounded_to.value_or(dtype) : dtype, input.shape}, values);
    drawn.inputs.push_back(tensor.to(dtype));
    drawn.label += " " + drawn.inputs.back().type().str();
  }
  for (const Attr& attr : drawn.attrs) drawn.label += " " + attr_str(attr);
  return drawn;
}

std::vector<TensorType> inferred(const Drawn& drawn) {
  std::vector<TensorType> types;
  const size_t n = std::max(drawn.op->inputs.size(), drawn.inputs.size());
  const std::unique_ptr<bool[]> present(new bool[n]());
  for (size_t i = 0; i < drawn.inputs.size(); ++i) {
    present[i] = drawn.inputs[i].defined();
    types.push_back(present[i] ? drawn.inputs[i].type() : TensorType{});
  }
  if (!drawn.op->variadic()) types.resize(drawn.op->inputs.size());
  return infer_types(*drawn.op, types, {present.get(), types.size()}, drawn.attrs);
}

std::vector<Value> Drawn::run() const { return run(inputs); }
std::vector<Value> Drawn::run(const std::vector<Value>& other_inputs) const { return call(*op, other_inputs, attrs); }

void expect_same(const std::vector<Value>& a, const std::vector<Value>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].type().str(), b[i].type().str()) << what << ", output " << i;
    if (to_bytes(a[i]) == to_bytes(b[i])) continue;
    const auto x = to_doubles(a[i]), y = to_doubles(b[i]);
    for (size_t k = 0; k < x.size(); ++k)
      EXPECT_TRUE(x[k] == y[k] || (std::isnan(x[k]) && std::isnan(y[k])))
          << what << ", output " << i << ", element " << k << ": " << x[k] << " and " << y[k];
  }
}

void expect_close(const std::vector<Value>& a, const std::vector<Value>& b, DType dtype, double factor,
                  const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape().str(), b[i].shape().str()) << what << ", output " << i;
    const auto x = to_doubles(a[i]), y = to_doubles(b[i]);
    double largest = 0;
    for (double v : y)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    const double unit = is_differentiable(a[i].dtype()) ? std::max(epsilon(dtype), epsilon(a[i].dtype())) : 0;
    for (size_t k = 0; k < x.size(); ++k) {
      if (x[k] == y[k] || (std::isnan(x[k]) && std::isnan(y[k]))) continue;
      ASSERT_LE(std::abs(x[k] - y[k]), factor * unit * (std::abs(y[k]) + 0.25 * largest))
          << what << ", output " << i << ", element " << k << ": " << x[k] << " and " << y[k];
    }
  }
}

}  // namespace sluice::test
