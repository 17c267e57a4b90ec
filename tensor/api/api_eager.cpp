// The bodies of include/sluice/eager.h.
#include "graph/executor.h"
#include "include/sluice/eager.h"
#include "runtime/api/api_support.h"
#include "runtime/extension.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"
#include "tensor/extension.h"

namespace sluice::api {

struct Eager::Impl {
  explicit Impl(sluice::Engine& engine) : executor(engine) {}
  mutable EagerExecutor executor;
};

struct DeviceTensor::Impl {
  std::shared_ptr<const Eager::Impl> eager;
  Value value;
};

namespace {

constexpr const char* kTensorSource = "Eager or call()";

// Without history: what is computed here is not differentiated.
template <class F>
auto computing(EagerExecutor& executor, F&& f) {
  return guarded([&] {
    const ExecutorScope scope(executor);
    return f();
  });
}

}  // namespace

Eager::Eager(Engine& engine) : impl_(guarded([&] { return std::make_shared<const Impl>(inside(engine)); })) {}

DeviceTensor Eager::zeros(DType dtype, const std::vector<int64_t>& shape, const std::string& device) const {
  return computing(impl_->executor, [&] {
    const CreationScope there(parse_device(device));
    DeviceTensor made;
    made.impl_ = std::make_shared<const DeviceTensor::Impl>(
        DeviceTensor::Impl{impl_, sluice::Tensor::zeros({checked_dtype(dtype), Shape(shape)})});
    return made;
  });
}

DeviceTensor Eager::from_buffer(DType dtype, const std::vector<int64_t>& shape, const void* data, size_t bytes,
                                const std::string& device) const {
  return computing(impl_->executor, [&] {
    const TensorType type{checked_dtype(dtype), Shape(shape)};
    const uint64_t needed = checked_bytes(type.shape, dtype_size(dtype));
    SLUICE_CHECK(bytes == needed && (data != nullptr || bytes == 0), "tensor: {} bytes of values; {} needs {}",
                 data != nullptr ? bytes : 0, type.str(), needed);
    DeviceTensor made;
    made.impl_ = std::make_shared<const DeviceTensor::Impl>(
        DeviceTensor::Impl{impl_, sluice::Tensor::from_host(type, data).to(parse_device(device))});
    return made;
  });
}

DeviceTensor Eager::from(const Tensor& tensor, const std::string& device) const {
  guarded([&] { type_of_whole("from", tensor); });
  return from_buffer(tensor.dtype(), tensor.shape(), tensor.raw(), tensor.bytes(), device);
}

namespace {

std::vector<Value> call_op(EagerExecutor& executor, const std::string& op, std::span<const Value> inputs,
                           const Attributes::Items& attributes) {
  const OpDef& def = executor.ops().get(op);
  return sluice::call(def, inputs, order_attrs(def, named_attrs(attributes)));
}

}  // namespace

std::vector<DeviceTensor> Eager::call(const std::string& op, const Attributes::Items& attributes) const {
  return computing(impl_->executor, [&] {
    std::vector<DeviceTensor> results;
    for (Value& value : call_op(impl_->executor, op, {}, attributes))
      results.emplace_back().impl_ =
          std::make_shared<const DeviceTensor::Impl>(DeviceTensor::Impl{impl_, std::move(value)});
    return results;
  });
}

std::vector<DeviceTensor> call(const std::string& op, const std::vector<DeviceTensor>& inputs,
                               const Attributes::Items& attributes) {
  const auto& eager = guarded([&] {
    for (const DeviceTensor& input : inputs)
      if (input.impl_ != nullptr) return input.impl_->eager;
    fail(sluice::ErrorKind::kValue, "{}: no input; Eager::call() calls ops without any", op);
  });
  return computing(eager->executor, [&] {
    std::vector<Value> values;
    for (const DeviceTensor& input : inputs) values.push_back(input.impl_ != nullptr ? input.impl_->value : Value());
    std::vector<DeviceTensor> results;
    for (Value& value : call_op(eager->executor, op, values, attributes))
      results.emplace_back().impl_ =
          std::make_shared<const DeviceTensor::Impl>(DeviceTensor::Impl{eager, std::move(value)});
    return results;
  });
}

DType DeviceTensor::dtype() const {
  return guarded([&] { return static_cast<DType>(held(impl_, "tensor", kTensorSource).value.type().dtype); });
}
std::vector<int64_t> DeviceTensor::shape() const {
  return guarded([&] { return held(impl_, "tensor", kTensorSource).value.type().shape.vec(); });
}
std::string DeviceTensor::device() const {
  return guarded([&] { return held(impl_, "tensor", kTensorSource).value.device().str(); });
}
std::string DeviceTensor::str() const {
  return guarded([&] {
    const Value& value = held(impl_, "tensor", kTensorSource).value;
    return fmt::format("{} on {}", value.type().str(), value.device().str());
  });
}

DeviceTensor DeviceTensor::to(const std::string& device) const {
  return guarded([&] {
    const Impl& here = held(impl_, "tensor", kTensorSource);
    const ExecutorScope scope(here.eager->executor);
    DeviceTensor made;
    made.impl_ = std::make_shared<const Impl>(Impl{here.eager, sluice::Tensor(here.value).to(parse_device(device))});
    return made;
  });
}

Tensor DeviceTensor::host() const {
  return guarded([&] {
    const Impl& here = held(impl_, "tensor", kTensorSource);
    const ExecutorScope scope(here.eager->executor);
    const TensorType& type = here.value.type();
    Tensor copy(static_cast<DType>(type.dtype), type.shape.vec());
    sluice::Tensor(here.value).copy_to_host(copy.raw());
    return copy;
  });
}

}  // namespace sluice::api
