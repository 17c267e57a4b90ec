// include/sluice/sluice_server.h: requests and responses.
#include <cstdint>

#include "serving/core/buffers.h"
#include "serving/library/c_support.h"

using namespace sluice::serving::c;

namespace {

// Calls `function` with the request, which no other call changes meanwhile.
template <class Function>
sluice_server_error* change(sluice_server_request* request, const char* where, const Function& function) {
  return guarded([&] {
    const auto object = get<RequestObject>(request, where, "request");
    const std::lock_guard lock(object->mutex);
    function(object->request);
  });
}

sluice_server_error* set_parameter(sluice_server_request* request, const char* where, const char* parameter,
                                   const facade::Parameter& value) {
  return change(request, where,
                [&](facade::Request& r) { r.parameters[given(parameter, where, "parameter")] = value; });
}

std::vector<int64_t> shape_of(const int64_t* shape, int rank, const char* where) {
  if (rank < 0 || rank > 64) fail(std::string(where) + ": rank: " + std::to_string(rank) + "; it must be 0 to 64");
  if (rank > 0) given(shape, where, "shape");
  return rank == 0 ? std::vector<int64_t>() : std::vector<int64_t>(shape, shape + rank);
}

template <class R, class Function>
R of_response(const sluice_server_response* response, R otherwise, const Function& function) {
  return answered(otherwise, [&]() -> R { return function(*get<facade::Response>(response, "", "response")); });
}

}  // namespace

sluice_server_error* sluice_server_request_create(const char* model, const char* version,
                                                  sluice_server_request** request) {
  return guarded([&] {
    const char* where = "sluice_server_request_create";
    given(request, where, "request");
    const auto object = std::make_shared<RequestObject>();
    object->request.model = given(model, where, "model");
    object->request.version = text_of(version);
    *request = handles().add<sluice_server_request>(object);
  });
}
void sluice_server_request_destroy(sluice_server_request* request) { handles().remove<RequestObject>(request); }

sluice_server_error* sluice_server_request_set_id(sluice_server_request* request, const char* id) {
  return change(request, "sluice_server_request_set_id", [&](facade::Request& r) { r.id = text_of(id); });
}
sluice_server_error* sluice_server_request_set_bool(sluice_server_request* request, const char* parameter, int value) {
  return set_parameter(request, "sluice_server_request_set_bool", parameter, value != 0);
}
sluice_server_error* sluice_server_request_set_int64(sluice_server_request* request, const char* parameter,
                                                     int64_t value) {
  return set_parameter(request, "sluice_server_request_set_int64", parameter, value);
}
sluice_server_error* sluice_server_request_set_string(sluice_server_request* request, const char* parameter,
                                                      const char* value) {
  return set_parameter(request, "sluice_server_request_set_string", parameter, text_of(value));
}

sluice_server_error* sluice_server_request_add_input(sluice_server_request* request, const char* name,
                                                     const char* datatype, const int64_t* shape, int rank,
                                                     const void* data, size_t bytes) {
  const char* where = "sluice_server_request_add_input";
  return change(request, where, [&](facade::Request& r) {
    static sluice::serving::BufferPool buffers(size_t{64} << 20u);
    facade::Tensor tensor;
    tensor.name = given(name, where, "name");
    tensor.datatype = given(datatype, where, "datatype");
    tensor.shape = shape_of(shape, rank, where);
    tensor.bytes = bytes;
    if (bytes > 0) given(data, where, "data");
    tensor.data = buffers.take(bytes);
    if (bytes > 0) std::memcpy(tensor.data.get(), data, bytes);
    r.inputs.push_back(std::move(tensor));
  });
}

sluice_server_error* sluice_server_request_add_output(sluice_server_request* request, const char* name,
                                                      uint32_t classes) {
  const char* where = "sluice_server_request_add_output";
  return change(request, where, [&](facade::Request& r) {
    r.outputs.push_back({given(name, where, "name"), classes});
  });
}

sluice_server_error* sluice_server_response_error(const sluice_server_response* response) {
  const auto object = handles().find<facade::Response>(response);
  if (object == nullptr)
    return make_error(
        ErrorObject{SLUICE_SERVER_INVALID_ARGUMENT, "sluice_server_response_error: not a live response", -1});
  return object->error ? make_error(*object->error) : nullptr;
}
const char* sluice_server_response_model(const sluice_server_response* response) {
  return of_response(response, "", [](const facade::Response& r) { return r.model.c_str(); });
}
const char* sluice_server_response_version(const sluice_server_response* response) {
  return of_response(response, "", [](const facade::Response& r) { return r.version.c_str(); });
}
const char* sluice_server_response_id(const sluice_server_response* response) {
  return of_response(response, "", [](const facade::Response& r) { return r.id.c_str(); });
}
size_t sluice_server_response_num_outputs(const sluice_server_response* response) {
  return of_response(response, size_t{0}, [](const facade::Response& r) { return r.outputs.size(); });
}

sluice_server_error* sluice_server_response_output(const sluice_server_response* response, size_t index,
                                                   sluice_server_output* output) {
  return guarded([&] {
    const char* where = "sluice_server_response_output";
    const auto object = get<facade::Response>(response, where, "response");
    const size_t size = given(output, where, "output")->size;
    if (size < sizeof(sluice_server_output))
      fail(std::string(where) + ": output: a size of " + std::to_string(size) +
           "; begin with SLUICE_SERVER_OUTPUT_INIT");
    if (index >= object->outputs.size())
      fail(std::string(where) + ": index: " + std::to_string(index) + "; there are " +
           std::to_string(object->outputs.size()) + " outputs");
    const facade::Tensor& tensor = object->outputs[index];
    *output = {size,
               tensor.name.c_str(),
               tensor.datatype.c_str(),
               tensor.shape.data(),
               static_cast<int32_t>(tensor.shape.size()),
               tensor.data.get(),
               tensor.bytes};
  });
}
void sluice_server_response_destroy(sluice_server_response* response) { handles().remove<facade::Response>(response); }
