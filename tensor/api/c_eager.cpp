// The bodies of include/sluice/sluice_eager.h, on top of the C++ ones.
#include "graph/text_attr.h"
#include "include/sluice/eager.h"
#include "include/sluice/sluice_eager.h"
#include "runtime/api/c_support.h"
#include "runtime/extension.h"

namespace api = sluice::api;
using namespace sluice::c_api;

namespace {

struct EagerObject {
  std::shared_ptr<api::Engine> engine;  // outlives it
  api::Eager eager;
};
struct DeviceTensorObject {
  std::shared_ptr<api::Engine> engine;  // outlives it
  api::DeviceTensor tensor;
  std::vector<int64_t> shape{tensor.shape()};
  std::string device{tensor.device()};
};

sluice_device_tensor* add(const std::shared_ptr<api::Engine>& engine, api::DeviceTensor tensor) {
  return handles().add<sluice_device_tensor>(
      std::make_shared<DeviceTensorObject>(DeviceTensorObject{engine, std::move(tensor)}));
}

std::string device_or_cpu(const char* device) { return device != nullptr ? device : "cpu"; }

// "dim = [1], keepdim = true", as graphs have them between braces.
api::Attributes::Items attributes_of(const char* text) {
  api::Attributes::Items items;
  if (text == nullptr || *text == '\0') return items;
  const std::string in_braces = std::string(text) + "}";
  sluice::graph::TextCursor cursor(in_braces, "attributes");
  for (const auto& [name, value] : sluice::graph::read_attributes(cursor))
    items.emplace_back(name, sluice::to_api(value));
  cursor.expect_end("the attributes");
  return items;
}

}  // namespace

sluice_status* sluice_eager_create(sluice_engine* engine, sluice_eager** eager) {
  return guarded([&] {
    const char* where = "sluice_eager_create";
    check_pointer(eager, where, "eager");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    *eager = handles().add<sluice_eager>(std::make_shared<EagerObject>(EagerObject{owner, api::Eager(*owner)}));
  });
}
void sluice_eager_destroy(sluice_eager* eager) { handles().remove(eager); }

sluice_status* sluice_eager_zeros(sluice_eager* eager, sluice_dtype dtype, const int64_t* shape, int rank,
                                  const char* device, sluice_device_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_eager_zeros";
    check_pointer(tensor, where, "tensor");
    const auto object = get<EagerObject>(eager, where, "an eager");
    *tensor = add(object->engine,
                  object->eager.zeros(dtype_of(dtype, where), shape_of(shape, rank, where), device_or_cpu(device)));
  });
}

sluice_status* sluice_eager_from_data(sluice_eager* eager, sluice_dtype dtype, const int64_t* shape, int rank,
                                      const void* data, size_t bytes, const char* device,
                                      sluice_device_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_eager_from_data";
    check_pointer(tensor, where, "tensor");
    const auto object = get<EagerObject>(eager, where, "an eager");
    *tensor = add(object->engine, object->eager.from_buffer(dtype_of(dtype, where), shape_of(shape, rank, where), data,
                                                            bytes, device_or_cpu(device)));
  });
}

sluice_status* sluice_eager_from_tensor(sluice_eager* eager, const sluice_tensor* host, const char* device,
                                        sluice_device_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_eager_from_tensor";
    check_pointer(tensor, where, "tensor");
    const auto object = get<EagerObject>(eager, where, "an eager");
    *tensor =
        add(object->engine, object->eager.from(*get<api::Tensor>(host, where, "a tensor"), device_or_cpu(device)));
  });
}

sluice_status* sluice_eager_call(sluice_eager* eager, const char* op, sluice_device_tensor* const* inputs,
                                 size_t num_inputs, const char* attributes, sluice_device_tensor** outputs,
                                 size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_eager_call";
    check_pointer(op, where, "op");
    const auto object = get<EagerObject>(eager, where, "an eager");
    if (num_inputs > 0) check_pointer(inputs, where, "inputs");
    std::vector<api::DeviceTensor> given;
    for (size_t i = 0; i < num_inputs; ++i)
      given.push_back(inputs[i] == nullptr ? api::DeviceTensor()
                                           : get<DeviceTensorObject>(inputs[i], where, "an input tensor")->tensor);
    const std::vector<api::DeviceTensor> results = num_inputs == 0 ? object->eager.call(op, attributes_of(attributes))
                                                                   : api::call(op, given, attributes_of(attributes));
    if (results.size() != num_outputs)
      fail(ErrorKind::kValue, std::string(where) + ": room for " + std::to_string(num_outputs) + " outputs; " + op +
                                  " has " + std::to_string(results.size()));
    if (num_outputs > 0) check_pointer(outputs, where, "outputs");
    for (size_t i = 0; i < num_outputs; ++i) outputs[i] = add(object->engine, results[i]);
  });
}

sluice_status* sluice_device_tensor_to(const sluice_device_tensor* tensor, const char* device,
                                       sluice_device_tensor** moved) {
  return guarded([&] {
    const char* where = "sluice_device_tensor_to";
    check_pointer(moved, where, "moved");
    const auto object = get<DeviceTensorObject>(tensor, where, "a device tensor");
    *moved = add(object->engine, object->tensor.to(check_pointer(device, where, "device")));
  });
}

sluice_status* sluice_device_tensor_host(const sluice_device_tensor* tensor, sluice_tensor** host) {
  return guarded([&] {
    const char* where = "sluice_device_tensor_host";
    check_pointer(host, where, "host");
    *host = add_tensor(get<DeviceTensorObject>(tensor, where, "a device tensor")->tensor.host());
  });
}

sluice_dtype sluice_device_tensor_dtype(const sluice_device_tensor* tensor) {
  return answered(SLUICE_BOOL,
                  [&] { return static_cast<sluice_dtype>(get<DeviceTensorObject>(tensor, "", "")->tensor.dtype()); });
}
int sluice_device_tensor_rank(const sluice_device_tensor* tensor) {
  return answered(0, [&] { return static_cast<int>(get<DeviceTensorObject>(tensor, "", "")->shape.size()); });
}
const int64_t* sluice_device_tensor_shape(const sluice_device_tensor* tensor) {
  return answered<const int64_t*>(nullptr, [&] { return get<DeviceTensorObject>(tensor, "", "")->shape.data(); });
}
const char* sluice_device_tensor_device(const sluice_device_tensor* tensor) {
  return answered<const char*>("", [&] { return get<DeviceTensorObject>(tensor, "", "")->device.c_str(); });
}
void sluice_device_tensor_destroy(sluice_device_tensor* tensor) { handles().remove(tensor); }
